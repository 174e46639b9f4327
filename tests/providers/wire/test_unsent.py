"""What a vendor said with a message and another vendor's request does not hold is a loss, at its place."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers import adapter
from perdure.providers.contract import Loss

HELLO = {"role": "user", "content": "Hello."}
PDF = "data:application/pdf;base64,JVBERi0xLjQK"

GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2ln"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "Sunny."}}}]},
        {"role": "model", "parts": [{"text": "Sunny.", "thoughtSignature": "c2lnMg=="}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ]
}
RESPONSES = {
    "model": "gpt-5.6",
    "input": [
        {"role": "user", "content": [{"type": "input_file", "filename": "plan.pdf", "file_data": PDF}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAAB"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "final_answer",
            "content": [
                {
                    "type": "output_text",
                    "text": "A plan.",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://a.example",
                            "title": "A",
                            "start_index": 0,
                            "end_index": 6,
                        }
                    ],
                }
            ],
        },
        HELLO,
    ],
}
CHAT = {
    "model": "gpt-5.4",
    "messages": [
        {"role": "user", "name": "ann", "content": "Hello."},
        {"role": "assistant", "refusal": "No.", "content": None},
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}]},
    ],
}
ANTHROPIC = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 100,
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"},
                    "title": "Plan",
                    "citations": {"enabled": True},
                },
                {"type": "text", "text": "Read it."},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
                {
                    "type": "text",
                    "text": "Read.",
                    "citations": [{"type": "char_location", "cited_text": "Plan", "document_index": 0}],
                },
            ],
        },
        HELLO,
    ],
}
BEDROCK = {
    "messages": [
        {
            "role": "user",
            "content": [{"guardContent": {"text": {"text": "Guard me.", "qualifiers": ["query"]}}}],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"redactedContent": "cmVkYWN0ZWQ="}},
                {"text": "Hello."},
            ],
        },
        {
            "role": "user",
            "content": [
                {"document": {"name": "Plan", "format": "pdf", "source": {"bytes": "JVBERi0xLjQK"}}},
                {"text": "Read it."},
            ],
        },
    ]
}
MODELS = {
    "openai-chat": "gpt-5.4",
    "openai-responses": "gpt-5.6",
    "anthropic-messages": "claude-sonnet-5-5",
    "gemini-generate": "gemini-3-pro",
    "bedrock-converse": "amazon.nova-pro",
    "mistral-chat": "mistral-large-latest",
    "ollama-chat": "qwen3:8b",
    "gemini-interactions": "gemini-3-pro",
}
CITED = {"type": "url_citation", "url": "https://example.org/", "start_index": 0, "end_index": 5}
INTERACTIONS: dict[str, Any] = {
    "model": "gemini-3-pro",
    "input": [
        {
            "type": "user_input",
            "content": [{"type": "image", "uri": "https://example.org/a.png", "resolution": "low"}],
        },
        {"type": "thought", "signature": "c2lnbmF0dXJl"},
        {
            "type": "model_output",
            "content": [{"type": "text", "text": "Hello.", "annotations": [CITED]}],
        },
        {"type": "function_call", "id": "c1", "name": "look", "arguments": {}, "signature": "b3RoZXI="},
        {"type": "function_result", "call_id": "c1", "name": "look", "result": "rain"},
        {"type": "user_input", "content": [{"type": "text", "text": "Thanks."}]},
    ],
}
EXPECTED: list[tuple[str, dict[str, Any], set[tuple[str, str]]]] = [
    (
        "gemini-generate",
        GEMINI,
        {
            ("messages[1].tool_calls[0].thoughtSignature", "thought signature"),
            ("messages[3].content[0].thoughtSignature", "thought signature"),
        },
    ),
    (
        "gemini-interactions",
        INTERACTIONS,
        {
            ("messages[0].content[0].resolution", "resolution"),
            ("messages[1].signature", "thought signature"),
            ("messages[1].content[0].annotations", "citations"),
            ("messages[1].tool_calls[0].signature", "thought signature"),
        },
    ),
    (
        "openai-responses",
        RESPONSES,
        {
            ("messages[0].content[0].filename", "file name"),
            ("messages[1].reasoning", "encrypted reasoning"),
            ("messages[1].phase", "phase"),
            ("messages[1].content[0].annotations", "citations"),
        },
    ),
    (
        "openai-chat",
        CHAT,
        {
            ("messages[0].name", "speaker name"),
            ("messages[1].content[0].refusal", "refusal"),
            ("messages[2].content[0].filename", "file name"),
        },
    ),
    (
        "anthropic-messages",
        ANTHROPIC,
        {
            ("messages[0].content[0].title", "file name"),
            ("messages[0].content[0].citations", "citation settings"),
            ("messages[1].content[0]", "redacted reasoning"),
            ("messages[1].content[1].citations", "citations"),
        },
    ),
    (
        "bedrock-converse",
        BEDROCK,
        {
            ("messages[0].content[0].guardContent", "guard content"),
            ("messages[1].content[0]", "redacted reasoning"),
            ("messages[2].content[0].name", "file name"),
        },
    ),
]


def losses(context: Context, api: str) -> tuple[Loss, ...]:
    """What a render of a conversation reports."""
    return adapter(api).render(context, model=MODELS[api]).losses


@pytest.mark.parametrize("target", MODELS)
@pytest.mark.parametrize(("api", "body", "expected"), EXPECTED)
def test_what_only_the_vendor_can_use_is_a_loss(
    api: str, body: dict[str, Any], expected: set[tuple[str, str]], target: str
) -> None:
    """For every other vendor, and none of it for the vendor itself."""
    found = {(loss.where, loss.what) for loss in losses(adapter(api).read_request(body), target)}

    if target == api:
        assert not {each for each in found if each[0].startswith("messages[")}
    else:
        assert expected <= found


def test_thinking_without_words_is_no_empty_block() -> None:
    """Redacted thinking is reported once, as what it is."""
    found = losses(adapter("anthropic-messages").read_request(ANTHROPIC), "gemini-generate")

    assert [loss.what for loss in found if loss.where == "messages[1].content[0]"] == ["redacted reasoning"]


def test_citations_that_no_request_can_hold_are_lost_to_others_alone() -> None:
    """Google's grounding comes with an answer; a request to Google has no field for it, and nothing changes there."""
    answer = {
        "candidates": [
            {
                "content": {"parts": [{"text": "Noon."}], "role": "model"},
                "finishReason": "STOP",
                "citationMetadata": {"citations": [{"uri": "https://a.example", "endIndex": 4}]},
            }
        ]
    }
    context = Context(messages=[adapter("gemini-generate").parse(answer).message])

    assert "citations" in {loss.what for loss in losses(context, "openai-chat")}
    assert "citations" not in {loss.what for loss in losses(context, "gemini-generate")}


def test_a_place_in_a_report_is_the_place_in_the_context() -> None:
    """Also behind a block that says nothing and is left out."""
    message = Message("assistant", (Text(""), ReasoningSummary("Hm."), Text("Yes.")))

    found = losses(Context(messages=[message]), "openai-chat")

    assert ("messages[0].content[1]", "reasoning") in {(loss.where, loss.what) for loss in found}
