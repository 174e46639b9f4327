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


def open_slots(desk: RoundContext, run: str) -> tuple[list[PendingCall], dict[str, Ruling]]:
    """The open calls of a run as slots, each ready, settled or suspended, and what was decided about them."""
    left, suspended = open_calls(desk.space, run, desk.journal.head.commit, continued_by=desk.journal.run)
    desk.label = _label(desk, left)
    slots: list[PendingCall] = []
    rulings: dict[str, Ruling] = {}
    for call in left:
        slot = PendingCall(call, desk.toolbox.get(call.name))
        slot.told = call.id in suspended
        slot.held = decisions.standing(desk.space, call.id, desk.ground.timeline)
        if slot.held is None:
            _never_entered(slot)
        elif _is_elsewhere(desk, slot.held):
            slot.suspend(None)
        else:
            take_up(desk, slot, rulings)
        slots.append(slot)
    return slots, rulings


def _label(desk: RoundContext, left: list[ToolCall]) -> str:
    """The id of the message that will hold the results: the one that some of them were recorded for already."""
    for call in left:
        held = decisions.standing(desk.space, call.id, desk.ground.timeline)
        if held is not None and held.record.result_label and not _is_elsewhere(desk, held):
            return held.record.result_label
    return desk.space.ids()


def since_begin(space: Space, run: str, at: Digest | None) -> list[Step]:
    """The commits of a line since a run began there, oldest first; others' may stand between."""
    first = begin_of(space, run, at)
    found: list[Step] = []
    for step in reader.recent(space, at) if first else ():
        found.append(step)
        if step.digest == first:
            break
    return found[::-1]


def _is_elsewhere(desk: RoundContext, held: VersionedCall) -> bool:
    """Whether the call is another line's business: nobody has decided it here, or it is under way there."""
    record = held.record
    if record.timeline == desk.ground.timeline:
        return False
    return record.ticket is not None or record.state not in SETTLED


def take_up(desk: RoundContext, slot: PendingCall, rulings: dict[str, Ruling]) -> None:
    """Take a call up where the ledger says that it stands: settled, suspended or ready; fill in what was decided."""
    assert slot.held is not None
    state = slot.held.record.state
    if state == "awaiting_approval":
        _lapse(desk, slot)
        state = slot.held.record.state
    if state in SETTLED:
        recall(desk, slot)
    elif state == "awaiting_approval":
        slot.suspend(None)
    elif slot.tool is None:
        _without_tool(desk, slot)
    else:
        _raise_reach(desk, slot, slot.tool)
        _go_on(desk, slot, slot.tool, rulings)


def _go_on(desk: RoundContext, slot: PendingCall, tool: Tool, rulings: dict[str, Ruling]) -> None:
    assert slot.held is not None
    state = slot.held.record.state
    if state == "approved":
        _approved(desk, slot, tool, rulings)
    elif _validated(desk, slot, tool):
        slot.recovering = state == "started" or state in UNCLEAR


def _raise_reach(desk: RoundContext, slot: PendingCall, tool: Tool) -> None:
    """Let the call reach as far as its tool now says, if that is further: the higher of the two governs.

    What was requested as a call that writes nothing may have run without a durable start: as one that
    writes it counts as started.  What counts as started is known to the repeat guard from here on.
    """
    assert slot.held is not None
    record = slot.held.record
    reach = higher(record.reach, tool.reach)
    if reach == record.reach:
        return
    hidden = reach.writes and not record.reach.writes and not desk.waited
    hops = _BEFORE_START.get(record.state, ()) if hidden else ()
    posting = calls.advance(slot.held, *hops, at=desk.now(), effect=reach.effect, idempotent=reach.idempotent)
    begun = posting.record.state == "started" or posting.record.state in UNCLEAR
    if begun and reach.guarded and not record.reach.guarded:
        watched = repeat_guard.check(desk.space, posting.record, head=None, backend=None, policy="allow")
        posting = posting.also(cells=repeat_guard.starting(posting.record, watched))
    slot.held = desk.journal.post(posting)[0]


def withdrawn(desk: RoundContext, slot: PendingCall, why: str, *, by: str | None = None) -> None:
    """Take back the question of a call that waits, so that it is cancelled; one decided just now is taken up.

    What another line asks is left to that line.
    """
    assert slot.held is not None
    if slot.held.record.timeline != desk.ground.timeline:
        return
    with suppress(Decided):
        decisions.withdraw(desk.space, slot.held.record.id, by=by, why=why)
    slot.held = calls.read(desk.space, slot.held.record.id)
    slot.stage = "ready"
    take_up(desk, slot, {})


def _lapse(desk: RoundContext, slot: PendingCall) -> None:
    """Close the ticket if its time is up."""
    assert slot.held is not None
    asked = tickets.find(desk.space, slot.held.record.ticket or "")
    if asked is not None and decisions.due(asked.ticket, desk.now()):
        decisions.expire_due(desk.ground.space)
        slot.held = calls.read(desk.space, slot.held.record.id)


def _approved(desk: RoundContext, slot: PendingCall, tool: Tool, rulings: dict[str, Ruling]) -> None:
    """Somebody agreed: run the tool, or take the decision for the result."""
    assert slot.held is not None
    record = slot.held.record
    asked = tickets.read(desk.space, record.ticket or "")
    decision = asked.ticket.decision
    assert decision is not None, "a call is approved by a decision"
    ruling = _ruling(desk, decision)
    rulings[slot.call.id] = ruling
    as_result = asked.ticket.resume == "result" or decision.verdict == "answer"
    if as_result and asked.ticket.resume != "arguments" and not _runs_on(asked.ticket, decision):
        _answered(desk, slot, ruling)
    elif _validated(desk, slot, tool):
        _check_bound(desk, slot, tool, decision)


def _runs_on(ticket: Ticket, decision: Decision) -> bool:
    """Whether a tool that asked a question of its own goes on with the answer."""
    return (
        ticket.resume == "run" and ticket.action not in ("approve", "repeat") and decision.verdict == "answer"
    )


def _check_bound(desk: RoundContext, slot: PendingCall, tool: Tool, decision: Decision) -> None:
    """Go on only with what was approved; anything else is asked anew."""
    assert slot.held is not None
    record = slot.held.record
    meant = fingerprint_for(tool, slot.arguments)
    if decision.verdict == "answer" or tickets.still_bound(record, meant):
        if record.fingerprint != meant:
            slot.held = desk.journal.post(calls.learn(slot.held, at=desk.now(), fingerprint=meant))[0]
        if decision.verdict == "edit":
            args = desk.space.body(record.args).decode("utf-8", "replace")
            slot.note = f"Note: a person changed the arguments of this call to {args} before it ran."
        return
    changed = msgspec.structs.replace(record, fingerprint=meant)
    ticket = tickets.question(
        changed,
        id=desk.space.ids(),
        at=desk.now(),
        message=f"{tool.name} is not what was approved any more: its version or defaults have changed",
        arguments_schema=tool.arguments_schema,
    )
    slot.held = desk.journal.post(calls.learn(slot.held, at=desk.now(), fingerprint=meant))[0]
    slot.told = False
    slot.suspend(tickets.ask(slot.held, ticket))


def _answered(desk: RoundContext, slot: PendingCall, ruling: Ruling) -> None:
    """The decision is the result."""
    assert slot.held is not None
    value = (
        ruling.value
        if ruling.verdict in ("answer", "edit")
        else {"decision": ruling.verdict, "by": ruling.by}
    )
    kept = result.keep(value)
    staged = artifacts.stage(desk.space, (kept.content,), media_type=kept.media_type)
    said = ToolResult(slot.call.id, "success", result.preview(kept, calls.reference(staged.digest)))
    slot.staged = staged
    slot.settle(
        calls.settle(
            slot.held,
            "succeeded",
            at=desk.now(),
            staged=staged,
            preview=encode_result(said),
            status="success",
            result_label=desk.label,
        ),
        said,
    )


def _validated(desk: RoundContext, slot: PendingCall, tool: Tool) -> bool:
    """Read the arguments that the record names; False: the tool refuses them now, and the call has failed."""
    assert slot.held is not None
    record = slot.held.record
    raw = desk.space.body(record.args).decode("utf-8", "surrogatepass")
    try:
        slot.arguments = tool.validated(raw)
    except Invalid as error:
        if record.reach.writes and (record.state == "started" or record.state in UNCLEAR):
            return True  # it ran with them once; nothing but its hook is asked now
        _settle(desk, slot, "failed", "invalid", why_refused(error))
        return False
    return True


def _without_tool(desk: RoundContext, slot: PendingCall) -> None:
    """The tool is not there any more: what was not started fails, and of the rest nobody knows."""
    assert slot.held is not None
    state = slot.held.record.state
    if state == "started":
        _settle(desk, slot, "unknown", "unknown", "its tool is not declared any more")
    elif state in UNCLEAR:
        recalled(slot, desk.space, unclear(slot))
    else:
        _settle(desk, slot, "failed", "no_such_tool", "")


def _settle(desk: RoundContext, slot: PendingCall, state: CallState, as_what: Told, why: str) -> None:
    assert slot.held is not None
    said = ToolResult(slot.call.id, "error", told(as_what, why, slot.call.name))
    posting = calls.settle(
        slot.held, state, at=desk.now(), preview=encode_result(said), status="error", why=why or as_what
    )
    slot.settle(posting, said)


def _never_entered(slot: PendingCall) -> None:
    """A call that was put into the conversation by other means: nothing is known of it."""
    slot.settle(
        None, ToolResult(slot.call.id, "error", told("unknown", "it was never recorded here", slot.call.name))
    )


def _ruling(desk: RoundContext, decision: Decision) -> Ruling:
    value = None
    if decision.value is not None:
        value = json.loads(desk.space.body(decision.value))
    return Ruling(verdict=decision.verdict, value=value, by=decision.by, why=decision.why, at=decision.at)
