"""Slots: the calls of one round, each with where it stands and what the model will be told.

A slot is `ready` until its call is settled or suspended.  What it came to may be in the ledger
already, or stand in a posting that is still to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from perdure.history.artifacts import Staged
from perdure.history.changes.patch_builder import Patched
from perdure.history.space import Space
from perdure.ledger.calls import CallTransition, VersionedCall, propose, reference, settle
from perdure.ledger.results import shown
from perdure.model.call import SETTLED, UNCLEAR, CallRecord
from perdure.model.canonical import encode_struct
from perdure.model.digest import Digest, Kind, Object
from perdure.model.memory import Remembering, decode_remembering
from perdure.model.message import Block, Text, ToolCall, ToolResult
from perdure.model.patch import Patch, decode_patch
from perdure.runtime.tools.arguments import Arguments
from perdure.runtime.tools.tool import Tool

__all__ = ["PendingCall", "encode_result", "lent", "recalled"]

Stage: TypeAlias = Literal["ready", "settled", "suspended"]

_results = msgspec.json.Decoder(ToolResult)


class PendingCall:
    """One call of a round."""

    __slots__ = (
        "_alone",
        "agent_patch",
        "arguments",
        "attempts",
        "base",
        "brought",
        "call",
        "held",
        "memory",
        "note",
        "patch",
        "patched",
        "recovering",
        "result",
        "stage",
        "staged",
        "told",
        "tool",
        "transition",
    )

    def __init__(self, call: ToolCall, tool: Tool | None, arguments: Arguments | None = None) -> None:
        """A call that nothing is known of yet."""
        self.call, self.tool, self.arguments = call, tool, arguments
        self.stage: Stage = "ready"
        self.held: VersionedCall | None = None  # as it stands in the ledger; None: it is not there yet
        self.transition: CallTransition | None = None  # its next transition, still to be written
        self._alone: Callable[[], CallTransition] | None = None
        self.result: ToolResult | None = None  # what the model is told, once it is settled
        self.patch: Patch | None = None  # what it changes in the thread's state
        self.patched: Patched | None = (
            None  # the same as it was made here, on the state at the start of the round
        )
        self.agent_patch: Patch | None = None  # and in the agent's own map
        self.memory: Remembering | None = None  # what it did to its owner's memory
        self.brought: dict[Digest, Object] = {}  # values of these patches that may not be stored yet
        self.staged: Staged | None = None  # its result, on the way into the store
        self.attempts = 0  # made in this process
        self.base: Digest | None = None  # the root of the state that `patched` was made on
        self.recovering = False  # whether an attempt was cut off, so that nobody knows how far it came
        self.note: str | None = None  # what the model is told beside the result
        self.told = False  # whether its suspension is in the history already

    @property
    def record(self) -> CallRecord:
        """What is known of the call, with what is still to be written."""
        if self.transition is not None:
            return self.transition.record
        assert self.held is not None, "a slot has a posting until it is in the ledger"
        return self.held.record

    @property
    def changes_state(self) -> bool:
        """Whether the commit of its round has to do anything to the thread's state for it."""
        return self.patch is not None or (self.stage == "settled" and self.record.ticket is not None)

    def written(self) -> None:
        """Its posting has become true."""
        if self.transition is not None:
            self.held, self.transition = self.transition.held, None

    def settle(
        self,
        transition: CallTransition | None,
        result: ToolResult,
        *,
        alone: Callable[[], CallTransition] | None = None,
    ) -> None:
        """The call has come to its end, or nobody knows: either way the model is told.

        `alone` makes what is posted instead if no message is written with it; None: the same.
        """
        self.transition, self.result, self.stage = transition, result, "settled"
        self._alone = alone

    @property
    def alone(self) -> CallTransition | None:
        """Its next transition, for a write that tells nobody."""
        return self.transition if self.transition is None or self._alone is None else self._alone()

    def suspend(self, transition: CallTransition | None) -> None:
        """The call waits for somebody's decision."""
        self.transition, self.stage = transition, "suspended"

    def changes(
        self, thread: Patched | None, agent: Patched | None, memory: Remembering | None = None
    ) -> None:
        """Take what the call changes, in place of what an earlier attempt would have."""
        self.memory, self.patched = memory, thread
        self.patch, self.agent_patch = (each.patch if each else None for each in (thread, agent))
        self.brought = {item.digest: item for each in (thread, agent) if each for item in each.objects}


def recalled(pending_call: PendingCall, space: Space, otherwise: tuple[Block, ...]) -> None:
    """Fill a slot whose call has come to its end from what the ledger says; `otherwise` where it holds no words."""
    record = pending_call.record
    assert record.state in SETTLED or record.state in UNCLEAR
    told = shown(space, record)
    if told is not None:
        result = msgspec.structs.replace(told, call_id=pending_call.call.id)
    else:
        result = ToolResult(pending_call.call.id, record.status or "error", otherwise)
    pending_call.patched = None  # what was made here is not what the ledger says
    pending_call.patch = decode_patch(space.body(record.patch)) if record.patch else None
    pending_call.agent_patch = decode_patch(space.body(record.agent_patch)) if record.agent_patch else None
    pending_call.memory = decode_remembering(space.body(record.memory)) if record.memory else None
    pending_call.settle(pending_call.transition, result)


def lent(pending_call: PendingCall, staged: Staged | None, preview: bytes | None, *, at: int) -> None:
    """Settle a slot with the result of another call that had the same key."""
    assert pending_call.transition is not None or pending_call.held is not None
    record = pending_call.record
    if preview is None:
        result = ToolResult(pending_call.call.id, "success", (Text("Done before, with the same key."),))
    else:
        result = msgspec.structs.replace(_results.decode(preview), call_id=pending_call.call.id)
    result_body = Object.of(Kind.BODY, encode_result(result))
    if pending_call.transition is not None:  # it enters the ledger with this
        entered = msgspec.structs.replace(
            record,
            state="proposed",
            status=result.status,
            preview=result_body.digest,
            result=reference(staged.digest) if staged else None,
        )
        transition = propose(entered, "requested", "succeeded").also(
            cells=staged.cells if staged else (),
            objects=(*(staged.objects if staged else ()), result_body),
        )
    else:
        assert pending_call.held is not None
        transition = settle(
            pending_call.held,
            "succeeded",
            at=at,
            staged=staged,
            preview=result_body.body,
            status=result.status,
        )
    pending_call.settle(transition, result)


def encode_result(result: ToolResult) -> bytes:
    """The bytes of what a model is shown of a result."""
    return encode_struct(result)
