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


def recall(desk: RoundContext, slot: PendingCall) -> None:
    """Take what the ledger says that a call came to; if no conversation was told yet, this one is."""
    assert slot.held is not None
    recalled(slot, desk.space, unclear(slot))
    if slot.held.record.result_label == "":
        slot.posting = calls.learn(slot.held, at=desk.now(), result_label=desk.label)


def overtaken(desk: RoundContext, slot: PendingCall) -> bool:
    """Whether the call came to its end by another way meanwhile: a late result.  Then that is what it came to."""
    if slot.held is None:
        return False
    held = calls.read(desk.space, slot.held.record.id)
    if held.revision == slot.held.revision or held.record.state not in SETTLED:
        return False
    slot.held, slot.posting = held, None
    recall(desk, slot)
    return True


def late(desk: RoundContext, slot: PendingCall) -> None:
    """The lease was lost while the tool ran: record its result all the same, once, as evidence."""
    if slot.posting is None or slot.staged is None or slot.result is None or slot.held is None:
        return
    started = slot.held.record
    with suppress(PerdureError):  # whoever took over has settled it
        settlement.late(
            desk.ground.space,
            started.id,
            attempt=started.attempt,
            epoch=started.epoch,
            staged=slot.staged,
            preview=encode_result(slot.result),
            status=slot.result.status,
            patch=encoded(slot.patch),
            patch_base=slot.base,
            agent_patch=encoded(slot.agent_patch),
            memory=encoded(slot.memory),
            values=values_of(slot),
        )


def record_alone(desk: RoundContext, slot: PendingCall) -> None:
    """Record what a call came to though there is no commit to say so: its effect has happened."""
    posting = slot.alone
    if posting is not None and slot.stage == "settled":
        with suppress(PerdureError):  # it became true after all, or the store cannot be written now
            desk.journal.post(posting)
            slot.written()


def record_late(desk: RoundContext, record: CallRecord, value: object) -> None:
    """A result that came after its time was up: evidence of what happened."""
    space = desk.ground.space
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


def unclear(slot: PendingCall) -> tuple[Block, ...]:
    """What a model is told of a call that the ledger holds no words for."""
    record = slot.record
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


def values_of(slot: PendingCall) -> list[Object]:
    """What the call's patches name."""
    return [each for each in slot.brought.values() if each.kind is not Kind.NODE]


def settlement_of(
    desk: RoundContext,
    slot: PendingCall,
    held: VersionedCall,
    hops: tuple[CallState, ...],
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
    posting = calls.settle(
        held,
        *hops,
        at=at,
        staged=staged,
        preview=None if told else encode_result(said),
        status=said.status,
        patch=encoded(slot.patch),
        patch_base=slot.base,
        agent_patch=encoded(slot.agent_patch),
        memory=encoded(slot.memory),
        why=why,
        result_label=desk.label,
    )
    return with_values(posting, slot)


def with_values(posting: CallTransition, slot: PendingCall) -> CallTransition:
    """The posting with the values that the call's patches name."""
    values = values_of(slot)
    return posting.also(objects=values) if values else posting


def take_changes(slot: PendingCall, room: CallStateView, *, keep_scratch: bool) -> None:
    """Let the slot have what its call has changed; scratch only if it is to be kept."""
    slot.changes(*room.finish(keep_scratch=keep_scratch), room.memory.finish())


def noted(said: ToolResult, note: str | None) -> ToolResult:
    """What is said, after a note if there is one."""
    return said if note is None else ToolResult(said.call_id, said.status, (Text(note), *said.content))
