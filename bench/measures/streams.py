"""Long streamed answers, as each vendor sends them: words in small pieces, then a call in pieces."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["STREAMS"]

Events: TypeAlias = list[dict[str, Any]]
Stream: TypeAlias = tuple[list[bytes], list[bytes]]  # the chunks, and the JSON of their events

_WORD, _PIECE = " thyme", '"bed seven", '
_USAGE = {"prompt_tokens": 900, "completion_tokens": 1_000, "total_tokens": 1_900}


def _sse(events: Events, *, named: bool = False, end: bytes = b"") -> Stream:
    bodies = [json.dumps(event, separators=(",", ":")).encode() for event in events]
    names = [f"event: {event['type']}\n".encode() if named else b"" for event in events]
    chunks = [name + b"data: " + body + b"\n\n" for name, body in zip(names, bodies, strict=True)]
    return [*chunks, *([end] if end else [])], bodies


def _pieces(count: int) -> list[str]:
    """The arguments of a call in so many pieces."""
    return ['{"beds": [', *[_PIECE] * (count - 2), '"bed eight"]}']


def _chat(chunks: int) -> Stream:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "m"}

    def piece(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "system_fingerprint": "fp_1", "choices": [choice], **more}

    def arguments(text: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}

    half = (chunks - 3) // 2
    begun = {"id": "callAbc12", "type": "function", "function": {"name": "look_up", "arguments": ""}}
    events = [
        piece({"role": "assistant", "content": ""}),
        *(piece({"content": _WORD}) for _ in range(half)),
        piece({"tool_calls": [{"index": 0, **begun}]}),
        *(piece(arguments(text)) for text in _pieces(chunks - 3 - half)),
        piece({}, "tool_calls", usage=_USAGE),
    ]
    return _sse(events, end=b"data: [DONE]\n\n")


def _responses(chunks: int) -> Stream:
    half = (chunks - 6) // 2
    text, args = half * _WORD, "".join(_pieces(chunks - 6 - half))
    message: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    message |= {"content": [{"type": "output_text", "text": text, "annotations": []}]}
    call: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look_up"}
    call |= {"arguments": args, "status": "completed"}
    whole: dict[str, Any] = {"id": "resp_1", "object": "response", "model": "m", "status": "completed"}
    whole |= {"output": [message, call], "usage": {"input_tokens": 900, "output_tokens": 1_000}}
    words: dict[str, Any] = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
    }
    words |= {"delta": _WORD, "logprobs": []}
    written = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1}
    events: Events = [
        {"type": "response.created", "response": whole | {"output": [], "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": message | {"content": []}},
        *(words | {"sequence_number": at} for at in range(half)),
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.added", "output_index": 1, "item": call | {"arguments": ""}},
        *(written | {"delta": piece} for piece in _pieces(chunks - 6 - half)),
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": whole},
    ]
    return _sse(events, named=True)


def _anthropic(chunks: int) -> Stream:
    half = (chunks - 7) // 2
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
    }
    message |= {"content": [], "stop_reason": None, "usage": {"input_tokens": 900, "output_tokens": 1}}
    tool: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}

    def delta(index: int, **said: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": said}

    events: Events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(delta(0, type="text_delta", text=_WORD) for _ in range(half)),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        *(delta(1, type="input_json_delta", partial_json=text) for text in _pieces(chunks - 7 - half)),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1_000}},
        {"type": "message_stop"},
    ]
    return _sse(events, named=True)


def _gemini(chunks: int) -> Stream:
    def piece(part: dict[str, Any], **more: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **more}
        usage = {"promptTokenCount": 900, "candidatesTokenCount": 1_000, "totalTokenCount": 1_900}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}

    call = {"functionCall": {"id": "fc1", "name": "look_up", "args": {"beds": ["bed seven"]}}}
    words = [piece({"text": _WORD}) for _ in range(chunks - 1)]
    return _sse([*words, piece(call, finishReason="STOP")])


def _bedrock(chunks: int) -> Stream:
    half = (chunks - 6) // 2
    tool = {"toolUse": {"toolUseId": "t1", "name": "look_up"}}
    events: Events = [
        {"messageStart": {"role": "assistant"}},
        *({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": _WORD}}} for _ in range(half)),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": tool}},
        *(
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": text}}}}
            for text in _pieces(chunks - 6 - half)
        ),
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 900, "outputTokens": 1_000, "totalTokens": 1_900}}},
    ]
    named = [next(iter(event.items())) for event in events]
    bodies = [json.dumps(body, separators=(",", ":")).encode() for _, body in named]
    return [_frame(name, body) for (name, _), body in zip(named, bodies, strict=True)], bodies


def _frame(name: str, body: bytes) -> bytes:
    """One message of an AWS event stream."""
    fields = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
        for key, value in fields.items()
    )
    prelude = (16 + len(headers) + len(body)).to_bytes(4) + len(headers).to_bytes(4)
    prelude += binascii.crc32(prelude).to_bytes(4)
    return prelude + headers + body + binascii.crc32(prelude + headers + body).to_bytes(4)


STREAMS: dict[str, Callable[[int], Stream]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "gemini-generate": _gemini,
    "bedrock-converse": _bedrock,
    "mistral-chat": _chat,
    "azure-inference-chat": _chat,
}
