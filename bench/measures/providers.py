"""Adapters: rendering a long history and parsing a long stream, against bare `json` on the same bytes.

A render takes 200 messages, a call and its result in every four; it is compared with encoding the
request that comes out.  A parse takes an answer of 1,000 chunks: words, then a call whose arguments
come in pieces; it is compared with decoding the JSON of each chunk.  Nothing touches a disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from bench.ground import Ground, median, take_turns
from bench.measures.streams import STREAMS
from bench.table import Result
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Message, Text, ToolCall, ToolResult
from perdure.providers import adapter

__all__ = ["history", "measure"]

MESSAGES, CHUNKS, BAR = 200, 1_000, 5.0
MODELS = {
    "openai-chat": "gpt-5.6",
    "openai-responses": "gpt-5.6",
    "anthropic-messages": "claude-sonnet-5-5",
    "gemini-generate": "gemini-3-pro-preview",
    "bedrock-converse": "anthropic.claude-sonnet-5-5",
    "mistral-chat": "mistral-large-latest",
    "azure-inference-chat": "gpt-5.4",
}
_WORDS = "Bed seven holds thyme and sage, and the rue at its end wants water before the evening comes. "
_TOOL = ToolSpec(
    name="look_up",
    description="Looks a word up in the dictionary of herbs.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


def measure(ground: Ground) -> Iterable[Result]:
    """Every adapter: a history that it made itself, and a stream."""
    times = 10 * ground.sizes.loads
    for api, model in MODELS.items():
        speaks = adapter(api)
        plain = history(MESSAGES)
        body = speaks.render(plain, model=model).body
        own = speaks.read_request(body, model=model)
        assert speaks.render(own, model=model).body == body, api
        yield _compared(
            f"render {MESSAGES} messages, {api}",
            lambda speaks=speaks, own=own, model=model: speaks.render(own, model=model),
            lambda body=body: json.dumps(body),
            times,
        )
        yield _parsed(api, times)


def history(messages: int) -> Context:
    """A conversation in which a tool is called in every fourth message."""
    said: list[Message] = []
    for at in range(messages // 4):
        call = ToolCall(f"call{at:05}", "look_up", json.dumps({"word": f"bed-{at}", "why": _WORDS}))
        said += [
            Message("user", (Text(f"What of bed {at}? {2 * _WORDS}"),)),
            Message("assistant", (Text(f"Let me see bed {at}."),), (call,)),
            Message("tool", tool_results=(ToolResult(call.id, "success", (Text(4 * _WORDS),)),)),
            Message("assistant", (Text(f"In bed {at}: {4 * _WORDS}"),)),
        ]
    return Context(
        system=f"You are the gardener. {_WORDS}",
        messages=(*said, Message("user", (Text("And the last bed?"),))),
        tools=(_TOOL,),
    )


def _parsed(api: str, times: int) -> Result:
    speaks = adapter(api)
    chunks, events = STREAMS[api](CHUNKS)
    reply = speaks.parse_stream(chunks)
    assert reply.stop is not None, api
    assert len(reply.message.tool_calls) == 1, api

    def decode() -> list[Any]:
        return [json.loads(event) for event in events]

    return _compared(f"parse {CHUNKS:,} chunks, {api}", lambda: speaks.parse_stream(chunks), decode, times)


def _compared(name: str, ours: Callable[[], object], bare: Callable[[], object], times: int) -> Result:
    taken = take_turns([lambda _: ours(), lambda _: bare()], range(times))
    mine, theirs = (1e3 * median(each.cpu) for each in taken)  # nothing waits here for anything but the CPU
    return Result(
        measure=name,
        ours=mine,
        baseline=theirs,
        baseline_is="json",
        unit="ms",
        bound="at most",
        bar=BAR,
    )
