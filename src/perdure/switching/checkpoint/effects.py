"""Counts the effects of a thread that are older than the last entries of a long ledger.

    window          the last entries; each of their calls is described by itself
    before them     external writes that were made, may have been made or still wait, by tool and outcome:
                    how many, with the first and the last by name; the unsettled ones all by name

A ledger is read whole once.  Later reads start from an earlier count: that of the timeline's newest checkpoint, or that
which this process remembers.  Only the entries since, and the last ones before, are read again.  The result is the same
as if all were read: if it could differ, because a call changed that is only counted, the whole ledger is read.

A commit is written together with its own ledger entries, so it had not read them: a call that it requests, settles or
imports enters the ledger just after the position that the commit has read.  `named_in` takes such calls and their
outcomes from the history, and `with_named` takes their records from the entries that entered them.  Neither changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Corrupt, Forgotten
from perdure.history.space import Space
from perdure.ledger import calls, snapshot
from perdure.ledger.snapshot import ENTRIES_MAX, CallAtPosition, LedgerSnapshot
from perdure.model.call import SETTLED, STATES, CallRecord
from perdure.model.checkpoint import NOTHING_HAPPENED, Checkpoint, Many
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.event import (
    ApprovalDecided,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    ToolCallSuspended,
)
from perdure.model.ticket import Ticket
from perdure.projections.calls import decode_transition
from perdure.projections.transcript import TranscriptEntry
from perdure.switching.checkpoint import stored

__all__ = [
    "EXTRACTOR",
    "EarlierEffects",
    "CallGroup",
    "Looked",
    "look",
    "outcome_of",
    "NamedEffects",
    "named_in",
    "with_named",
]


EXTRACTOR = "perdure-rules/2"  # the extractor of checkpoints that count as this module does

FIRST_MAX = 3  # named settled calls with the same outcome, beside the last
OPEN_MAX = 32  # named calls that are not settled
GROUPS_MAX = 64  # all further groups count as one

_KNOWN_MAX = 256  # spaces whose counts are remembered

_Key: TypeAlias = tuple[str, str, bool, str, str]  # tool, effect, idempotent, state, outcome
_REST: _Key = ("", "", False, "succeeded", "")


class CallGroup(msgspec.Struct, frozen=True):
    """Calls of one tool with the same outcome, and the records of the named ones."""

    tool: str  # "": of several tools, which are too many to be separate groups
    count: int
    named: tuple[CallRecord, ...]


class EarlierEffects(msgspec.Struct, frozen=True):
    """The calls before the window."""

    groups: tuple[CallGroup, ...] = ()
    others: int = 0  # calls that changed nothing outside, or did not happen


class Looked(msgspec.Struct, frozen=True):
    """The window, and the calls before it."""

    stand: LedgerSnapshot
    earlier: EarlierEffects = EarlierEffects()


class _Counted(msgspec.Struct, frozen=True):
    count: int = 0
    named: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if all of them are named."""
        return self.count == len(self.named)

    def with_one(self, call: str, *, settled: bool) -> _Counted:
        """Return the count with one more call, which is later than the others."""
        if settled:
            keep = 1 + FIRST_MAX
            named = (*self.named, call) if len(self.named) < keep else (*self.named[:FIRST_MAX], call)
        else:
            named = (*self.named, call) if len(self.named) < OPEN_MAX else self.named
        return _Counted(self.count + 1, named)

    def without(self, call: str) -> _Counted:
        """Return the count without one named call."""
        return _Counted(self.count - 1, tuple(each for each in self.named if each != call))


class _Base(msgspec.Struct, frozen=True):
    """An earlier count: up to a position, the calls whose last entry is at `start` or before it."""

    upto: LedgerRead = NO_LEDGER
    start: int = 0
    groups: Mapping[_Key, _Counted] = {}
    others: int = 0


_BLANK = _Base()

_known: dict[str, _Base] = {}  # by space: the count with the highest position


def look(space: Space, commit: Digest | None, read: LedgerRead, timeline: str) -> Looked:
    """Read the last entries up to a position and count the calls before them, as seen from `commit` on that timeline."""
    if read.position <= ENTRIES_MAX:
        return Looked(snapshot.stand(space, read, timeline=timeline))
    base = _remembered(space, read) or _kept(space, commit, read) or _BLANK
    stand = snapshot.stand(space, read, timeline=timeline, limit=read.position - base.start)
    found = _found(base, stand, read)
    if found is None or (base is not _BLANK and not stand.later.isdisjoint(_names(found))):
        stand = snapshot.stand(space, read, timeline=timeline, limit=read.position)
        found = _found(_BLANK, stand, read)
    assert found is not None, "a count of the whole ledger misses nothing"
    _remember(space, found)
    window = tuple(known for known in stand.calls if known.position > found.start)
    return Looked(
        msgspec.structs.replace(stand, calls=window, before=found.start),
        _with_records(space, found, stand.calls),
    )


def outcome_of(record: CallRecord) -> Literal["done", "not_done"] | None:
    """Return the outcome of a call as evidence or a person's statement says; None: its state says it."""
    return "done" if record.evidence is not None else record.outcome


def _found(base: _Base, stand: LedgerSnapshot, read: LedgerRead) -> _Base | None:
    """Count the calls before the window up to a position; None if the base is not enough."""
    taken = _without(base, [known for known in stand.calls if _was_there(known, base)])
    if taken is None:
        return None
    groups, others = dict(taken.groups), taken.others
    start = read.position - ENTRIES_MAX
    for known in stand.calls:
        if known.position > start:
            break
        if not _matters(known.record):
            others += 1
            continue
        key = _key(known.record)
        if key not in groups and len(groups) - (_REST in groups) >= GROUPS_MAX:
            key = _REST
        counted = groups.get(key, _Counted())
        groups[key] = counted.with_one(known.record.id, settled=_is_settled(key))
    return _Base(read, start, groups, others)


def _was_there(known: CallAtPosition, base: _Base) -> bool:
    """True if a call with later entries is among those that the base counts."""
    return not known.begun and known.first > base.upto.position


def _without(base: _Base, touched: Iterable[CallAtPosition]) -> _Base | None:
    """Return the base without these calls; None if one of them may be among those that are only counted."""
    groups, others = dict(base.groups), base.others
    places = {call: key for key, counted in groups.items() for call in counted.named}
    vague = {key[0] for key, counted in groups.items() if not counted.is_whole}
    for known in touched:
        record = known.record
        key = places.get(record.id)
        if key is not None and groups[key].is_whole and _REST not in groups:
            left = groups[key].without(record.id)
            groups = {each: left if each == key else counted for each, counted in groups.items()}
            if not left.count:
                del groups[key]
        elif key is None and not vague & {record.tool, ""}:
            others -= 1
        else:
            return None
    return msgspec.structs.replace(base, groups=groups, others=others)


def _matters(record: CallRecord) -> bool:
    """True if the next backend must know of the call: an external write that was made, may have been, or waits."""
    outcome = outcome_of(record)
    happened = outcome == "done" or (outcome is None and record.state not in NOTHING_HAPPENED)
    return record.reach.guarded and happened


def _key(record: CallRecord) -> _Key:
    return (record.tool, record.effect, record.idempotent, record.state, outcome_of(record) or "")


def _is_settled(key: _Key) -> bool:
    return key[3] in SETTLED


def _names(found: _Base) -> Iterator[str]:
    return (call for counted in found.groups.values() for call in counted.named)


def _with_records(space: Space, found: _Base, read: Iterable[CallAtPosition]) -> EarlierEffects:
    """Return the groups, sorted, with the records of the named calls."""
    records = {known.record.id: known.record for known in read}
    groups = tuple(
        CallGroup(key[0], counted.count, tuple(_record(space, records, call) for call in counted.named))
        for key, counted in sorted(found.groups.items())
    )
    return EarlierEffects(groups, found.others)


def _record(space: Space, records: Mapping[str, CallRecord], call: str) -> CallRecord:
    known = records.get(call)
    if known is not None:
        return known
    held = calls.find(space, call)
    if held is None:
        raise Corrupt(
            f"the ledger of '{space.label}' has no call '{call}', which a checkpoint names; nothing was derived from it.",
            code="call_of_checkpoint_missing",
            advice="Run `perdure verify`.",
            call=call,
            thread=space.label,
        )
    return held.record


# ---- where to start from


def _remembered(space: Space, read: LedgerRead) -> _Base | None:
    base = _known.get(space.name)
    return base if base is not None and _leads_to(space, base.upto, read) else None


def _remember(space: Space, found: _Base) -> None:
    before = _known.get(space.name)
    if before is not None and before.upto.position > found.upto.position:
        return
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[space.name] = found


def _kept(space: Space, commit: Digest | None, read: LedgerRead) -> _Base | None:
    """Return the count of the timeline's newest checkpoint, if it counts as this module does; else None."""
    try:
        checkpoint = stored.last(space, commit)
    except Forgotten:
        return None
    if checkpoint is None or checkpoint.extractor != EXTRACTOR or checkpoint.conversation != space.label:
        return None
    upto = checkpoint.ledger
    if upto.position <= ENTRIES_MAX or not _leads_to(space, upto, read):
        return None
    return _Base(upto, upto.position - ENTRIES_MAX, dict(_groups(checkpoint)), checkpoint.earlier_others)


def _groups(checkpoint: Checkpoint) -> Iterator[tuple[_Key, _Counted]]:
    for many in checkpoint.earlier:
        yield _key_of(many), _Counted(many.count, tuple(each.call for each in many.calls))


def _key_of(many: Many) -> _Key:
    if not many.tool:
        return _REST
    one = many.calls[0]
    return (one.tool, one.effect, one.idempotent, one.state, one.outcome or "")


def _leads_to(space: Space, upto: LedgerRead, read: LedgerRead) -> bool:
    """True if the ledger up to one position is the beginning of the ledger up to another."""
    if upto.chain is None or upto.position > read.position:
        return False
    if upto.position == read.position:
        return upto.chain == read.chain
    there = space.engine.entries(space.name, after=upto.position - 1, limit=1)
    return bool(there) and there[0].chain == upto.chain


_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


class NamedEffects(msgspec.Struct, frozen=True, kw_only=True):
    """The calls and tickets that the last commits of a timeline name."""

    calls: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()  # tickets that were opened and not decided there
    completed: dict[str, ToolCallCompleted] = {}  # by call: the last event about its completion


def named_in(steps: Iterable[Step], spoken: Iterable[TranscriptEntry]) -> NamedEffects:
    """Collect the calls and tickets that these commits, oldest first, and their messages name."""
    found = {call.id for entry in spoken if entry.words for call in entry.words.tool_calls}
    asked: set[str] = set()
    completed: dict[str, ToolCallCompleted] = {}
    for event in (event for step in steps for event in step.changeset.events):
        match event:
            case ToolCallRequested(call=call) | ToolCallStarted(call=call):
                found.add(call)
            case ToolCallSuspended(call=call, ticket=ticket):
                found.add(call)
                asked.add(ticket)
            case ApprovalDecided(ticket=ticket):
                asked.discard(ticket)
            case ToolCallCompleted(call=call):
                found.add(call)
                completed[call] = event
            case _:
                pass
    return NamedEffects(calls=frozenset(found), tickets=frozenset(asked), completed=completed)


def with_named(space: Space, read: LedgerRead, stand: LedgerSnapshot, named: NamedEffects) -> LedgerSnapshot:
    """Add the calls and tickets that the history names and the ledger, as it was read, did not have yet."""
    calls = set(named.calls) - {known.record.id for known in stand.calls}
    tickets = set(named.tickets) - {ticket.id for ticket in stand.waiting}
    more: list[CallAtPosition] = []
    waiting: list[Ticket] = []
    # The entries of a commit are not far after the position that it has read.
    for entry in islice(loops.entries(space.engine, space.name, after=read.position), ENTRIES_MAX):
        if not calls and not tickets:
            break
        step = decode_transition(entry.body)
        if step.record and step.call in calls:
            calls.discard(step.call)
            more.append(CallAtPosition(_records.decode(step.record), entry.position))
        if step.ticket and (ticket := _tickets.decode(step.ticket)).id in tickets:
            tickets.discard(ticket.id)
            waiting.append(ticket)
    completed = [_as_completed(known, named) for known in (*stand.calls, *more)]
    asked = sorted((*stand.waiting, *waiting), key=lambda ticket: ticket.id)
    return msgspec.structs.replace(stand, calls=tuple(completed), waiting=tuple(asked))


def _as_completed(known: CallAtPosition, named: NamedEffects) -> CallAtPosition:
    """Return the call as the history leaves it, if the ledger as it was read did not have its completion yet."""
    record, event = known.record, named.completed.get(known.record.id)
    if event is None or record.state in SETTLED or event.status not in STATES:
        return known
    result = event.result_ref or record.result
    return CallAtPosition(msgspec.structs.replace(record, state=event.status, result=result), known.position)
