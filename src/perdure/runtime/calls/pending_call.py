"""One call of a round, from the request to the result that the model is shown.

A pending call is in one of three states, and what belongs to a state is kept there:

    ReadyCall       it is to be carried out: its arguments, and whether an earlier attempt was cut off
    SuspendedCall   it waits for a decision: what the tool has put aside
    SettledCall     it has a result for the model: the result, and what the call changes

    ready     ── settle ───▶ settled
    ready     ── suspend ──▶ suspended
    any state ── reload ───▶ ready        the ledger holds something else than this process assumed

Beside the state it holds the call as the ledger has it (`recorded`) and the next transition of the
ledger that is still to be written (`transition`).  A call with an unwritten transition takes no other
step: `written` says that the transition is durable now.  Only the methods below change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from perdure.runtime.tools.signature import Arguments
from perdure.runtime.tools.tool import Tool

__all__ = [
    "PendingCall",
    "CallChanges",
    "NO_CHANGES",
    "ReadyCall",
    "SettledCall",
    "SuspendedCall",
    "encode_result",
    "settle_as_recorded",
    "settle_with_result_of_key",
]

_results = msgspec.json.Decoder(ToolResult)


class CallChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a call changes: in the thread's state, in the agent's own map, and in its owner's memory."""

    patch: Patch | None = None  # of the thread's state
    agent_patch: Patch | None = None
    memory: Remembering | None = None
    patched: Patched | None = (
        None  # `patch` applied to `base` in this process; None: it comes from the ledger
    )
    base: Digest | None = None  # the root of the state that the call has seen
    objects: Mapping[Digest, Object] = {}  # values of the patches that may not be stored yet

    @classmethod
    def made_here(
        cls, base: Digest, thread: Patched | None, agent: Patched | None, memory: Remembering | None
    ) -> CallChanges:
        """Return what an attempt in this process has changed, starting from the state `base`."""
        return cls(
            patch=thread.patch if thread else None,
            agent_patch=agent.patch if agent else None,
            memory=memory,
            patched=thread,
            base=base,
            objects={item.digest: item for each in (thread, agent) if each for item in each.objects},
        )

    @classmethod
    def recorded(cls, space: Space, record: CallRecord) -> CallChanges:
        """Read what the ledger says that a call changes."""
        return cls(
            patch=decode_patch(space.body(record.patch)) if record.patch else None,
            agent_patch=decode_patch(space.body(record.agent_patch)) if record.agent_patch else None,
            memory=decode_remembering(space.body(record.memory)) if record.memory else None,
        )

    @property
    def values(self) -> list[Object]:
        """The values that the patches name; nodes of the tree are made again by the commit."""
        return [each for each in self.objects.values() if each.kind is not Kind.NODE]


NO_CHANGES = CallChanges()


class ReadyCall(msgspec.Struct, frozen=True):
    """The call is to be carried out."""

    arguments: Arguments | None = None  # None: not validated, or the tool refuses them now
    is_interrupted: bool = False  # an attempt was cut off, and how far it got is not known
    note: str | None = None  # what the model is shown before the result


_READY = ReadyCall()


class SuspendedCall(msgspec.Struct, frozen=True):
    """The call waits for a decision."""

    is_in_history: bool  # a commit names this question already
    changes: CallChanges = NO_CHANGES


class SettledCall(msgspec.Struct, frozen=True):
    """The call has a result for the model.  What the call did may still be unknown: then the result says so."""

    result: ToolResult
    changes: CallChanges = NO_CHANGES
    staged: Staged | None = None  # the content of the result, on its way into the store
    alone: Callable[[], CallTransition] | None = (
        None  # None: the transition is the same with or without a message
    )


class PendingCall:
    """One call of a round; the module's docstring lists its states."""

    __slots__ = ("_recorded", "call", "record", "state", "tool", "transition")

    # The call's record as it will be once the transition is written.  A call that is not known has none.
    record: CallRecord
    state: ReadyCall | SuspendedCall | SettledCall  # with what belongs to it
    # The next transition of the ledger, still to be written with a commit; None: there is nothing to write.
    transition: CallTransition | None

    def __init__(self, call: ToolCall, tool: Tool | None, recorded: VersionedCall | None = None) -> None:
        """Begin as ready; `recorded` is the call in the ledger, None if it has not entered the ledger."""
        self.call, self.tool = call, tool
        self.state, self._recorded, self.transition = _READY, recorded, None
        if recorded is not None:
            self.record = recorded.record

    # ---- what it is

    @property
    def stage(self) -> Stage:
        """The name of the state."""
        return _STAGES[type(self.state)]

    @property
    def ready(self) -> ReadyCall:
        """The state of a call that is ready."""
        assert isinstance(self.state, ReadyCall), f"call '{self.call.id}' is {self.stage}, not ready"
        return self.state

    @property
    def result(self) -> ToolResult | None:
        """What the model is shown; None until the call is settled."""
        return self.state.result if isinstance(self.state, SettledCall) else None

    @property
    def changes(self) -> CallChanges:
        """What the call changes; nothing while it is ready."""
        return NO_CHANGES if isinstance(self.state, ReadyCall) else self.state.changes

    @property
    def recorded(self) -> VersionedCall:
        """The call as the ledger has it."""
        assert self._recorded is not None, f"call '{self.call.id}' is not in the ledger"
        return self._recorded

    @property
    def has_entered(self) -> bool:
        """True if the ledger has the call."""
        return self._recorded is not None

    @property
    def transition_alone(self) -> CallTransition | None:
        """The transition for a write without a message: then the ledger has to hold the words of the result."""
        alone = self.state.alone if isinstance(self.state, SettledCall) else None
        return self.transition if self.transition is None or alone is None else alone()

    @property
    def is_known(self) -> bool:
        """False for a call that is in the conversation and in no ledger."""
        return self.transition is not None or self._recorded is not None

    @property
    def changes_state(self) -> bool:
        """True if the commit of its round changes the thread's state for it: a patch, or scratch to remove."""
        if self.changes.patch is not None:
            return True
        return isinstance(self.state, SettledCall) and self.is_known and self.record.ticket is not None

    # ---- what happens to it

    def enter(self, transition: CallTransition, arguments: Arguments) -> None:
        """Ready, not in the ledger: `transition` will enter the call, so that it can be carried out."""
        assert self._recorded is None
        self._leave_ready(transition)
        self.state = ReadyCall(arguments)

    def prepare(self, arguments: Arguments | None, *, is_interrupted: bool = False) -> None:
        """Ready: set what the next attempt is made with."""
        self.state = ReadyCall(arguments, is_interrupted, self.ready.note)

    def annotate(self, note: str) -> None:
        """Ready: show the model this note before the result."""
        self.state = msgspec.structs.replace(self.ready, note=note)

    def advance(self, recorded: VersionedCall) -> None:
        """Ready: the ledger has a newer record of the call, and the call is still to be carried out."""
        self._leave_ready(None)
        self._recorded, self.record = recorded, recorded.record

    def suspend(
        self,
        transition: CallTransition | None,
        changes: CallChanges = NO_CHANGES,
        *,
        is_in_history: bool = False,
    ) -> None:
        """Ready to suspended: the call waits for a decision.

        With a `transition` a new question is asked, which no commit names yet.
        """
        assert transition is None or not is_in_history, "a new question is in no history"
        self._leave_ready(transition)
        self.state = SuspendedCall(is_in_history, changes)

    def settle(
        self,
        transition: CallTransition | None,
        result: ToolResult,
        changes: CallChanges = NO_CHANGES,
        *,
        staged: Staged | None = None,
        alone: Callable[[], CallTransition] | None = None,
    ) -> None:
        """Ready to settled: the model is shown `result`, and `transition` (None: nothing) is still to be written.

        `alone` makes the transition that is written if no message is written with it; None: the same.
        """
        self._leave_ready(transition)
        self.state = SettledCall(result, changes, staged, alone)

    def reload(self, recorded: VersionedCall) -> None:
        """Any state to ready: the ledger has moved on, and what this process found or asked is dropped."""
        self._recorded, self.record, self.transition, self.state = recorded, recorded.record, None, _READY

    def announce(self, transition: CallTransition) -> None:
        """Settled, with nothing to write: `transition` lets one more commit apply what the call changes."""
        assert isinstance(self.state, SettledCall), f"call '{self.call.id}' is {self.stage}, not settled"
        assert self.transition is None, "one transition at a time"
        self.transition, self.record = transition, transition.record

    def bring(self, objects: Iterable[Object]) -> None:
        """Write these objects with the transition."""
        assert self.transition is not None
        self.transition = self.transition.also(objects=objects)

    def written(self) -> None:
        """Any state: the transition, if there is one, is durable."""
        if self.transition is not None:
            self._recorded, self.transition = self.transition.held, None

    def _leave_ready(self, transition: CallTransition | None) -> None:
        assert isinstance(self.state, ReadyCall), f"call '{self.call.id}' is {self.stage}, not ready"
        assert self.transition is None, f"call '{self.call.id}' has an unwritten transition"
        self.transition = transition
        if transition is not None:
            self.record = transition.record


Stage: TypeAlias = Literal["ready", "suspended", "settled"]
_STAGES: dict[type[ReadyCall | SuspendedCall | SettledCall], Stage] = {
    ReadyCall: "ready",
    SuspendedCall: "suspended",
    SettledCall: "settled",
}


def settle_as_recorded(
    pending_call: PendingCall,
    space: Space,
    otherwise: tuple[Block, ...],
    transition: CallTransition | None = None,
) -> None:
    """Settle a ready call as the ledger says; show the model `otherwise` where the ledger holds no words."""
    record = pending_call.recorded.record
    assert record.state in SETTLED or record.state in UNCLEAR
    stored = shown(space, record)
    if stored is not None:
        result = msgspec.structs.replace(stored, call_id=pending_call.call.id)
    else:
        result = ToolResult(pending_call.call.id, record.status or "error", otherwise)
    pending_call.settle(transition, result, CallChanges.recorded(space, record))


def settle_with_result_of_key(
    pending_call: PendingCall, record: CallRecord, staged: Staged | None, preview: bytes | None, *, at: int
) -> None:
    """Settle a ready call, whose record is `record`, with the result of an earlier call that had the same key."""
    if preview is None:
        result = ToolResult(pending_call.call.id, "success", (Text("Done before, with the same key."),))
    else:
        result = msgspec.structs.replace(_results.decode(preview), call_id=pending_call.call.id)
    result_body = Object.of(Kind.BODY, encode_result(result))
    if pending_call.has_entered:
        transition = settle(
            pending_call.recorded,
            "succeeded",
            at=at,
            staged=staged,
            preview=result_body.body,
            status=result.status,
        )
    else:
        entered = msgspec.structs.replace(
            record,
            status=result.status,
            preview=result_body.digest,
            result=reference(staged.digest) if staged else None,
        )
        transition = propose(entered, "requested", "succeeded").also(
            cells=staged.cells if staged else (),
            objects=(*(staged.objects if staged else ()), result_body),
        )
    pending_call.settle(transition, result)


def encode_result(result: ToolResult) -> bytes:
    """Encode what a model is shown of a result."""
    return encode_struct(result)
