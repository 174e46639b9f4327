"""Reads the ledger as it was at a position: the whole of it, or its last part and every ticket that was open then.

The ledger is authoritative.  A long ledger is not read whole: its last entries are read, and the rest comes from the
cells, which have the newest record of each call and ticket.  A record that changed after the position is not used;
such a call is read from the ledger.  So the result depends on the ledger up to the position alone.

The calls before the last entries are counted, by tool and outcome.  A count starts from an earlier one, and is the same
as if all entries were read: if it could differ, because a call changed that is only counted, all are read.  A run that
takes the ledger past a multiple of `ENTRIES_MAX` entries stores its count in a cell of the thread, so that a process
that opens a long thread reads the last entries alone.  `verify` compares that cell with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import CellWrite, LedgerEntry, Write
from perdure.errors import Corrupt
from perdure.history import writer
from perdure.history.space import Space, read_record
from perdure.ledger import calls, tickets
from perdure.model import canonical
from perdure.model.call import SETTLED, CallRecord
from perdure.model.canonical import prepared
from perdure.model.checkpoint import NOTHING_HAPPENED
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN, Head
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = [
    "COUNT",
    "ENTRIES_MAX",
    "NO_COUNT",
    "OTHER_TOOLS",
    "CallAtPosition",
    "CallCount",
    "CallKey",
    "CountedCalls",
    "LedgerSnapshot",
    "count_calls",
    "count_key",
    "counted_at",
    "leads_to",
    "now",
    "outcome_of",
    "stand",
    "store_count",
    "stored_count",
    "whole",
]

ENTRIES_MAX = 1_000  # entries that are read of a long ledger
COUNT = "count"  # the cell that has the count of a thread's calls
FIRST_MAX = 3  # named settled calls with the same outcome, beside the last
OPEN_MAX = 32  # named calls that are not settled
GROUPS_MAX = 64  # all further groups count as one

CallKey: TypeAlias = tuple[str, str, bool, str, str]  # tool, effect, idempotent, state, outcome
OTHER_TOOLS: CallKey = ("", "", False, "succeeded", "")


class CallAtPosition(msgspec.Struct, frozen=True):
    """A call as it was at the position, with the position of its last entry."""

    record: CallRecord
    position: int
    first: int = 0  # the position of the first entry about it that was read
    begun: bool = False  # True: that entry entered the call into the ledger


class LedgerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of the last entries, and the tickets that were open at the position."""

    calls: tuple[CallAtPosition, ...] = ()  # calls with one of these entries, by the last entry of each
    waiting: tuple[Ticket, ...] = ()  # all open tickets, sorted by id
    decided: tuple[Ticket, ...] = ()  # decided tickets of other timelines
    before: int = 0  # entries that were not read
    later: frozenset[str] = (
        frozenset()
    )  # calls that changed after the position; empty if the whole ledger was read


class _Later(msgspec.Struct, frozen=True):
    """What was written after the position."""

    calls: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()


def now(space: Space, *, since: LedgerRead = NO_LEDGER) -> LedgerRead:
    """Return the last position of the ledger; `since` is a position that it is known to have reached."""
    end = space.engine.ledger(space.name)
    return end if end.position > since.position else since


def whole(space: Space, read: LedgerRead) -> Book:
    """Read the whole ledger up to a position; raises `Corrupt` if it is not the ledger that was read there."""
    book = Book()
    for entry in _entries(space, 0, read):
        book.take(decode_transition(entry.body))
    return book


def stand(
    space: Space, read: LedgerRead, *, timeline: str = MAIN, limit: int | None = None
) -> LedgerSnapshot:
    """Read the last `limit` entries (None: `ENTRIES_MAX`) up to a position, and every ticket that was open there.

    The snapshot also has the decided tickets of other timelines than `timeline`.
    """
    start = max(0, read.position - (ENTRIES_MAX if limit is None else limit))
    steps = [(entry.position, decode_transition(entry.body)) for entry in _entries(space, start, read)]
    last = {step.call: position for position, step in steps if step.call}
    first = {step.call: (position, bool(step.record)) for position, step in reversed(steps) if step.call}
    later = frozenset[str]()
    if start == 0:
        book = Book()
        for _, step in steps:
            book.take(step)
        known, asked = book.calls, list(book.tickets.values())
    else:
        known, asked, later = _windowed(space, read, [step for _, step in steps])
    by_position = sorted(last.items(), key=lambda each: each[1])
    return LedgerSnapshot(
        calls=tuple(CallAtPosition(known[call], position, *first[call]) for call, position in by_position),
        waiting=_sorted(ticket for ticket in asked if ticket.decision is None),
        decided=_sorted(ticket for ticket in asked if ticket.decision and ticket.timeline != timeline),
        before=start,
        later=later,
    )


def _windowed(
    space: Space, read: LedgerRead, steps: Sequence[Transition]
) -> tuple[dict[str, CallRecord], list[Ticket], frozenset[str]]:
    touched = {step.call for step in steps if step.call}
    begun = {step.call for step in steps if step.record}
    # Cells are read before entries: the entries then say which of the cells changed after the position.
    older = [*(touched - begun)]
    cells = dict(zip(older, calls.find_many(space, older), strict=True))
    asked = list(tickets.every(space))
    later = _later(space, read)
    unchanged = {call: each.record for call, each in cells.items() if each and call not in later.calls}
    book = Book()
    for step in steps:
        if step.call in begun:
            book.take(_without_decisions_from_before(step, book))
    known = {**book.calls, **unchanged}
    if missing := touched - known.keys():
        full = whole(space, read)
        known |= {call: full.calls[call] for call in missing}
    then = [_as_of(ticket, later) for ticket in asked if ticket.id not in later.opened]
    return known, then, later.calls


def _without_decisions_from_before(step: Transition, book: Book) -> Transition:
    """Remove from the entry a decision on a ticket that the book does not have; tickets are read from their cells."""
    if step.decided is None or step.decided in book.tickets:
        return step
    return msgspec.structs.replace(step, decided=None)


def _later(space: Space, read: LedgerRead) -> _Later:
    entries = loops.entries(space.engine, space.name, after=read.position)
    steps = [decode_transition(entry.body) for entry in entries]
    opened = {ticket.id for ticket in map(_ticket, steps) if ticket}
    return _Later(
        frozenset(step.call for step in steps),
        frozenset(opened),
        frozenset(step.decided for step in steps if step.decided),
    )


def _ticket(step: Transition) -> Ticket | None:
    return msgspec.json.decode(step.ticket, type=prepared(Ticket)) if step.ticket else None


def _as_of(ticket: Ticket, later: _Later) -> Ticket:
    return msgspec.structs.replace(ticket, decision=None) if ticket.id in later.decided else ticket


def _sorted(found: Iterable[Ticket]) -> tuple[Ticket, ...]:
    return tuple(sorted(found, key=lambda ticket: ticket.id))


def _entries(space: Space, after: int, read: LedgerRead) -> Iterator[LedgerEntry]:
    """Yield the entries after `after` up to a position; raises `Corrupt` unless the last is the one that was read."""
    last = None
    for last in islice(loops.entries(space.engine, space.name, after=after), max(0, read.position - after)):
        yield last
    end = last.position if last else after
    if end != read.position or (last and read.chain and last.chain != read.chain):
        raise Corrupt(
            f"the ledger of '{space.label}' is not the one that was read up to position {read.position}; "
            "nothing was derived from it.",
            code="ledger_differs",
            advice="Run `perdure verify`.",
            thread=space.label,
            position=read.position,
        )


# ---- the calls before the last entries, counted


class CountedCalls(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one tool with the same outcome."""

    count: int = 0
    named: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if all of them are named."""
        return self.count == len(self.named)

    def with_one(self, call: str, *, settled: bool) -> CountedCalls:
        """Return the count with one more call, which is later than the others."""
        if settled:
            keep = 1 + FIRST_MAX
            named = (*self.named, call) if len(self.named) < keep else (*self.named[:FIRST_MAX], call)
        else:
            named = (*self.named, call) if len(self.named) < OPEN_MAX else self.named
        return CountedCalls(self.count + 1, named)

    def without(self, call: str) -> CountedCalls:
        """Return the count without one named call."""
        return CountedCalls(self.count - 1, tuple(each for each in self.named if each != call))


class CallCount(msgspec.Struct, frozen=True):
    """The calls of the ledger up to a position whose last entry is at `start` or before it, counted."""

    upto: LedgerRead = NO_LEDGER
    start: int = 0
    groups: Mapping[CallKey, CountedCalls] = {}
    others: int = 0  # calls that changed nothing outside, or did not happen


class _StoredCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of the cell; its groups are sorted by their keys."""

    position: int
    chain: Digest
    start: int
    groups: tuple[tuple[CallKey, CountedCalls], ...] = ()
    others: int = 0


NO_COUNT = CallCount()
_counts = msgspec.json.Decoder(_StoredCount)


def count_calls(
    space: Space, base: CallCount, read: LedgerRead, *, timeline: str = MAIN
) -> tuple[LedgerSnapshot, CallCount]:
    """Count the calls before the last `ENTRIES_MAX` entries up to a position, starting from `base`.

    Returns the entries since `base`, and the last ones before, as `stand` does; and the count.
    """
    found = stand(space, read, timeline=timeline, limit=read.position - base.start)
    counted = _counted(base, found, read)
    if counted is None or (base is not NO_COUNT and not found.later.isdisjoint(_names(counted))):
        found = stand(space, read, timeline=timeline, limit=read.position)
        counted = _counted(NO_COUNT, found, read)
    assert counted is not None, "a count of the whole ledger misses nothing"
    return found, counted


def counted_at(upto: LedgerRead, start: int, last: Mapping[str, tuple[int, CallKey | None]]) -> CallCount:
    """Return the count of all calls of a ledger: of each the position of its last entry up to `upto`, and its key."""
    by_position = sorted((position, call) for call, (position, _) in last.items() if position <= start)
    groups, others = _added({}, 0, ((call, last[call][1]) for _, call in by_position))
    return CallCount(upto, start, groups, others)


def leads_to(space: Space, upto: LedgerRead, read: LedgerRead) -> bool:
    """True if the ledger up to one position is the beginning of the ledger up to another."""
    if upto.chain is None or upto.position > read.position:
        return False
    if upto.position == read.position:
        return upto.chain == read.chain
    there = space.engine.entries(space.name, after=upto.position - 1, limit=1)
    return bool(there) and there[0].chain == upto.chain


def stored_count(space: Space) -> CallCount | None:
    """Return the count that the thread's cell has; None if there is none.  Raises `Corrupt` if it cannot be read."""
    cell = space.engine.cell(space.name, COUNT)
    if cell is None or cell.value is None:
        return None
    found = read_record(cell, _counts)
    upto = LedgerRead(found.position, found.chain)
    return CallCount(upto, found.start, dict(found.groups), found.others)


def store_count(space: Space, read: LedgerRead) -> None:
    """Store the count up to a position; raises `Conflict` if another process has just stored one."""
    before = space.engine.cell(space.name, COUNT)
    base = stored_count(space) if read.chain is not None else None
    if base is None or not leads_to(space, base.upto, read):
        base = NO_COUNT
    count = count_calls(space, base, read)[1]
    assert read.chain is not None, "a ledger with entries has a chain"
    value = _StoredCount(
        position=read.position,
        chain=read.chain,
        start=count.start,
        groups=tuple(sorted(count.groups.items())),
        others=count.others,
    )
    revision = 0 if before is None else before.revision
    write = Write(
        space=space.name,
        op_id=space.ids(),
        intent=digest_of(Kind.BODY, f"count {read.position}".encode()),
        fences=space.fences,
        cells=(CellWrite(name=COUNT, expected=revision, value=canonical.encode_struct(value)),),
    )
    writer.submit(space, write, Head(MAIN, 0, None))


def outcome_of(record: CallRecord) -> Literal["done", "not_done"] | None:
    """Return the outcome of a call as evidence or a person's statement says; None: its state says it."""
    return "done" if record.evidence is not None else record.outcome


def count_key(record: CallRecord) -> CallKey | None:
    """Return what calls are counted by; None for a call that the next backend need not know of.

    It must know of an external write that was made, may have been made, or waits.
    """
    outcome = outcome_of(record)
    happened = outcome == "done" or (outcome is None and record.state not in NOTHING_HAPPENED)
    if not (record.reach.guarded and happened):
        return None
    return (record.tool, record.effect, record.idempotent, record.state, outcome or "")


def _counted(base: CallCount, found: LedgerSnapshot, read: LedgerRead) -> CallCount | None:
    """Count the calls before the window up to a position; None if the base is not enough."""
    taken = _without(base, [known for known in found.calls if _was_there(known, base)])
    if taken is None:
        return None
    start = read.position - ENTRIES_MAX
    before = ((each.record.id, count_key(each.record)) for each in found.calls if each.position <= start)
    return CallCount(read, start, *_added(taken.groups, taken.others, before))


def _added(
    groups: Mapping[CallKey, CountedCalls], others: int, calls: Iterable[tuple[str, CallKey | None]]
) -> tuple[dict[CallKey, CountedCalls], int]:
    """Return groups and others with these calls, which are later and in the order of their last entries."""
    added = dict(groups)
    for call, key in calls:
        if key is None:
            others += 1
            continue
        if key not in added and len(added) - (OTHER_TOOLS in added) >= GROUPS_MAX:
            key = OTHER_TOOLS
        added[key] = added.get(key, CountedCalls()).with_one(call, settled=key[3] in SETTLED)
    return added, others


def _was_there(known: CallAtPosition, base: CallCount) -> bool:
    """True if a call with later entries is among those that the base counts."""
    return not known.begun and known.first > base.upto.position


def _without(base: CallCount, touched: Iterable[CallAtPosition]) -> CallCount | None:
    """Return the base without these calls; None if one of them may be among those that are only counted."""
    groups, others = dict(base.groups), base.others
    places = {call: key for key, counted in groups.items() for call in counted.named}
    vague = {key[0] for key, counted in groups.items() if not counted.is_whole}
    for known in touched:
        record = known.record
        key = places.get(record.id)
        if key is not None and groups[key].is_whole and OTHER_TOOLS not in groups:
            left = groups[key].without(record.id)
            groups = {each: left if each == key else counted for each, counted in groups.items()}
            if not left.count:
                del groups[key]
        elif key is None and not vague & {record.tool, ""}:
            others -= 1
        else:
            return None
    return msgspec.structs.replace(base, groups=groups, others=others)


def _names(count: CallCount) -> Iterator[str]:
    return (call for counted in count.groups.values() for call in counted.named)
