"""Messages: the documented shape for reading, the original bytes for storage."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.errors import Corrupt, Invalid
from perdure.model.message import (
    File,
    Image,
    Message,
    ReasoningSummary,
    Text,
    ToolCall,
    ToolResult,
    decode_message,
    encode_message,
    plain_body,
    view,
)
from tests.coded import raises

FULL = Message(
    role="assistant",
    content=(
        Text("Sure.\n"),
        Image("artifact://sha256/ab", "image/png"),
        File("artifact://sha256/cd", "application/pdf"),
        ReasoningSummary("thought about it"),
    ),
    tool_calls=(
        ToolCall("call_123", "github.search_issues", '{"repo":"org/joch","query":"memory migration"}'),
    ),
    tool_results=(ToolResult("call_122", "success", (Text("3 issues"),)), ToolResult("call_121", "error")),
    vendor_metadata='{"openai":{"response_id":"resp_abc","model":"gpt-5.5-thinking"},"anthropic":{"message_id":"msg_xyz"}}',
)

RAW = [
    '{"id": 12345678901234567890, "big": 1e400}',
    '{"b":1.0,  "a":[ ], "a":2}',
    "\t{\n}\n",
    '{"text":"\ud83d"}',
    '{"text":"\\ud83d"}',
    '{"text":"\ud83d\ude00"}',
    "not JSON at all",
    "",
    "[" * 10_000,
    '{"n":' + "1" * 5_000 + "}",
]


def test_a_message_has_the_documents_json_names() -> None:
    """The view is the canonical message format of the documents, name for name."""
    assert view(FULL) == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Sure.\n"},
            {"type": "image", "uri": "artifact://sha256/ab", "mimeType": "image/png"},
            {"type": "file", "uri": "artifact://sha256/cd", "mimeType": "application/pdf"},
            {"type": "reasoning_summary", "text": "thought about it"},
        ],
        "toolCalls": [
            {
                "id": "call_123",
                "name": "github.search_issues",
                "args": {"repo": "org/joch", "query": "memory migration"},
            }
        ],
        "toolResults": [
            {"callId": "call_122", "status": "success", "content": [{"type": "text", "text": "3 issues"}]},
            {"callId": "call_121", "status": "error", "content": []},
        ],
        "vendorMetadata": {
            "openai": {"response_id": "resp_abc", "model": "gpt-5.5-thinking"},
            "anthropic": {"message_id": "msg_xyz"},
        },
    }


def test_a_view_always_has_content_and_leaves_out_what_is_optional() -> None:
    """`role` and `content` are required by the documents, the rest is not."""
    assert view(Message("user")) == {"role": "user", "content": []}


def test_stored_bytes_are_pinned() -> None:
    """Keys sorted, no spaces, defaults left out, arguments one raw string: a change is a new format."""
    message = Message("assistant", (Text("Sure.\n"),), (ToolCall("c1", "book", '{"n": 1.0}'),))

    assert encode_message(message) == (
        rb'{"content":[{"text":"Sure.\n","type":"text"}],"role":"assistant",'
        rb'"toolCalls":[{"args":"{\"n\": 1.0}","id":"c1","name":"book"}]}'
    )


def test_a_message_comes_back_as_it_was() -> None:
    """Its own bytes and those of its vendorMetadata together are the whole message."""
    assert FULL.vendor_metadata is not None

    again = decode_message(encode_message(FULL), FULL.vendor_metadata.encode())

    assert again == FULL


def test_vendor_metadata_is_not_in_the_message() -> None:
    """It is a body of its own: the same text has the same bytes from every vendor."""
    bare = msgspec.structs.replace(FULL, vendor_metadata=None)

    assert encode_message(FULL) == encode_message(bare)
    assert decode_message(encode_message(FULL)) == bare


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_raw_arguments_come_back_as_they_came(raw: str) -> None:
    """Integers over 2^53, 1.0, duplicate keys, odd spaces, lone surrogates: never written another way."""
    message = Message(
        "assistant", (Text("words"),), (ToolCall("c1", "book", raw), ToolCall("c2", "book", "{}"))
    )

    again = decode_message(encode_message(message))

    assert [call.args for call in again.tool_calls] == [raw, "{}"]
    assert again == message


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_raw_vendor_metadata_comes_back_as_it_came(raw: str) -> None:
    """It is kept for its issuer byte for byte."""
    body = raw.encode("utf-8", "surrogatepass")

    assert decode_message(encode_message(Message("assistant")), body).vendor_metadata == raw


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_a_view_never_fails(raw: str) -> None:
    """What is JSON is shown parsed and exact; what is not is shown as it came."""
    shape = view(Message("assistant", (), (ToolCall("c1", "book", raw),), vendor_metadata=raw))

    try:
        expected = json.loads(raw)
    except (ValueError, RecursionError):
        expected = raw
    assert shape["toolCalls"][0]["args"] == expected
    assert shape["vendorMetadata"] == expected


def test_lone_surrogates_in_words_become_replacement_characters() -> None:
    """Words are text; two halves that belong together become their character."""
    message = Message(
        "assistant",
        (Text("a\ud83d b\ude00 \ud83d\ude00 \ufeff"), ReasoningSummary("\udfff")),
        (ToolCall("c\ud800", "n", '{"x":"\ud83d"}'),),
        (ToolResult("c\ud800", "error", (Text("\ud800"),)),),
    )

    again = decode_message(encode_message(message))

    assert again.content == (Text("a\ufffd b\ufffd 😀 \ufeff"), ReasoningSummary("\ufffd"))
    assert again.tool_calls == (ToolCall("c\ufffd", "n", '{"x":"\ud83d"}'),)
    assert again.tool_results == (ToolResult("c\ufffd", "error", (Text("\ufffd"),)),)


def test_arguments_are_parsed_exactly() -> None:
    """A parsed view is derived: integers stay exact and floats stay floats."""
    call = ToolCall("c1", "book", '{"n": 12345678901234567890, "x": 1.0}')

    assert call.arguments == {"n": 12345678901234567890, "x": 1.0}
    assert type(call.arguments["x"]) is float


@pytest.mark.parametrize("raw", ["", "{", "[" * 100_000, "1" * 5_000])
def test_arguments_that_are_no_json_say_so(raw: str) -> None:
    """The error names the call and the tool."""
    with raises(Invalid, "arguments_not_json", call="c1", tool="book"):
        _ = ToolCall("c1", "book", raw).arguments


def test_text_is_the_words_of_all_text_blocks() -> None:
    """Other blocks are not words."""
    assert Message("user", (Text("a"), ReasoningSummary("b"), Text("c"))).text == "ac"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"role":"robot"}',
        b'{"content":[]}',
        b'{"role":"user","content":[{"type":"video","uri":"x"}]}',
        b'{"role":"user","content":[{"type":"text"}]}',
        b'{"role":"user","content":[{"type":"text","text":"\xed\xa0\xbd',
        b'{"x":' + b"[" * 100_000,
    ],
    ids=lambda body: f"{len(body)} {body[:40]!r}",
)
def test_bytes_that_are_no_message_are_corrupt(body: bytes) -> None:
    """Damage is an error that says so, never an empty message."""
    with raises(Corrupt, "record_unreadable", what="message"):
        decode_message(body)


WORDS = Message("assistant", (Text("Sure."),), (ToolCall("c1", "book", "{}"),))
ANSWER = Message("tool", (), (), (ToolResult("c1", "success", (Text("done"), Text(""))),))


@pytest.mark.parametrize("message", [WORDS, ANSWER, Message("user")], ids=["words", "answer", "empty"])
def test_words_and_calls_are_encoded_without_a_second_look(message: Message) -> None:
    """Their bytes are those of every message."""
    assert plain_body(message) == encode_message(message)


@pytest.mark.parametrize(
    "message",
    [
        FULL,
        Message("user", (Image("x:y", "image/png"),)),
        Message("tool", (), (), (ToolResult("c1", "success", (Image("x:y", "image/png"),)),)),
        Message("robot", (Text("hello"),)),  # pyright: ignore[reportArgumentType]
        Message("user", [Text("hello")]),  # pyright: ignore[reportArgumentType]
        Message("user", (Text(5),)),  # pyright: ignore[reportArgumentType]
        Message("user", (Text("\ud800"),)),
        Message("assistant", (), (ToolCall("", "book", "{}"),)),
        Message("assistant", (), (ToolCall("c\n1", "book", "{}"),)),
        Message("assistant", (), (ToolCall("c1", "", "{}"),)),
        Message("assistant", (), (ToolCall("c1", "b" * 10_000, "{}"),)),
        Message("assistant", (), (ToolCall("c1", "book", {}),)),  # pyright: ignore[reportArgumentType]
        Message("tool", (), (), (ToolResult("", "success"),)),
        Message("tool", (), (), (ToolResult("c1", "maybe"),)),  # pyright: ignore[reportArgumentType]
        "hello",
    ],
    ids=range(15),
)
def test_any_other_message_is_looked_at_closely(message: Any) -> None:
    """Media, vendors' data, and everything that is not as it is declared."""
    assert plain_body(message) is None
