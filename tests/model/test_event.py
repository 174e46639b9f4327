"""Events: each has a documented type name, and comes back as it was."""

from __future__ import annotations

import pytest

from perdure.errors import Unsupported
from perdure.model.commit import Changeset, decode_changeset, encode_changeset
from perdure.model.digest import Digest
from perdure.model.event import (
    CATALOGUE,
    AgentChanged,
    AgentHandedOff,
    ApprovalDecided,
    ArtifactCreated,
    BackendSwitched,
    CheckpointCreated,
    ConflictCovered,
    Event,
    GuardRefused,
    MemoryWritten,
    Merged,
    MessageAppended,
    MessageRetracted,
    MomentNamed,
    Picked,
    RunFinished,
    RunStarted,
    ThreadForked,
    TimelinePromoted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    ToolCallSuspended,
)
from tests.coded import raises

ONE = Digest("ab" * 32)

EVENTS: list[Event] = [
    MessageAppended(
        id="e",
        role="assistant",
        body=ONE,
        size=5,
        vendor=ONE,
        vendor_size=7,
        provider="openai",
        model="m",
        context=ONE,
    ),
    ToolCallRequested(
        id="e", call="c", tool="book", args=ONE, size=2, idempotency_key="k", side_effects="financial"
    ),
    ToolCallStarted(id="e", call="c", attempt=2),
    ToolCallCompleted(
        id="e", call="c", status="succeeded", result_ref="artifact://x/y", side_effects="read_only"
    ),
    ToolCallSuspended(id="e", call="c", ticket="t"),
    ApprovalDecided(id="e", call="c", ticket="t", decision="edit", by="ann", why="cheaper"),
    RunStarted(id="e", agent="planner", backend="anthropic:claude"),
    RunFinished(id="e", status="failed", why="out of money"),
    GuardRefused(id="e", guard="cards", subject="output", why="it has a card number", message="m"),
    BackendSwitched(id="e", from_backend=None, to_backend="openai:gpt-5.6", checkpoint=ONE, why="price"),
    CheckpointCreated(id="e", checkpoint=ONE),
    MemoryWritten(id="e", owner="user-7", item="i", body=ONE, size=3),
    ArtifactCreated(id="e", artifact=ONE, media_type="image/png", size=9, name="plot"),
    AgentHandedOff(id="e", from_agent="planner", to_agent="critic", why="it is about style"),
    AgentChanged(id="e", agent="planner", timeline="main", patch=ONE, size=4),
    ThreadForked(id="e", timeline="what-if", at=None),
    TimelinePromoted(id="e", timeline="what-if", kept_as="main.v3"),
    Merged(id="e", timeline="what-if", base=ONE, paths=3),
    Picked(id="e", commit=ONE),
    MomentNamed(id="e", name="langgraph:1ef0"),
    MessageRetracted(id="e", message="m"),
    ConflictCovered(id="e", path="/title.json", covered=None),
]

DOCUMENTED = {
    "message.appended",
    "tool.call.requested",
    "tool.call.started",
    "tool.call.completed",
    "tool.call.suspended",
    "approval.decided",
    "run.started",
    "run.finished",
    "backend.switched",
    "checkpoint.created",
    "memory.written",
    "artifact.created",
    "thread.forked",
    "timeline.promoted",
    "merged",
}


def test_the_catalogue_has_every_documented_name() -> None:
    """The names that the documents give are used as they are."""
    assert set(CATALOGUE) >= DOCUMENTED


def test_every_kind_of_event_is_in_the_catalogue_once() -> None:
    """One name, one kind, and a one-sentence meaning for the reference page."""
    assert [CATALOGUE[str(type(event).__struct_config__.tag)] for event in EVENTS] == [
        type(each) for each in EVENTS
    ]
    assert {type(event) for event in EVENTS} == set(CATALOGUE.values())
    assert all([(kind.__doc__ or "").endswith(".") for kind in CATALOGUE.values()])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(type(event).__struct_config__.tag))
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    """Its type name is in the stored text, and every field survives."""
    body = encode_changeset(Changeset(reason="r", events=(event,)))

    assert b'"type":"%s"' % str(type(event).__struct_config__.tag).encode() in body
    assert decode_changeset(body).events == (event,)


def test_an_unknown_event_is_not_taken_for_another() -> None:
    """A name that this release does not know was written by a newer one: the error names it."""
    with raises(Unsupported, "written_by_newer_version", what="changeset") as refused:
        decode_changeset(b'{"events":[{"id":"e","type":"robot.rebelled"}],"reason":"r"}')

    assert "robot.rebelled" in str(refused.value.facts["why"])
