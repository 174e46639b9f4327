"""Opens and reads tickets.  A ticket is the question that a suspended call waits for.

The transition that suspends a call opens its ticket, so neither exists without the other.  The cell of an open ticket
is listed, so a store finds the open tickets of all its threads.  Within a thread, marks by timeline name the open
tickets and the decided ones.

An approval covers exactly the arguments and the fingerprint that the ticket shows.

The guard's ticket stores the question as it was asked.  The earlier call may be settled after that, by its tool or by
a person, so every reader that shows a ticket takes it from `as_of_now`.  The view `approvals` of the SQL schema has the
same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, cast

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellWrite, Engine
from perdure.errors import NotFound
from perdure.history.space import (
    Space,
    label_of,
    mark_write,
    read_record,
)
from perdure.ledger import calls, json_schema
from perdure.ledger.calls import CallTransition, Changes, VersionedCall
from perdure.ledger.repeat_guard import Repeats, done, is_unclear, outcome_of, starts
from perdure.model import canonical
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.ticket import (
    CHILD_RUN,
    AwaitedChildren,
    ChildRef,
    Decision,
    OnTimeout,
    Repeat,
    Resume,
    Ticket,
)
from perdure.projections.calls import Transition

__all__ = [
    "ASKED",
    "ASKS",
    "TICKET",
    "StoredTicket",
    "as_of_now",
    "ask",
    "children_of",
    "closed",
    "closing",
    "decided_before",
    "elsewhere",
    "every",
    "find",
    "followed",
    "is_approval_outdated",
    "is_informed",
    "keep_decision",
    "of_children",
    "open_on",
    "opened",
    "question",
    "describe_equal",
    "describe_repeat",
    "describe_key_conflict",
    "read",
    "repeat_of",
    "repetition",
    "still_bound",
    "waiting",
]

TICKET = "ticket/"  # cells of tickets, by id
ASKS = "asks/"  # marks of open tickets, by timeline
ASKED = "asked/"  # marks of decided tickets, by timeline

_tickets = msgspec.json.Decoder(Ticket)
_awaited = msgspec.json.Decoder(AwaitedChildren)

_LOOKED_AT_MAX = 16  # earlier starts of an equal call, newest first
_TICKETS_LOOKED_AT_MAX = 100  # the newest ones, for calls that are approved and have not run yet

_MAY_HAVE = "it may have happened"
_FAILED_ELSEWHERE = f"ended in an error elsewhere, before it was brought in: {_MAY_HAVE}"
_UNSETTLED = ("unclear", "key")  # the cases in which the earlier call was not settled when it was asked about


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
    """Return a ticket that asks whether, or how, this call may go on.

    Raises `Unsupported` for a schema that cannot be checked.
    """
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
    starts: Mapping[str, int] | None = None,
    root: str | None = None,
) -> Ticket:
    """Return a ticket that asks whether this call may repeat what the guard found.

    An approval covers the starts so far and no later one; `starts` counts them, None: as the gate that was found does.
    `root` is the space of the root thread if its guard found the earlier call, None: the guard of this thread did.
    """
    counted = {"seen": found.gate.count} if starts is None else starts
    shown = {"case": found.case, "repeats": found.earlier.id, **({"space": root} if root else {}), **counted}
    return question(
        record,
        id=id,
        at=at,
        action="repeat",
        message=message,
        parameters=canonical.encode(shown).decode(),
        arguments_schema=arguments_schema,
    )


def ask(call: VersionedCall | CallRecord, ticket: Ticket) -> CallTransition:
    """Return the transition that suspends a call by `ticket`; it enters a call that is not in the ledger yet.

    It cancels an earlier approval, and the ticket names the question before it.  Raises `Conflict` if the call cannot
    be suspended.
    """
    before = call.record.ticket if isinstance(call, VersionedCall) else None
    ticket = msgspec.structs.replace(ticket, follows=before)
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
        cells=(cell, mark_write(ASKS, ticket.timeline, ticket.id, expected=0, present=True))
    )


def closing(asked: StoredTicket, decision: Decision) -> tuple[tuple[CellWrite, ...], Transition]:
    """Return what the transition of a decision needs: the ticket's cells, and the fields of the ledger entry."""
    ticket = msgspec.structs.replace(asked.ticket, decision=decision)
    value = canonical.encode_struct(ticket)
    cell = CellWrite(name=TICKET + ticket.id, expected=asked.revision, value=value)
    no_longer_open = mark_write(ASKS, ticket.timeline, ticket.id, expected=1, present=False)
    return (cell, no_longer_open, closed(ticket)), Transition(decided=ticket.id, decision=decision)


def closed(ticket: Ticket) -> CellWrite:
    """Return the mark of a decided ticket, for the write that decides it."""
    return mark_write(ASKED, ticket.timeline, ticket.id, expected=0, present=True)


def find(space: Space, id: str) -> StoredTicket | None:
    """Read the ticket of that id; None if the thread has none."""
    cell = space.engine.cell(space.name, TICKET + id)
    return None if cell is None or cell.value is None else _stored(cell)


def read(space: Space, id: str) -> StoredTicket:
    """Read the ticket of that id; raises `NotFound`."""
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


def every(space: Space) -> Iterator[Ticket]:
    """Yield all tickets of the thread, decided ones too, sorted by id."""
    return (_stored(cell).ticket for cell in loops.cells(space.engine, space.name, prefix=TICKET))


def open_on(space: Space, line: str) -> list[Ticket]:
    """Read the open tickets of a timeline, sorted by id."""
    return [read(space, id).ticket for id in space.marked(ASKS, line)]


def opened(space: Space) -> list[Ticket]:
    """Read the open tickets of all timelines of the thread."""
    return [read(space, id).ticket for id in space.marked_elsewhere(ASKS, "")]


def elsewhere(space: Space, line: str) -> list[Ticket]:
    """Read the tickets of all other timelines, decided ones too, sorted by id."""
    ids = {id for prefix in (ASKS, ASKED) for id in space.marked_elsewhere(prefix, line)}
    return [read(space, id).ticket for id in sorted(ids)]


def waiting(engine: Engine) -> Iterator[tuple[str, Ticket]]:
    """Yield the open tickets of every thread, sorted by id, each with the name of its space.

    A call that waits for child runs is left out: the children's own tickets are there.
    """
    for cell in loops.listed(engine, prefix=TICKET):
        ticket = _stored(cell).ticket
        if ticket.action != CHILD_RUN:
            yield cell.space, ticket


def of_children(space: Space, ticket: Ticket) -> Iterator[tuple[Space, Ticket]]:
    """Yield what the child runs wait for that the call of `ticket` waits for, each with the space of its thread."""
    for child in children_of(ticket):
        inside = space.beside(child.space, child.thread)
        for each in opened(inside):
            if each.run == child.run:
                yield from of_children(inside, each) if each.action == CHILD_RUN else [(inside, each)]


def keep_decision(space: Space, before: str, parameters: str | None) -> str:
    """Return the parameters of a ticket that waits for child runs, with the decision that the tool was given before."""
    awaited, earlier = _awaited.decode(parameters or ""), read(space, before).ticket
    if earlier.action == CHILD_RUN:
        decided = _awaited.decode(earlier.parameters or "").decided
    else:
        decided = earlier.id if earlier.decision is not None else None
    return canonical.encode_struct(msgspec.structs.replace(awaited, decided=decided)).decode()


def followed(space: Space, ticket: Ticket) -> Iterator[Ticket]:
    """Yield the questions that the call of a ticket waited for before, newest first."""
    while ticket.follows is not None:
        ticket = read(space, ticket.follows).ticket
        yield ticket


def decided_before(ticket: Ticket) -> str | None:
    """Return the ticket whose decision a tool was given before its call waited for child runs; None: there is none."""
    return _awaited.decode(ticket.parameters or "").decided


def children_of(ticket: Ticket) -> tuple[ChildRef, ...]:
    """Return the child runs that the call of a ticket waits for; none if it waits for a person."""
    if ticket.action != CHILD_RUN or ticket.parameters is None:
        return ()
    return _awaited.decode(ticket.parameters).children


def still_bound(record: CallRecord, fingerprint: str) -> bool:
    """True if the approval covers the call that is about to run: these arguments and no others.

    If the fingerprint was unknown at the approval, the body of the arguments decides alone.
    """
    if record.approved is None or record.approved != record.args:
        return False
    return record.approved_fingerprint in ("", fingerprint)


def describe_repeat(found: Repeats, by: str | None) -> str:
    """Return the question about a repeat as it is asked; `by` is the person who settled the earlier call, if known."""
    earlier = found.earlier
    match found.case:
        case "unclear" if earlier.state == "failed":
            what = _FAILED_ELSEWHERE
        case "unclear":
            what = f"is {earlier.state}: {_MAY_HAVE}"
        case "elsewhere" if earlier.state == "resolved":
            what = f"was done, as {by or 'a person'} says{f': {earlier.why}' if earlier.why else ''}"
        case "elsewhere" if earlier.result_label == "" and earlier.origin != "call":
            what = "was done, as was found out later"
        case "elsewhere":
            what = "was done, but is not in this conversation"
        case "backend" if earlier.origin == "import":
            what = "was done elsewhere, before it was brought in"
        case "backend":
            what = f"was done, asked for by {earlier.backend or 'another backend'}"
        case "again":
            what = "was done in this run, which has since refused an answer and asked for another"
        case "since":
            what = "was done after a model had asked for this one"
        case "edited":
            what = "was done before; the model had asked for other arguments"
        case "denied":
            what = f"was denied as a repeat{f': {earlier.why}' if earlier.why else ''}"
    return f"the same call to {earlier.tool}, '{earlier.id}', {what}"


def describe_equal(spaces: Sequence[Space], record: CallRecord) -> str | None:
    """Return what to tell a person who is asked about an external write of equal calls before it; None: there were none.

    The guard asks about a repeat that no model meant.  A person may not know of one that a model did mean, or that the
    tool allows.  `spaces` are the call's thread and, if a child run makes it, the root thread.
    """
    if not record.reach.guarded or not record.fingerprint:
        return None
    told = _waiting_equal(spaces, record), _started_equal(spaces, record)
    return "; ".join(f"the same call, {each}" for each in told if each) or None


def _waiting_equal(spaces: Sequence[Space], record: CallRecord) -> str | None:
    for space in spaces:
        for ticket in opened(space):
            inside = (each for _, each in of_children(space, ticket))
            for each in inside if ticket.action == CHILD_RUN else (ticket,):
                if each.fingerprint == record.fingerprint and each.call != record.id:
                    return f"'{each.call}', was requested before and waited when this was asked"
        newest = [_stored(cell).ticket for cell in space.last_cells(TICKET, _TICKETS_LOOKED_AT_MAX)]
        decided = [each.call for each in newest if each.decision is not None and each.call != record.id]
        for found in calls.find_many(space, decided):
            if found and (found.record.state, found.record.fingerprint) == ("approved", record.fingerprint):
                return f"'{found.record.id}', was approved before and had not run when this was asked"
    return None


def _started_equal(spaces: Sequence[Space], record: CallRecord) -> str | None:
    """Describe the newest equal call that may have happened, or else the newest that was done."""
    newest = (islice(starts(space, record.fingerprint), _LOOKED_AT_MAX) for space in spaces)
    found = [outcome_of(space, each) for space, some in zip(spaces, newest, strict=True) for each in some]
    equal = [each for each in found if each.id != record.id]
    unclear = next(filter(is_unclear, equal), None)
    if unclear is None:
        earlier = next(filter(done, equal), None)
        return None if earlier is None else f"'{earlier.id}', was done before"
    if unclear.state == "failed":
        return f"'{unclear.id}', {_FAILED_ELSEWHERE}"
    return f"'{unclear.id}', was {unclear.state} when this was asked: {_MAY_HAVE}"


def describe_key_conflict(call: str, earlier: CallRecord | None) -> str:
    """Return the question about a call whose key another call has, as it is asked; None: its thread was removed."""
    state = earlier.state if earlier else "gone with its thread"
    if earlier is not None and done(earlier):
        state += ", and it is not known whether its key is still good"
    return f"a call with the same key, '{call}', is {state}"


def as_of_now(space: Space, ticket: Ticket) -> Ticket:
    """Return a ticket whose message says what is known now of the earlier call that it is about."""
    shown = _shown(ticket)
    if shown.get("case") not in _UNSETTLED:
        return ticket
    earlier = earlier_call(space, ticket)
    what = None if earlier is None else _state_in_words(earlier)
    if earlier is None or what is None:
        return ticket
    subject = "a call with the same key" if shown["case"] == "key" else f"the same call to {earlier.tool}"
    return msgspec.structs.replace(ticket, message=f"{subject}, '{earlier.id}', {what}")


def earlier_call(space: Space, ticket: Ticket) -> CallRecord | None:
    """Read the call that a ticket's call would repeat, or might; None if it asks about none, or that call was removed."""
    shown = _shown(ticket)
    id, elsewhere = shown.get("repeats"), shown.get("space")
    if not isinstance(id, str):
        return None
    if isinstance(elsewhere, str):
        space = space.beside(elsewhere, label_of(space.engine, elsewhere))
    found = calls.find(space, id)
    return None if found is None else found.record


def repeat_of(space: Space, ticket: Ticket) -> Repeat | None:
    """Return what is known now of the earlier call that a ticket asks about; None if it asks about no repeat."""
    case = _shown(ticket).get("case")
    if ticket.action != "repeat" or case == "denied":
        return "denied" if case == "denied" else None
    if case not in _UNSETTLED:
        return "done"
    earlier = earlier_call(space, ticket)
    return "possible" if earlier is None else _known_of(earlier)


def is_approval_outdated(space: Space, ticket: Ticket) -> bool:
    """True if the earlier call was found to be done after a person approved a repeat: the person did not know it."""
    if ticket.decision is None or _shown(ticket).get("case") not in _UNSETTLED:
        return False
    earlier = earlier_call(space, ticket)
    return earlier is not None and done(earlier) and earlier.at > ticket.decision.at


def is_informed(ticket: Ticket) -> bool:
    """True if a person decided it; it told that person of equal calls that were requested before."""
    if ticket.decision is None or ticket.action in ("repeat", CHILD_RUN):
        return False
    return ticket.expires_at is None or ticket.decision.by is not None  # else its time has come


def _shown(ticket: Ticket) -> dict[str, object]:
    """Return the parameters of a repeat's ticket; empty for any other ticket."""
    if ticket.action != "repeat" or ticket.parameters is None:
        return {}
    shown = canonical.decode(ticket.parameters.encode())
    return cast("dict[str, object]", shown) if isinstance(shown, dict) else {}


def _state_in_words(earlier: CallRecord) -> str | None:
    """Return what the ledger knows now of the earlier call; None: the message of the ticket still holds."""
    known = _known_of(earlier)
    if known == "possible":
        return f"is {earlier.state}: {_MAY_HAVE}" if earlier.state in UNCLEAR else None
    if earlier.state == "resolved":
        was = known.replace("_", " ")
        return f"was {was}, as a person said since{f': {earlier.why}' if earlier.why else ''}"
    return f"{'failed' if known == 'failed' else 'was done'}, as was found out since"


def _known_of(earlier: CallRecord) -> Literal["possible", "done", "not_done", "failed"]:
    """Return what the ledger knows now of an earlier call: "possible" if it may have happened."""
    if earlier.state == "succeeded" or earlier.evidence is not None:
        return "done"
    if earlier.state == "resolved":
        return "not_done" if earlier.outcome == "not_done" else "done"
    return "failed" if earlier.state == "failed" and earlier.origin != "import" else "possible"


def _stored(cell: Cell) -> StoredTicket:
    return StoredTicket(read_record(cell, _tickets), cell.revision)
