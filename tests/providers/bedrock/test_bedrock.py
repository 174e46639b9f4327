"""Bedrock Converse: what it is sent, and what it answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.bedrock.adapter import ADAPTER
from perdure.providers.contract import CallDelta, Rendered, TextChunk
from tests.recorded.frames import frame, frames_of

CLAUDE = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
NOVA = "us.amazon.nova-2-lite-v1:0"
HELLO = Message(role="user", content=(Text("Hello."),))
CALL = Message(role="assistant", tool_calls=(ToolCall("a", "look", '{"x": 1}'),))
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.4\n").decode()
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()


def render(*messages: Message, model: str = CLAUDE, **more: Any) -> Rendered:
    """The request for these messages."""
    return ADAPTER.render(Context(messages=messages, **more), model=model)


def lost(rendered: Rendered) -> set[tuple[str, str]]:
    """What was lost, and how."""
    return {(loss.kind, loss.what) for loss in rendered.losses}


def answer(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole answer."""
    return {
        "output": {"message": {"role": "assistant", "content": list(content)}},
        "stopReason": "end_turn",
        **more,
    }


def test_roles_alternate() -> None:
    """Messages of one role in a row are one, results first; the report says so."""
    result = Message(role="tool", tool_results=(ToolResult("a", "success", (Text("seen"),)),))

    rendered = render(HELLO, HELLO, CALL, result, HELLO)

    assert [turn["role"] for turn in rendered.body["messages"]] == ["user", "assistant", "user"]
    assert [next(iter(block)) for block in rendered.body["messages"][2]["content"]] == ["toolResult", "text"]
    assert ("repaired", "message") in lost(rendered)


def test_tools_of_the_history_are_declared() -> None:
    """Bedrock wants them wherever there are calls, also when none is offered now."""
    rendered = render(HELLO, CALL)

    assert rendered.body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"
    assert {("repaired", "tool"), ("repaired", "tool call")} <= lost(rendered)


def test_an_error_has_words() -> None:
    """Bedrock refuses one that says nothing."""
    result = Message(role="tool", tool_results=(ToolResult("a", "error"),))

    body = render(HELLO, CALL, result).body

    assert body["messages"][2]["content"][0]["toolResult"]["status"] == "error"
    assert body["messages"][2]["content"][0]["toolResult"]["content"]


def test_documents_have_names_of_their_own_and_words_beside_them() -> None:
    """Two of the same name are told apart."""
    rendered = render(
        Message(role="user", content=(File(PDF, "application/pdf"), File(PDF, "application/pdf")))
    )

    content = rendered.body["messages"][0]["content"]
    assert [block["document"]["name"] for block in content[:2]] == ["document", "document-2"]
    assert content[2] == {"text": "See the document."}


def test_images_are_bytes_or_in_s3() -> None:
    """What is elsewhere is told in words, and Claude takes nothing in S3."""
    places = (PNG, "s3://bucket/a.png", "https://a.example/b.png")
    message = Message(role="user", content=tuple(Image(place, "image/png") for place in places))

    nova, claude = render(message, model="amazon.nova-pro-v1:0"), render(message)

    content = nova.body["messages"][0]["content"]
    assert [next(iter(block)) for block in content] == ["image", "image", "text"]
    assert [next(iter(block)) for block in claude.body["messages"][0]["content"]] == ["image", "text", "text"]
    assert content[1]["image"]["source"] == {"s3Location": {"uri": "s3://bucket/a.png"}}
    assert ("converted", "image") in lost(nova)


def test_thinking_goes_back_to_its_model_only() -> None:
    """Signed, redacted, and in its place."""
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
        {"text": "Noon."},
    ]
    context = ADAPTER.read_request(
        {
            "messages": [
                {"role": "assistant", "content": content},
                {"role": "user", "content": [{"text": "?"}]},
            ]
        },
        model=CLAUDE,
    )

    same = ADAPTER.render(context, model="eu.anthropic.claude-haiku-4-5-20251001-v1:0").body
    other = ADAPTER.render(context, model="us.anthropic.claude-3-7-sonnet-20250219-v1:0")

    assert same["messages"][0]["content"] == content
    assert other.body["messages"][0]["content"] == [{"text": "Noon."}]
    assert lost(other) == {("dropped", "reasoning")}


def test_cache_points_are_four_at_most_and_never_kept() -> None:
    """They are made where the context asks for them."""
    body = {
        "messages": [{"role": "user", "content": [{"text": "Hello."}, {"cachePoint": {"type": "default"}}]}],
        "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
    }
    context = ADAPTER.read_request(body)

    assert context.options == {"cache": True}
    assert ADAPTER.render(context, model=CLAUDE).body == body


def test_options_are_said_as_the_family_takes_them() -> None:
    """Claude thinks by tokens, Nova by effort; what neither has is told."""
    options = {"reasoning": {"effort": "low"}, "top_k": 5, "seed": 1, "temperature": 2}

    claude, nova = render(HELLO, options=options), render(HELLO, model=NOVA, options=options)

    assert claude.body["additionalModelRequestFields"]["thinking"] == {
        "type": "enabled",
        "budget_tokens": 2_048,
    }
    assert nova.body["additionalModelRequestFields"]["inferenceConfig"] == {"topK": 5}
    assert nova.body["inferenceConfig"] == {"temperature": 1}
    assert ("dropped", "seed") in lost(claude)


def test_a_choice_that_bedrock_lacks_is_a_loss() -> None:
    """There is no `none`, and no tool that is not declared."""
    for choice in ("none", {"name": "other"}):
        rendered = render(HELLO, tools=[ToolSpec(name="look")], options={"tool_choice": choice})

        assert "toolChoice" not in rendered.body["toolConfig"]
        assert lost(rendered) == {("dropped", "tool_choice")}


def test_a_schema_is_asked_for_or_told_in_words() -> None:
    """Where the model keeps to one, as text; else the system words say it."""
    options = {"output": {"schema": {"type": "object"}, "name": "N"}}

    claude, nova = render(HELLO, options=options).body, render(HELLO, model=NOVA, options=options)

    told = claude["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (json.loads(told["schema"]), told["name"]) == ({"type": "object"}, "N")
    assert '{"type": "object"}' in nova.body["system"][0]["text"]
    assert lost(nova) == {("converted", "output")}


def test_server_tools_citations_and_guarded_words_go_back_in_place() -> None:
    """And tell others what they can be told."""
    content = [
        {
            "toolUse": {
                "toolUseId": "t",
                "name": "grounding",
                "input": {"query": "tides"},
                "type": "server_tool_use",
            }
        },
        {
            "toolResult": {
                "toolUseId": "t",
                "content": [{"text": "…"}],
                "status": "success",
                "type": "grounding_result",
            }
        },
        {"citationsContent": {"content": [{"text": "Noon."}], "citations": [{"title": "Tides"}]}},
        {"hologram": {"beam": 1}},
    ]
    reply = ADAPTER.parse(answer(*content))

    body = render(HELLO, reply.message, HELLO).body

    assert body["messages"][1]["content"] == content
    assert (reply.message.text, reply.message.tool_calls) == ("Noon.", ())
    assert [loss.what for loss in reply.losses] == ["hologram"]


def test_results_that_are_data_stay_data() -> None:
    """For others they are text."""
    content = [{"toolResult": {"toolUseId": "a", "content": [{"json": {"n": 1.5}}]}}]
    asked = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}]}
    context = ADAPTER.read_request({"messages": [asked, {"role": "user", "content": content}]}, model=CLAUDE)

    assert context.messages[1].tool_results[0].content == (Text('{"n":1.5}'),)
    assert ADAPTER.render(context, model=CLAUDE).body["messages"][1]["content"] == content


def test_a_stream_is_read_as_it_comes() -> None:
    """Words may begin without being announced; arguments are raw."""
    parser = ADAPTER.stream()
    events = parser.feed(
        frames_of(
            [
                {"messageStart": {"role": "assistant"}},
                {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "So:"}}},
                {
                    "contentBlockStart": {
                        "contentBlockIndex": 1,
                        "start": {"toolUse": {"toolUseId": "t", "name": "look"}},
                    }
                },
                {
                    "contentBlockDelta": {
                        "contentBlockIndex": 1,
                        "delta": {"toolUse": {"input": '{"a": 1.0}'}},
                    }
                },
                {"contentBlockStop": {"contentBlockIndex": 1}},
                {"messageStop": {"stopReason": "tool_use"}},
                {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 2}}},
            ]
        )
    )
    reply = parser.close()

    assert events == [TextChunk("So:"), CallDelta(0, "look", ""), CallDelta(0, "look", '{"a": 1.0}')]
    assert reply.message.tool_calls == (ToolCall("t", "look", '{"a": 1.0}'),)
    assert (reply.stop, reply.usage.input_tokens, reply.usage.cached_tokens) == ("tool_use", 5, 2)


def test_a_stream_that_is_cut_off_or_fails_keeps_what_was_whole() -> None:
    """Half a call is left out; an exception is told."""
    said = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Hm."}}}}
    half = {
        "contentBlockStart": {
            "contentBlockIndex": 1,
            "start": {"toolUse": {"toolUseId": "t", "name": "look"}},
        }
    }
    fault = frame(
        b'{"message":"Too many"}', {":message-type": "exception", ":exception-type": "throttlingException"}
    )

    cut = ADAPTER.parse_stream([frames_of([said, half])[:-3], b""])
    failed = ADAPTER.parse_stream([frames_of([said, half]) + fault])

    assert cut.message.content == failed.message.content == (ReasoningSummary("Hm."),)
    assert (cut.stop, failed.message.tool_calls) == (None, ())
    assert "throttlingException: Too many" in failed.losses[0].why


@pytest.mark.parametrize(
    "body", [b"", b"data: {}\n\n" * 4, frame(b"{broken", {":event-type": "messageStart"})]
)
def test_what_is_no_stream_of_bedrock_is_refused(body: bytes) -> None:
    """With a typed error."""
    with pytest.raises(Invalid):
        ADAPTER.parse_stream([body])


@pytest.mark.parametrize(
    "body",
    [{}, {"message": "The provided model identifier is invalid."}, answer({"a": 1, "b": 2}), {"output": 3}],
)
def test_what_is_no_answer_of_bedrock_is_refused(body: dict[str, Any]) -> None:
    """With a typed error."""
    with pytest.raises(Invalid):
        ADAPTER.parse(body)


def test_nothing_to_say_is_still_a_request() -> None:
    """And a first assistant message follows something, for models that want it."""
    said = Message(role="assistant", content=(Text("Yes?"),))

    assert render().body["messages"] == [{"role": "user", "content": [{"text": "Begin."}]}]
    assert [turn["role"] for turn in render(said, model=NOVA).body["messages"]] == ["user", "assistant"]
