"""The repeat guard: an external write is not sent again by accident.

It stops a call with the same fingerprint as another of this thread that is still unclear, on
any line, in any run, under any id; or that was done but is not in the history of the line that
asks; or that was done on this line on another backend.  Other repeats are the model's business.

Every start of an external write is numbered by the *gate* of its fingerprint, a cell that each
start moves on.  So of two lines that were both told that the way is clear, one starts and the
other is refused and asks again.  The gate also remembers up to which number, as seen from which
commit, all was well: a thousandth equal call on one line costs no more than the second.

A call is in the history of a line if its result is.  While that is not committed, or where the
record does not say which message holds it, the request stands for it; but if the call waited in
between, only on its own timeline, for a line may have been forked off before it was done.  What was
found out only after the conversation had been told something else is in no history.  A call by hand
is in a history that holds the commit of its turn which says what it came to.

Calls brought from elsewhere, and how the repeat guard comes to know them.

Two calls are the same if their fingerprints are, and making one takes the tool: its version, its defaults.
Where that is not at hand when a call is brought in, a mark stands for it under the tool's name.  Whoever is
about to start a call to a tool of that name has the fingerprints learnt first; then the mark goes.

An import sends nothing, so a start that comes between is simply the earlier of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Corrupt
from perdure.history import cells
from perdure.history import cells as marks
from perdure.history.ancestry import behind, commits_of, present, told_in
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.ledger.calls import VersionedCall
from perdure.model import canonical
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.ticket import Ticket

__all__ = [
    "TWIN",
    "Case",
    "MayStart",
    "Gate",
    "Policy",
    "Repeats",
    "Verdict",
    "allowed",
    "check",
    "counting",
    "doubted",
    "done",
    "rebuilt_gate",
    "seen",
    "starting",
    "BROUGHT",
    "entering",
    "learning",
    "unlearnt",
]


Policy: TypeAlias = Literal["ask", "allow", "deny"]
Case: TypeAlias = Literal["unclear", "elsewhere", "backend"]  # (a), (b) and (c) of the rule above

TWIN = "twin/"  # cells: the gate of a fingerprint, and below it the calls that were started, by number

_PAGE = 100


class _GateValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a gate's cell."""

    count: int = 0  # how often a call of this fingerprint was started
    clear: int = 0  # of the first so many, all that were done are in the history of `commit`, by `backend`
    commit: Digest | None = None  # None: none of them was done
    backend: str | None = None
    first: str | None = (
        None  # the call whose start had the number 1: most have no other, and need no cell for it
    )


class Gate(msgspec.Struct, frozen=True):
    """What every start of this fingerprint has to pass, as it was read."""

    fingerprint: str
    revision: int
    mark: _GateValue

    @property
    def count(self) -> int:
        """How many starts the guard has looked at."""
        return self.mark.count


class MayStart(msgspec.Struct, frozen=True):
    """The call may start, if the gate still stands where it was read."""

    gate: Gate | None  # None: the guard does not watch this call


class Repeats(msgspec.Struct, frozen=True):
    """The call would repeat another, or might."""

    earlier: CallRecord
    case: Case
    gate: Gate


Verdict: TypeAlias = MayStart | Repeats

_marks = msgspec.json.Decoder(_GateValue)
_names = msgspec.json.Decoder(str)


def check(
    space: Space,
    record: CallRecord,
    *,
    head: Digest | None,
    backend: str | None,
    policy: Policy = "ask",
    seen: int = 0,
) -> Verdict:
    """Whether the line at `head` may start this call as asked for by `backend`.

    `seen` is the number of starts that somebody knew of who allowed it (see `seen`): only later
    ones are looked at.
    """
    if not record.fingerprint or not record.reach.guarded:
        return MayStart(None)
    gate = _gate(space, record.fingerprint)
    if policy == "allow" or not gate.count:
        return MayStart(gate)
    stands = _stands(space, gate.mark, head, backend)
    known = gate.mark.clear if stands else 0
    any_done, firm = stands and gate.mark.commit is not None, seen <= known
    for other in _started(space, gate, after=max(known, seen)):
        if other.id == record.id or other.fingerprint != record.fingerprint:
            continue
        case = _case(space, other, record.timeline, head, backend)
        if case is not None:
            return Repeats(other, case, gate)
        if done(other):
            any_done, firm = True, firm and _settled_here(space, other)
    if not firm:
        return MayStart(gate)  # what was allowed, or is well for now, is not thereby well for ever
    told = (head, backend) if any_done else (None, None)
    mark = _GateValue(gate.count, gate.count, *told, first=gate.mark.first)
    return MayStart(Gate(gate.fingerprint, gate.revision, mark))


def starting(record: CallRecord, verdict: Verdict) -> tuple[CellWrite, ...]:
    """What the write of `started` must hold so that the verdict holds; a `Conflict` means: check again."""
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
    """What the write must hold that makes calls known which were started elsewhere; each counts as a start."""
    written: list[CellWrite] = []
    for fingerprint in dict.fromkeys(record.fingerprint for record in records):
        gate = _gate(space, fingerprint)
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
    """The cells of a gate that these calls have passed, in this order, by name; it takes nothing for well."""
    mark = _GateValue(count=len(started), first=started[0])
    numbered = enumerate(started[1:], 2)
    return [
        (TWIN + fingerprint, canonical.encode_struct(mark)),
        *((_twin(fingerprint, number), canonical.encode(id)) for number, id in numbered),
    ]


def doubted(space: Space, record: CallRecord) -> tuple[CellWrite, ...]:
    """What the write must hold that learns of a settled call that it was done after all."""
    if not record.fingerprint or not record.reach.guarded:
        return ()
    gate = _gate(space, record.fingerprint)
    return (_gate_write(gate, _GateValue(gate.count, first=gate.mark.first)),) if gate.count else ()


def seen(record: CallRecord, ticket: Ticket | None) -> int:
    """How many starts somebody knew of who allowed this call to repeat them; 0: nobody did."""
    number = allowed(record, ticket).get("seen")
    return number if isinstance(number, int) else 0


def allowed(record: CallRecord, ticket: Ticket | None) -> dict[str, Json]:
    """What somebody was shown who allowed this call to repeat another; nothing if nobody did."""
    if ticket is None or ticket.action != "repeat" or ticket.id != record.ticket:
        return {}
    approved = ticket.decision is not None and ticket.decision.verdict == "approve"
    if not approved or ticket.fingerprint != record.fingerprint:
        return {}
    shown = canonical.decode((ticket.parameters or "{}").encode())
    return shown if isinstance(shown, dict) else {}


def done(record: CallRecord) -> bool:
    """Whether the call is known to have happened."""
    return record.state == "succeeded" or record.outcome == "done" or record.evidence is not None


def _case(
    space: Space, other: CallRecord, timeline: str, head: Digest | None, backend: str | None
) -> Case | None:
    if other.state == "started" or other.state in UNCLEAR:
        return "unclear"
    if not done(other):
        return None
    if not _present(space, other, timeline, head):
        return "elsewhere"
    # Nobody here ran an imported call: the model that asks may have another conversation in mind.
    return None if other.backend == backend and other.origin != "import" else "backend"


def _present(space: Space, other: CallRecord, timeline: str, head: Digest | None) -> bool:
    """Whether a call that was done is in the history of the timeline that stands at `head`."""
    if other.result_label == "":
        return False  # what the history says of it, if anything, is that nobody knew
    if other.origin == "call" and other.result_label is not None:
        return told_in(space, other.id, other.result_label, head)
    if commits_of(space, other.result_label):
        return present(space, other.result_label, head)
    return present(space, other.label, head) and (_at_once(other) or other.timeline == timeline)


def _settled_here(space: Space, other: CallRecord) -> bool:
    """Whether a history that holds the call will always be seen to."""
    return bool(commits_of(space, other.result_label)) or (other.result_label is None and _at_once(other))


def _at_once(other: CallRecord) -> bool:
    """Whether nothing came between the request and the start."""
    return other.ticket is None


def _stands(space: Space, mark: _GateValue, head: Digest | None, backend: str | None) -> bool:
    """Whether what was well for the mark is well here: the same backend, and all of it in this history."""
    if mark.commit is None:
        return True
    return mark.backend == backend and behind(space, mark.commit, head)


def _started(space: Space, gate: Gate, *, after: int) -> Iterator[CallRecord]:
    """The calls that were started, in order, those after number `after`; raises `Corrupt` if one is missing."""
    prefix = f"{TWIN}{gate.fingerprint}/"
    if after == 0 and gate.mark.first is not None:
        held = calls.find(space, gate.mark.first)
        if held is None:
            raise _missing(gate)
        yield held.record
        after = 1
    while after < gate.count:  # a start that came later has moved the gate, and is refused there
        wanted = min(_PAGE, gate.count - after)
        page = space.engine.cells(
            space.name, prefix=prefix, after=_twin(gate.fingerprint, after), limit=wanted
        )
        found = [calls.find(space, cells.read(cell, _names)) for cell in page]
        if len(page) < wanted or None in found:
            raise _missing(gate)
        yield from (held.record for held in found if held)
        after += wanted


def _missing(gate: Gate) -> Corrupt:
    return Corrupt(
        f"a start of the calls with fingerprint {gate.fingerprint} is missing, so nobody can tell what would "
        "be repeated; nothing was started. Run `perdure verify`."
    )


def _gate(space: Space, fingerprint: str) -> Gate:
    cell = space.engine.cell(space.name, TWIN + fingerprint)
    if cell is None or cell.value is None:
        return Gate(fingerprint, cell.revision if cell else 0, _GateValue())
    return Gate(fingerprint, cell.revision, cells.read(cell, _marks))


def _gate_write(gate: Gate, mark: _GateValue) -> CellWrite:
    value = canonical.encode_struct(mark)
    return CellWrite(name=TWIN + gate.fingerprint, expected=gate.revision, value=value)


def _twin(fingerprint: str, number: int) -> str:
    return f"{TWIN}{fingerprint}/{number:012d}"


BROUGHT = "brought/"  # marks of calls that have no fingerprint yet, by the SHA-256 of the tool's name


def entering(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """What the write must hold that enters calls made elsewhere, so that the guard will know them."""
    known = [record for record in records if record.fingerprint]
    unknown = [_mark(record, present=True) for record in records if not record.fingerprint]
    return (*counting(space, known), *unknown)


def unlearnt(space: Space, tool: str, *, limit: int) -> list[VersionedCall]:
    """Calls to a tool of that name whose fingerprint nobody could make when they were brought in."""
    ids = islice(marks.marked(space, BROUGHT, _line(tool)), limit)
    return [calls.read(space, id) for id in ids]


def learning(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """What the write must hold that learns the fingerprints of these calls."""
    return (*counting(space, records), *(_mark(record, present=False) for record in records))


def _mark(record: CallRecord, *, present: bool) -> CellWrite:
    return marks.mark(BROUGHT, _line(record.tool), record.id, expected=0 if present else 1, present=present)


def _line(tool: str) -> str:
    return sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
