"""Recovery: finding, from the log alone, what a run left open, and what to do about each call.

The calls of the last assistant's turn that the conversation holds no result for are open.  The
ledger says how far each of them came:

    settled              its result is put into the conversation
    waiting              it still waits, unless its time is up
    approved             it runs, if it is still what was approved; an answer is the result
    requested            it was never started: it starts
    started, unknown     it runs again if it may be repeated; else its tool is asked, else a person

How far a call reaches is what was recorded or what its tool says now, whichever is higher.
"""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Decided, Invalid
from perdure.history import artifacts, reader
from perdure.history.space import Space
from perdure.ledger import calls, decisions, repeat_guard, tickets
from perdure.ledger.calls import VersionedCall
from perdure.model.call import SETTLED, UNCLEAR, CallState
from perdure.model.digest import Digest
from perdure.model.effect import higher
from perdure.model.event import MessageAppended, ToolCallSuspended
from perdure.model.message import ToolCall, ToolResult, decode_message
from perdure.model.ticket import Decision, Ticket
from perdure.runtime.calls.pending_call import PendingCall, encode_result, recalled
from perdure.runtime.calls.round_context import RoundContext, fingerprint_for
from perdure.runtime.calls.settlement import recall, unclear
from perdure.runtime.session.result import begin_of
from perdure.runtime.tools import result
from perdure.runtime.tools.arguments import why_refused
from perdure.runtime.tools.call import Ruling
from perdure.runtime.tools.result import Told, told
from perdure.runtime.tools.tool import Tool

__all__ = ["open_calls", "open_slots", "since_begin", "take_up", "withdrawn"]


# How a call that may have run in silence gets to `started`.
_BEFORE_START: dict[CallState, tuple[CallState, ...]] = {
    "approved": ("requested", "started"),
    "requested": ("started",),
}


class _OpenCalls(msgspec.Struct):
    """What the conversation says of the calls of a run."""

    calls: list[ToolCall]
    answered: set[str]
    told: set[str]  # whose suspension is in the history


def open_calls(
    space: Space, run: str, at: Digest | None, *, continued_by: str | None = None
) -> tuple[list[ToolCall], set[str]]:
    """The calls of a run without a result, in order, and those of them whose suspension is in the history.

    `continued_by` is the run that goes on with it on another line; None: it goes on itself.
    """
    found = _OpenCalls([], set(), set())
    for step in since_begin(space, run, at):
        for event in step.changeset.events:
            if isinstance(event, ToolCallSuspended):
                found.told.add(event.call)
            elif isinstance(event, MessageAppended) and event.role in ("assistant", "tool"):
                message = decode_message(space.body(event.body))
                if step.commit.run in (run, continued_by or run):  # another that waits may stand between
                    found.calls += message.tool_calls
                found.answered |= {each.call_id for each in message.tool_results}
    return [call for call in found.calls if call.id not in found.answered], found.told


def open_slots(round_context: RoundContext, run: str) -> tuple[list[PendingCall], dict[str, Ruling]]:
    """The open calls of a run as slots, each ready, settled or suspended, and what was decided about them."""
    left, suspended = open_calls(
        round_context.space, run, round_context.journal.head.commit, continued_by=round_context.journal.run
    )
    round_context.label = _label(round_context, left)
    pending_calls: list[PendingCall] = []
    rulings: dict[str, Ruling] = {}
    for call in left:
        pending_call = PendingCall(call, round_context.toolbox.get(call.name))
        pending_call.told = call.id in suspended
        pending_call.held = decisions.standing(round_context.space, call.id, round_context.env.timeline)
        if pending_call.held is None:
            _never_entered(pending_call)
        elif _is_elsewhere(round_context, pending_call.held):
            pending_call.suspend(None)
        else:
            take_up(round_context, pending_call, rulings)
        pending_calls.append(pending_call)
    return pending_calls, rulings


def _label(round_context: RoundContext, left: list[ToolCall]) -> str:
    """The id of the message that will hold the results: the one that some of them were recorded for already."""
    for call in left:
        held = decisions.standing(round_context.space, call.id, round_context.env.timeline)
        if held is not None and held.record.result_label and not _is_elsewhere(round_context, held):
            return held.record.result_label
    return round_context.space.ids()


def since_begin(space: Space, run: str, at: Digest | None) -> list[Step]:
    """The commits of a line since a run began there, oldest first; others' may stand between."""
    first = begin_of(space, run, at)
    found: list[Step] = []
    for step in reader.recent(space, at) if first else ():
        found.append(step)
        if step.digest == first:
            break
    return found[::-1]


def _is_elsewhere(round_context: RoundContext, held: VersionedCall) -> bool:
    """Whether the call is another line's business: nobody has decided it here, or it is under way there."""
    record = held.record
    if record.timeline == round_context.env.timeline:
        return False
    return record.ticket is not None or record.state not in SETTLED


def take_up(round_context: RoundContext, pending_call: PendingCall, rulings: dict[str, Ruling]) -> None:
    """Take a call up where the ledger says that it stands: settled, suspended or ready; fill in what was decided."""
    assert pending_call.held is not None
    state = pending_call.held.record.state
    if state == "awaiting_approval":
        _lapse(round_context, pending_call)
        state = pending_call.held.record.state
    if state in SETTLED:
        recall(round_context, pending_call)
    elif state == "awaiting_approval":
        pending_call.suspend(None)
    elif pending_call.tool is None:
        _without_tool(round_context, pending_call)
    else:
        _raise_reach(round_context, pending_call, pending_call.tool)
        _go_on(round_context, pending_call, pending_call.tool, rulings)


def _go_on(
    round_context: RoundContext, pending_call: PendingCall, tool: Tool, rulings: dict[str, Ruling]
) -> None:
    assert pending_call.held is not None
    state = pending_call.held.record.state
    if state == "approved":
        _approved(round_context, pending_call, tool, rulings)
    elif _validated(round_context, pending_call, tool):
        pending_call.recovering = state == "started" or state in UNCLEAR


def _raise_reach(round_context: RoundContext, pending_call: PendingCall, tool: Tool) -> None:
    """Let the call reach as far as its tool now says, if that is further: the higher of the two governs.

    What was requested as a call that writes nothing may have run without a durable start: as one that
    writes it counts as started.  What counts as started is known to the repeat guard from here on.
    """
    assert pending_call.held is not None
    record = pending_call.held.record
    reach = higher(record.reach, tool.reach)
    if reach == record.reach:
        return
    hidden = reach.writes and not record.reach.writes and not round_context.waited
    states = _BEFORE_START.get(record.state, ()) if hidden else ()
    transition = calls.advance(
        pending_call.held, *states, at=round_context.now(), effect=reach.effect, idempotent=reach.idempotent
    )
    begun = transition.record.state == "started" or transition.record.state in UNCLEAR
    if begun and reach.guarded and not record.reach.guarded:
        watched = repeat_guard.check(
            round_context.space, transition.record, head=None, backend=None, policy="allow"
        )
        transition = transition.also(cells=repeat_guard.starting(transition.record, watched))
    pending_call.held = round_context.journal.post(transition)[0]


def withdrawn(
    round_context: RoundContext, pending_call: PendingCall, why: str, *, by: str | None = None
) -> None:
    """Take back the question of a call that waits, so that it is cancelled; one decided just now is taken up.

    What another line asks is left to that line.
    """
    assert pending_call.held is not None
    if pending_call.held.record.timeline != round_context.env.timeline:
        return
    with suppress(Decided):
        decisions.withdraw(round_context.space, pending_call.held.record.id, by=by, why=why)
    pending_call.held = calls.read(round_context.space, pending_call.held.record.id)
    pending_call.stage = "ready"
    take_up(round_context, pending_call, {})


def _lapse(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Close the ticket if its time is up."""
    assert pending_call.held is not None
    asked = tickets.find(round_context.space, pending_call.held.record.ticket or "")
    if asked is not None and decisions.due(asked.ticket, round_context.now()):
        decisions.expire_due(round_context.env.space)
        pending_call.held = calls.read(round_context.space, pending_call.held.record.id)


def _approved(
    round_context: RoundContext, pending_call: PendingCall, tool: Tool, rulings: dict[str, Ruling]
) -> None:
    """Somebody agreed: run the tool, or take the decision for the result."""
    assert pending_call.held is not None
    record = pending_call.held.record
    asked = tickets.read(round_context.space, record.ticket or "")
    decision = asked.ticket.decision
    assert decision is not None, "a call is approved by a decision"
    ruling = _ruling(round_context, decision)
    rulings[pending_call.call.id] = ruling
    as_result = asked.ticket.resume == "result" or decision.verdict == "answer"
    if as_result and asked.ticket.resume != "arguments" and not _runs_on(asked.ticket, decision):
        _answered(round_context, pending_call, ruling)
    elif _validated(round_context, pending_call, tool):
        _check_bound(round_context, pending_call, tool, decision)


def _runs_on(ticket: Ticket, decision: Decision) -> bool:
    """Whether a tool that asked a question of its own goes on with the answer."""
    return (
        ticket.resume == "run" and ticket.action not in ("approve", "repeat") and decision.verdict == "answer"
    )


def _check_bound(
    round_context: RoundContext, pending_call: PendingCall, tool: Tool, decision: Decision
) -> None:
    """Go on only with what was approved; anything else is asked anew."""
    assert pending_call.held is not None
    record = pending_call.held.record
    meant = fingerprint_for(tool, pending_call.arguments)
    if decision.verdict == "answer" or tickets.still_bound(record, meant):
        if record.fingerprint != meant:
            pending_call.held = round_context.journal.post(
                calls.learn(pending_call.held, at=round_context.now(), fingerprint=meant)
            )[0]
        if decision.verdict == "edit":
            args = round_context.space.body(record.args).decode("utf-8", "replace")
            pending_call.note = f"Note: a person changed the arguments of this call to {args} before it ran."
        return
    changed = msgspec.structs.replace(record, fingerprint=meant)
    ticket = tickets.question(
        changed,
        id=round_context.space.ids(),
        at=round_context.now(),
        message=f"{tool.name} is not what was approved any more: its version or defaults have changed",
        arguments_schema=tool.arguments_schema,
    )
    pending_call.held = round_context.journal.post(
        calls.learn(pending_call.held, at=round_context.now(), fingerprint=meant)
    )[0]
    pending_call.told = False
    pending_call.suspend(tickets.ask(pending_call.held, ticket))


def _answered(round_context: RoundContext, pending_call: PendingCall, ruling: Ruling) -> None:
    """The decision is the result."""
    assert pending_call.held is not None
    value = (
        ruling.value
        if ruling.verdict in ("answer", "edit")
        else {"decision": ruling.verdict, "by": ruling.by}
    )
    kept = result.keep(value)
    staged = artifacts.stage(round_context.space, (kept.content,), media_type=kept.media_type)
    said = ToolResult(pending_call.call.id, "success", result.preview(kept, calls.reference(staged.digest)))
    pending_call.staged = staged
    pending_call.settle(
        calls.settle(
            pending_call.held,
            "succeeded",
            at=round_context.now(),
            staged=staged,
            preview=encode_result(said),
            status="success",
            result_label=round_context.label,
        ),
        said,
    )


def _validated(round_context: RoundContext, pending_call: PendingCall, tool: Tool) -> bool:
    """Read the arguments that the record names; False: the tool refuses them now, and the call has failed."""
    assert pending_call.held is not None
    record = pending_call.held.record
    raw = round_context.space.body(record.args).decode("utf-8", "surrogatepass")
    try:
        pending_call.arguments = tool.validated(raw)
    except Invalid as error:
        if record.reach.writes and (record.state == "started" or record.state in UNCLEAR):
            return True  # it ran with them once; nothing but its hook is asked now
        _settle(round_context, pending_call, "failed", "invalid", why_refused(error))
        return False
    return True


def _without_tool(round_context: RoundContext, pending_call: PendingCall) -> None:
    """The tool is not there any more: what was not started fails, and of the rest nobody knows."""
    assert pending_call.held is not None
    state = pending_call.held.record.state
    if state == "started":
        _settle(round_context, pending_call, "unknown", "unknown", "its tool is not declared any more")
    elif state in UNCLEAR:
        recalled(pending_call, round_context.space, unclear(pending_call))
    else:
        _settle(round_context, pending_call, "failed", "no_such_tool", "")


def _settle(
    round_context: RoundContext, pending_call: PendingCall, state: CallState, as_what: Told, why: str
) -> None:
    assert pending_call.held is not None
    said = ToolResult(pending_call.call.id, "error", told(as_what, why, pending_call.call.name))
    transition = calls.settle(
        pending_call.held,
        state,
        at=round_context.now(),
        preview=encode_result(said),
        status="error",
        why=why or as_what,
    )
    pending_call.settle(transition, said)


def _never_entered(pending_call: PendingCall) -> None:
    """A call that was put into the conversation by other means: nothing is known of it."""
    pending_call.settle(
        None,
        ToolResult(
            pending_call.call.id,
            "error",
            told("unknown", "it was never recorded here", pending_call.call.name),
        ),
    )


def _ruling(round_context: RoundContext, decision: Decision) -> Ruling:
    value = None
    if decision.value is not None:
        value = json.loads(round_context.space.body(decision.value))
    return Ruling(verdict=decision.verdict, value=value, by=decision.by, why=decision.why, at=decision.at)
