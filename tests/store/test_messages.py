"""What a block accepts as a message: what cannot be read back is never written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure import Change, Image, Message, Text, Thread, ToolCall, ToolResult
from perdure.errors import Invalid


def wrong(part: object) -> Any:
    """A mistake that a type checker would have found."""
    return part


BAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "a document": (lambda change: change.say("user", {"type": "text"}), "not a content block"),
    "a list of words": (lambda change: change.say("user", ["hi"]), "plain words are given as they are"),
    "a block as a dict": (
        lambda change: change.say("user", [{"type": "text", "text": "hi"}]),
        "not a content",
    ),
    "bytes": (lambda change: change.say("user", b"hi"), "not a content block"),
    "a number": (lambda change: change.say("user", 5), "content cannot be a int"),
    "nothing": (lambda change: change.say("user", None), "content cannot be a NoneType"),
    "a text of a number": (lambda change: change.say("user", [Text(wrong(5))]), r"content\[0\]\.text"),
    "a text of NaN": (lambda change: change.say("user", [Text(wrong(float("nan")))]), "got `null`"),
    "an image without a type": (lambda change: change.say("user", [Image("x", wrong(None))]), "mimeType"),
    "what JSON has not": (lambda change: change.say("user", [Image(wrong(object()), "x")]), "type object"),
    "arguments as a dict": (
        lambda change: change.say("assistant", tool_calls=[ToolCall("c1", "book", wrong({"a": 1}))]),
        "Give the JSON text",
    ),
    "a call as a dict": (lambda change: change.say("assistant", tool_calls=[{"id": "c"}]), "not a tool call"),
    "calls as a number": (lambda change: change.say("assistant", tool_calls=5), "tool_calls cannot be"),
    "a call without an id": (
        lambda change: change.say("assistant", tool_calls=[ToolCall("", "book", "{}")]),
        "call id ''",
    ),
    "a tool's name": (
        lambda change: change.say("assistant", tool_calls=[ToolCall("c1", wrong(5), "{}")]),
        r"toolCalls\[0\]\.name",
    ),
    "a status": (
        lambda change: change.say("tool", tool_results=[ToolResult("c1", wrong("denied"))]),
        "'denied'",
    ),
    "a result without a call": (
        lambda change: change.say("tool", tool_results=[ToolResult("", "success")]),
        "call id ''",
    ),
    "a result's content": (
        lambda change: change.say("tool", tool_results=[ToolResult("c1", "success", wrong(("x",)))]),
        "not a content block",
    ),
    "vendor metadata": (lambda change: change.say("user", "x", vendor_metadata={"a": 1}), "JSON text"),
    "a role": (lambda change: change.say(["user"], "x"), "not a role"),
    "no message": (lambda change: change.add({"role": "user"}), r"perdure\.Message"),
    "words as content": (lambda change: change.add(Message("user", wrong("hi"))), "content is a list"),
}


@pytest.fixture
def thread() -> Iterator[Thread]:
    """A thread in memory."""
    with perdure.open("memory:") as store:
        yield store.thread("trip-42", agent="planner")


@pytest.mark.parametrize(("say", "told"), BAD.values(), ids=BAD.keys())
def test_what_could_not_be_read_back_is_refused(
    thread: Thread, say: Callable[[Change], object], told: str
) -> None:
    """By name, at the place where it was said; the block can go on without it."""
    with thread.change("talk") as change:
        with pytest.raises(Invalid, match=told) as caught:
            say(change)
        change.say("user", "hello", id="m-1")

    assert re.search("nothing was (written|done)", str(caught.value))
    assert [entry.text for entry in thread.transcript()] == ["hello"]


def test_what_can_be_read_back_is_written(thread: Thread) -> None:
    """Control: every kind of part, lists instead of tuples, and letters that are no text."""
    with thread.change("talk") as change:
        change.add(Message("user", wrong([Text("hi"), Image("artifact://sha256/x", "image/png")])))
        change.say("assistant", wrong(iter([Text("half a letter: \ud800")])))
        change.say("assistant", tool_calls=[ToolCall("c1", "book", '{"half": "\ud800"}')])
        change.say("tool", tool_results=[ToolResult("c1", "error", (Text("full"),))], vendor_metadata="{}")

    said = [entry.message for entry in thread.transcript()]
    assert said[0].content == (Text("hi"), Image("artifact://sha256/x", "image/png"))
    assert said[1].text == "half a letter: �"
    assert said[2].tool_calls[0].args == '{"half": "\ud800"}'
    assert (said[3].tool_results[0].status, said[3].vendor_metadata) == ("error", "{}")
