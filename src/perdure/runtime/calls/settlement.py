"""Outcomes: what a call came to, on its way from the tool into the ledger and the conversation.

Results that come by another way than the run that asked: late ones, and what the ledger recalls.

A holder that lost its lease, or code that could not be stopped in time, may still say what came of
its call.  Whoever is about to record something else finds that, and lets it stand.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from perdure.errors import PerdureError
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.ledger import calls, settlement
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model.call import SETTLED, CallRecord, CallState
from perdure.model.canonical import encode_struct
from perdure.model.digest import Kind, Object
from perdure.model.memory import Remembering
from perdure.model.message import Block, Text, ToolResult
from perdure.model.patch import Patch
from perdure.runtime.calls.pending_call import PendingCall, encode_result, recalled
from perdure.runtime.calls.round_context import RoundContext
from perdure.runtime.tools import result
from perdure.runtime.tools.call_state import CallStateView
from perdure.runtime.tools.result import StoredResult, Told, told

__all__ = [
    "noted",
    "settlement_of",
    "take_changes",
    "with_values",
    "encoded",
    "late",
    "overtaken",
    "recall",
    "record_alone",
    "record_late",
    "shown",
    "unclear",
    "values_of",
]


def recall(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Take what the ledger says that a call came to; if no conversation was told yet, this one is."""
    assert pending_call.held is not None
    recalled(pending_call, round_context.space, unclear(pending_call))
    if pending_call.held.record.result_label == "":
        pending_call.transition = calls.learn(
            pending_call.held, at=round_context.now(), result_label=round_context.label
        )


def overtaken(round_context: RoundContext, pending_call: PendingCall) -> bool:
    """Whether the call came to its end by another way meanwhile: a late result.  Then that is what it came to."""
    if pending_call.held is None:
        return False
    held = calls.read(round_context.space, pending_call.held.record.id)
    if held.revision == pending_call.held.revision or held.record.state not in SETTLED:
        return False
    pending_call.held, pending_call.transition = held, None
    recall(round_context, pending_call)
    return True


def late(round_context: RoundContext, pending_call: PendingCall) -> None:
    """The lease was lost while the tool ran: record its result all the same, once, as evidence."""
    if (
        pending_call.transition is None
        or pending_call.staged is None
        or pending_call.result is None
        or pending_call.held is None
    ):
        return
    started = pending_call.held.record
    with suppress(PerdureError):  # whoever took over has settled it
        settlement.late(
            round_context.env.space,
            started.id,
            attempt=started.attempt,
            epoch=started.epoch,
            staged=pending_call.staged,
            preview=encode_result(pending_call.result),
            status=pending_call.result.status,
            patch=encoded(pending_call.patch),
            patch_base=pending_call.base,
            agent_patch=encoded(pending_call.agent_patch),
            memory=encoded(pending_call.memory),
            values=values_of(pending_call),
        )


def record_alone(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Record what a call came to though there is no commit to say so: its effect has happened."""
    transition = pending_call.alone
    if transition is not None and pending_call.stage == "settled":
        with suppress(PerdureError):  # it became true after all, or the store cannot be written now
            round_context.journal.post(transition)
            pending_call.written()


def record_late(round_context: RoundContext, record: CallRecord, value: object) -> None:
    """A result that came after its time was up: evidence of what happened."""
    space = round_context.env.space
    with suppress(PerdureError):  # it was settled meanwhile, or the store is closed: the call stays unknown
        kept, staged = stage_result(space, value)
        said = shown(record.id, kept, staged)
        settlement.late(
            space,
            record.id,
            attempt=record.attempt,
            epoch=record.epoch,
            staged=staged,
            preview=encode_result(said),
            status=said.status,
        )


def unclear(pending_call: PendingCall) -> tuple[Block, ...]:
    """What a model is told of a call that the ledger holds no words for."""
    record = pending_call.record
    words: dict[CallState, Told] = {
        "failed": "failed",
        "denied": "denied",
        "expired": "expired",
        "cancelled": "cancelled",
        "needs_human": "needs_human",
    }
    return told(words.get(record.state, "unknown"), record.why or "", record.tool)


def stage_result(space: Space, value: object) -> tuple[StoredResult, Staged]:
    """A result on its way into the store; of one beyond all limits, as much as can be kept."""
    kept, most = result.keep(value), space.limits.artifact_bytes_max
    if len(kept.content) > most:
        note = Text(f"[the result had {len(kept.content):,} bytes; only the first {most:,} are kept]")
        kept = msgspec.structs.replace(kept, content=kept.content[:most], blocks=(note, *kept.blocks))
    return kept, artifacts.stage(space, (kept.content,), media_type=kept.media_type)


def shown(call: str, kept: StoredResult, staged: Staged) -> ToolResult:
    """What a model is shown of a result."""
    return ToolResult(call, kept.status, result.preview(kept, calls.reference(staged.digest)))


def encoded(change: Patch | Remembering | None) -> bytes | None:
    """The bytes of what a call changes, if that is anything."""
    return None if change is None else encode_struct(change)


def values_of(pending_call: PendingCall) -> list[Object]:
    """What the call's patches name."""
    return [each for each in pending_call.brought.values() if each.kind is not Kind.NODE]


def settlement_of(
    round_context: RoundContext,
    pending_call: PendingCall,
    held: VersionedCall,
    states: tuple[CallState, ...],
    said: ToolResult,
    staged: Staged | None,
    why: str | None,
    *,
    at: int,
    told: bool,
) -> CallTransition:
    """The posting that takes a call to its end, with what it changes.

    `told`: the write that it goes with tells the conversation what was `said`, so it is not kept here.
    """
    transition = calls.settle(
        held,
        *states,
        at=at,
        staged=staged,
        preview=None if told else encode_result(said),
        status=said.status,
        patch=encoded(pending_call.patch),
        patch_base=pending_call.base,
        agent_patch=encoded(pending_call.agent_patch),
        memory=encoded(pending_call.memory),
        why=why,
        result_label=round_context.label,
    )
    return with_values(transition, pending_call)


def with_values(transition: CallTransition, pending_call: PendingCall) -> CallTransition:
    """The posting with the values that the call's patches name."""
    values = values_of(pending_call)
    return transition.also(objects=values) if values else transition


def take_changes(pending_call: PendingCall, state_view: CallStateView, *, keep_scratch: bool) -> None:
    """Let the slot have what its call has changed; scratch only if it is to be kept."""
    pending_call.changes(*state_view.finish(keep_scratch=keep_scratch), state_view.memory.finish())


def noted(said: ToolResult, note: str | None) -> ToolResult:
    """What is said, after a note if there is one."""
    return said if note is None else ToolResult(said.call_id, said.status, (Text(note), *said.content))
