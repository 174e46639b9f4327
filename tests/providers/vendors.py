"""The vendors as the replaying server plays them: where each is asked, and small answers in its format.

Every answer says "Hello there" and takes 7 tokens in and 3 out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure import Backend
from perdure.providers.bedrock.transport import frame
from tests.providers.playing import SSE, Answer, Place, cut, streamed, whole

__all__ = ["FRAMES", "KEY", "TEXT", "VENDORS", "Vendor"]

TEXT = "Hello there"
KEY = "sk-verysecretkey0123456789"
FRAMES = "application/vnd.amazon.eventstream"


@dataclass(frozen=True)
class Vendor:
    """How one wire format is played."""

    api: str
    backend: str
    path: str  # what is asked for a stream
    body: Mapping[str, Any]  # a whole answer
    stream: bytes  # the same, streamed
    suffix: str = ""  # of the base address
    kind: str = SSE
    overloaded: tuple[int, Mapping[str, Any]] = (
        529,
        {"error": {"type": "overloaded_error", "message": "busy"}},
    )
    too_long: tuple[int, Mapping[str, Any]] = (
        400,
        {"error": {"code": "context_length_exceeded", "message": "long"}},
    )

    def whole(self) -> Answer:
        """The whole answer."""
        return whole(self.body)

    def streamed(self) -> Answer:
        """The stream."""
        return streamed(self.stream, kind=self.kind)

    def cut(self) -> Answer:
        """The stream, broken off in its middle."""
        return cut(self.stream, kind=self.kind)

    def limited(self, after: str) -> Answer:
        """Too many requests."""
        code = (
            {"code": 429, "status": "RESOURCE_EXHAUSTED"}
            if self.api.startswith("gemini-")
            else {"type": "rate_limit"}
        )
        return whole({"error": {**code, "message": "slow down"}}, status=429, headers={"retry-after": after})

    def at(self, place: Place, **more: Any) -> Backend:
        """The backend at that place."""
        if self.api != "bedrock-converse":
            more.setdefault("api_key", KEY)
        return Backend(self.backend, base_url=place.url + self.suffix, **more)


def _sse(*events: Mapping[str, Any], done: bool = False, named: bool = False) -> bytes:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


_CHAT_USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
_CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": _CHAT_USAGE,
}


def _chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **more}


_CHAT_STREAM = _sse(
    _chunk({"role": "assistant", "content": ""}),
    _chunk({"content": "Hello "}),
    _chunk({"content": "there"}),
    _chunk({}, "stop", usage=_CHAT_USAGE),
    done=True,
)

_RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
}
_BEGUN = {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}
_ITEM = _RESPONSE["output"][0]
_DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
_RESPONSE_STREAM = _sse(
    {"type": "response.created", "response": _BEGUN},
    {"type": "response.output_item.added", "output_index": 0, "item": {**_ITEM, "content": []}},
    {**_DELTA, "delta": "Hello "},
    {**_DELTA, "delta": "there"},
    {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
    {"type": "response.completed", "response": _RESPONSE},
    named=True,
)

_MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 3},
}
_STARTED = {**_MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
_MESSAGE_STREAM = _sse(
    {"type": "message_start", "message": _STARTED},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "there"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
    named=True,
)


def _candidate(text: str, **more: Any) -> dict[str, Any]:
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1"}


_CONVERSE: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10},
    "metrics": {"latencyMs": 1},
}
_CONVERSE_STREAM = b"".join(
    frame(kind, json.dumps(payload).encode())
    for kind, payload in (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello "}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "there"}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": _CONVERSE["usage"], "metrics": {"latencyMs": 1}}),
    )
)


def _native(text: str, *, is_last: bool = False) -> dict[str, Any]:
    """An answer of Ollama, or a piece of one."""
    head = {"model": "m", "created_at": "2026-08-07T06:08:14.7Z", "done": is_last}
    told = {"done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3} if is_last else {}
    return {**head, **told, "message": {"role": "assistant", "content": text}}


_INTERACTION: dict[str, Any] = {
    "id": "v1_1",
    "object": "interaction",
    "model": "gemini-m",
    "status": "completed",
    "steps": [{"type": "model_output", "content": [{"type": "text", "text": TEXT}]}],
    "usage": {"total_input_tokens": 7, "total_output_tokens": 3, "total_tokens": 10},
}
_HEAD = {name: value for name, value in _INTERACTION.items() if name != "steps"}
_INTERACTION_STREAM = _sse(
    {"event_type": "interaction.created", "interaction": {**_HEAD, "status": "in_progress", "usage": None}},
    {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hello "}},
    {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "there"}},
    {"event_type": "step.stop", "index": 0},
    {"event_type": "interaction.completed", "interaction": _HEAD},
    done=True,
)
_OF_GOOGLE: dict[str, Any] = {
    "overloaded": (503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}),
    "too_long": (
        400,
        {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count exceeds 8."}},
    ),
}


VENDORS: tuple[Vendor, ...] = (
    Vendor("openai-chat", "openai-chat:m", "/v1/chat/completions", _CHAT, _CHAT_STREAM, "/v1"),
    Vendor("openai-responses", "openai:m", "/v1/responses", _RESPONSE, _RESPONSE_STREAM, "/v1"),
    Vendor(
        "anthropic-messages",
        "anthropic:claude-m",
        "/v1/messages",
        _MESSAGE,
        _MESSAGE_STREAM,
        too_long=(400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
    ),
    Vendor(
        "gemini-generate",
        "google:gemini-m",
        "/v1/models/gemini-m:streamGenerateContent?alt=sse",
        _candidate(TEXT, finishReason="STOP"),
        _sse(_candidate("Hello "), _candidate("there", finishReason="STOP")),
        **_OF_GOOGLE,
    ),
    Vendor(
        "bedrock-converse",
        "bedrock:us.m-v1:0",
        "/model/us.m-v1%3A0/converse-stream",
        _CONVERSE,
        _CONVERSE_STREAM,
        kind=FRAMES,
        overloaded=(503, {"message": "busy"}),
        too_long=(400, {"message": "Input is too long for requested model."}),
    ),
    Vendor("mistral-chat", "mistral:m", "/v1/chat/completions#stream", _CHAT, _CHAT_STREAM),
    Vendor(
        "azure-inference-chat",
        "foundry:m",
        "/models/chat/completions?api-version=2024-05-01-preview",
        _CHAT,
        _CHAT_STREAM,
        "/models",
    ),
    Vendor(
        "ollama-chat",
        "ollama-chat:m",
        "/api/chat",
        _native(TEXT, is_last=True),
        b"".join(
            json.dumps(each).encode() + b"\n"
            for each in (_native("Hello "), _native("there"), _native("", is_last=True))
        ),
        kind="application/x-ndjson",
        overloaded=(503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),
        too_long=(400, {"error": "input length exceeds the context length"}),
    ),
    Vendor(
        "gemini-interactions",
        "gemini-interactions:gemini-m",
        "/v1/interactions",
        _INTERACTION,
        _INTERACTION_STREAM,
        **_OF_GOOGLE,
    ),
)
