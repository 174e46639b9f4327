"""Defines events: facts that happened and are never altered, each with a documented type name.

A changeset holds ids, roles, sizes and digests; the content itself is in bodies with
digests of their own, so that one of them can be forgotten while the chain still
verifies.  The sequence number of an event on its timeline is derived, not stored here.
The catalogue in docs/reference/events.md is compared with `CATALOGUE` by a test.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.model.canonical import prepare
from perdure.model.digest import Digest
from perdure.model.message import Role
from perdure.model.run import Usage

__all__ = [
    "CATALOGUE",
    "AgentChanged",
    "AgentHandedOff",
    "ApprovalDecided",
    "ArtifactCreated",
    "BackendSwitched",
    "CheckpointCreated",
    "ConflictCovered",
    "Event",
    "GuardRefused",
    "MemoryWritten",
    "Merged",
    "MessageAppended",
    "MessageRetracted",
    "MomentNamed",
    "Picked",
    "RunFinished",
    "RunStarted",
    "ThreadForked",
    "TimelinePromoted",
    "ToolCallCompleted",
    "ToolCallRequested",
    "ToolCallStarted",
    "ToolCallSuspended",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """The fields of every event."""

    id: str
    provider: str | None = None  # of the model, if a model acted
    model: str | None = None


class MessageAppended(_Event, frozen=True, tag="message.appended"):
    """A message joined the conversation; its id is the event's."""

    role: Role
    body: Digest
    size: int
    vendor: Digest | None = None  # the vendorMetadata that came with it
    vendor_size: int = 0
    usage: Usage | None = None  # tokens of the step, if a model wrote it
    context: Digest | None = None  # a body: the recipe of the prompt, if a model wrote it
    losses: Digest | None = None  # a body: what the prompt could not express, if a model wrote it
    cost: float | None = None  # of the step in US dollars, by the prices of that day; None: it is not known


class MessageRetracted(_Event, frozen=True, tag="message.retracted"):
    """A message was taken back: the transcript leaves it out from here on."""

    message: str | None = None  # None: every message so far


class ToolCallRequested(_Event, frozen=True, tag="tool.call.requested"):
    """A model asked for a tool."""

    call: str
    tool: str
    args: Digest
    size: int
    idempotency_key: str | None = None
    side_effects: str | None = None


class ToolCallStarted(_Event, frozen=True, tag="tool.call.started"):
    """The tool is about to be called, or has been."""

    call: str
    attempt: int = 1


class ToolCallCompleted(_Event, frozen=True, tag="tool.call.completed"):
    """The call was settled."""

    call: str
    status: str
    result_ref: str | None = None
    side_effects: str | None = None


class ToolCallSuspended(_Event, frozen=True, tag="tool.call.suspended"):
    """The call waits for a decision."""

    call: str
    ticket: str


class ApprovalDecided(_Event, frozen=True, tag="approval.decided"):
    """A suspended call was decided."""

    call: str
    ticket: str
    decision: Literal["approve", "deny", "edit", "answer", "expire", "cancel"]
    by: str | None = None
    why: str | None = None


class RunStarted(_Event, frozen=True, tag="run.started"):
    """A run began; its id is the changeset's run_id."""

    agent: str
    backend: str | None = None
    server: str | None = None  # where the requests go; None: a model object of the program
    is_retry: bool = False  # True: the run had failed, and goes on


class RunFinished(_Event, frozen=True, tag="run.finished"):
    """A run ended."""

    status: str
    why: str | None = None


class GuardRefused(_Event, frozen=True, tag="guard.refused"):
    """A guard of the agent refused an input, an answer or the arguments of a call."""

    guard: str  # its name; `output_type`: an answer that does not fit the type that was asked for
    subject: Literal["input", "output", "arguments"]
    why: str
    call: str | None = None  # whose arguments were refused
    message: str | None = None  # the message that was refused


class BackendSwitched(_Event, frozen=True, tag="backend.switched"):
    """The thread changed to another backend."""

    from_backend: str | None
    to_backend: str
    checkpoint: Digest | None = None
    why: str | None = None
    report: Digest | None = None  # a body: what was kept, converted and removed, and what the policy said
    by: str | None = None  # the person who approved the switch, if it needed an approval
    from_server: str | None = None
    to_server: str | None = None  # where requests go from here on; None: a model object of the program


class AgentHandedOff(_Event, frozen=True, tag="agent.handed_off"):
    """The timeline was handed off to another agent."""

    from_agent: str
    to_agent: str
    why: str | None = None
    by: str | None = None  # the person or program that decided it


class CheckpointCreated(_Event, frozen=True, tag="checkpoint.created"):
    """A StateCheckpoint was derived."""

    checkpoint: Digest


class MemoryWritten(_Event, frozen=True, tag="memory.written"):
    """An item was written to an owner's memory, or forgotten there."""

    owner: str
    item: str
    body: Digest | None = None  # None: it is forgotten
    size: int = 0
    scope: str | None = None
    call: str | None = None  # the call that wrote it


class ArtifactCreated(_Event, frozen=True, tag="artifact.created"):
    """A bulky result was stored as an artifact."""

    artifact: Digest
    media_type: str
    size: int
    name: str | None = None


class AgentChanged(_Event, frozen=True, tag="agent.changed"):
    """The thread changed its agent's own map; the patch is applied there by a second write."""

    agent: str
    timeline: str
    patch: Digest
    size: int


class ThreadForked(_Event, frozen=True, tag="thread.forked"):
    """A timeline began at a commit of another."""

    timeline: str
    at: Digest | None


class TimelinePromoted(_Event, frozen=True, tag="timeline.promoted"):
    """A timeline became main; the old main is kept, sealed."""

    timeline: str
    kept_as: str


class Merged(_Event, frozen=True, tag="merged"):
    """The changes of another line were merged; the commit's second parent is that line."""

    timeline: str
    base: Digest | None
    paths: int


class Picked(_Event, frozen=True, tag="picked"):
    """The change of state of one commit, or one turn, of another place was applied here."""

    commit: Digest  # of a turn: its last one
    since: Digest | None = None  # the commit before the change; None: the line began with it


class MomentNamed(_Event, frozen=True, tag="moment.named"):
    """Another framework has a name for this commit: the id of its checkpoint or its session's entry."""

    name: str  # framework:id


class ConflictCovered(_Event, frozen=True, tag="conflict"):
    """A write was applied on top of another writer's change of the same path."""

    path: str
    covered: Digest | None  # the value that was there


Event: TypeAlias = (
    MessageAppended
    | MessageRetracted
    | ToolCallRequested
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallSuspended
    | ApprovalDecided
    | RunStarted
    | RunFinished
    | GuardRefused
    | BackendSwitched
    | AgentHandedOff
    | CheckpointCreated
    | MemoryWritten
    | ArtifactCreated
    | AgentChanged
    | ThreadForked
    | TimelinePromoted
    | Merged
    | Picked
    | MomentNamed
    | ConflictCovered
)

CATALOGUE: dict[str, type[_Event]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}


prepare(Event)
