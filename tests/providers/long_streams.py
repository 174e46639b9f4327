"""Streamed answers of any length, one shape of growth each, as the vendors' servers send them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["SHAPES"]

ARGUMENTS = '{"a":1}'
ANSWER = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": {}}


def events(each: Iterable[dict[str, Any]]) -> bytes:
    """Server-sent events."""
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in each)


def chat_calls(count: int, id: str | None, *, indexed: bool = True) -> bytes:
    """Calls of a Chat answer, each in two pieces where its index tells which call goes on."""
    deltas: list[dict[str, Any]] = []
    for at in range(count):
        place = {"index": at} if indexed else {}
        named = {} if id is None else {"id": id.format(at)}
        first = "" if indexed else ARGUMENTS
        deltas.append({**place, **named, "type": "function", "function": {"name": "f", "arguments": first}})
        deltas += [{**place, "function": {"arguments": ARGUMENTS}}] if indexed else []
    return chat({"tool_calls": [delta]} for delta in deltas)


def chat(deltas: Iterable[dict[str, Any]]) -> bytes:
    """A Chat answer of these deltas."""
    chunks = [{"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return events([*chunks, end]) + b"data: [DONE]\n\n"


def native_calls(count: int, id: str | None) -> bytes:
    """Calls of an answer of Ollama, one a line."""
    chunks: list[dict[str, Any]] = []
    for at in range(count):
        named = {} if id is None else {"id": id.format(at)}
        call = {**named, "function": {"name": "f", "arguments": {"a": 1}}}
        chunks.append({"model": "m", "message": {"role": "assistant", "tool_calls": [call]}, "done": False})
    end = {"model": "m", "message": {"role": "assistant"}, "done": True, "done_reason": "stop"}
    return b"".join(json.dumps(each).encode() + b"\n" for each in [*chunks, end])


def details(count: int, *, apart: bool) -> bytes:
    """Reasoning of a Chat answer, as details at places of their own or all at one."""
    return chat(
        {"reasoning_details": [{"type": "reasoning.text", "index": at if apart else 0, "text": "why " * 20}]}
        for at in range(count)
    )


def anthropic_calls(count: int, id: str) -> bytes:
    """Calls of an Anthropic answer."""
    told: list[dict[str, Any]] = [{"type": "message_start", "message": ANSWER}]
    for at in range(count):
        use = {"type": "tool_use", "id": id.format(at), "name": "f", "input": {}}
        told.append({"type": "content_block_start", "index": at, "content_block": use})
        piece = {"type": "input_json_delta", "partial_json": ARGUMENTS}
        told.append({"type": "content_block_delta", "index": at, "delta": piece})
        told.append({"type": "content_block_stop", "index": at})
    return events([*told, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}])


def anthropic_deltas(count: int, delta: dict[str, Any]) -> bytes:
    """One block of an Anthropic answer, in many pieces."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": ANSWER},
        {"type": "content_block_start", "index": 0, "content_block": start},
    ]
    told += [{"type": "content_block_delta", "index": 0, "delta": delta}] * count
    told.append({"type": "content_block_stop", "index": 0})
    return events([*told, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}])


def gemini_calls(count: int, id: str | None) -> bytes:
    """Calls of a Gemini answer."""
    named = ({} if id is None else {"id": id.format(at)} for at in range(count))
    parts = [{"functionCall": {**each, "name": "f", "args": {"a": 1}}} for each in named]
    return events({"candidates": [{"index": 0, "content": {"parts": [part]}}]} for part in parts)


def interaction_calls(count: int, id: str) -> bytes:
    """Calls of an interaction, each with its arguments in two pieces."""
    told: list[dict[str, Any]] = []
    for at in range(count):
        step = {"type": "function_call", "id": id.format(at), "name": "f", "arguments": {}}
        told.append({"event_type": "step.start", "index": at, "step": step})
        for piece in (ARGUMENTS[:3], ARGUMENTS[3:]):
            delta = {"type": "arguments_delta", "arguments": piece}
            told.append({"event_type": "step.delta", "index": at, "delta": delta})
        told.append({"event_type": "step.stop", "index": at})
    return events([*told, {"event_type": "interaction.completed", "interaction": {"status": "completed"}}])


def interaction_deltas(count: int, kind: str, delta: dict[str, Any]) -> bytes:
    """One step of an interaction, in many pieces."""
    told: list[dict[str, Any]] = [{"event_type": "step.start", "index": 0, "step": {"type": kind}}]
    told += [{"event_type": "step.delta", "index": 0, "delta": delta}] * count
    return events([*told, {"event_type": "interaction.completed", "interaction": {"status": "completed"}}])


def responses_calls(count: int, id: str) -> bytes:
    """Calls of a Responses answer."""
    told: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for at in range(count):
        item = {"type": "function_call", "id": f"fc_{at}", "call_id": id.format(at), "name": "f"}
        whole.append({**item, "arguments": ARGUMENTS})
        told.append({"type": "response.output_item.added", "output_index": at, "item": item})
        piece = {"type": "response.function_call_arguments.delta", "output_index": at, "delta": ARGUMENTS}
        told.append(piece)
        told.append({"type": "response.output_item.done", "output_index": at, "item": whole[-1]})
    response = {"id": "r", "model": "m", "status": "completed", "output": whole}
    return events([*told, {"type": "response.completed", "response": response}])


def bedrock_calls(count: int, id: str) -> bytes:
    """Calls of a Bedrock answer."""
    frames = [frame("messageStart", {"role": "assistant"})]
    for at in range(count):
        use = {"toolUse": {"toolUseId": id.format(at), "name": "f"}}
        frames.append(frame("contentBlockStart", {"contentBlockIndex": at, "start": use}))
        delta = {"toolUse": {"input": ARGUMENTS}}
        frames.append(frame("contentBlockDelta", {"contentBlockIndex": at, "delta": delta}))
        frames.append(frame("contentBlockStop", {"contentBlockIndex": at}))
    return b"".join([*frames, frame("messageStop", {"stopReason": "tool_use"})])


def frame(kind: str, event: dict[str, Any]) -> bytes:
    """One frame of an AWS event stream."""
    named = {":message-type": "event", ":event-type": kind}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in named.items()
    )
    payload = json.dumps(event).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


SIGNATURE = {"type": "signature_delta", "signature": "abcd" * 20}
CITATION = {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}

CODE = {"type": "code_execution_result", "result": "42\n" * 20}
FOUND = {"type": "google_search_result", "result": [{"search_suggestions": "x" * 80}]}

SHAPES: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "chat": ("openai-chat", lambda count: chat_calls(count, "call_{}")),
    "chat, one id for all": ("openai-chat", lambda count: chat_calls(count, "call")),
    "chat, no ids": ("openai-chat", lambda count: chat_calls(count, None)),
    "chat, no indexes": ("openai-chat", lambda count: chat_calls(count, "call_{}", indexed=False)),
    "chat, details": ("openai-chat", lambda count: details(count, apart=True)),
    "chat, one long detail": ("openai-chat", lambda count: details(count, apart=False)),
    "ollama": ("ollama-chat", lambda count: native_calls(count, "call_{}")),
    "ollama, no ids": ("ollama-chat", lambda count: native_calls(count, None)),
    "mistral": ("mistral-chat", lambda count: chat_calls(count, "call_{}")),
    "anthropic": ("anthropic-messages", lambda count: anthropic_calls(count, "toolu_{}")),
    "anthropic, one id for all": ("anthropic-messages", lambda count: anthropic_calls(count, "toolu")),
    "anthropic, a long signature": ("anthropic-messages", lambda count: anthropic_deltas(count, SIGNATURE)),
    "anthropic, citations": ("anthropic-messages", lambda count: anthropic_deltas(count, CITATION)),
    "gemini": ("gemini-generate", lambda count: gemini_calls(count, "c{}")),
    "gemini, no ids": ("gemini-generate", lambda count: gemini_calls(count, None)),
    "interactions": ("gemini-interactions", lambda count: interaction_calls(count, "c{}")),
    "interactions, one id for all": ("gemini-interactions", lambda count: interaction_calls(count, "c")),
    "interactions, one long text": (
        "gemini-interactions",
        lambda count: interaction_deltas(count, "model_output", {"type": "text", "text": "word " * 20}),
    ),
    "interactions, a long result": (
        "gemini-interactions",
        lambda count: interaction_deltas(count, "code_execution_result", CODE),
    ),
    "interactions, many found": (
        "gemini-interactions",
        lambda count: interaction_deltas(count, "google_search_result", FOUND),
    ),
    "responses": ("openai-responses", lambda count: responses_calls(count, "call_{}")),
    "responses, one id for all": ("openai-responses", lambda count: responses_calls(count, "call")),
    "bedrock": ("bedrock-converse", lambda count: bedrock_calls(count, "tooluse_{}")),
    "bedrock, one id for all": ("bedrock-converse", lambda count: bedrock_calls(count, "tooluse")),
}
