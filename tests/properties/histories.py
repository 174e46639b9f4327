"""Histories gone wrong: turns of five vendors and of none, then dropped, repeated, reordered and cut.

The turns are parsed from small answers of each vendor, so that what only it can read is beside them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from perdure.model.context import Context, ToolSpec
from perdure.model.message import (
    Block,
    File,
    Image,
    Message,
    ReasoningSummary,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.providers import adapter

__all__ = ["contexts", "healthy"]

TOKEN = "gAAAAAB" + "x" * 80
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()

ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": TOKEN},
        {"type": "text", "text": "Let me search."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "listen", "input": {}},
    ],
}
RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-5.6",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": TOKEN},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": TOKEN},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
        },
    ],
}
GEMINI: dict[str, Any] = {
    "responseId": "r1",
    "modelVersion": "gemini-3-pro",
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "look", "args": {"at": 2}}},
                ],
            },
        }
    ],
}
BEDROCK: dict[str, Any] = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": TOKEN}}},
                {"text": "Yes."},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 1},
}


def _chat(id: str, **more: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"at": 1}'}
    call = {"id": id, "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call, call]} | more
    return {
        "id": "c1",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
    }


PARSED: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic-messages", ANTHROPIC, "anthropic"),
    ("openai-responses", RESPONSES, "openai"),
    ("gemini-generate", GEMINI, "google"),
    ("bedrock-converse", BEDROCK, "bedrock"),
    ("openai-chat", _chat("call_" + "a" * 60), "openai"),
    ("openai-chat", _chat("functions.look:0", reasoning_content="Hm."), "deepseek"),
    ("mistral-chat", _chat("abcDEF123"), "mistral"),
]


def _turn(api: str, body: dict[str, Any], provider: str) -> list[Message]:
    said = adapter(api).parse(body, provider=provider).message
    results = tuple(ToolResult(call.id, "success", (Text("ok"),)) for call in said.tool_calls)
    return [Message("user", (Text("Go on."),)), said, Message("tool", (), (), results)]


OWN = [_turn(*each) for each in PARSED]

texts = st.sampled_from(["Hello.", "", " \n", "a" * 300, "\ud800 half", "{}", "[]", "é漢🙂", "\x00"])
images = st.sampled_from(
    [
        Image(f"data:image/png;base64,{PNG}", "image/png"),
        Image(f"data:image/jpeg;base64,{PNG}", "image/jpeg"),
        Image("data:image/png;base64,aGVsbG8=", "image/png"),
        Image("data:image/png;base64,%%%", "image/png"),
        Image("https://example.org/a.png", "image/png"),
        Image("artifact://sha256/00", "image/png"),
        Image("file-id://openai/file-1", "image/png"),
        Image("data:image/bmp;base64,Qk0=", "image/bmp"),
    ]
)
files = st.sampled_from(
    [
        File("data:application/pdf;base64,JVBERi0xLjQK", "application/pdf"),
        File("data:text/plain,hello", "text/plain"),
        File("data:audio/wav;base64,UklGRg==", "audio/wav"),
        File("data:video/mp4;base64,AAAA", "video/mp4"),
        File("https://example.org/a.pdf", "application/pdf"),
        File("artifact://sha256/00", "application/zip"),
        File("", ""),
    ]
)
blocks: st.SearchStrategy[Block] = st.one_of(
    texts.map(Text), texts.map(Text), images, files, texts.map(ReasoningSummary)
)
ids = st.sampled_from(["c1", "c2", "toolu_1", "call_1", "functions.x:0", "x" * 90, "é", "abcDEF123"])
names = st.sampled_from(["look", "listen", "a.b", "1st", "x" * 100, "näme", "mcp__a__b"])
arguments = st.sampled_from(["{}", '{"at": 1}', "[]", "", "{not json", "null", '"text"', '{"a":"\\ud800"}'])
calls = st.builds(ToolCall, ids, names, arguments)
contents = st.lists(blocks, max_size=3).map(tuple)
results = st.builds(ToolResult, ids, st.sampled_from(["success", "error"]), contents)  # pyright: ignore[reportArgumentType]
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "system", "tool"])


@st.composite
def made(draw: st.DrawFn) -> Message:
    """A message of no vendor."""
    role = draw(roles)
    return Message(
        role,
        draw(contents),
        tuple(draw(st.lists(calls, max_size=3))) if role == "assistant" else (),
        tuple(draw(st.lists(results, max_size=3))) if role == "tool" else (),
    )


def healthy() -> st.SearchStrategy[list[Message]]:
    """Turns as they come, each call with its result."""
    return st.lists(st.sampled_from(OWN), min_size=1, max_size=4).map(
        lambda turns: [each for turn in turns for each in turn]
    )


def _without_a_call(message: Message, at: int) -> Message:
    calls = message.tool_calls
    kept = calls[: at % len(calls)] + calls[at % len(calls) + 1 :] if calls else ()
    results = message.tool_results
    left = results[: at % len(results)] + results[at % len(results) + 1 :] if results else ()
    return msgspec.structs.replace(message, tool_calls=kept, tool_results=left)


def _without_a_block(message: Message, at: int) -> Message:
    content = message.content
    kept = content[: at % len(content)] + content[at % len(content) + 1 :] if content else ()
    return msgspec.structs.replace(message, content=kept)


DAMAGE: list[Callable[[list[Message], int, int], list[Message]]] = [
    lambda told, at, to: told[:at] + told[at + 1 :],
    lambda told, at, to: [*told[:at], told[at], *told[at:]],
    lambda told, at, to: [*told[:to], told[at], *told[to:]],
    lambda told, at, to: told[:at],
    lambda told, at, to: told[at:],
    lambda told, at, to: [*told[:at], *reversed(told[at:])],
    lambda told, at, to: [*told[:at], _without_a_call(told[at], to), *told[at + 1 :]],
    lambda told, at, to: [*told[:at], _without_a_block(told[at], to), *told[at + 1 :]],
    lambda told, at, to: [
        *told[:at],
        msgspec.structs.replace(told[at], vendor_metadata=None),
        *told[at + 1 :],
    ],
]

PARAMETERS: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "at": {"type": "integer", "const": 1},
        "tags": {"type": "array"},
        "kind": {"enum": [1, "a"]},
    },
}
TOOLS = [
    ToolSpec(name="look", description="Look.", parameters=PARAMETERS, strict=True),
    ToolSpec(name="a.b", parameters={}),
    ToolSpec(name="listen", parameters={"type": "object", "properties": {}, "additionalProperties": False}),
    ToolSpec(name="x" * 100, parameters={"type": "object"}),
]
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.sampled_from([1, 100, 50_000]),
    "temperature": st.sampled_from([0, 0.5, 1.7, 2]),
    "tool_choice": st.sampled_from(["auto", "none", "required", {"name": "look"}, {"name": "nobody"}]),
    "reasoning": st.sampled_from(
        [{"effort": "high"}, {"budget_tokens": 100}, {"budget_tokens": 90_000}, {"enabled": True}]
    ),
    "output": st.sampled_from(["json", {"schema": PARAMETERS, "name": "out", "strict": True}]),
    "stop": st.just(["END"]),
    "parallel_tool_calls": st.booleans(),
    "cache": st.just(True),
    "service_tier": st.sampled_from(["auto", "on_demand"]),
    "seed": st.just(7),
}


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    """A history gone wrong, with tools and options."""
    told = draw(healthy())
    for each in draw(st.lists(made(), max_size=3)):
        told.insert(draw(st.integers(0, len(told))), each)
    for damage in draw(st.lists(st.sampled_from(DAMAGE), min_size=1, max_size=5)):
        if told:
            told = damage(told, draw(st.integers(0, len(told) - 1)), draw(st.integers(0, len(told) - 1)))
    names = draw(st.sets(st.sampled_from(sorted(OPTIONS)), max_size=3))
    return Context(
        system=draw(st.sampled_from(["", "Be brief.", " "])),
        messages=told,
        tools=draw(st.sampled_from([(), TOOLS[:1], TOOLS])),
        options={name: draw(OPTIONS[name]) for name in sorted(names)},
    )


def shown(context: Context) -> str:
    """A context as text, for failures."""
    return json.dumps(msgspec.to_builtins(context), indent=1)[:4_000]
