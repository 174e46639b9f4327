"""What lies before the last entries of a long log: every effect of the thread, counted by tool.

    window          the last entries; each call that they are about is told by itself
    before them     external writes that were made, may have been made or still wait, by tool and by what became
                    of them: how many, and the first and the last by name; of those that are not settled all

A log is read whole once.  From then on whoever looks starts from what was found before: by the newest
checkpoint of the line, which says it, or by this process, which remembers it.  Only the entries since, and
the last ones before that, are read again.  What comes out is the same as if all had been read: where it
could be another, because a call was touched again that is only counted, all is read.

What a line's own commits say of calls, beyond the ledger as they had read it.

A commit is written together with the entries that belong to it, so it had not read them: a call that
it asks for, settles or brings from elsewhere enters the ledger just behind its position.  The history
names such calls, and says what became of them; the ledger says, in the entry by which each came in,
what it was.  Neither ever changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.engines.contract import Entry, Step
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


EXTRACTOR = "perdure-rules/2"  # of checkpoints that count what is before the window as it is counted here

FIRST_MAX = 3  # of settled calls that came to the same, those that are named beside the last
OPEN_MAX = 32  # of calls that are not settled, those that are named
GROUPS_MAX = 64  # what is still another counts as one group

_KNOWN_MAX = 256  # spaces of which is remembered what was found

_Key: TypeAlias = tuple[str, str, bool, str, str]  # tool, effect, idempotent, state, outcome
_REST: _Key = ("", "", False, "succeeded", "")


class CallGroup(msgspec.Struct, frozen=True):
    """Calls of one tool that came to the same; of those that are named the records."""

    tool: str  # "": of several, which are too many to be told apart
    count: int
    named: tuple[CallRecord, ...]


class EarlierEffects(msgspec.Struct, frozen=True):
    """What there is before the window."""

    groups: tuple[CallGroup, ...] = ()
    others: int = 0  # calls that changed nothing outside, or did not happen


class Looked(msgspec.Struct, frozen=True):
    """The window, and what is before it."""

    stand: LedgerSnapshot
    earlier: EarlierEffects = EarlierEffects()


class _Counted(msgspec.Struct, frozen=True):
    count: int = 0
    named: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of them are named."""
        return self.count == len(self.named)

    def with_one(self, call: str, *, settled: bool) -> _Counted:
        """The same with one more, which came after the others."""
        if settled:
            keep = 1 + FIRST_MAX
            named = (*self.named, call) if len(self.named) < keep else (*self.named[:FIRST_MAX], call)
        else:
            named = (*self.named, call) if len(self.named) < OPEN_MAX else self.named
        return _Counted(self.count + 1, named)

    def without(self, call: str) -> _Counted:
        """The same without one that is named."""
        return _Counted(self.count - 1, tuple(each for each in self.named if each != call))


class _Base(msgspec.Struct, frozen=True):
    """What was found before: up to a position, the calls whose last entry lies at `start` or before it."""

    upto: LedgerRead = NO_LEDGER
    start: int = 0
    groups: Mapping[_Key, _Counted] = {}
    others: int = 0


_BLANK = _Base()

_known: dict[str, _Base] = {}  # by space: what was found furthest on


def look(space: Space, commit: Digest | None, read: LedgerRead, timeline: str) -> Looked:
    """The last entries up to a position and what is before them, for whoever stands at `commit` on that timeline."""
    if read.position <= ENTRIES_MAX:
        return Looked(snapshot.stand(space, read, timeline=timeline))
    base = _remembered(space, read) or _kept(space, commit, read) or _BLANK
    stand = snapshot.stand(space, read, timeline=timeline, limit=read.position - base.start)
    found = _found(base, stand, read)
    if found is None or (base is not _BLANK and not stand.later.isdisjoint(_names(found))):
        stand = snapshot.stand(space, read, timeline=timeline, limit=read.position)
        found = _found(_BLANK, stand, read)
    assert found is not None, "from the beginning on nothing is missing"
    _remember(space, found)
    window = tuple(known for known in stand.calls if known.position > found.start)
    return Looked(
        msgspec.structs.replace(stand, calls=window, before=found.start), _told(space, found, stand.calls)
    )


def outcome_of(record: CallRecord) -> Literal["done", "not_done"] | None:
    """What somebody found out about a call beyond its state."""
    return "done" if record.evidence is not None else record.outcome


def _found(base: _Base, stand: LedgerSnapshot, read: LedgerRead) -> _Base | None:
    """What is before the window up to a position; None if that cannot be told from the base."""
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
    """Whether a call that was touched since is among those that the base counts."""
    return not known.begun and known.first > base.upto.position


def _without(base: _Base, touched: Iterable[CallAtPosition]) -> _Base | None:
    """The base without these calls; None if one of them may be among those that are only counted."""
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
    """Whether whoever goes on has to know of it: an external write that was made, may have been, or waits."""
    outcome = outcome_of(record)
    happened = outcome == "done" or (outcome is None and record.state not in NOTHING_HAPPENED)
    return record.reach.guarded and happened


def _key(record: CallRecord) -> _Key:
    return (record.tool, record.effect, record.idempotent, record.state, outcome_of(record) or "")


def _is_settled(key: _Key) -> bool:
    return key[3] in SETTLED


def _names(found: _Base) -> Iterator[str]:
    return (call for counted in found.groups.values() for call in counted.named)


def _told(space: Space, found: _Base, read: Iterable[CallAtPosition]) -> EarlierEffects:
    """The groups in an order of their own, with the records of those that are named."""
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
            f"the ledger of '{space.label}' has no call '{call}', which a checkpoint names; nothing was derived from it. "
            "Run `perdure verify`."
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
    """What the newest checkpoint of the line says, if it counts as it is counted here."""
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
    """Whether the log up to one position is the beginning of the log up to another."""
    if upto.chain is None or upto.position > read.position:
        return False
    if upto.position == read.position:
        return upto.chain == read.chain
    there = space.engine.entries(space.name, after=upto.position - 1, limit=1)
    return bool(there) and there[0].chain == upto.chain


_PAGE = 100

_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


class NamedEffects(msgspec.Struct, frozen=True, kw_only=True):
    """What the last commits of a line name."""

    calls: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()  # that were asked and not decided there
    completed: dict[str, ToolCallCompleted] = {}  # by call: what was said of it last


def named_in(steps: Iterable[Step], spoken: Iterable[TranscriptEntry]) -> NamedEffects:
    """What these commits, given oldest first, and their messages name."""
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
    """The same with the calls and questions that the history names and the ledger, as it was read, did not have yet."""
    calls = set(named.calls) - {known.record.id for known in stand.calls}
    tickets = set(named.tickets) - {ticket.id for ticket in stand.waiting}
    more: list[CallAtPosition] = []
    waiting: list[Ticket] = []
    for entry in _behind(space, read.position):
        if not calls and not tickets:
            break
        step = decode_transition(entry.body)
        if step.record and step.call in calls:
            calls.discard(step.call)
            more.append(CallAtPosition(_records.decode(step.record), entry.position))
        if step.ticket and (ticket := _tickets.decode(step.ticket)).id in tickets:
            tickets.discard(ticket.id)
            waiting.append(ticket)
    told = [_as_told(known, named) for known in (*stand.calls, *more)]
    asked = sorted((*stand.waiting, *waiting), key=lambda ticket: ticket.id)
    return msgspec.structs.replace(stand, calls=tuple(told), waiting=tuple(asked))


def _as_told(known: CallAtPosition, named: NamedEffects) -> CallAtPosition:
    """The call as the history leaves it, where the ledger had not got so far."""
    record, event = known.record, named.completed.get(known.record.id)
    if event is None or record.state in SETTLED or event.status not in STATES:
        return known
    result = event.result_ref or record.result
    return CallAtPosition(msgspec.structs.replace(record, state=event.status, result=result), known.position)


def _behind(space: Space, position: int) -> Iterator[Entry]:
    """The entries just behind a position; what belongs to a commit does not lie far from it."""
    left = ENTRIES_MAX
    while left and (page := _page(space, position, min(left, _PAGE))):
        yield from page
        position, left = page[-1].position, left - len(page)


def _page(space: Space, position: int, limit: int) -> Sequence[Entry]:
    return space.engine.entries(space.name, after=position, limit=limit)
