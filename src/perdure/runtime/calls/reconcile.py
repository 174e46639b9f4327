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


async def reconcile(ground: RunEnvironment, id: str, *, by: str | None = None) -> CallRecord:
    """Ask the call's tool what became of it, and settle it by the answer; the call as it stands then.

    `by` is who wants to know, for the record: what counts is the tool's answer.
    Raises `Conflict` if its outcome is known or it never started, `Busy` if somebody may still be
    at it, `Invalid` if the agent has no such tool, `Unsupported` if the tool has no hook to ask.
    """
    names.check_person(by)
    held = await ground.hands(partial(_to_ask_about, ground, id))
    tool = _tool(ground, held.record)
    slot = PendingCall(ToolCall(held.record.id, held.record.tool, ""), tool)
    slot.held = held
    slot.arguments = await ground.hands(partial(_arguments, ground.space, held.record, tool))
    desk = await ground.hands(partial(_desk, ground, held.record))
    # Before the hook is asked: who ends only while it looks may have done something after it has.
    gone = await ground.hands(partial(_is_gone, ground.space, held.record))
    call, room = desk.call(slot, desk.journal.root, attempt=held.record.attempt)
    try:
        outcome = await ask_reconcile(tool, call, crew=ground.crew, inline=ground.sole)
    finally:
        room.close()
    return await ground.hands(partial(_settled, desk, slot, outcome, gone=gone, by=by))


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
            "resolved. resume() or cancel() that run first."
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


def _to_ask_about(ground: RunEnvironment, id: str) -> VersionedCall:
    space = ground.space
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
            raise leases.busy(space, lease, "reconciling", owners=ground.owners)
        raise Busy(id, "its process has ended", what="reconciling", call=True)
    return held


def _tool(ground: RunEnvironment, record: CallRecord) -> Tool:
    tool = ground.agent.toolbox.get(record.tool)
    if tool is None:
        raise Invalid(
            f"agent '{ground.agent.name}' as it was given has no tool '{record.tool}'; nothing was asked. "
            "Give the agent that declares it."
        )
    if tool.reconciler is None:
        raise Unsupported(
            f"tool '{tool.name}' has no reconcile hook, so only a person can say what became of call '{record.id}'; "
            "nothing was asked. Use resolve()."
        )
    return tool


def _arguments(space: Space, record: CallRecord, tool: Tool) -> Arguments | None:
    """The arguments that it ran with; None if the tool would refuse them now, or they were forgotten."""
    try:
        return tool.validated(space.body(record.args).decode("utf-8", "surrogatepass"))
    except (Invalid, Forgotten):
        return None


def _desk(ground: RunEnvironment, record: CallRecord) -> RoundContext:
    head = reader.head_of(ground.space, record.timeline)
    journal = Journal(ground, record.run or record.id, head, Feed(record.id))
    desk = RoundContext(ground, journal, record.backend, lambda: True, origin=record.origin)
    desk.label = _label(ground.space, record)
    journal.look_around()
    return desk


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
    desk: RoundContext, slot: PendingCall, outcome: Outcome, *, gone: bool, by: str | None
) -> CallRecord:
    """Take the call to what its hook found, and make that durable."""
    assert slot.held is not None
    assert slot.tool is not None
    assert slot.tool.reconciler is not None
    record = slot.held.record
    believed = gone or slot.tool.reconciler.fences
    if outcome.kind == "not_done" and believed:
        _not_done(desk, slot)
    else:
        why = record.why or _CUT_OFF
        CallExecutor(desk, desk.journal.root, {}).reconciled(slot, outcome, why, believed=believed)
    if slot.posting is not None:
        slot.held = desk.journal.post(calls.attributed(slot.posting, by))[0]
    return slot.held.record


def _not_done(desk: RoundContext, slot: PendingCall) -> None:
    """It was not done: whoever goes on with it starts it once more; if nobody does, it has failed."""
    assert slot.held is not None
    record = slot.held.record
    hops: tuple[CallState, ...] = ("unknown",) if record.state == "started" else ()
    again = record.origin == "call" or record.id in _open(desk.space, record)
    if again and slot.arguments is not None and record.attempt < attempts_max(slot.tool):
        slot.posting = calls.advance(slot.held, *hops, "requested", at=desk.now(), why=_NOT_DONE)
        return
    said = ToolResult(record.id, "error", told("failed", _NOT_DONE, record.tool))
    slot.posting = calls.settle(
        slot.held,
        *hops,
        "requested",
        "failed",
        at=desk.now(),
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
