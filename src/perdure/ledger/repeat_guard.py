"""The repeat guard: an external write is not sent again by accident.

It stops a call if another call of this thread has the same fingerprint and
(a) its outcome is still unknown, on any timeline, in any run, under any id, or it was imported and ended in an error;
    or
(b) it is done but is not in the conversation of the timeline that starts the new call; or
(c) it is done on this timeline, on another backend, or for a call on another backend whose tool ran a child; or
(d) a person has denied a repeat of it in this history, whatever backend asks now; or
(e) it is done in this run, in the run that it continues on a fork or by a child of either, or both calls are made for
    one run above them; and that run has since refused an answer and asked its model for another; or
(f) it became known to be done after this call was requested, which then waited, or after the request of the call whose
    tool ran the child that makes this one; and no person who was told of it has decided about this one; or
(g) it is done, and a person has changed the arguments of this call: its model asked for another.
The guard does not stop other repeats: the model may want them.

Every start of an external write gets a number from the *gate* of its fingerprint, a cell that each start changes.
So if two timelines check at the same time and both may start, one starts and the other's write is refused and it
checks again.  The gate also records up to which number, as seen from which commit, no start was a repeat: the
thousandth equal call on one timeline costs no more than the second.

A call is in the conversation of a timeline if its result is: on the line of first parents, where neither the result nor
the request was taken back, and the arguments were not redacted.  A model sees nothing of what was merged in, taken back
or redacted.  Until the result is committed, or if the record does
not name the message of the result, the request counts instead; but if the call waited between request and start, only
on its own timeline, because another timeline may have been forked off before the call was done.  A result that became
known after the conversation was given another one is in no conversation.  A direct call is in that of a line that has
the commit of its turn with the result.

A call of a child run also passes the guard of the root thread: before it starts, that thread's ledger gets an entry
for it.  The child's own ledger has its outcome.  It is in a conversation of the root thread if that conversation has the
call whose tool ran the child, unless that call, or a run between them, ended without success: then a model may delegate
again and not know.  Until that call is over, only a model that requested both at once knows of it.

Calls imported from elsewhere get a fingerprint too, and that needs the tool: its version, its defaults.  If the tool
is not available during the import, the write leaves a mark under the tool's name.  A run that is about to start a call
to a tool of that name computes the missing fingerprints first and removes the marks.  An import sends nothing, so a
start that happens in between counts as the earlier of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Question
from perdure.errors import Corrupt
from perdure.history import reader
from perdure.history.ancestry import commits_of, present, stands_on, told_in, visible
from perdure.history.space import (
    Space,
    mark_write,
    read_record,
)
from perdure.ledger import calls
from perdure.ledger.calls import VersionedCall
from perdure.model import canonical
from perdure.model.call import SETTLED, TWIN, UNCLEAR, CallRecord
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.event import GuardRefused, MessageAppended
from perdure.model.run import ENDED, RUN, RunRecord
from perdure.model.ticket import Ticket

__all__ = [
    "Case",
    "MayStart",
    "Policy",
    "Repeats",
    "Verdict",
    "allowed",
    "check",
    "denying",
    "doubted",
    "done",
    "rebuilt_gate",
    "seen",
    "starting",
    "starts",
    "BROUGHT",
    "entering",
    "is_told",
    "is_unclear",
    "learning",
    "outcome_of",
    "unlearnt",
]


Policy: TypeAlias = Literal["ask", "allow", "deny"]
Case: TypeAlias = Literal[
    "unclear", "elsewhere", "backend", "denied", "again", "since", "edited"
]  # (a) to (g)

_PAGE = 100


class _GateValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a gate's cell."""

    count: int = 0  # how often a call of this fingerprint was started
    clear: int = (
        0  # of this many first starts, all that were done are in the conversation of `commit`, by `backend`
    )
    commit: Digest | None = None  # None: none of them was done
    backend: str | None = None  # for a call of a child run with that of the call whose tool ran the child
    first: str | None = None  # the call of start number 1; most calls have no other start and need no cell
    denied: str | None = None  # the call that a person denied last, because it would repeat one of these


class Gate(msgspec.Struct, frozen=True):
    """The gate of a fingerprint as it was read.  Every start changes it."""

    fingerprint: str
    revision: int
    mark: _GateValue

    @property
    def count(self) -> int:
        """The number of starts that the guard has checked."""
        return self.mark.count


class MayStart(msgspec.Struct, frozen=True):
    """The call may start, if the gate is still at the revision that was read."""

    gate: Gate | None  # None: the guard does not watch this call


class Repeats(msgspec.Struct, frozen=True):
    """The call would repeat another, or might."""

    earlier: CallRecord
    case: Case
    gate: Gate


Verdict: TypeAlias = MayStart | Repeats

_marks = msgspec.json.Decoder(_GateValue)
_names = msgspec.json.Decoder(str)
_runs = msgspec.json.Decoder(RunRecord)


def check(
    space: Space,
    record: CallRecord,
    *,
    head: Digest | None,
    backend: str | None,
    policy: Policy = "ask",
    seen: int = 0,
    is_decided: bool = False,
    child: Space | None = None,
) -> Verdict:
    """Decide whether the timeline at `head` may start this call, which `backend` requested.

    `seen` is the number of starts that the person saw who allowed the call: only later starts are checked.
    With `is_decided` a person decided about it, and the question told of equal calls that were requested before it.
    `child` is the space of the child run that makes the call; None: this thread makes it.
    """
    if not record.fingerprint or not record.reach.guarded:
        return MayStart(None)
    gate = _gate(space, record.fingerprint)
    if policy == "allow" or not gate.count:
        return MayStart(gate)
    denied = None if seen else _denied(space, gate.mark, head)
    if denied is not None:
        return Repeats(denied, "denied", gate)
    asking = list(_callers(child or space, record, space))
    model = asking[-1][1]
    by = backend if child is None else f"{model.backend} {backend}"  # both models that led to the call
    applies = _applies(space, gate, asking, head, by)
    others = _started(space, gate, after=max(gate.mark.clear if applies else 0, seen))
    if applies and seen <= gate.mark.clear < gate.count:
        # The start after those recorded it.  A refused answer since then may make a repeat of each of them.
        first = next(others)
        applies = not _is_asked_again(
            asking, _made_by(space, _resolved(space, first)), space, head, is_any=True
        )
        others = chain((first,), others) if applies else _started(space, gate, after=seen)
    known = gate.mark.clear if applies else 0
    any_done, is_final = applies and gate.mark.commit is not None, seen <= known
    for other in others:
        if other.id == record.id or other.fingerprint != record.fingerprint:
            continue
        found = own, place, _, _ = _resolved(space, other)
        case = _case(space, found, record.timeline, head, backend, model.backend)
        if case is None and done(own):
            case = _unmeant(space, found, asking, head, is_decided=is_decided)
        if case is not None:
            return Repeats(own, case, gate)
        if done(own):
            is_final = is_final and _settled_here(space, place) and (place is own or _is_over(place))
            any_done = True
        elif place is not other:
            is_final = False  # a late result in the child's thread does not change this gate
    if not is_final:
        return MayStart(
            gate
        )  # this verdict was allowed by a person, or may change: the gate must not record it
    place = (head, by) if any_done else (None, None)
    mark = _GateValue(gate.count, gate.count, *place, first=gate.mark.first, denied=gate.mark.denied)
    return MayStart(Gate(gate.fingerprint, gate.revision, mark))


def starting(record: CallRecord, verdict: Verdict) -> tuple[CellWrite, ...]:
    """Return the cells that the write of `started` needs for the verdict to hold; after a `Conflict` check again."""
    gate = verdict.gate
    if gate is None:
        return ()
    number = gate.count + 1
    if number == 1:
        return (_gate_write(gate, msgspec.structs.replace(gate.mark, count=1, first=record.id)),)
    mark = msgspec.structs.replace(gate.mark, count=number)
    return (
        _gate_write(gate, mark),
        CellWrite(name=_twin(gate.fingerprint, number), expected=0, value=canonical.encode(record.id)),
    )


def counting(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """Return the cells of the write that makes calls known which were started elsewhere; each counts as a start."""
    written: list[CellWrite] = []
    fingerprints = dict.fromkeys(record.fingerprint for record in records)
    known = space.knowing(*(CellOf(space.name, TWIN + each) for each in fingerprints))
    for fingerprint in fingerprints:
        gate = _gate(known, fingerprint)
        ids = [record.id for record in records if record.fingerprint == fingerprint]
        first = gate.mark.first if gate.count else ids[0]
        mark = msgspec.structs.replace(gate.mark, count=gate.count + len(ids), first=first)
        written.append(_gate_write(gate, mark))
        written += [
            CellWrite(name=_twin(fingerprint, number), expected=0, value=canonical.encode(id))
            for number, id in enumerate(ids, gate.count + 1)
            if number > 1
        ]
    return tuple(written)


def rebuilt_gate(fingerprint: str, started: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the cells of a gate, by name, for these starts in this order; no start counts as checked."""
    mark = _GateValue(count=len(started), first=started[0])
    numbered = enumerate(started[1:], 2)
    return [
        (TWIN + fingerprint, canonical.encode_struct(mark)),
        *((_twin(fingerprint, number), canonical.encode(id)) for number, id in numbered),
    ]


def doubted(space: Space, record: CallRecord) -> tuple[CellWrite, ...]:
    """Return the cells of the write that records that a settled call was done after all."""
    if not record.fingerprint or not record.reach.guarded:
        return ()
    gate = _gate(space, record.fingerprint)
    mark = _GateValue(gate.count, first=gate.mark.first, denied=gate.mark.denied)
    return (_gate_write(gate, mark),) if gate.count else ()


def denying(space: Space, record: CallRecord) -> tuple[CellWrite, ...]:
    """Return the cells of the write by which a person denies a call, because it would repeat another."""
    gate = _gate(space, record.fingerprint) if record.fingerprint else None
    if gate is None or not gate.count:
        return ()
    return (_gate_write(gate, msgspec.structs.replace(gate.mark, denied=record.id)),)


def _denied(space: Space, mark: _GateValue, head: Digest | None) -> CallRecord | None:
    """Return the call whose denial is in the history of `head`; None: there is none."""
    current = None if mark.denied is None else calls.find(space, mark.denied)
    return current.record if current is not None and present(space, current.record.label, head) else None


def seen(record: CallRecord, ticket: Ticket | None, *, in_root: bool = False) -> int:
    """Return how many starts the person saw who allowed this call to repeat them; 0 if it was not allowed.

    `in_root` asks for the starts that the root thread of a child run knows.
    """
    number = allowed(record, ticket).get("root_seen" if in_root else "seen")
    return number if isinstance(number, int) else 0


def allowed(record: CallRecord, ticket: Ticket | None) -> dict[str, Json]:
    """Return what the person was shown who allowed this call to repeat another; empty if it was not allowed."""
    if ticket is None or ticket.action != "repeat" or ticket.id != record.ticket:
        return {}
    approved = ticket.decision is not None and ticket.decision.verdict == "approve"
    if not approved or ticket.fingerprint != record.fingerprint:
        return {}
    shown = canonical.decode((ticket.parameters or "{}").encode())
    return shown if isinstance(shown, dict) else {}


def done(record: CallRecord) -> bool:
    """True if the call is known to have happened."""
    return record.state == "succeeded" or record.outcome == "done" or record.evidence is not None


def is_unclear(record: CallRecord) -> bool:
    """True if a call that was started, here or elsewhere, may have happened."""
    return record.state == "started" or record.state in UNCLEAR or _failed_elsewhere(record)


def outcome_of(space: Space, other: CallRecord) -> CallRecord:
    """Return the outcome of a started call; that of a child run's call is in the ledger of its own thread."""
    return _resolved(space, other).own


class _Resolved(NamedTuple):
    """What became of a started call, and the call that says where it is in the history."""

    own: CallRecord
    place: CallRecord
    # False: a model is told that what led to the call failed, and not that it was done.
    is_reported: bool = True
    # The thread of the child run that made it; None: no child did, or it was removed.
    inside: Space | None = None


def _resolved(space: Space, other: CallRecord) -> _Resolved:
    """Return the outcome of a started call.

    Both records are the call itself, unless a child run made it: then its own thread has the first, and the second is
    the call of this thread whose tool ran the child.
    """
    if other.child_space is None:
        return _Resolved(other, other)
    inside = space.beside(other.child_space, other.child_space)
    found, above = calls.find(inside, other.id), calls.find(space, other.parent_call or "")
    is_known = found is not None and (found.record.state in SETTLED or found.record.state in UNCLEAR)
    # Not started there yet: the entry here was written first, and a process may be about to start it.
    own = found.record if found is not None and is_known else other
    if above is None:
        return _Resolved(own, other)
    place = above.record
    is_reported = not _has_failed(place) and _have_succeeded(inside, own.run, space)
    return _Resolved(own, place, is_reported, inside if found is not None else None)


def _is_over(call: CallRecord) -> bool:
    return call.state in SETTLED or call.state in UNCLEAR


def _has_failed(call: CallRecord) -> bool:
    return _is_over(call) and not done(call)


def _is_edited(asking: Sequence[tuple[Space, CallRecord]]) -> bool:
    call = asking[0][1]
    return call.first_fingerprint not in (None, call.fingerprint)


def _has_waited(asking: Sequence[tuple[Space, CallRecord]]) -> bool:
    """True if the model of this thread may have requested the call before others were done; of a child it always may."""
    return asking[0][1].ticket is not None or len(asking) > 1


def _have_succeeded(inside: Space, run: str | None, root: Space) -> bool:
    """True unless a child run, or one between it and the root thread, ended without success."""
    while run is not None and inside.name != root.name:
        record = _run(inside, run)
        if record is None or record.parent is None:
            return True  # its thread was removed
        if record.state in ENDED and record.state != "succeeded":
            return False
        inside, run = root.beside(record.parent.space, record.parent.thread), record.parent_run
    return True


def _case(
    space: Space,
    found: _Resolved,
    timeline: str,
    head: Digest | None,
    backend: str | None,
    above: str | None,
) -> Case | None:
    """Return what makes the next call a repeat; `backend` requested it, and `above` what led to it in this thread."""
    other = found.own
    if is_unclear(other):
        return "unclear"
    if not done(other):
        return None
    if not found.is_reported or not is_told(space, found.place, timeline, head):
        return "elsewhere"
    # An imported call ran outside this store, so the model that requests the new one may not know of it.
    is_same = (other.backend, found.place.backend) == (backend, above)
    return None if is_same and other.origin != "import" else "backend"


def _unmeant(
    space: Space,
    found: _Resolved,
    asking: Sequence[tuple[Space, CallRecord]],
    head: Digest | None,
    *,
    is_decided: bool,
) -> Case | None:
    """Return why no model meant the next call as a repeat of one that the conversation has; None: one may have."""
    own, place, model = found.own, found.place, asking[-1][1]
    if _is_edited(asking):
        return "edited"
    if _is_asked_again(asking, _made_by(space, found), space, head):
        return "again"
    if not (place is own or _is_over(place)):
        return None if place.label == model.label else "elsewhere"
    return "since" if _has_waited(asking) and not _was_known(space, place, model, is_decided) else None


def _callers(space: Space, record: CallRecord, root: Space) -> Iterator[tuple[Space, CallRecord]]:
    """Yield a call and, if a child run made it, the calls whose tools ran that child, up to the one of `root`."""
    while True:
        yield space, record
        run = _run(space, _run_of(space, record)) if space.name != root.name else None
        if run is None or run.parent is None:
            return
        space = root.beside(run.parent.space, run.parent.thread)
        above = calls.find(space, run.parent.call)
        if above is None:  # its thread was removed
            space, above = root, calls.find(root, run.parent.root_call)
        if above is None:
            return
        record = above.record


def _made_by(space: Space, found: _Resolved) -> list[tuple[Space, CallRecord]]:
    """Return a started call and the calls whose tools ran the child that made it, each with its thread."""
    if found.inside is None:
        return [(space, found.place)]
    return list(_callers(found.inside, found.own, space))


def _is_asked_again(
    asking: Sequence[tuple[Space, CallRecord]],
    made: Sequence[tuple[Space, CallRecord]],
    root: Space,
    head: Digest | None,
    *,
    is_any: bool = False,
) -> bool:
    """True if one run led to both calls, and has refused an answer in between.

    A model that has to answer again may take all of its steps again.  On a fork the run that goes on there is meant, too.
    `asking` and `made` are the next call and the one before it, with those whose tools ran the children that made them.
    With `is_any` every refusal of a run counts that led to the next call alone.  The commits since the request are read.
    """
    before = {space.name: record for space, record in made}
    for space, record in asking:
        run = _run(space, _run_of(space, record))
        if run is None:
            continue
        earlier = before.get(space.name)
        made_by = None if earlier is None else _run_of(space, earlier)
        runs = {run.id} if made_by == run.id else _continued_by(space, run.id)
        label = earlier.label if earlier is not None and made_by in runs else None
        if label is None and not is_any:
            continue
        at = head if space.name == root.name else reader.head_of(space, run.line or run.timeline).commit
        if _has_refused(space, runs, at, {*commits_of(space, label), run.before}):
            return True
    return False


def _has_refused(space: Space, runs: set[str], head: Digest | None, until: set[Digest | None]) -> bool:
    """True if one of these runs refused an answer between `until` and `head`."""
    if head is None:
        return False
    for step in loops.steps(space.engine, space.name, head, skip=0, limit=space.step(head).place.depth + 1):
        if step.digest in until:
            return False
        is_refused = [
            isinstance(each, GuardRefused) and each.subject == "output" for each in step.changeset.events
        ]
        if step.commit.run in runs and any(is_refused):
            return True
    return False


def _run_of(space: Space, record: CallRecord) -> str | None:
    """Return the run whose model requested a call, also if it is a copy that was decided on a fork."""
    while record.run is None and record.copied_from is not None:
        record = calls.read(space, record.copied_from).record
    return record.run


def _continued_by(space: Space, run: str) -> set[str]:
    """Return a run and those of other timelines whose open calls it goes on with."""
    found: set[str] = set()
    before: str | None = run
    while before is not None and before not in found:
        found.add(before)
        record = _run(space, before)
        before = None if record is None else record.continues
    return found


def _run(space: Space, id: str | None) -> RunRecord | None:
    cell = None if id is None else space.engine.cell(space.name, RUN + id)
    return None if cell is None or cell.value is None else read_record(cell, _runs)


def _failed_elsewhere(other: CallRecord) -> bool:
    """True if a call ended in an error where it was imported from, which does not prove that nothing happened."""
    return other.origin == "import" and other.state == "failed"


def is_told(space: Space, other: CallRecord, timeline: str, head: Digest | None) -> bool:
    """True if a call that was done, with its result, is in the conversation of the timeline at `head`.

    One whose arguments or result were redacted is not: its model cannot tell what it would repeat.
    """
    return _is_said(space, other, timeline, head) and not _is_redacted(space, other)


def _is_redacted(space: Space, other: CallRecord) -> bool:
    """True if the arguments of a call were redacted, or the message that has its result."""
    if not space.has_redactions:
        return False
    said = [other.args] if other.preview is None else [other.args, other.preview]
    for commit in commits_of(space, other.result_label):
        events = space.step(commit).changeset.events
        said += [event.body for event in events if isinstance(event, MessageAppended)]
    return any(space.redaction(each) is not None for each in said)


def _is_said(space: Space, other: CallRecord, timeline: str, head: Digest | None) -> bool:
    if other.result_label == "":
        return False  # the conversation has no result, or says that the outcome was unknown
    if other.origin == "call" and other.result_label is not None:
        return told_in(space, other.id, other.result_label, head)
    if commits_of(space, other.result_label):
        return visible(space, other.result_label, head) and not _is_taken_back(space, other.label, head)
    return visible(space, other.label, head) and (_at_once(other) or other.timeline == timeline)


def _was_known(space: Space, other: CallRecord, model: CallRecord, is_decided: bool) -> bool:
    """True if the model that requested the call `model` had the result of another, or requested both at once.

    With `is_decided` it is enough that the other was requested before: the person who decided was told.
    """
    if other.label == model.label:
        return True
    requests = commits_of(space, model.label)
    if is_decided and any(stands_on(space, other.label, each) for each in requests):
        return True
    if not commits_of(space, other.result_label):
        return False
    return not requests or any(is_told(space, other, model.timeline, each) for each in requests)


def _is_after(space: Space, commit: Digest, model: CallRecord) -> bool:
    """True if the model that requested a call did not see the conversation of that commit."""
    requests = commits_of(space, model.label)
    return bool(requests) and not any(reader.is_ancestor(space, commit, each) for each in requests)


def _is_taken_back(space: Space, request: str | None, head: Digest | None) -> bool:
    """True if the message that requested a call was taken back: no backend is shown a result without its request."""
    return stands_on(space, request, head) and not visible(space, request, head)


def _settled_here(space: Space, other: CallRecord) -> bool:
    """True if `is_told` will give the same answer for this call later."""
    return bool(commits_of(space, other.result_label)) or (other.result_label is None and _at_once(other))


def _at_once(other: CallRecord) -> bool:
    """True if the call started without waiting for an approval."""
    return other.ticket is None


def _applies(
    space: Space,
    gate: Gate,
    asking: Sequence[tuple[Space, CallRecord]],
    head: Digest | None,
    backend: str | None,
) -> bool:
    """True if the starts that the gate recorded as clear are clear here: same backend, and all in this conversation.

    Messages may have been taken back since.  A model that still sees the last of these calls knows what it repeats.
    """
    mark = gate.mark
    if mark.commit is None:
        return True
    if mark.backend != backend or not reader.is_ancestor(space, mark.commit, head):
        return False
    if _is_edited(asking) or (_has_waited(asking) and _is_after(space, mark.commit, asking[-1][1])):
        return False
    until = msgspec.structs.replace(gate, mark=msgspec.structs.replace(mark, count=mark.clear))
    last = next(_started(space, until, after=mark.clear - 1))
    own, place, is_reported, _ = _resolved(space, last)
    return done(own) and is_reported and is_told(space, place, asking[0][1].timeline, head)


def _started(space: Space, gate: Gate, *, after: int) -> Iterator[CallRecord]:
    """Yield the started calls in order, after number `after`; raises `Corrupt` if one is missing."""
    prefix = f"{TWIN}{gate.fingerprint}/"
    if after == 0 and gate.mark.first is not None:
        current = calls.find(space, gate.mark.first)
        if current is None:
            raise _missing(gate)
        yield current.record
        after = 1
    while after < gate.count:  # a later start has changed the gate, so the write of this one will be refused
        wanted = min(_PAGE, gate.count - after)
        page = space.engine.cells(
            space.name, prefix=prefix, after=_twin(gate.fingerprint, after), limit=wanted
        )
        found = calls.find_many(space, [read_record(cell, _names) for cell in page])
        if len(page) < wanted or None in found:
            raise _missing(gate)
        yield from (current.record for current in found if current)
        after += wanted


def starts(space: Space, fingerprint: str) -> Iterator[CallRecord]:
    """Yield the started calls of a fingerprint, newest first."""
    gate = _gate(space, fingerprint)
    for number in range(gate.count, 0, -1):
        yield next(_started(space, gate, after=number - 1))


def _missing(gate: Gate) -> Corrupt:
    return Corrupt(
        f"a start of the calls with fingerprint {gate.fingerprint} is missing, so a repeat cannot be recognised; "
        "nothing was started.",
        code="start_missing",
        advice="Run `perdure verify`.",
        fingerprint=gate.fingerprint,
    )


def questions(space: Space, record: CallRecord) -> list[Question]:
    """Return what `check` asks first, for a caller that asks more in the same call."""
    return [CellOf(space.name, TWIN + record.fingerprint)] if record.fingerprint else []


def _gate(space: Space, fingerprint: str) -> Gate:
    cell: Cell | None = space.ask(CellOf(space.name, TWIN + fingerprint))[0]
    if cell is None or cell.value is None:
        return Gate(fingerprint, cell.revision if cell else 0, _GateValue())
    return Gate(fingerprint, cell.revision, read_record(cell, _marks))


def _gate_write(gate: Gate, mark: _GateValue) -> CellWrite:
    value = canonical.encode_struct(mark)
    return CellWrite(name=TWIN + gate.fingerprint, expected=gate.revision, value=value)


def _twin(fingerprint: str, number: int) -> str:
    return f"{TWIN}{fingerprint}/{number:012d}"


BROUGHT = "brought/"  # marks of calls that have no fingerprint yet, by the SHA-256 of the tool's name


def entering(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """Return the cells of the write that enters imported calls, so that the guard knows them."""
    known = [record for record in records if record.fingerprint]
    unknown = [_mark(record, present=True) for record in records if not record.fingerprint]
    return (*counting(space, known), *unknown)


def unlearnt(space: Space, tool: str, *, limit: int) -> list[VersionedCall]:
    """Return imported calls to a tool of that name that have no fingerprint yet."""
    ids = islice(space.marked(BROUGHT, _line(tool)), limit)
    return [calls.read(space, id) for id in ids]


def learning(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """Return the cells of the write that adds the fingerprints of these calls."""
    return (*counting(space, records), *(_mark(record, present=False) for record in records))


def _mark(record: CallRecord, *, present: bool) -> CellWrite:
    return mark_write(BROUGHT, _line(record.tool), record.id, expected=0 if present else 1, present=present)


def _line(tool: str) -> str:
    return sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
