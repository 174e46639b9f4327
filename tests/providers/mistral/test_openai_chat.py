"""Where Mistral's chat differs from OpenAI's."""

from __future__ import annotations

import json
from typing import Any

from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.mistral.adapter import ADAPTER

HI = Message(role="user", content=(Text("hi"),))


def said(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The messages of the request."""
    return ADAPTER.render(Context(messages=messages, **more), model="mistral-large").body["messages"]


def test_ids_of_calls_are_nine_letters_and_digits() -> None:
    """Others are replaced, in call and result alike; its own stay."""
    for id in ("call_1234567890", "abcDEF123"):
        call = Message(role="assistant", tool_calls=(ToolCall(id, "f", "{}"),))
        result = Message(role="tool", tool_results=(ToolResult(id, "success", (Text("ok"),)),))

        messages = said(HI, call, result)

        made = messages[1]["tool_calls"][0]["id"]
        assert made == messages[2]["tool_call_id"]
        assert len(made) == 9
        assert made.isalnum()
        assert (made == id) == (len(id) == 9)


def test_words_of_the_assistant_that_stand_last_are_a_prefix() -> None:
    """The last turn is a user's or a tool's, or the beginning of the answer."""
    assert said(HI, Message(role="assistant", content=(Text("He"),)))[-1]["prefix"] is True


def test_thinking_is_read_and_goes_back() -> None:
    """As parts of the content, in their places."""
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True},
        {"type": "text", "text": "4"},
    ]
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}

    message = ADAPTER.parse({"id": "1", "model": "m", "choices": [choice]}).message

    assert message.content == (ReasoningSummary("hm"), Text("4"))
    assert said(HI, message, HI)[1]["content"] == content


def test_thinking_is_streamed_in_parts() -> None:
    """Parts and plain words may alternate."""
    deltas: list[Any] = [
        "",
        [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}],
        [{"type": "text", "text": "4"}],
        "2",
    ]
    chunks = [{"id": "1", "choices": [{"index": 0, "delta": {"content": delta}}]} for delta in deltas]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)

    assert ADAPTER.parse_stream([body]).message.content == (ReasoningSummary("hm"), Text("42"))


def test_words_for_options_are_its_own() -> None:
    """A seed is a random_seed, a forced call is any."""
    context = Context(
        messages=[HI],
        tools=[ToolSpec(name="f")],
        options={"seed": 1, "tool_choice": "required", "user": "ann"},
    )

    rendered = ADAPTER.render(context, model="m")

    assert (rendered.body["random_seed"], rendered.body["tool_choice"]) == (1, "any")
    assert [loss.what for loss in rendered.losses] == ["user"]


def test_documents_are_given_by_address_or_bytes() -> None:
    """In a part of its own."""
    pdf = File("https://example.com/a.pdf", "application/pdf")

    assert said(Message(role="user", content=(pdf,)))[0]["content"] == [
        {"type": "document_url", "document_url": "https://example.com/a.pdf"}
    ]
