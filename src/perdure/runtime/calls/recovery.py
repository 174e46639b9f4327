"""Finds, from the log alone, the calls that a run left open, and decides how to continue each of them.

The calls of the last assistant's turn that have no result in the conversation are open.  The ledger has
the state of each:

    settled              its result is appended to the conversation
    waiting              it still waits, unless its ticket has expired
    approved             it runs, if it is still what was approved; an answer is its result
    requested            it was never started: it starts
    started, unknown     it runs again if it may be repeated; else its tool is asked, else a person

The effect of a call is the higher of the recorded effect and the effect that its tool declares now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Decided, Invalid, NotFound
from perdure.history import reader
from perdure.history.ancestry import stands_on
from perdure.history.reader import eventful
from perdure.history.space import Space
from perdure.ledger import calls, decisions, repeat_guard, tickets
from perdure.ledger.calls import VersionedCall
from perdure.model.call import SETTLED, UNCLEAR, CallState
from perdure.model.digest import Digest
from perdure.model.effect import higher
from perdure.model.event import MessageAppended, ToolCallSuspended
from perdure.model.message import ToolCall, decode_message
from perdure.model.run import ENDED, RunRecord
from perdure.model.ticket import CHILD_RUN, Decision, Ticket
from perdure.runtime.calls.pending_call import PendingCall, SuspendedCall, encode_result, settle_as_recorded
from perdure.runtime.calls.round import RoundContext, fingerprint_for
from perdure.runtime.calls.settlement import Settler, error_result, stage_result, words_for_recorded
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.runtime.session.result import begin_of
from perdure.runtime.tools.call import Ruling
from perdure.runtime.tools.result import NoResult
from perdure.runtime.tools.signature import why_refused
from perdure.runtime.tools.tool import Tool

__all__ = [
    "OpenRound",
    "check_present",
    "continue_call",
    "goes_on",
    "is_decided",
    "is_present",
    "open_calls",
    "open_round",
    "since_begin",
    "withdraw",
]


# How a call that may have run without a durable start gets to `started`.
_BEFORE_START: dict[CallState, tuple[CallState, ...]] = {
    "approved": ("requested", "started"),
    "requested": ("started",),
}


class OpenRound(msgspec.Struct, frozen=True):
    """The open calls of a run, each ready, settled or suspended."""

    pending_calls: list[PendingCall]
    rulings: Mapping[str, Ruling]  # the decisions, by call
    message_id: str  # of the message that will hold the results


def open_calls(
    space: Space, run: str, at: Digest | None, *, continued_by: str | None = None
) -> tuple[list[ToolCall], set[str]]:
    """Return the calls of a run without a result, in order, and the ids of calls whose suspension is in the history.

    `continued_by` is the run that continues it on another timeline; None: it continues itself.
    """
    requested: list[ToolCall] = []
    answered: set[str] = set()
    suspended: set[str] = set()
    for step in since_begin(space, run, at, eventful):
        for event in step.changeset.events:
            if isinstance(event, ToolCallSuspended):
                suspended.add(event.call)
            elif isinstance(event, MessageAppended) and event.role in ("assistant", "tool"):
                message = decode_message(space.body(event.body))
                if step.commit.run in (run, continued_by or run):  # another run that waits may be in between
                    requested += message.tool_calls
                answered |= {each.call_id for each in message.tool_results}
    return [call for call in requested if call.id not in answered], suspended


def open_round(round_context: RoundContext, run: str, *, is_ending: bool = False) -> OpenRound:
    """Return the open calls of a run as a round that can be carried out and committed.

    `is_ending` says that none of them is carried out: it does not matter then which tools are declared here.
    """
    left, suspended = open_calls(
        round_context.space, run, round_context.journal.head.commit, continued_by=round_context.journal.run
    )
    message_id = _message_id(round_context, left)
    round_context.deadline = None
    pending_calls: list[PendingCall] = []
    rulings: dict[str, Ruling] = {}
    for call in left:
        recorded = decisions.standing(round_context.space, call.id, round_context.env.timeline)
        pending_call = PendingCall(call, round_context.toolbox.get(call.name), recorded)
        pending_calls.append(pending_call)
        if recorded is None:
            _settle_unrecorded(pending_call)
        elif _belongs_elsewhere(round_context, recorded):
            pending_call.suspend(None, is_in_history=call.id in suspended)
        else:
            ruling = continue_call(
                round_context,
                pending_call,
                message_id=message_id,
                is_in_history=call.id in suspended,
                is_ending=is_ending,
            )
            if ruling is not None:
                rulings[call.id] = ruling
    return OpenRound(pending_calls, rulings, message_id)


def _message_id(round_context: RoundContext, left: list[ToolCall]) -> str:
    """Return the id of the message that will hold the results: the one that some of them were recorded for already."""
    for call in left:
        recorded = decisions.standing(round_context.space, call.id, round_context.env.timeline)
        if (
            recorded is not None
            and recorded.record.result_label
            and not _belongs_elsewhere(round_context, recorded)
        ):
            return recorded.record.result_label
    return round_context.space.ids()


def since_begin(
    space: Space,
    run: str,
    at: Digest | None,
    walk: Callable[[Space, Digest | None], Iterable[Step]] = reader.recent,
) -> list[Step]:
    """Return the commits of a timeline since a run began there, oldest first, with those of other writers.

    `walk` reads them backwards: all, or with `eventful` those that have events.
    """
    first = begin_of(space, run, at)
    found: list[Step] = []
    for step in walk(space, at) if first else ():
        found.append(step)
        if step.digest == first:
            break
    return found[::-1]


def _belongs_elsewhere(round_context: RoundContext, recorded: VersionedCall) -> bool:
    """True if the call belongs to another timeline: its ticket is not decided here, or it is carried out there."""
    record = recorded.record
    if record.timeline == round_context.env.timeline:
        return False
    return record.ticket is not None or record.state not in SETTLED


def continue_call(
    round_context: RoundContext,
    pending_call: PendingCall,
    *,
    message_id: str | None,
    is_in_history: bool,
    is_ending: bool = False,
) -> Ruling | None:
    """Continue a ready call from its state in the ledger: settle it, suspend it, or prepare its next attempt.

    `is_in_history` says that a commit names its suspension.  With `is_ending` a call whose tool is not declared here
    stays as it is: the run ends, and its end says what becomes of the call.  Returns the decision, if there is one.
    """
    if pending_call.recorded.record.state == "awaiting_approval":
        _close_ticket(round_context, pending_call)
    state, tool = pending_call.recorded.record.state, pending_call.tool
    if state in SETTLED:
        Settler(round_context.journal, message_id).recall(pending_call)
    elif state == "awaiting_approval":
        pending_call.suspend(None, is_in_history=is_in_history)
    elif tool is None:
        if not is_ending:
            _continue_without_tool(round_context, pending_call)
    else:
        _raise_effect(round_context, pending_call, tool)
        state = pending_call.recorded.record.state
        if state == "approved":
            return _continue_approved(round_context, pending_call, tool, message_id)
        if _validate(round_context, pending_call, tool):
            pending_call.prepare(
                pending_call.ready.arguments, is_interrupted=state == "started" or state in UNCLEAR
            )
    return None


def _raise_effect(round_context: RoundContext, pending_call: PendingCall, tool: Tool) -> None:
    """Raise the recorded effect to the one that the tool declares now, if that is higher.

    A call that was requested as one that writes nothing may have run without a durable start: as one that
    writes it counts as started.  From then on the repeat guard knows it.
    """
    record = pending_call.recorded.record
    reach = higher(record.reach, tool.reach)
    if reach == record.reach:
        return
    may_have_run = reach.writes and not record.reach.writes and not round_context.was_waiting
    states = _BEFORE_START.get(record.state, ()) if may_have_run else ()
    transition = calls.advance(
        pending_call.recorded,
        *states,
        at=round_context.now(),
        effect=reach.effect,
        idempotent=reach.idempotent,
    )
    begun = transition.record.state == "started" or transition.record.state in UNCLEAR
    if begun and reach.guarded and not record.reach.guarded:
        verdict = repeat_guard.check(
            round_context.space, transition.record, head=None, backend=None, policy="allow"
        )
        transition = transition.also(cells=repeat_guard.starting(transition.record, verdict))
    pending_call.advance(round_context.journal.post(transition)[0])


def withdraw(
    round_context: RoundContext,
    pending_call: PendingCall,
    why: str,
    *,
    message_id: str | None,
    by: str | None = None,
) -> None:
    """Withdraw the question of a suspended call, so that it is cancelled; continue it if it was just decided.

    A question of another timeline is left to that timeline.
    """
    state, record = pending_call.state, pending_call.recorded.record
    assert isinstance(state, SuspendedCall)
    if record.timeline != round_context.env.timeline:
        return
    with suppress(Decided):
        decisions.withdraw(round_context.space, record.id, by=by, why=why)
    pending_call.reload(calls.read(round_context.space, record.id))
    is_in_history = state.is_in_history
    continue_call(
        round_context, pending_call, message_id=message_id, is_in_history=is_in_history, is_ending=True
    )


def _close_ticket(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Close the ticket of the call if its time is over, or if it waits for child runs and one of them can go on.

    Else note when its time is over.
    """
    record, space = pending_call.recorded.record, round_context.space
    found = tickets.find(space, record.ticket or "")
    if found is None:
        return
    expires_at = found.ticket.expires_at
    if decisions.due(found.ticket, round_context.now()):
        decisions.expire_due(round_context.env.space)
        pending_call.advance(calls.read(space, record.id))
    elif _child_goes_on(space, found.ticket, round_context.env.owners):
        pending_call.advance(decisions.release(space, pending_call.recorded))
    elif expires_at is not None:
        round_context.deadline = min(expires_at, round_context.deadline or expires_at)


def is_present(space: Space, record: RunRecord) -> bool:
    """True if the timeline has the run's commits up to where it waits; False after an undo of some of them."""
    head = reader.head_of(space, record.timeline).commit
    if not stands_on(space, record.continues or record.id, head):
        return False
    return record.state != "waiting" or record.after is None or _has_words(space, record.after, head)


def _has_words(space: Space, after: Digest, head: Digest | None) -> bool:
    """True if the model's last message up to `after` is in the conversation of `head`.

    That message requested the calls that the run waits for.  Rebased commits have it under the same id.
    """
    for step in reader.recent(space, after):
        for event in step.changeset.events:
            if isinstance(event, MessageAppended) and event.role == "assistant":
                return stands_on(space, event.id, head)
    return True


def check_present(space: Space, record: RunRecord) -> None:
    """Raise `NotFound` if the timeline does not have the run any more."""
    if not is_present(space, record):
        raise NotFound(
            f"run '{record.id}' is not in the history of '{record.timeline}' any more: it was undone; nothing was "
            "done.",
            code="run_undone",
            advice="Take the undo back with redo(), or end it with cancel().",
            run=record.id,
            timeline=record.timeline,
        )


def is_decided(space: Space, record: RunRecord, owners: LeaseKeeper) -> bool:
    """True if a run can go on: a call is decided or its ticket has expired, no call is open, or it is cancelled."""
    line = record.timeline
    head = reader.head_of(space, line)
    left, _ = open_calls(space, record.continues or record.id, head.commit, continued_by=record.id)
    if not left or record.cancel is not None:
        return True
    return any(goes_on(space, call.id, line, owners) for call in left)


def goes_on(space: Space, call: str, line: str, owners: LeaseKeeper) -> bool:
    """True if a run on the timeline can go on with that call."""
    held = decisions.standing(space, call, line)
    if held is None:
        return True
    if held.record.timeline != line:
        return False  # it was not decided on this timeline
    if held.record.state != "awaiting_approval":
        return True
    found = tickets.find(space, held.record.ticket or "")
    if found is None:
        return False
    return decisions.due(found.ticket, space.clock()) or _child_goes_on(space, found.ticket, owners)


def _child_goes_on(space: Space, ticket: Ticket, owners: LeaseKeeper) -> bool:
    """True if one of the child runs that a call waits for is over, was cut off, or can go on."""
    for child in tickets.children_of(ticket):
        inside = space.beside(child.space, child.thread)
        kept = records.find(inside, child.run)
        if kept is None or kept.record.state in ENDED:
            return True
        if kept.record.state == "waiting":
            if is_decided(inside, kept.record, owners):
                return True
            continue
        held = leases.current(inside, kept.record.timeline)
        if held is None or held.run != child.run or leases.state(inside, held, owners=owners) != "live":
            return True
    return False


def _continue_approved(
    round_context: RoundContext, pending_call: PendingCall, tool: Tool, message_id: str | None
) -> Ruling | None:
    """Prepare the tool's next attempt, or take the decision as the result.

    A call that waited for child runs gets the decision that it had before, None if it had none.
    """
    ticket = tickets.read(round_context.space, pending_call.recorded.record.ticket or "").ticket
    decision = ticket.decision
    assert decision is not None, "a call is approved by a decision"
    if ticket.action == CHILD_RUN:
        if _validate(round_context, pending_call, tool):
            _check_bound(round_context, pending_call, tool, decision)
        return _ruling_before(round_context, ticket)
    ruling = _ruling(round_context, decision)
    is_result = ticket.resume == "result" or decision.verdict == "answer"
    if is_result and ticket.resume != "arguments" and not _runs_on(ticket, decision):
        _settle_with_decision(round_context, pending_call, ruling, message_id)
    elif _validate(round_context, pending_call, tool):
        _check_bound(round_context, pending_call, tool, decision)
    return ruling


def _runs_on(ticket: Ticket, decision: Decision) -> bool:
    """True if a tool that asked a question of its own continues with the answer."""
    return (
        ticket.resume == "run" and ticket.action not in ("approve", "repeat") and decision.verdict == "answer"
    )


def _check_bound(
    round_context: RoundContext, pending_call: PendingCall, tool: Tool, decision: Decision
) -> None:
    """Suspend the call with a new question if it is not what was approved any more."""
    record = pending_call.recorded.record
    fingerprint = fingerprint_for(tool, pending_call.ready.arguments)
    is_bound = decision.verdict == "answer" or tickets.still_bound(record, fingerprint)
    if not is_bound or record.fingerprint != fingerprint:
        transition = calls.learn(pending_call.recorded, at=round_context.now(), fingerprint=fingerprint)
        pending_call.advance(round_context.journal.post(transition)[0])
    if not is_bound:
        ticket = tickets.question(
            msgspec.structs.replace(record, fingerprint=fingerprint),
            id=round_context.space.ids(),
            at=round_context.now(),
            message=f"{tool.name} is not what was approved any more: its version or defaults have changed",
            arguments_schema=tool.arguments_schema,
        )
        pending_call.suspend(tickets.ask(pending_call.recorded, ticket))
    elif decision.verdict == "edit":
        args = round_context.space.body(record.args).decode("utf-8", "replace")
        pending_call.annotate(f"Note: a person changed the arguments of this call to {args} before it ran.")


def _settle_with_decision(
    round_context: RoundContext, pending_call: PendingCall, ruling: Ruling, message_id: str | None
) -> None:
    """Settle the call with the decision as its result."""
    value = (
        ruling.value
        if ruling.verdict in ("answer", "edit")
        else {"decision": ruling.verdict, "by": ruling.by}
    )
    staged, shown = stage_result(round_context.space, pending_call.call.id, value)
    transition = calls.settle(
        pending_call.recorded,
        "succeeded",
        at=round_context.now(),
        staged=staged,
        preview=encode_result(shown),
        status="success",
        result_label=message_id or "",
    )
    pending_call.settle(transition, shown, staged=staged)


def _validate(round_context: RoundContext, pending_call: PendingCall, tool: Tool) -> bool:
    """Validate the recorded arguments; False: the tool refuses them now, and the call has failed."""
    record = pending_call.recorded.record
    raw = round_context.space.body(record.args).decode("utf-8", "surrogatepass")
    try:
        pending_call.prepare(tool.validated(raw))
    except Invalid as error:
        if record.reach.writes and (record.state == "started" or record.state in UNCLEAR):
            return True  # it ran with them once; only its hook is asked now
        _settle(round_context, pending_call, "failed", "invalid", why_refused(error))
        return False
    return True


def _continue_without_tool(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Settle a call whose tool is not declared any more: failed if it was not started, else unknown."""
    record = pending_call.recorded.record
    if record.state == "started":
        _settle(round_context, pending_call, "unknown", "unknown", "its tool is not declared any more")
    elif record.state in UNCLEAR:
        settle_as_recorded(pending_call, round_context.space, words_for_recorded(record))
    else:
        _settle(round_context, pending_call, "failed", "no_such_tool", "")


def _settle(
    round_context: RoundContext, pending_call: PendingCall, state: CallState, as_what: NoResult, why: str
) -> None:
    shown = error_result(pending_call, as_what, why)
    transition = calls.settle(
        pending_call.recorded,
        state,
        at=round_context.now(),
        preview=encode_result(shown),
        status="error",
        why=why or as_what,
    )
    pending_call.settle(transition, shown)


def _settle_unrecorded(pending_call: PendingCall) -> None:
    """Settle a call that is in the conversation but not in the ledger: nothing is known of it."""
    pending_call.settle(None, error_result(pending_call, "unknown", "it was never recorded here"))


def _ruling_before(round_context: RoundContext, ticket: Ticket) -> Ruling | None:
    before = tickets.decided_before(ticket)
    decision = tickets.read(round_context.space, before).ticket.decision if before is not None else None
    return None if decision is None else _ruling(round_context, decision)


def _ruling(round_context: RoundContext, decision: Decision) -> Ruling:
    value = None
    if decision.value is not None:
        value = json.loads(round_context.space.body(decision.value))
    return Ruling(verdict=decision.verdict, value=value, by=decision.by, why=decision.why, at=decision.at)
