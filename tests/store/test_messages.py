"""What a block accepts as a message: what cannot be read back is never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure import Image, Message, Text, Thread, ToolCall, ToolResult
from perdure.errors import Invalid
from tests.coded import raises


def wrong(part: object) -> Any:
    """A mistake that a type checker would have found."""
    return part


BAD: dict[str, Callable[[Any], object]] = {
    "a document": lambda change: change.say("user", {"type": "text"}),
    "a list of words": lambda change: change.say("user", ["hi"]),
    "a block as a dict": lambda change: change.say("user", [{"type": "text", "text": "hi"}]),
    "bytes": lambda change: change.say("user", b"hi"),
    "a number": lambda change: change.say("user", 5),
    "nothing": lambda change: change.say("user", None),
    "a text of a number": lambda change: change.say("user", [Text(wrong(5))]),
    "a text of NaN": lambda change: change.say("user", [Text(wrong(float("nan")))]),
    "an image without a type": lambda change: change.say("user", [Image("x", wrong(None))]),
    "what JSON has not": lambda change: change.say("user", [Image(wrong(object()), "x")]),
    "arguments as a dict": lambda change: change.say(
        "assistant", tool_calls=[ToolCall("c1", "book", wrong({"a": 1}))]
    ),
    "a call as a dict": lambda change: change.say("assistant", tool_calls=[{"id": "c"}]),
    "calls as a number": lambda change: change.say("assistant", tool_calls=5),
    "a call without an id": lambda change: change.say("assistant", tool_calls=[ToolCall("", "book", "{}")]),
    "a tool's name": lambda change: change.say("assistant", tool_calls=[ToolCall("c1", wrong(5), "{}")]),
    "a status": lambda change: change.say("tool", tool_results=[ToolResult("c1", wrong("denied"))]),
    "a result without a call": lambda change: change.say("tool", tool_results=[ToolResult("", "success")]),
    "a result's content": lambda change: change.say(
        "tool", tool_results=[ToolResult("c1", "success", wrong(("x",)))]
    ),
    "vendor metadata": lambda change: change.say("user", "x", vendor_metadata={"a": 1}),
    "a role": lambda change: change.say(["user"], "x"),
    "no message": lambda change: change.add({"role": "user"}),
    "words as content": lambda change: change.add(Message("user", wrong("hi"))),
}
OTHER_CODES = {
    "a number": "not_a_list",
    "nothing": "not_a_list",
    "calls as a number": "not_a_list",
    "a call without an id": "not_text",
    "a result without a call": "not_text",
}


@pytest.fixture
def thread() -> Iterator[Thread]:
    """A thread in memory."""
    with perdure.open("memory:") as store:
        yield store.thread("trip-42", agent="planner")


@pytest.mark.parametrize("what", BAD)
def test_what_could_not_be_read_back_is_refused(thread: Thread, what: str) -> None:
    """At the place where it was said; the block can go on without it."""
    with thread.change("talk") as change:
        with raises(Invalid, OTHER_CODES.get(what, "message_invalid")):
            BAD[what](change)
        change.say("user", "hello", id="m-1")

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
