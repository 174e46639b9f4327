"""What Anthropic answers: whole, streamed, cut off, or none of its format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers.anthropic.adapter import ADAPTER
from perdure.providers.contract import CallDelta, ReasoningChunk, TextChunk

START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "model": "m", "content": [], "usage": {"input_tokens": 3}},
}
THINKING = [
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
]
CALL = [
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"a": '},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": "1.0}"},
    },
    {"type": "content_block_stop", "index": 1},
]
END = [
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 7, "cache_read_input_tokens": 2},
    },
    {"type": "message_stop"},
]


def sse(*events: dict[str, Any]) -> bytes:
    """Events as bytes."""
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)


def whole(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        **more,
    }


def test_a_stream_is_read_as_it_comes() -> None:
    """Thinking, calls with their raw arguments, counts of all events together."""
    parser = ADAPTER.stream()
    events = parser.feed(sse(START, *THINKING, *CALL, *END))
    reply = parser.close()

    assert events == [
        ReasoningChunk("Hm."),
        CallDelta(0, "look", ""),
        CallDelta(0, "look", '{"a": '),
        CallDelta(0, "look", "1.0}"),
    ]
    assert reply.message.tool_calls[0].args == '{"a": 1.0}'
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (5, 7, 2)
    assert reply.stop == "tool_use"


def test_a_stream_that_is_cut_off_keeps_what_was_whole() -> None:
    """Words stand; half a call does not, and is told."""
    reply = ADAPTER.parse_stream([sse(START, *THINKING, *CALL[:2])])

    assert reply.stop is None
    assert reply.message.content == (ReasoningSummary("Hm."),)
    assert [loss.what for loss in reply.losses] == ["tool call"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"event: ping\ndata: {}\n\n",
        b"data: {broken\n\n",
        b'data: {"choices": []}\n\n',
        b"data: [1]\n\n",
        sse(*CALL),
        sse(START, CALL[1]),
        sse(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ],
)
def test_what_is_no_stream_of_anthropic_is_refused(body: bytes) -> None:
    """With a typed error that says what is wrong."""
    with pytest.raises(Invalid):
        ADAPTER.parse_stream([body])


def test_an_error_in_mid_stream_keeps_what_was_said() -> None:
    """And is told as a loss."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reply = ADAPTER.parse_stream([sse(START, *THINKING, error)])

    assert reply.message.content == (ReasoningSummary("Hm."),)
    assert "overloaded_error" in reply.losses[0].why


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "error", "error": {"type": "x"}},
        {"choices": []},
        whole({"text": "no type"}),
        {"content": 5},
        whole(type="thing"),
    ],
)
def test_what_is_no_answer_of_anthropic_is_refused(body: dict[str, Any]) -> None:
    """With a typed error."""
    with pytest.raises(Invalid):
        ADAPTER.parse(body)


def test_blocks_that_are_not_known_are_kept_and_told() -> None:
    """They go back in their place."""
    strange = {"type": "hologram", "beam": [1, 2]}
    reply = ADAPTER.parse(whole({"type": "text", "text": "See:"}, strange, {"type": "text", "text": "."}))

    hello = Message(role="user", content=(Text("Hello."),))
    body = ADAPTER.render(Context(messages=[hello, reply.message, hello]), model="m").body

    assert [loss.what for loss in reply.losses] == ["hologram"]
    assert body["messages"][1]["content"][1] == strange


def test_a_refusal_may_say_nothing() -> None:
    """It is a message without content, and no turn of the next request."""
    reply = ADAPTER.parse(whole(stop_reason="refusal"))
    hello = Message(role="user", content=(Text("Hello."),))

    body = ADAPTER.render(Context(messages=[hello, reply.message, hello]), model="m").body

    assert (reply.stop, reply.message.content) == ("refusal", ())
    assert [turn["role"] for turn in body["messages"]] == ["user", "user"]


def test_lone_surrogates_do_no_harm() -> None:
    """In words, arguments and ids."""
    reply = ADAPTER.parse(
        whole(
            {"type": "text", "text": "\ud800"},
            {"type": "tool_use", "id": "t", "name": "n", "input": {"a": "\udfff"}},
        )
    )

    assert reply.events[0] == TextChunk("\ud800")
    assert ADAPTER.render(Context(messages=[reply.message]), model="m").body["messages"]


def test_citations_and_server_tools_go_back_in_place() -> None:
    """What carries encrypted parts is given back as it came."""
    content: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"encrypted_content": "x"}],
        },
        {
            "type": "text",
            "text": "Noon.",
            "citations": [{"type": "web_search_result_location", "encrypted_index": "y"}],
        },
    ]
    reply = ADAPTER.parse(whole(*content))
    hello = Message(role="user", content=(Text("Hello."),))

    body = ADAPTER.render(Context(messages=[hello, reply.message, hello]), model="another").body

    assert body["messages"][1]["content"] == content
    assert reply.message.text == "Noon."
