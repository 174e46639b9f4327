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
from perdure.ledger import call_identity, calls, repeat_guard, tickets
from perdure.ledger.call_identity import Free, Mine, Reuse, Waits
from perdure.ledger.calls import Changes
from perdure.ledger.decisions import Rework
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


def clearance(round_context: RoundContext, tool: Tool, record: CallRecord) -> Clearance:
    """Whether `record` may start."""
    most = round_context.env.effect_max
    if not within(record.effect, most):
        return Deny(f"on this line no call beyond {most} is made")
    asked = tickets.find(round_context.space, record.ticket) if record.ticket else None
    ticket = asked.ticket if asked else None
    seen = repeat_guard.seen(record, ticket)
    if record.reach.guarded and tool.repeat_guard != "allow":
        learn(round_context, tool)
    verdict = repeat_guard.check(
        round_context.space,
        record,
        head=round_context.journal.head.commit,
        backend=record.backend,
        policy=tool.repeat_guard,
        seen=seen,
    )
    if isinstance(verdict, Repeats):
        return _repeats(round_context, tool, record, verdict)
    home = round_context.env.store if record.key_scope == "store" else round_context.space
    standing = call_identity.owner_of_key(home, round_context.space, record)
    match standing:
        case Reuse():
            return ReuseResult(standing)
        case Waits() if not seen and repeat_guard.allowed(record, ticket).get("claim") != standing.revision:
            return AskApproval(_question(round_context, tool, record, standing))
        case _:
            cells = repeat_guard.starting(record, verdict)
            if record.key_scope == "store":
                return Start(cells, standing)
            return Start(
                (
                    *cells,
                    *call_identity.claiming(round_context.space, record, standing, at=round_context.now()),
                )
            )


def _repeats(round_context: RoundContext, tool: Tool, record: CallRecord, found: Repeats) -> Clearance:
    if tool.repeat_guard == "deny":
        return Deny(_words(found))
    ticket = tickets.repetition(
        record,
        found,
        id=round_context.space.ids(),
        at=round_context.now(),
        message=_words(found),
        arguments_schema=tool.arguments_schema,
    )
    return AskApproval(ticket)


def _question(round_context: RoundContext, tool: Tool, record: CallRecord, waits: Waits) -> Ticket:
    """The question whether this call may run though another has its key; approving covers that claim and no later one."""
    state = waits.record.state if waits.record else "gone with its thread"
    if waits.record is not None and repeat_guard.done(waits.record):
        state += ", and nobody can tell whether its key still stands for it"
    return tickets.question(
        record,
        id=round_context.space.ids(),
        at=round_context.now(),
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
    round_context: RoundContext,
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
    pending_call = PendingCall(call, round_context.toolbox.get(call.name))
    tool = pending_call.tool
    if cut_off is not None:
        _refuse(
            pending_call,
            round_context.record(call, label, tool, None, vendor_id),
            "failed",
            "cut_off",
            cut_off,
        )
        return _with_arguments(pending_call)
    if tool is None:
        record = round_context.record(call, label, None, None, vendor_id)
        _refuse(pending_call, record, "failed", "no_such_tool", "")
        return _with_arguments(pending_call)
    try:
        pending_call.arguments = tool.validated(call.args)
    except Invalid as error:
        record = round_context.record(call, label, tool, None, vendor_id)
        _refuse(pending_call, record, "failed", "invalid", why_refused(error))
        return _with_arguments(pending_call)
    record = round_context.record(call, label, tool, pending_call.arguments, vendor_id)
    _decide(round_context, pending_call, tool, record, taken, start=start)
    return _with_arguments(pending_call)


def _decide(
    round_context: RoundContext,
    pending_call: PendingCall,
    tool: Tool,
    record: CallRecord,
    taken: set[str],
    *,
    start: bool,
) -> None:
    if record.reach.guarded and record.fingerprint in taken:
        pending_call.transition = calls.propose(record, "requested")  # its twin goes first
        return
    match clearance(round_context, tool, record):
        case Deny(why):
            _refuse(pending_call, record, "denied", "denied", why)
        case ReuseResult(reuse):
            pending_call.transition = calls.propose(record, "requested")
            lent(pending_call, *call_identity.borrowed(round_context.space, reuse), at=record.at)
        case AskApproval(ticket):
            pending_call.suspend(tickets.ask(record, ticket))
        case Start(cells, claim):
            if _asks(pending_call, tool, record):
                pending_call.suspend(tickets.ask(record, _approval(round_context, tool, record)))
                return
            taken.add(record.fingerprint)
            if start and record.reach.writes and claim is None:
                begun = msgspec.structs.replace(record, **round_context.starting(tool, record))
                pending_call.transition = calls.propose(begun, "requested", "started").also(cells=cells)
            else:
                pending_call.transition = calls.propose(record, "requested")


def _asks(pending_call: PendingCall, tool: Tool, record: CallRecord) -> bool:
    if isinstance(tool.ask, bool):
        return tool.ask
    assert pending_call.arguments is not None
    return tool.asks(
        Call(id=record.id, tool=record.tool, key=record.key or "", arguments=pending_call.arguments.normal)
    )


def _approval(round_context: RoundContext, tool: Tool, record: CallRecord) -> Ticket:
    return tickets.question(
        record,
        id=round_context.space.ids(),
        at=round_context.now(),
        message=f"{tool.name} ({record.effect}) asks for approval before it runs",
        arguments_schema=tool.arguments_schema,
    )


def _refuse(pending_call: PendingCall, record: CallRecord, state: CallState, as_what: Told, why: str) -> None:
    """The call is not made; the model is told why."""
    result = ToolResult(record.id, "error", told(as_what, why, record.tool))
    body = Object.of(Kind.BODY, encode_result(result))
    record = msgspec.structs.replace(record, status="error", why=why or as_what, preview=body.digest)
    pending_call.settle(calls.propose(record, state).also(objects=(body,)), result)


def _with_arguments(pending_call: PendingCall) -> PendingCall:
    assert pending_call.transition is not None
    pending_call.transition = pending_call.transition.also(objects=(args_body(pending_call.call.args),))
    return pending_call


def rework_with(env: RunEnvironment) -> Rework:
    """How the tools of this agent see new arguments; without the tool they are looked at when it runs."""
    toolbox = env.agent.toolbox

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
                agent=env.agent.name,
                thread=env.space.label,
                scope=tool.key_scope,
            )
        return changes

    return rework
