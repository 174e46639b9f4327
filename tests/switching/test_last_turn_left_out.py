"""A window that does not hold the last turn: the check says what is left out, and shows no ✓ for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, ContextLimits, Store, Thread
from perdure.model.context import Context
from perdure.model.message import File, Image
from perdure.testing import Script
from tests.context.lines import answer, asking, user

A, B = "anthropic:claude-sonnet-5-5", "openai:gpt-5.6"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKMSAwIG9iago8PC9UeXBlL0NhdGFsb2c+PgplbmRvYmoKdHJhaWxlcjw8Pj4KJSVFT0YK"
WINDOWS = (2_000, 3_000, 4_096, 6_000, 8_192, 12_000, 16_000, 32_000, 200_000)


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    with perdure.open("memory:") as opened:
        yield opened


def source(kind: str, data: str) -> dict[str, object]:
    """A picture or a document, as Anthropic has it."""
    name = "image" if kind.startswith("image/") else "document"
    return {"type": name, "source": {"type": "base64", "media_type": kind, "data": data}}


def looked(store: Store, window: int) -> Thread:
    """A thread of one turn: a picture, a document, and a call that gave another picture."""
    limits = ContextLimits(window=window)
    thread = store.thread("t", agent=Agent("a", backend=Script(backend=A), context=limits))
    shown = [
        {"type": "text", "text": "Look."},
        source("image/png", PNG),
        source("application/pdf", PDF),
    ]
    result = {"type": "tool_result", "tool_use_id": "c", "content": [source("image/png", PNG)]}
    call = {"type": "tool_use", "id": "c", "name": "draw", "input": {}}
    messages = [("user", shown), ("assistant", [call]), ("user", [result])]
    body = [{"role": role, "content": content} for role, content in messages]
    thread.add(body, api="anthropic-messages")
    return thread


def marks(thread: Thread) -> dict[str, str]:
    """The marks of the check, by topic."""
    return {item.topic: item.mark for item in thread.check_switch(B).items}


def media(context: Context) -> set[str]:
    """The topics of the media that are shown."""
    blocks = [
        block
        for message in context.messages
        for block in (*message.content, *(each for result in message.tool_results for each in result.content))
    ]
    kinds = {Image: "images", File: "documents"}
    return {kinds[type(block)] for block in blocks if isinstance(block, Image | File)}


def test_what_the_last_turn_loses_is_a_line_and_a_loss(store: Store) -> None:
    """Pictures and documents that are not shown are ✗, the window is ⚠, and each message is a loss."""
    thread = looked(store, 4_096)

    found, report = marks(thread), thread.check_switch(B)

    assert media(thread.plan(B).context) == set()
    assert (found["images"], found["documents"], found["context"]) == ("removed", "removed", "converted")
    assert [loss.what.split()[0] for loss in report.losses if loss.where == "messages"] == [
        "user",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize("window", WINDOWS)
def test_media_are_supported_only_if_they_are_shown(store: Store, window: int) -> None:
    """Whatever the window: what the check lets pass is in the next context."""
    thread = looked(store, window)

    passed = {topic for topic, mark in marks(thread).items() if mark != "removed"}

    assert passed & {"images", "documents"} <= media(thread.plan(B).context)


def test_nothing_is_left_out_of_a_turn_that_fits(store: Store) -> None:
    """Control: in a large window the same turn loses no message, and its media pass."""
    thread = looked(store, 200_000)

    found, report = marks(thread), thread.check_switch(B)

    assert media(thread.plan(B).context) == {"images", "documents"}
    assert "removed" not in (found["images"], found["documents"], found["context"])
    assert [loss for loss in report.losses if loss.where == "messages"] == []


def test_the_middle_of_a_long_turn_is_counted(store: Store) -> None:
    """Where only the input and the last messages of a turn are shown, the check says how many others there were."""
    limits = ContextLimits(window=4_096)
    thread = store.thread("t", agent=Agent("a", backend=Script(backend=A), context=limits))
    with thread.change("said") as change:
        change.add(user("Look at all of it."))
        for at in range(40):
            change.add(asking(f"c{at}"))
            change.add(answer((f"c{at}", "It rains in Bergen, and the ferry leaves at nine. " * 8)))

    report, plan = thread.check_switch(B), thread.plan(B)

    assert 0 < len(plan.omitted) < 81
    assert len([loss for loss in report.losses if loss.where == "messages"]) == len(plan.omitted)
    assert any(f"{len(plan.omitted)} of its messages" in line for line in report.lines)
