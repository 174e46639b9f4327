"""Reads the ledger as it was at a position: the whole of it, or its last part and every ticket that was open then.

The ledger is authoritative.  A long ledger is not read whole: its last entries are read, and the rest comes from the
cells, which have the newest record of each call and ticket.  A record that changed after the position is not used;
such a call is read from the ledger.  So the result depends on the ledger up to the position alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from perdure.engines import loops
from perdure.engines.contract import LedgerEntry
from perdure.errors import Corrupt
from perdure.history.space import Space
from perdure.ledger import calls, tickets
from perdure.model.call import CallRecord
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.head import MAIN
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["ENTRIES_MAX", "CallAtPosition", "LedgerSnapshot", "now", "stand", "whole"]

ENTRIES_MAX = 1_000  # entries that are read of a long ledger


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
    low, step = since.position, 1
    while space.engine.entries(space.name, after=low + step - 1, limit=1):
        low, step = low + step, step * 2
    high = low + step  # a position without an entry
    while high - low > 1:
        middle = (low + high) // 2
        there = space.engine.entries(space.name, after=middle - 1, limit=1)
        low, high = (middle, high) if there else (low, middle)
    if low == since.position:
        return since
    return LedgerRead(low, space.engine.entries(space.name, after=low - 1, limit=1)[0].chain)


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
    cells = {call: calls.find(space, call) for call in touched - begun}
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
    return msgspec.json.decode(step.ticket, type=Ticket) if step.ticket else None


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
