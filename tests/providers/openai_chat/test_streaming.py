"""Chat answers in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.message import ReasoningSummary, Text, ToolCall
from perdure.providers.contract import CallDelta, Finished, ReasoningChunk, TextChunk
from perdure.providers.openai_chat.adapter import ADAPTER
from tests.coded import raises


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c1", "model": "m", "choices": [choice], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def call(index: int | None, arguments: str, **more: Any) -> dict[str, Any]:
    """A piece of a call."""
    known = {} if index is None else {"index": index}
    name = {"name": more.pop("name")} if "name" in more else {}
    return {"tool_calls": [{**known, **more, "function": {**name, "arguments": arguments}}]}


def test_words_are_told_as_they_come() -> None:
    """Each piece is an event; the last event is the whole."""
    stream = ADAPTER.stream()

    first = stream.feed(chunk({"role": "assistant", "content": ""}) + chunk({"content": "He"}))
    second = stream.feed(chunk({"content": "llo"}) + chunk({}, "stop", usage={"prompt_tokens": 3}) + DONE)
    reply = stream.close()

    assert (first, second) == ([TextChunk("He")], [TextChunk("llo")])
    assert (reply.message.text, reply.stop, reply.usage.input_tokens) == ("Hello", "stop", 3)
    assert isinstance(reply.events[-1], Finished)


def test_calls_are_put_together_by_their_index() -> None:
    """Pieces of parallel calls may alternate."""
    pieces = [
        chunk(call(0, "", id="a", name="f")),
        chunk(call(1, "{", id="b", name="g")),
        chunk(call(0, "{}")),
        chunk(call(1, "}")),
        chunk({}, "tool_calls"),
    ]

    reply = ADAPTER.parse_stream(pieces)

    assert reply.message.tool_calls == (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}"))
    assert reply.events[:2] == (CallDelta(0, "f", ""), CallDelta(1, "g", "{"))


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    """Some servers send whole calls, all as number nought or without a number."""
    for index in (0, None):
        pieces = [chunk(call(index, "{}", id="a", name="f")), chunk(call(index, "{}", id="b", name="f"))]

        assert [call.id for call in ADAPTER.parse_stream(pieces).message.tool_calls] == ["a", "b"]


def test_a_server_that_repeats_the_id_with_every_piece_makes_one_call() -> None:
    """The name is not joined to itself."""
    pieces = [chunk(call(0, part, id="a", name="f", type="function")) for part in ("{", "}")]

    assert ADAPTER.parse_stream(pieces).message.tool_calls == (ToolCall("a", "f", "{}"),)


def test_reasoning_is_told_once_where_it_comes_twice() -> None:
    """Words and details say the same; details are kept whole for their server."""
    details = [{"type": "reasoning.text", "index": 0, "text": word} for word in ("I ", "see")]
    signed = {"type": "reasoning.text", "index": 0, "signature": "S"}
    pieces = [
        *(chunk({"reasoning": detail["text"], "reasoning_details": [detail]}) for detail in details),
        chunk({"reasoning_details": [signed]}),
        chunk({"content": "ok"}, "stop"),
    ]

    reply = ADAPTER.parse_stream(pieces, provider="openrouter")

    assert reply.message.content == (ReasoningSummary("I see"), Text("ok"))
    assert reply.events[:2] == (ReasoningChunk("I "), ReasoningChunk("see"))
    kept = json.loads(reply.message.vendor_metadata or "")["openai"]["chat"]["bound"]["reasoning_details"]
    assert kept == [{"type": "reasoning.text", "index": 0, "text": "I see", "signature": "S"}]


def test_a_stream_that_is_cut_gives_what_was_whole() -> None:
    """Words stay; a call that was being written is left out, and said to be."""
    whole = chunk({"content": "Well"}) + chunk(call(0, '{"a":', id="a", name="f"))

    reply = ADAPTER.parse_stream([whole, b'data: {"choices": [{"in'])

    assert (reply.message.text, reply.message.tool_calls, reply.stop) == ("Well", (), None)
    assert [loss.what for loss in reply.losses] == ["tool call"]


@pytest.mark.parametrize(
    "body", [b"", b": waiting\n\n", b"data: [DONE]\n\n", b'data: {"cho', b"<html>no</html>"]
)
def test_a_stream_that_says_nothing_is_refused(body: bytes) -> None:
    """An empty reply would look like an answer."""
    with raises(Invalid, "stream_without_answer"):
        ADAPTER.parse_stream([body])


def test_an_error_in_mid_stream_is_reported() -> None:
    """What was said stays, and the report says why there is no more."""
    error = b'event: error\ndata: {"error": {"message": "overloaded"}}\n\n'

    reply = ADAPTER.parse_stream([chunk({"content": "He"}), error])

    assert (reply.message.text, reply.stop) == ("He", None)
    assert "overloaded" in reply.losses[0].why


def test_an_error_before_anything_is_refused() -> None:
    """It is said as the server said it."""
    with raises(Invalid, "error_answer"):
        ADAPTER.parse_stream([b'data: {"error": {"message": "overloaded"}}\n\n'])


def test_an_event_that_is_not_json_is_refused() -> None:
    """Going on would lose words in silence."""
    with raises(Invalid, "stream_malformed"):
        ADAPTER.parse_stream([chunk({"content": "a"}), b"data: {oops}\n\n", chunk({"content": "b"})])


def test_a_body_of_many_megabytes_is_read() -> None:
    """Size alone is no reason to fail."""
    body = chunk({"content": "x" * 20_000_000}, "stop")

    reply = ADAPTER.parse_stream([body[at : at + 1_000_000] for at in range(0, len(body), 1_000_000)])

    assert len(reply.message.text) == 20_000_000
