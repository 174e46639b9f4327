"""Reconciling from outside: asking a tool what became of a call, when no run is doing so.

The rules are those of recovery: `done` settles the call with its result; `not_done` is believed
only if the process that started it is proven to have ended, or the tool declares that its hook
fences; whatever else leaves it to a person, who resolves it by their word.

Nothing is attempted here.  A call whose run goes on, or that was made by hand, is requested anew
and starts when that is resumed; one whose run is over has failed.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from perdure.errors import Busy, Conflict, Forgotten, Invalid, Unsupported
from perdure.history import artifacts, reader
from perdure.history.space import Space
from perdure.ledger import calls, settlement
from perdure.ledger.calls import VersionedCall
from perdure.model import names
from perdure.model.call import UNCLEAR, CallRecord, CallState
from perdure.model.message import Text, ToolCall, ToolResult
from perdure.model.run import ENDED
from perdure.runtime.calls.executor import CallExecutor, attempts_max
from perdure.runtime.calls.pending_call import PendingCall, encode_result
from perdure.runtime.calls.recovery import open_calls
from perdure.runtime.calls.round_context import RoundContext
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools import result
from perdure.runtime.tools.arguments import Arguments
from perdure.runtime.tools.call import Outcome
from perdure.runtime.tools.execution import ask_reconcile
from perdure.runtime.tools.result import told
from perdure.runtime.tools.tool import Tool

__all__ = ["reconcile", "resolve"]

_CUT_OFF = "it was cut off while it ran"
_NOT_DONE = "its tool found that it was not done"


async def reconcile(env: RunEnvironment, id: str, *, by: str | None = None) -> CallRecord:
    """Ask the call's tool what became of it, and settle it by the answer; the call as it stands then.

    `by` is who wants to know, for the record: what counts is the tool's answer.
    Raises `Conflict` if its outcome is known or it never started, `Busy` if somebody may still be
    at it, `Invalid` if the agent has no such tool, `Unsupported` if the tool has no hook to ask.
    """
    names.check_person(by)
    held = await env.run_blocking(partial(_to_ask_about, env, id))
    tool = _tool(env, held.record)
    pending_call = PendingCall(ToolCall(held.record.id, held.record.tool, ""), tool)
    pending_call.held = held
    pending_call.arguments = await env.run_blocking(partial(_arguments, env.space, held.record, tool))
    round_context = await env.run_blocking(partial(_round_context, env, held.record))
    # Before the hook is asked: who ends only while it looks may have done something after it has.
    gone = await env.run_blocking(partial(_is_gone, env.space, held.record))
    call, state_view = round_context.call(
        pending_call, round_context.journal.root, attempt=held.record.attempt
    )
    try:
        outcome = await ask_reconcile(tool, call, tool_threads=env.tool_threads, inline=env.owns_thread)
    finally:
        state_view.close()
    return await env.run_blocking(partial(_settled, round_context, pending_call, outcome, gone=gone, by=by))


def resolve(
    space: Space,
    id: str,
    outcome: Literal["done", "not_done"],
    *,
    value: object = None,
    by: str | None = None,
    why: str | None = None,
) -> CallRecord:
    """Settle a call that nobody knows the outcome of, by a person's word; `value` is its result, if it was done.

    Raises `Conflict`, having written nothing, if its outcome is known, or a run still has it in hand.
    """
    record = calls.read(space, id).record
    if record.state == "started":
        raise Conflict(
            f"call '{id}' to {record.tool} is started, and its run has not said what became of it; nothing was "
            "resolved.",
            code="call_started",
            advice="resume() or cancel() that run first.",
            call=id,
            run=record.run,
        )
    said = f"A person says that it was {outcome}{f': {why}' if why else ''}."
    if outcome == "not_done" or value is None:
        shown = ToolResult(id, "success" if outcome == "done" else "error", (Text(said),))
        words = encode_result(shown)
        return settlement.resolve(space, id, outcome, by=by, why=why, preview=words).record
    kept = result.keep(value)
    staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
    shown = ToolResult(id, "success", (Text(said), *result.preview(kept, calls.reference(staged.digest))))
    words = encode_result(shown)
    return settlement.resolve(space, id, outcome, by=by, why=why, staged=staged, preview=words).record


def _is_gone(space: Space, record: CallRecord) -> bool:
    """Whether the process that started the call is proven to have ended."""
    return record.holder is not None and space.engine.gone(record.holder)


def _to_ask_about(env: RunEnvironment, id: str) -> VersionedCall:
    space = env.space
    held = calls.read(space, id)
    record = held.record
    if record.state in UNCLEAR:
        return held
    if record.state != "started":
        raise Conflict(
            f"call '{id}' to {record.tool} is {record.state}: there is nothing to find out; nothing was asked."
        )
    if not _is_gone(space, record):
        # It may wake up and go on; only taking its line over keeps it from writing.
        lease = leases.current(space, record.timeline)
        if lease is not None and lease.run == record.run:
            raise leases.busy(space, lease, "reconciling", owners=env.owners)
        raise Busy(id, "its process has ended", what="reconciling", call=True)
    return held


def _tool(env: RunEnvironment, record: CallRecord) -> Tool:
    tool = env.agent.toolbox.get(record.tool)
    if tool is None:
        raise Invalid(
            f"agent '{env.agent.name}' as it was given has no tool '{record.tool}'; nothing was asked.",
            code="tool_not_declared",
            advice="Give the agent that declares it.",
            agent=env.agent.name,
            tool=record.tool,
        )
    if tool.reconciler is None:
        raise Unsupported(
            f"tool '{tool.name}' has no reconcile hook, so only a person can say what became of call '{record.id}'; "
            "nothing was asked.",
            code="no_reconcile_hook",
            advice="Use resolve().",
            tool=tool.name,
            call=record.id,
        )
    return tool


def _arguments(space: Space, record: CallRecord, tool: Tool) -> Arguments | None:
    """The arguments that it ran with; None if the tool would refuse them now, or they were forgotten."""
    try:
        return tool.validated(space.body(record.args).decode("utf-8", "surrogatepass"))
    except (Invalid, Forgotten):
        return None


def _round_context(env: RunEnvironment, record: CallRecord) -> RoundContext:
    head = reader.head_of(env.space, record.timeline)
    journal = Journal(env, record.run or record.id, head, Feed(record.id))
    round_context = RoundContext(env, journal, record.backend, lambda: True, origin=record.origin)
    round_context.label = _label(env.space, record)
    journal.look_around()
    return round_context


def _label(space: Space, record: CallRecord) -> str:
    """The id of the message that will hold the result: the one that others of its round were recorded for.

    Empty if none will: the conversation holds another one already.
    """
    left = _open(space, record)
    if record.id not in left:
        return ""
    for call in (record.id, *left):
        held = calls.find(space, call)
        if held is not None and held.record.result_label:
            return held.record.result_label
    return space.ids()


def _settled(
    round_context: RoundContext, pending_call: PendingCall, outcome: Outcome, *, gone: bool, by: str | None
) -> CallRecord:
    """Take the call to what its hook found, and make that durable."""
    assert pending_call.held is not None
    assert pending_call.tool is not None
    assert pending_call.tool.reconciler is not None
    record = pending_call.held.record
    believed = gone or pending_call.tool.reconciler.fences
    if outcome.kind == "not_done" and believed:
        _not_done(round_context, pending_call)
    else:
        why = record.why or _CUT_OFF
        CallExecutor(round_context, round_context.journal.root, {}).reconciled(
            pending_call, outcome, why, believed=believed
        )
    if pending_call.transition is not None:
        pending_call.held = round_context.journal.post(calls.attributed(pending_call.transition, by))[0]
    return pending_call.held.record


def _not_done(round_context: RoundContext, pending_call: PendingCall) -> None:
    """It was not done: whoever goes on with it starts it once more; if nobody does, it has failed."""
    assert pending_call.held is not None
    record = pending_call.held.record
    states: tuple[CallState, ...] = ("unknown",) if record.state == "started" else ()
    again = record.origin == "call" or record.id in _open(round_context.space, record)
    if again and pending_call.arguments is not None and record.attempt < attempts_max(pending_call.tool):
        pending_call.transition = calls.advance(
            pending_call.held, *states, "requested", at=round_context.now(), why=_NOT_DONE
        )
        return
    said = ToolResult(record.id, "error", told("failed", _NOT_DONE, record.tool))
    pending_call.transition = calls.settle(
        pending_call.held,
        *states,
        "requested",
        "failed",
        at=round_context.now(),
        preview=encode_result(said),
        status="error",
        why=_NOT_DONE,
    )


def _open(space: Space, record: CallRecord) -> list[str]:
    """The calls of the same run that the conversation holds no result of, while the run has not ended."""
    kept = records.find(space, record.run) if record.run else None
    if kept is None or kept.record.state in ENDED:
        return []
    head = reader.head_of(space, kept.record.line or kept.record.timeline)
    source = kept.record.continues or kept.record.id
    left, _ = open_calls(space, source, head.commit, continued_by=kept.record.id)
    return [call.id for call in left]
