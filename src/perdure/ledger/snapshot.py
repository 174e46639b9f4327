"""The ledger as it stood at a position: whole, or its last part and whatever was still open then.

The log is the truth.  To read it whole costs what it is long; so of a long one the last entries
are read, and what they do not say is taken from the cells, which hold the newest record of each call
and ticket.  A record that changed after the position is not believed: such a call is read from the
log.  So what comes out depends on the log up to the position alone, whatever was written since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.engines.contract import Entry
from perdure.errors import Corrupt
from perdure.history.space import Space
from perdure.ledger import calls, tickets
from perdure.model.call import CallRecord
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.head import MAIN
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["ENTRIES_MAX", "CallAtPosition", "LedgerSnapshot", "now", "stand", "whole"]

ENTRIES_MAX = 1_000  # that are read of a long log

_PAGE = 500


class CallAtPosition(msgspec.Struct, frozen=True):
    """A call as it stood at the position, and the entry that said so last."""

    record: CallRecord
    position: int
    first: int = 0  # the first of the entries about it that were read
    begun: bool = False  # by that entry it came into the log


class LedgerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the last entries say, and what was open before them."""

    calls: tuple[CallAtPosition, ...] = ()  # that the entries are about, by the last entry about each
    waiting: tuple[Ticket, ...] = ()  # all that were open, in the order of their ids
    decided: tuple[Ticket, ...] = ()  # on other timelines than the one that is looked at from
    before: int = 0  # entries that were not read
    later: frozenset[str] = frozenset()  # calls that changed after the position, where that was looked at


class _Later(msgspec.Struct, frozen=True):
    """What was written after the position."""

    calls: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()


def now(space: Space, *, since: LedgerRead = NO_LEDGER) -> LedgerRead:
    """How far the ledger has come; `since` is a position that it is known to have reached."""
    low, step = since.position, 1
    while space.engine.entries(space.name, after=low + step - 1, limit=1):
        low, step = low + step, step * 2
    high = low + step  # nothing is there
    while high - low > 1:
        middle = (low + high) // 2
        there = space.engine.entries(space.name, after=middle - 1, limit=1)
        low, high = (middle, high) if there else (low, middle)
    if low == since.position:
        return since
    return LedgerRead(low, space.engine.entries(space.name, after=low - 1, limit=1)[0].chain)


def whole(space: Space, read: LedgerRead) -> Book:
    """Everything that the log says up to a position; raises `Corrupt` if it is not the log that was read there."""
    book = Book()
    for entry in _entries(space, 0, read):
        book.take(decode_transition(entry.body))
    return book


def stand(
    space: Space, read: LedgerRead, *, timeline: str = MAIN, limit: int | None = None
) -> LedgerSnapshot:
    """What the last `limit` entries up to a position say, and every ticket that was open there; None: `ENTRIES_MAX`.

    Of those that were decided, those of other timelines than `timeline` are given too.
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
    # The cells first: whatever they hold, the entries that are read after them say whether it came later.
    held = {call: calls.find(space, call) for call in touched - begun}
    asked = list(_tickets(space))
    later = _later(space, read)
    believed = {call: each.record for call, each in held.items() if each and call not in later.calls}
    book = Book()
    for step in steps:
        if step.call in begun:
            book.take(_without_decisions_from_before(step, book))
    known = {**book.calls, **believed}
    if missing := touched - known.keys():
        full = whole(space, read)
        known |= {call: full.calls[call] for call in missing}
    then = [_as_of(ticket, later) for ticket in asked if ticket.id not in later.opened]
    return known, then, later.calls


def _without_decisions_from_before(step: Transition, book: Book) -> Transition:
    """The entry without a decision on a ticket that the book does not know; tickets are read from their cells."""
    if step.decided is None or step.decided in book.tickets:
        return step
    return msgspec.structs.replace(step, decided=None)


def _later(space: Space, read: LedgerRead) -> _Later:
    steps = [decode_transition(entry.body) for entry in _after(space, read.position)]
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


def _tickets(space: Space) -> Iterator[Ticket]:
    after = ""
    while page := tickets.listing(space, after=after, limit=_PAGE):
        yield from (asked.ticket for asked in page)
        after = page[-1].ticket.id


def _entries(space: Space, after: int, read: LedgerRead) -> Iterator[Entry]:
    """The entries after `after` up to a position; raises `Corrupt` unless the last is the one that was read there."""
    last = None
    while after < read.position:
        page = space.engine.entries(space.name, after=after, limit=min(_PAGE, read.position - after))
        if not page:
            break
        yield from page
        last, after = page[-1], page[-1].position
    if after != read.position or (last and read.chain and last.chain != read.chain):
        raise Corrupt(
            f"the ledger of '{space.label}' is not the one that was read up to position {read.position}; "
            "nothing was derived from it. Run `perdure verify`."
        )


def _after(space: Space, position: int) -> Iterator[Entry]:
    while page := space.engine.entries(space.name, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position
