"""The shipped adapters keep the adapter contract."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from perdure.providers import adapter
from perdure.providers.contract import Adapter
from perdure.testing import AdapterSuite
from tests.recorded.frames import frames_of


def events(*told: dict[str, Any], named: bool = False, done: bool = False) -> bytes:
    """A stream of server-sent events."""
    lines = [(f"event: {each['type']}\n" if named else "") + f"data: {json.dumps(each)}\n\n" for each in told]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"word": {"type": "string"}}}
CALL = {
    "id": "callAbc12",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"word": "sage"}'},
}


def delta(**said: Any) -> dict[str, Any]:
    """A piece of a Chat answer."""
    return {
        "id": "chat-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "model-1",
        "choices": [{"index": 0, "delta": said, "finish_reason": None}],
    }


def ended() -> dict[str, Any]:
    """The last piece of a Chat answer."""
    chunk = delta()
    chunk["choices"][0]["finish_reason"] = "tool_calls"
    return chunk | {"usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}}


class ChatExamples(AdapterSuite):
    """What the three Chat formats have in common."""

    request: ClassVar[Mapping[str, Any] | None] = {
        "model": "model-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is sage?"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "callAbc12", "content": "A herb."},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}],
        "temperature": 0.5,
    }
    reply: ClassVar[Mapping[str, Any] | None] = {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": "model-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Sage, né 😀.", "tool_calls": [CALL]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    }
    streamed = events(
        delta(role="assistant", content=""),
        delta(content="Sage, né"),
        delta(content=" 😀."),
        delta(tool_calls=[{"index": 0, **CALL, "function": {"name": "look_up", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"word": '}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"sage"}'}}]),
        ended(),
        done=True,
    )


class TestOpenAIChat(ChatExamples):
    def adapter(self) -> Adapter:
        return adapter("openai-chat")


class TestMistralChat(ChatExamples):
    def adapter(self) -> Adapter:
        return adapter("mistral-chat")


class TestAzureInferenceChat(ChatExamples):
    def adapter(self) -> Adapter:
        return adapter("azure-inference-chat")


def native(*, is_last: bool = False, **said: Any) -> dict[str, Any]:
    """An answer of Ollama, or a piece of one."""
    head = {"model": "model-1", "created_at": "2026-08-07T06:08:14.7Z", "done": is_last}
    told = {"done_reason": "stop", "prompt_eval_count": 9, "eval_count": 5} if is_last else {}
    return {**head, "message": {"role": "assistant", "content": "", **said}, **told}


NATIVE_CALL = {"id": "callAbc12", "function": {"name": "look_up", "arguments": {"word": "sage"}}}


class TestOllamaChat(AdapterSuite):
    request: ClassVar[Mapping[str, Any] | None] = {
        "model": "model-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is sage?"},
            {"role": "assistant", "content": "", "thinking": "A word.", "tool_calls": [NATIVE_CALL]},
            {"role": "tool", "tool_call_id": "callAbc12", "tool_name": "look_up", "content": "A herb."},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}],
        "stream": False,
        "options": {"temperature": 0.5, "num_ctx": 4096},
    }
    reply: ClassVar[Mapping[str, Any] | None] = native(
        content="Sage, né 😀.", thinking="A herb.", tool_calls=[NATIVE_CALL], is_last=True
    )
    streamed = b"".join(
        json.dumps(each, ensure_ascii=False).encode() + b"\n"
        for each in (
            native(thinking="A "),
            native(thinking="herb."),
            native(content="Sage, né"),
            native(content=" 😀."),
            native(tool_calls=[NATIVE_CALL]),
            native(is_last=True),
        )
    )

    def adapter(self) -> Adapter:
        return adapter("ollama-chat")


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "model-1",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sage, né 😀.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "look_up",
            "arguments": '{"word": "sage"}',
            "status": "completed",
        },
    ],
    "usage": {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14},
}


class TestOpenAIResponses(AdapterSuite):
    request: ClassVar[Mapping[str, Any] | None] = {
        "model": "model-1",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What is sage?"}]},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "look_up",
                "arguments": '{"word": "sage"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "A herb."},
        ],
        "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA, "strict": False}],
    }
    reply: ClassVar[Mapping[str, Any] | None] = RESPONSE
    streamed = events(
        {"type": "response.created", "response": RESPONSE | {"status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": RESPONSE["output"][0] | {"content": [], "status": "in_progress"},
        },
        {
            "type": "response.content_part.added",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        *(
            {
                "type": "response.output_text.delta",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": part,
            }
            for part in ("Sage, né", " 😀.")
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": RESPONSE["output"][0]},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": RESPONSE["output"][1] | {"arguments": "", "status": "in_progress"},
        },
        {
            "type": "response.function_call_arguments.delta",
            "item_id": "fc_1",
            "output_index": 1,
            "delta": '{"word": "sage"}',
        },
        {"type": "response.output_item.done", "output_index": 1, "item": RESPONSE["output"][1]},
        {"type": "response.completed", "response": RESPONSE},
        named=True,
    )

    def adapter(self) -> Adapter:
        return adapter("openai-responses")


class TestAnthropicMessages(AdapterSuite):
    model = "claude-sonnet-5-5"
    request: ClassVar[Mapping[str, Any] | None] = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "What is sage?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "sage"}}
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "A herb."}],
            },
        ],
        "tools": [{"name": "look_up", "input_schema": SCHEMA}],
    }
    reply: ClassVar[Mapping[str, Any] | None] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [
            {"type": "thinking", "thinking": "A herb.", "signature": "c2ln"},
            {"type": "text", "text": "Sage, né 😀."},
            {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "sage"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }
    streamed = events(
        {
            "type": "message_start",
            "message": dict(reply)
            | {"content": [], "stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "A herb."},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "c2ln"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Sage, né"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": " 😀."}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"word": "sage"}'},
        },
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
        named=True,
    )

    def adapter(self) -> Adapter:
        return adapter("anthropic-messages")


def candidate(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """An answer of Gemini, or a piece of one."""
    told: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {
        "candidates": [told | ({"finishReason": finish} if finish else {})],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14},
        "modelVersion": "gemini-2.5-flash",
        "responseId": "r1",
    }


GEMINI_CALL = {"functionCall": {"id": "fc1", "name": "look_up", "args": {"word": "sage"}}}


class TestGeminiGenerate(AdapterSuite):
    model = "gemini-2.5-flash"
    request: ClassVar[Mapping[str, Any] | None] = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "What is sage?"}]},
            {"role": "model", "parts": [GEMINI_CALL]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "fc1", "name": "look_up", "response": {"output": "A herb."}}}
                ],
            },
        ],
        "tools": [{"functionDeclarations": [{"name": "look_up", "parametersJsonSchema": SCHEMA}]}],
    }
    reply = candidate({"text": "Sage, né 😀."}, GEMINI_CALL, finish="STOP")
    streamed = events(
        candidate({"text": "Sage, né"}), candidate({"text": " 😀."}), candidate(GEMINI_CALL, finish="STOP")
    )

    def adapter(self) -> Adapter:
        return adapter("gemini-generate")


INTERACTION_CALL = {
    "type": "function_call",
    "id": "c1",
    "name": "look_up",
    "arguments": {"word": "sage"},
}
INTERACTION: dict[str, Any] = {
    "id": "v1_1",
    "object": "interaction",
    "model": "gemini-2.5-flash",
    "status": "requires_action",
    "usage": {"total_input_tokens": 9, "total_output_tokens": 5, "total_tokens": 14},
}


class TestGeminiInteractions(AdapterSuite):
    model = "gemini-2.5-flash"
    request: ClassVar[Mapping[str, Any] | None] = {
        "model": "gemini-2.5-flash",
        "system_instruction": "Be brief.",
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "What is sage?"}]},
            INTERACTION_CALL,
            {"type": "function_result", "call_id": "c1", "name": "look_up", "result": "A herb."},
        ],
        "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA}],
    }
    reply: ClassVar[Mapping[str, Any] | None] = {
        **INTERACTION,
        "steps": [
            {"type": "thought", "signature": "c2ln"},
            {"type": "model_output", "content": [{"type": "text", "text": "Sage, né 😀."}]},
            INTERACTION_CALL,
        ],
    }
    streamed = events(
        {
            "event_type": "interaction.created",
            "interaction": {"id": "v1_1", "status": "in_progress", "model": "gemini-2.5-flash"},
        },
        {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
        {
            "event_type": "step.delta",
            "index": 0,
            "delta": {"type": "thought_signature", "signature": "c2ln"},
        },
        {"event_type": "step.stop", "index": 0},
        {"event_type": "step.start", "index": 1, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": "Sage, né"}},
        {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": " 😀."}},
        {"event_type": "step.stop", "index": 1},
        {"event_type": "step.start", "index": 2, "step": {**INTERACTION_CALL, "arguments": {}}},
        {
            "event_type": "step.delta",
            "index": 2,
            "delta": {"type": "arguments_delta", "arguments": '{"word": "sage"}'},
        },
        {"event_type": "step.stop", "index": 2},
        {"event_type": "interaction.completed", "interaction": INTERACTION},
    )

    def adapter(self) -> Adapter:
        return adapter("gemini-interactions")


class TestBedrockConverse(AdapterSuite):
    model = "amazon.nova-pro-v1:0"
    request: ClassVar[Mapping[str, Any] | None] = {
        "modelId": "amazon.nova-pro-v1:0",
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "What is sage?"}]},
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "t1", "name": "look_up", "input": {"word": "sage"}}}],
            },
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "A herb."}]}}],
            },
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "look_up", "inputSchema": {"json": SCHEMA}}}]},
    }
    reply: ClassVar[Mapping[str, Any] | None] = {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"text": "Sage, né 😀."},
                    {"toolUse": {"toolUseId": "t1", "name": "look_up", "input": {"word": "sage"}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14},
        "metrics": {"latencyMs": 7},
    }
    streamed = frames_of(
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Sage, né"}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": " 😀."}}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
            {
                "contentBlockStart": {
                    "contentBlockIndex": 1,
                    "start": {"toolUse": {"toolUseId": "t1", "name": "look_up"}},
                }
            },
            {
                "contentBlockDelta": {
                    "contentBlockIndex": 1,
                    "delta": {"toolUse": {"input": '{"word": "sage"}'}},
                }
            },
            {"contentBlockStop": {"contentBlockIndex": 1}},
            {"messageStop": {"stopReason": "tool_use"}},
            {
                "metadata": {
                    "usage": {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14},
                    "metrics": {"latencyMs": 7},
                }
            },
        ]
    )

    def adapter(self) -> Adapter:
        return adapter("bedrock-converse")


def test_every_law_of_adapters_says_what_it_is_and_hides_no_other() -> None:
    """A law is named by its fact and says it again, and no two have one name."""
    laws = [each for name, each in inspect.getmembers(AdapterSuite) if name.startswith("test_")]
    owners = [
        owner for owner in AdapterSuite.__mro__ if owner.__module__.startswith("perdure.testing.adapters.")
    ]
    names = [name for owner in owners for name in vars(owner) if name.startswith("test_")]

    assert len(laws) > 30
    assert [law.__name__ for law in laws if not (law.__doc__ or "").strip().endswith(".")] == []
    assert sorted(names) == sorted(set(names))
