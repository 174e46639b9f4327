"""Planning a round: what is to be done about each call that the model has asked for.

Everything that can be decided before anything happens is decided here, so that one write can
hold the assistant's turn, the requests, the questions to people, and the starts.

Clearance: whether a call may start now, and what its start must be fenced by.

Asked before every start, also of a call that somebody approved: meanwhile another line may
have sent the same thing, or another call with the same key have come to a result.

Reworking: what changes with the arguments of a call that somebody edited.

They are validated by the tool, if it is at hand, before the decision is written; its fingerprint
and a templated key follow from them.
"""

from __future__ import annotations

import json
from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Invalid
from perdure.ledger import call_identity, calls, key_claims, repeat_guard, tickets
from perdure.ledger.calls import Changes
from perdure.ledger.decisions import Rework
from perdure.ledger.key_claims import Free, Mine, Reuse, Waits
from perdure.ledger.repeat_guard import Repeats
from perdure.model import canonical
from perdure.model.call import CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.digest import Kind, Object
from perdure.model.effect import within
from perdure.model.message import ToolCall, ToolResult
from perdure.model.ticket import Ticket
from perdure.runtime.calls.imported import learn
from perdure.runtime.calls.pending_call import PendingCall, encode_result, lent
from perdure.runtime.calls.round_context import RoundContext, args_body, fingerprint_for
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.tools.arguments import why_refused
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.result import Told, told
from perdure.runtime.tools.tool import Tool

__all__ = ["plan", "AskApproval", "ReuseResult", "Clearance", "Deny", "Start", "clearance", "rework_with"]


class Start(msgspec.Struct, frozen=True):
    """It may start, if these cells are written in the same write."""

    cells: tuple[CellWrite, ...] = ()
    claim: Free | Mine | Waits | None = None  # of a key that holds store-wide: to be claimed first


class AskApproval(msgspec.Struct, frozen=True):
    """Somebody has to be asked."""

    ticket: Ticket


class Deny(msgspec.Struct, frozen=True):
    """It is not made."""

    why: str


class ReuseResult(msgspec.Struct, frozen=True):
    """A call with the same key was done: its result is this one's."""

    reuse: Reuse


Clearance: TypeAlias = Start | AskApproval | Deny | ReuseResult


def clearance(desk: RoundContext, tool: Tool, record: CallRecord) -> Clearance:
    """Whether `record` may start."""
    most = desk.ground.effect_max
    if not within(record.effect, most):
        return Deny(f"on this line no call beyond {most} is made")
    asked = tickets.find(desk.space, record.ticket) if record.ticket else None
    ticket = asked.ticket if asked else None
    seen = repeat_guard.seen(record, ticket)
    if record.reach.guarded and tool.repeat_guard != "allow":
        learn(desk, tool)
    verdict = repeat_guard.check(
        desk.space,
        record,
        head=desk.journal.head.commit,
        backend=record.backend,
        policy=tool.repeat_guard,
        seen=seen,
    )
    if isinstance(verdict, Repeats):
        return _repeats(desk, tool, record, verdict)
    home = desk.ground.store if record.key_scope == "store" else desk.space
    standing = key_claims.owner_of_key(home, desk.space, record)
    match standing:
        case Reuse():
            return ReuseResult(standing)
        case Waits() if not seen and repeat_guard.allowed(record, ticket).get("claim") != standing.revision:
            return AskApproval(_question(desk, tool, record, standing))
        case _:
            cells = repeat_guard.starting(record, verdict)
            if record.key_scope == "store":
                return Start(cells, standing)
            return Start((*cells, *key_claims.claiming(desk.space, record, standing, at=desk.now())))


def _repeats(desk: RoundContext, tool: Tool, record: CallRecord, found: Repeats) -> Clearance:
    if tool.repeat_guard == "deny":
        return Deny(_words(found))
    ticket = tickets.repetition(
        record,
        found,
        id=desk.space.ids(),
        at=desk.now(),
        message=_words(found),
        arguments_schema=tool.arguments_schema,
    )
    return AskApproval(ticket)


def _question(desk: RoundContext, tool: Tool, record: CallRecord, waits: Waits) -> Ticket:
    """The question whether this call may run though another has its key; approving covers that claim and no later one."""
    state = waits.record.state if waits.record else "gone with its thread"
    if waits.record is not None and repeat_guard.done(waits.record):
        state += ", and nobody can tell whether its key still stands for it"
    return tickets.question(
        record,
        id=desk.space.ids(),
        at=desk.now(),
        action="repeat",
        parameters=canonical.encode({"case": "key", "claim": waits.revision}).decode(),
        arguments_schema=tool.arguments_schema,
        message=f"a call with the same key ({record.key}), '{waits.owner.call}', is {state}",
    )


def _words(found: Repeats) -> str:
    earlier = found.earlier
    match found.case:
        case "unclear":
            what = f"is {earlier.state}: it may have happened"
        case "elsewhere":
            what = "was done, but is not in the history of this line"
        case "backend" if earlier.origin == "import":
            what = "was done elsewhere, before it was brought in"
        case "backend":
            what = f"was done, asked for by {earlier.backend or 'another backend'}"
    return f"the same call to {earlier.tool}, '{earlier.id}', {what}"


def plan(
    desk: RoundContext,
    call: ToolCall,
    label: str,
    *,
    vendor_id: str | None,
    taken: set[str],
    start: bool = True,
    cut_off: str | None = None,
) -> PendingCall:
    """What is to be done about `call`, with the posting that says so.

    `taken` holds the fingerprints of external writes that this round starts; an equal one waits
    for its turn.  With `start` off nothing is started yet, because what was to fence it has moved.
    `cut_off` says why the answer that holds the call is not complete; such a call is never run.
    """
    slot = PendingCall(call, desk.toolbox.get(call.name))
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


def _decide(
    desk: RoundContext, slot: PendingCall, tool: Tool, record: CallRecord, taken: set[str], *, start: bool
) -> None:
    if record.reach.guarded and record.fingerprint in taken:
        slot.posting = calls.propose(record, "requested")  # its twin goes first
        return
    match clearance(desk, tool, record):
        case Deny(why):
            _refuse(slot, record, "denied", "denied", why)
        case ReuseResult(reuse):
            slot.posting = calls.propose(record, "requested")
            lent(slot, *key_claims.borrowed(desk.space, reuse), at=record.at)
        case AskApproval(ticket):
            slot.suspend(tickets.ask(record, ticket))
        case Start(cells, claim):
            if _asks(slot, tool, record):
                slot.suspend(tickets.ask(record, _approval(desk, tool, record)))
                return
            taken.add(record.fingerprint)
            if start and record.reach.writes and claim is None:
                begun = msgspec.structs.replace(record, **desk.starting(tool, record))
                slot.posting = calls.propose(begun, "requested", "started").also(cells=cells)
            else:
                slot.posting = calls.propose(record, "requested")


def _asks(slot: PendingCall, tool: Tool, record: CallRecord) -> bool:
    if isinstance(tool.ask, bool):
        return tool.ask
    assert slot.arguments is not None
    return tool.asks(
        Call(id=record.id, tool=record.tool, key=record.key or "", arguments=slot.arguments.normal)
    )


def _approval(desk: RoundContext, tool: Tool, record: CallRecord) -> Ticket:
    return tickets.question(
        record,
        id=desk.space.ids(),
        at=desk.now(),
        message=f"{tool.name} ({record.effect}) asks for approval before it runs",
        arguments_schema=tool.arguments_schema,
    )


def _refuse(slot: PendingCall, record: CallRecord, state: CallState, as_what: Told, why: str) -> None:
    """The call is not made; the model is told why."""
    result = ToolResult(record.id, "error", told(as_what, why, record.tool))
    body = Object.of(Kind.BODY, encode_result(result))
    record = msgspec.structs.replace(record, status="error", why=why or as_what, preview=body.digest)
    slot.settle(calls.propose(record, state).also(objects=(body,)), result)


def _with_arguments(slot: PendingCall) -> PendingCall:
    assert slot.posting is not None
    slot.posting = slot.posting.also(objects=(args_body(slot.call.args),))
    return slot


def rework_with(ground: RunEnvironment) -> Rework:
    """How the tools of this agent see new arguments; without the tool they are looked at when it runs."""
    toolbox = ground.agent.toolbox

    def rework(record: CallRecord, arguments: dict[str, Json]) -> Changes:
        tool = toolbox.get(record.tool)
        if tool is None:
            return {}
        taken = tool.validated(json.dumps(arguments))
        changes: Changes = {"fingerprint": fingerprint_for(tool, taken)}
        if tool.key is not None:
            changes["key"] = call_identity.templated_key(
                tool.key,
                dict(taken.normal),
                agent=ground.agent.name,
                thread=ground.space.label,
                scope=tool.key_scope,
            )
        return changes

    return rework
