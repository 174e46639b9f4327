"""Reconciles a call from outside a run: asks its tool whether it was done, or takes a person's word.

The rules are those of recovery.  `done` settles the call with its result.  `not_done` is believed only if
the process that started the call is proven to have ended, or the tool declares that its hook fences.
Anything else leaves the call to a person, who resolves it.

Nothing is attempted here.  A call that was not done is requested again if its run continues or it is a
direct call, and starts when that is resumed; if its run is over, it has failed.
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
from perdure.runtime.calls import root_ledger
from perdure.runtime.calls.pending_call import NO_CHANGES, PendingCall, encode_result
from perdure.runtime.calls.recovery import open_calls
from perdure.runtime.calls.round import RoundContext
from perdure.runtime.calls.settlement import Settler, attempts_max
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools import result
from perdure.runtime.tools.call import Outcome
from perdure.runtime.tools.execution import ask_reconcile
from perdure.runtime.tools.result import explain
from perdure.runtime.tools.signature import Arguments
from perdure.runtime.tools.tool import Tool

__all__ = ["reconcile", "resolve"]

_CUT_OFF = "it was cut off while it ran"
_NOT_DONE = "its tool found that it was not done"
_FOUND_LATER = "The outcome of this call was unknown at first. Its tool found later that it was done:"


async def reconcile(env: RunEnvironment, id: str, *, by: str | None = None) -> CallRecord:
    """Ask the call's tool whether the call was done, settle the call by the answer, and return its record.

    `by` is the person who asks, for the record; the tool's answer decides.
    Raises `Conflict` if its outcome is known or it never started, `Busy` if another process may still
    make it, `Invalid` if the agent has no such tool, `Unsupported` if the tool has no reconcile hook.
    """
    names.check_person(by)
    recorded = await env.run_blocking(partial(_unclear_call, env, id))
    record = recorded.record
    tool = _tool(env, record)
    pending_call = PendingCall(ToolCall(record.id, record.tool, ""), tool, recorded)
    pending_call.prepare(await env.run_blocking(partial(_arguments, env.space, record, tool)))
    round_context = await env.run_blocking(partial(_round_context, env, record))
    # Asked before the hook is: a process that ends while the hook looks may act after the hook has looked.
    gone = await env.run_blocking(partial(_is_gone, env.space, record))
    call, state_view = round_context.open_call(
        pending_call, round_context.journal.root, attempt=record.attempt
    )
    try:
        outcome = await ask_reconcile(tool, call, tool_threads=env.tool_threads, inline=env.owns_thread)
    finally:
        state_view.close()
    assert tool.reconciler is not None
    believed = gone or tool.reconciler.fences
    settled = await env.run_blocking(
        partial(_settle, round_context, pending_call, outcome, believed=believed, by=by)
    )
    await env.run_blocking(partial(root_ledger.settle_call, env.space, settled))
    return settled


def resolve(
    space: Space,
    id: str,
    outcome: Literal["done", "not_done"],
    *,
    value: object = None,
    by: str | None = None,
    why: str | None = None,
) -> CallRecord:
    """Settle a call of unknown outcome by a person's word; `value` is its result, if it was done.

    Raises `Conflict`, having written nothing, if its outcome is known, or its run has not recorded it yet.
    """
    record = calls.read(space, id).record
    _check_own(record)
    if record.state == "started":
        raise Conflict(
            f"call '{id}' to {record.tool} is started, and its run has not recorded an outcome; nothing was "
            "resolved.",
            code="call_started",
            advice="resume() or cancel() that run first.",
            call=id,
            run=record.run,
        )
    was = "done" if outcome == "done" else "not done"
    words = Text(f"A person says that it was {was}{f': {why}' if why else ''}.")
    if outcome == "not_done" or value is None:
        shown = ToolResult(id, "success" if outcome == "done" else "error", (words,))
        settled = settlement.resolve(space, id, outcome, by=by, why=why, preview=encode_result(shown)).record
        root_ledger.settle_call(space, settled)
        return settled
    stored = result.keep(value)
    staged = artifacts.stage(space, (stored.content,), media_type=stored.media_type)
    shown = ToolResult(id, "success", (words, *result.preview(stored, calls.reference(staged.digest))))
    preview = encode_result(shown)
    settled = settlement.resolve(space, id, outcome, by=by, why=why, staged=staged, preview=preview).record
    root_ledger.settle_call(space, settled)
    return settled


def _check_own(record: CallRecord) -> None:
    """Raise `Conflict` for a call of a child run: its own thread decides what became of it."""
    if record.origin == "child":
        raise Conflict(
            f"call '{record.id}' to {record.tool} belongs to a child run; nothing was done.",
            code="call_of_child",
            advice="Settle it on the thread of the child run: runs show lists it.",
            call=record.id,
            parent_call=record.parent_call,
        )


def _is_gone(space: Space, record: CallRecord) -> bool:
    """True if the process that started the call is proven to have ended."""
    return record.holder is not None and space.engine.gone(record.holder)


def _unclear_call(env: RunEnvironment, id: str) -> VersionedCall:
    space = env.space
    recorded = calls.read(space, id)
    record = recorded.record
    _check_own(record)
    if record.state in UNCLEAR:
        return recorded
    if record.state != "started":
        raise Conflict(
            f"call '{id}' to {record.tool} is {record.state}: there is nothing to find out; nothing was asked.",
            code="outcome_known",
            call=id,
            state=record.state,
        )
    if not _is_gone(space, record):
        # Its process may wake up and continue; only taking the lease over keeps it from writing.
        lease = leases.current(space, record.timeline)
        if lease is not None and lease.run == record.run:
            raise leases.busy(space, lease, "reconciling", owners=env.owners)
        raise Busy(id, "its process has ended", what="reconciling", call=True)
    return recorded


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
            f"tool '{tool.name}' has no reconcile hook, so only a person can say whether call '{record.id}' was done; "
            "nothing was asked.",
            code="reconcile_hook_missing",
            advice="Use resolve().",
            tool=tool.name,
            call=record.id,
        )
    return tool


def _arguments(space: Space, record: CallRecord, tool: Tool) -> Arguments | None:
    """Return the arguments that it ran with; None if the tool would refuse them now, or they were forgotten."""
    try:
        return tool.validated(space.body(record.args).decode("utf-8", "surrogatepass"))
    except (Invalid, Forgotten):
        return None


def _round_context(env: RunEnvironment, record: CallRecord) -> RoundContext:
    head = reader.head_of(env.space, record.timeline)
    journal = Journal(env, record.run or record.id, head, Feed(record.id))
    journal.look_around()
    return RoundContext(env, journal, origin=record.origin)


def _message_id(space: Space, record: CallRecord) -> str | None:
    """Return the id of the message that will hold the result: the one that others of its round were recorded for.

    None if none will: the conversation holds another result already.
    """
    left = _open(space, record)
    if record.id not in left:
        return None
    for call in (record.id, *left):
        recorded = calls.find(space, call)
        if recorded is not None and recorded.record.result_label:
            return recorded.record.result_label
    return space.ids()


def _settle(
    round_context: RoundContext,
    pending_call: PendingCall,
    outcome: Outcome,
    *,
    believed: bool,
    by: str | None,
) -> CallRecord:
    """Settle the call by the answer of its hook, and write that."""
    journal, record = round_context.journal, pending_call.recorded.record
    if outcome.kind == "not_done" and believed:
        transition = _not_done(round_context, pending_call)
    else:
        settler = Settler(journal, _message_id(round_context.env.space, record))
        if settler.message_id is None and record.origin is None:
            pending_call.annotate(_FOUND_LATER)
        settler.reconcile(pending_call, outcome, NO_CHANGES, record.why or _CUT_OFF, believed=believed)
        transition = pending_call.transition
    if transition is None:
        return record
    return journal.post(calls.attributed(transition, by))[0].record


def _not_done(round_context: RoundContext, pending_call: PendingCall) -> calls.CallTransition:
    """Return the transition of a call that was not done: requested again if it is continued, else failed."""
    record = pending_call.recorded.record
    states: tuple[CallState, ...] = ("unknown",) if record.state == "started" else ()
    is_continued = record.origin == "call" or record.id in _open(round_context.space, record)
    has_attempts = record.attempt < attempts_max(pending_call.tool)
    if is_continued and has_attempts and pending_call.ready.arguments is not None:
        return calls.advance(
            pending_call.recorded, *states, "requested", at=round_context.now(), why=_NOT_DONE
        )
    shown = ToolResult(record.id, "error", explain("failed", _NOT_DONE, record.tool))
    return calls.settle(
        pending_call.recorded,
        *states,
        "requested",
        "failed",
        at=round_context.now(),
        preview=encode_result(shown),
        status="error",
        why=_NOT_DONE,
    )


def _open(space: Space, record: CallRecord) -> list[str]:
    """Return the calls of the same run that have no result in the conversation, while the run has not ended."""
    found = records.find(space, record.run) if record.run else None
    if found is None or found.record.state in ENDED:
        return []
    head = reader.head_of(space, found.record.line or found.record.timeline)
    source = found.record.continues or found.record.id
    left, _ = open_calls(space, source, head.commit, continued_by=found.record.id)
    return [call.id for call in left]
