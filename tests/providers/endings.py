"""Answers of every vendor that end with a given word, whole and streamed, with or without a tool call."""

from __future__ import annotations

import copy
import json
from typing import Any

from perdure.providers.bedrock.transport import frame
from tests.providers.playing import Answer, streamed, whole
from tests.providers.vendors import FRAMES, VENDORS, Vendor

__all__ = ["calling", "ended", "pausing", "response", "sse", "vendor_of"]


def vendor_of(api: str) -> Vendor:
    """The vendor that is played for a format."""
    return next(vendor for vendor in VENDORS if vendor.api == api)


def sse(*events: dict[str, Any], done: bool = False) -> bytes:
    """A stream of these events."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def response(status: str = "completed", *items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response of the Responses API."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    return {**head, "output": list(items), "usage": usage, **more}


def pausing(*blocks: dict[str, Any], stop: str = "pause_turn") -> dict[str, Any]:
    """An answer of Anthropic's that ends with that word."""
    body = dict(vendor_of("anthropic-messages").body)
    return {**body, "content": list(blocks), "stop_reason": stop}


def ended(vendor: Vendor, word: str, *, stream: bool) -> Answer:
    """The vendor's ordinary answer, ended by another word."""
    body: Any = copy.deepcopy(dict(vendor.body))
    match vendor.api:
        case "openai-responses":
            body |= {"status": "incomplete", "incomplete_details": {"reason": word}}
            return streamed(sse({"type": "response.incomplete", "response": body})) if stream else whole(body)
        case "anthropic-messages":
            body["stop_reason"] = word
        case "gemini-generate":
            body["candidates"][0]["finishReason"] = word
        case "bedrock-converse":
            body["stopReason"] = word
        case "ollama-chat":
            body["done_reason"] = word
        case "gemini-interactions":
            body["status"] = word
        case _:
            body["choices"][0]["finish_reason"] = word
    if not stream:
        return whole(body)
    if vendor.api == "bedrock-converse":
        return streamed(_frames(word), kind=FRAMES)
    return streamed(_reworded(vendor, word), kind=vendor.kind)


def calling(vendor: Vendor, word: str, *, arguments: str = '{"amount": 5}') -> Answer:
    """An answer that calls `pay` and is ended by that word; the arguments are text as it came."""
    parsed = json.loads(arguments) if arguments.endswith("}") else {}
    body: Any = copy.deepcopy(dict(vendor.body))
    match vendor.api:
        case "openai-responses":
            call = {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "pay"}
            body = response("completed", {**call, "arguments": arguments, "status": "completed"})
            if word != "completed":
                body |= {"status": "incomplete", "incomplete_details": {"reason": word}}
        case "anthropic-messages":
            call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": parsed}
            body |= {"content": [call], "stop_reason": word}
        case "gemini-generate":
            parts = [{"functionCall": {"name": "pay", "args": parsed}}]
            body["candidates"][0] |= {"content": {"role": "model", "parts": parts}, "finishReason": word}
        case "bedrock-converse":
            use = {"toolUse": {"toolUseId": "t1", "name": "pay", "input": parsed}}
            body |= {"output": {"message": {"role": "assistant", "content": [use]}}, "stopReason": word}
        case "ollama-chat":
            call = {"id": "c1", "function": {"name": "pay", "arguments": parsed}}
            body |= {
                "message": {"role": "assistant", "content": "", "tool_calls": [call]},
                "done_reason": word,
            }
        case "gemini-interactions":
            call = {"type": "function_call", "id": "c1", "name": "pay", "arguments": parsed}
            body |= {"steps": [call], "status": word}
        case _:
            call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
            body["choices"][0] |= {
                "message": {"role": "assistant", "content": None, "tool_calls": [call]},
                "finish_reason": word,
            }
    return whole(body)


def _reworded(vendor: Vendor, word: str) -> bytes:
    words = (
        ("finish_reason", "stop"),
        ("stop_reason", "end_turn"),
        ("finishReason", "STOP"),
        ("done_reason", "stop"),
        ("status", "completed"),
    )
    for usual in (f'"{field}": "{end}"' for field, end in words):
        field = usual.partition(":")[0]
        vendor_stream = vendor.stream.replace(usual.encode(), f'{field}: "{word}"'.encode())
        if vendor_stream != vendor.stream:
            return vendor_stream
    raise AssertionError(f"the stream of {vendor.api} has no word for its end")


def _frames(word: str) -> bytes:
    events: tuple[tuple[str, dict[str, Any]], ...] = (
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello there"}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": word}),
        ("metadata", {"usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}}),
    )
    return b"".join(frame(kind, json.dumps(payload).encode()) for kind, payload in events)
