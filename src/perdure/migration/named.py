"""What a line's own commits say of calls, beyond the ledger as they had read it.

A commit is written together with the entries that belong to it, so it had not read them: a call that
it asks for, settles or brings from elsewhere enters the ledger just behind its position.  The history
names such calls, and says what became of them; the ledger says, in the entry by which each came in,
what it was.  Neither ever changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.engines.contract import Entry, Step
from perdure.history.space import Space
from perdure.migration.book import ENTRIES_MAX, Known, Stand
from perdure.model.call import SETTLED, STATES, CallRecord
from perdure.model.commit import LedgerRead
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

__all__ = ["Named", "named_in", "with_named"]

_PAGE = 100

_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What the last commits of a line name."""

    calls: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()  # that were asked and not decided there
    completed: dict[str, ToolCallCompleted] = {}  # by call: what was said of it last


def named_in(steps: Iterable[Step], spoken: Iterable[TranscriptEntry]) -> Named:
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
    return Named(calls=frozenset(found), tickets=frozenset(asked), completed=completed)


def with_named(space: Space, read: LedgerRead, stand: Stand, named: Named) -> Stand:
    """The same with the calls and questions that the history names and the ledger, as it was read, did not have yet."""
    calls = set(named.calls) - {known.record.id for known in stand.calls}
    tickets = set(named.tickets) - {ticket.id for ticket in stand.waiting}
    more: list[Known] = []
    waiting: list[Ticket] = []
    for entry in _behind(space, read.position):
        if not calls and not tickets:
            break
        step = decode_transition(entry.body)
        if step.record and step.call in calls:
            calls.discard(step.call)
            more.append(Known(_records.decode(step.record), entry.position))
        if step.ticket and (ticket := _tickets.decode(step.ticket)).id in tickets:
            tickets.discard(ticket.id)
            waiting.append(ticket)
    told = [_as_told(known, named) for known in (*stand.calls, *more)]
    asked = sorted((*stand.waiting, *waiting), key=lambda ticket: ticket.id)
    return msgspec.structs.replace(stand, calls=tuple(told), waiting=tuple(asked))


def _as_told(known: Known, named: Named) -> Known:
    """The call as the history leaves it, where the ledger had not got so far."""
    record, event = known.record, named.completed.get(known.record.id)
    if event is None or record.state in SETTLED or event.status not in STATES:
        return known
    result = event.result_ref or record.result
    return Known(msgspec.structs.replace(record, state=event.status, result=result), known.position)


def _behind(space: Space, position: int) -> Iterator[Entry]:
    """The entries just behind a position; what belongs to a commit does not lie far from it."""
    left = ENTRIES_MAX
    while left and (page := _page(space, position, min(left, _PAGE))):
        yield from page
        position, left = page[-1].position, left - len(page)


def _page(space: Space, position: int, limit: int) -> Sequence[Entry]:
    return space.engine.entries(space.name, after=position, limit=limit)
