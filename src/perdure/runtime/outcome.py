"""Outcomes: what a call came to, on its way from the tool into the ledger and the conversation."""

from __future__ import annotations

from perdure.history.artifacts import Staged
from perdure.ledger import calls
from perdure.ledger.calls import Held, Posting
from perdure.model.call import CallState
from perdure.model.message import Text, ToolResult
from perdure.runtime.desk import Desk
from perdure.runtime.lateness import encoded, values_of
from perdure.runtime.room import Room
from perdure.runtime.slot import Slot, encode_result

__all__ = ["noted", "settlement", "take_changes", "with_values"]


def settlement(
    desk: Desk,
    slot: Slot,
    held: Held,
    hops: tuple[CallState, ...],
    said: ToolResult,
    staged: Staged | None,
    why: str | None,
    *,
    at: int,
    told: bool,
) -> Posting:
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


def with_values(posting: Posting, slot: Slot) -> Posting:
    """The posting with the values that the call's patches name."""
    values = values_of(slot)
    return posting.also(objects=values) if values else posting


def take_changes(slot: Slot, room: Room, *, keep_scratch: bool) -> None:
    """Let the slot have what its call has changed; scratch only if it is to be kept."""
    slot.changes(*room.finish(keep_scratch=keep_scratch), room.memory.finish())


def noted(said: ToolResult, note: str | None) -> ToolResult:
    """What is said, after a note if there is one."""
    return said if note is None else ToolResult(said.call_id, said.status, (Text(note), *said.content))
