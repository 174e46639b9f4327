"""Planning a round: what is to be done about each call that the model has asked for.

Everything that can be decided before anything happens is decided here, so that one write can
hold the assistant's turn, the requests, the questions to people, and the starts.
"""

from __future__ import annotations

import msgspec

from perdure.errors import Invalid
from perdure.ledger import calls, claims, tickets
from perdure.model.call import CallRecord, CallState
from perdure.model.digest import Kind, Object
from perdure.model.message import ToolCall, ToolResult
from perdure.model.ticket import Ticket
from perdure.runtime.arguments import why_refused
from perdure.runtime.call import Call
from perdure.runtime.clearance import Ask, Borrow, Deny, Go, clearance
from perdure.runtime.desk import Desk, args_body
from perdure.runtime.result import Told, told
from perdure.runtime.slot import Slot, encode_result, lent
from perdure.runtime.tool import Tool

__all__ = ["plan"]


def plan(
    desk: Desk,
    call: ToolCall,
    label: str,
    *,
    vendor_id: str | None,
    taken: set[str],
    start: bool = True,
    cut_off: str | None = None,
) -> Slot:
    """What is to be done about `call`, with the posting that says so.

    `taken` holds the fingerprints of external writes that this round starts; an equal one waits
    for its turn.  With `start` off nothing is started yet, because what was to fence it has moved.
    `cut_off` says why the answer that holds the call is not complete; such a call is never run.
    """
    slot = Slot(call, desk.toolbox.get(call.name))
    tool = slot.tool
    if cut_off is not None:
        _refuse(slot, desk.record(call, label, tool, None, vendor_id), "failed", "cut_off", cut_off)
        return _with_arguments(slot)
    if tool is None:
        record = desk.record(call, label, None, None, vendor_id)
        _refuse(slot, record, "failed", "no_such_tool", "")
        return _with_arguments(slot)
    try:
        slot.arguments = tool.validated(call.args)
    except Invalid as error:
        record = desk.record(call, label, tool, None, vendor_id)
        _refuse(slot, record, "failed", "invalid", why_refused(error))
        return _with_arguments(slot)
    record = desk.record(call, label, tool, slot.arguments, vendor_id)
    _decide(desk, slot, tool, record, taken, start=start)
    return _with_arguments(slot)


def _decide(desk: Desk, slot: Slot, tool: Tool, record: CallRecord, taken: set[str], *, start: bool) -> None:
    if record.reach.guarded and record.fingerprint in taken:
        slot.posting = calls.propose(record, "requested")  # its twin goes first
        return
    match clearance(desk, tool, record):
        case Deny(why):
            _refuse(slot, record, "denied", "denied", why)
        case Borrow(reuse):
            slot.posting = calls.propose(record, "requested")
            lent(slot, *claims.borrowed(desk.space, reuse), at=record.at)
        case Ask(ticket):
            slot.suspend(tickets.ask(record, ticket))
        case Go(cells, claim):
            if _asks(slot, tool, record):
                slot.suspend(tickets.ask(record, _approval(desk, tool, record)))
                return
            taken.add(record.fingerprint)
            if start and record.reach.writes and claim is None:
                begun = msgspec.structs.replace(record, **desk.starting(tool, record))
                slot.posting = calls.propose(begun, "requested", "started").also(cells=cells)
            else:
                slot.posting = calls.propose(record, "requested")


def _asks(slot: Slot, tool: Tool, record: CallRecord) -> bool:
    if isinstance(tool.ask, bool):
        return tool.ask
    assert slot.arguments is not None
    return tool.asks(
        Call(id=record.id, tool=record.tool, key=record.key or "", arguments=slot.arguments.normal)
    )


def _approval(desk: Desk, tool: Tool, record: CallRecord) -> Ticket:
    return tickets.question(
        record,
        id=desk.space.ids(),
        at=desk.now(),
        message=f"{tool.name} ({record.effect}) asks for approval before it runs",
        arguments_schema=tool.arguments_schema,
    )


def _refuse(slot: Slot, record: CallRecord, state: CallState, as_what: Told, why: str) -> None:
    """The call is not made; the model is told why."""
    result = ToolResult(record.id, "error", told(as_what, why, record.tool))
    body = Object.of(Kind.BODY, encode_result(result))
    record = msgspec.structs.replace(record, status="error", why=why or as_what, preview=body.digest)
    slot.settle(calls.propose(record, state).also(objects=(body,)), result)


def _with_arguments(slot: Slot) -> Slot:
    assert slot.posting is not None
    slot.posting = slot.posting.also(objects=(args_body(slot.call.args),))
    return slot
