"""Tickets: opening the question that a call waits for, and finding it again.

A ticket is opened by the posting that suspends its call, so neither is ever there without the
other.  Its cell is listed while it is open: a store finds what waits over all its threads.  A mark on
its line says the same within the thread, and another one, once it is decided, that it was there.

An approval covers exactly the arguments and the fingerprint that the ticket shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.engines.contract import Cell, CellWrite, Engine
from perdure.errors import NotFound
from perdure.history import cells
from perdure.history import cells as marks
from perdure.history.space import Space
from perdure.ledger import calls, json_schema
from perdure.ledger.calls import CallTransition, Changes, VersionedCall
from perdure.ledger.repeat_guard import Repeats
from perdure.model import canonical
from perdure.model.call import CallRecord
from perdure.model.ticket import Decision, OnTimeout, Resume, Ticket
from perdure.projections.calls import Transition

__all__ = [
    "ASKED",
    "ASKS",
    "TICKET",
    "StoredTicket",
    "ask",
    "closed",
    "closing",
    "elsewhere",
    "find",
    "listing",
    "open_on",
    "opened",
    "question",
    "read",
    "repetition",
    "still_bound",
    "waiting",
]

TICKET = "ticket/"  # cells of tickets, by id
ASKS = "asks/"  # marks of open tickets, by line
ASKED = "asked/"  # marks of decided tickets, by line

_tickets = msgspec.json.Decoder(Ticket)


class StoredTicket(msgspec.Struct, frozen=True):
    """A ticket as it was read."""

    ticket: Ticket
    revision: int


def question(
    record: CallRecord,
    *,
    id: str,
    at: int,
    action: str = "approve",
    message: str = "",
    parameters: str | None = None,
    response_schema: str | None = None,
    arguments_schema: str | None = None,
    expires_at: int | None = None,
    on_timeout: OnTimeout = "expire",
    resume: Resume = "run",
) -> Ticket:
    """The question whether, or how, this call may go on; raises `Unsupported` for a schema that cannot be checked."""
    if response_schema is not None:
        json_schema.check_schema(response_schema)
    return Ticket(
        id=id,
        call=record.id,
        tool=record.tool,
        args=record.args,
        fingerprint=record.fingerprint,
        timeline=record.timeline,
        asked_at=at,
        action=action,
        message=message,
        run=record.run,
        label=record.label,
        parameters=parameters,
        response_schema=response_schema,
        arguments_schema=arguments_schema,
        expires_at=expires_at,
        on_timeout=on_timeout,
        resume=resume,
    )


def repetition(
    record: CallRecord,
    found: Repeats,
    *,
    id: str,
    at: int,
    message: str = "",
    arguments_schema: str | None = None,
    expires_at: int | None = None,
    on_timeout: OnTimeout = "expire",
) -> Ticket:
    """The question whether this call may repeat what the guard found; approving covers that and no later start."""
    told = {"case": found.case, "repeats": found.earlier.id, "seen": found.gate.count}
    return question(
        record,
        id=id,
        at=at,
        action="repeat",
        message=message,
        parameters=canonical.encode(told).decode(),
        arguments_schema=arguments_schema,
        expires_at=expires_at,
        on_timeout=on_timeout,
    )


def ask(call: VersionedCall | CallRecord, ticket: Ticket) -> CallTransition:
    """Suspend a call by `ticket`; one that is not in the ledger yet is entered.

    An earlier approval is void from here on.  Raises `Conflict` if the call cannot be suspended.
    """
    value = canonical.encode_struct(ticket)
    step = Transition(ticket=msgspec.Raw(value))
    void: Changes = {"ticket": ticket.id, "approved": None, "approved_fingerprint": None}
    if isinstance(call, VersionedCall):
        transition = calls.advance(call, "awaiting_approval", at=ticket.asked_at, step=step, **void)
    else:
        record = msgspec.structs.replace(call, at=ticket.asked_at, **void)
        transition = calls.propose(record, "awaiting_approval", step=step)
    cell = CellWrite(name=TICKET + ticket.id, expected=0, value=value, listed=True)
    return transition.also(
        cells=(cell, marks.mark(ASKS, ticket.timeline, ticket.id, expected=0, present=True))
    )


def closing(asked: StoredTicket, decision: Decision) -> tuple[tuple[CellWrite, ...], Transition]:
    """What the posting must hold that a decision leads to: the ticket's cells, and what the entry says of it."""
    ticket = msgspec.structs.replace(asked.ticket, decision=decision)
    value = canonical.encode_struct(ticket)
    cell = CellWrite(name=TICKET + ticket.id, expected=asked.revision, value=value)
    open_no_more = marks.mark(ASKS, ticket.timeline, ticket.id, expected=1, present=False)
    return (cell, open_no_more, closed(ticket)), Transition(decided=ticket.id, decision=decision)


def closed(ticket: Ticket) -> CellWrite:
    """The mark of a ticket that is decided, in the same write."""
    return marks.mark(ASKED, ticket.timeline, ticket.id, expected=0, present=True)


def find(space: Space, id: str) -> StoredTicket | None:
    """The ticket of that id; None if the thread has none."""
    cell = space.engine.cell(space.name, TICKET + id)
    return None if cell is None or cell.value is None else _asked(cell)


def read(space: Space, id: str) -> StoredTicket:
    """The ticket of that id; raises `NotFound`."""
    found = find(space, id)
    if found is None:
        raise NotFound(
            f"'{space.label}' has no ticket '{id}'; nothing was read.",
            code="ticket_not_found",
            advice="See what waits with approvals().",
            ticket=id,
            thread=space.label,
        )
    return found


def listing(space: Space, *, after: str = "", limit: int) -> list[StoredTicket]:
    """The thread's tickets by id, decided ones too, those after the id `after`."""
    found = space.engine.cells(space.name, prefix=TICKET, after=TICKET + after, limit=limit)
    return [_asked(cell) for cell in found]


def open_on(space: Space, line: str) -> list[Ticket]:
    """The open tickets of a line, by id."""
    return [read(space, id).ticket for id in marks.marked(space, ASKS, line)]


def opened(space: Space) -> list[Ticket]:
    """The open tickets of the thread, on whatever line."""
    return [read(space, id).ticket for id in marks.marked_elsewhere(space, ASKS, "")]


def elsewhere(space: Space, line: str) -> list[Ticket]:
    """The tickets of other lines, decided ones too, by id."""
    ids = {id for prefix in (ASKS, ASKED) for id in marks.marked_elsewhere(space, prefix, line)}
    return [read(space, id).ticket for id in sorted(ids)]


def waiting(
    engine: Engine, *, after: tuple[str, str] = ("", ""), limit: int
) -> Sequence[tuple[str, StoredTicket]]:
    """Open tickets of every thread by (ticket id, space), each with the name of its space."""
    cursor = (TICKET + after[0], after[1])
    found = engine.listed(prefix=TICKET, after=cursor, limit=limit)
    return [(cell.space, _asked(cell)) for cell in found]


def still_bound(record: CallRecord, fingerprint: str) -> bool:
    """Whether the approval covers what is about to run: these arguments, and nothing else.

    A fingerprint that was not known when the arguments were approved is bound by their body alone.
    """
    if record.approved is None or record.approved != record.args:
        return False
    return record.approved_fingerprint in ("", fingerprint)


def _asked(cell: Cell) -> StoredTicket:
    return StoredTicket(cells.read(cell, _tickets), cell.revision)
