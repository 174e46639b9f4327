"""Recorded multi-turn conversations as threads: read turn by turn, with the agent that had them.

A turn begins with what a user said; results of tools that stand in a user's message begin none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from perdure import Agent, Backend, Policy, Tool
from perdure.errors import PerdureError
from perdure.model.context import Context, ToolSpec
from perdure.providers import adapter
from perdure.providers.registry import APIS
from perdure.runtime.tools.signature import Arguments
from tests.recorded.pairs import SOURCES, read_as
from tests.recorded.wire import Record, Wire

__all__ = ["BACKENDS", "PAIRS", "Talk", "agent_of", "talks"]

# One backend of each wire format.
BACKENDS = {
    "openai-chat": "openai-chat:gpt-5.4",
    "openai-responses": "openai:gpt-5.6",
    "anthropic-messages": "anthropic:claude-sonnet-5-5",
    "gemini-generate": "google:gemini-2.5-flash",
    "bedrock-converse": "bedrock:anthropic.claude-sonnet-5-5",
    "mistral-chat": "mistral:mistral-large-latest",
    "azure-inference-chat": "azure:gpt-5.4",
    "ollama-chat": "ollama-chat:qwen3:8b",
    "gemini-interactions": "gemini-interactions:gemini-2.5-flash",
}
ONE_TURN = ("ollama-chat", "gemini-interactions")  # of which there is no second turn
RECORDED = tuple(source for source in SOURCES if source not in ONE_TURN)
PAIRS = [(source, target) for source in RECORDED for target in APIS if target != read_as(source)]

_FIELDS = {"openai-responses": "input", "gemini-interactions": "input", "gemini-generate": "contents"}
_LET_PASS = Policy(warn=["text", "tools", "mcp_tools", "context"], unfinished="approve")


class Talk(msgspec.Struct, frozen=True):
    """A recorded conversation."""

    id: str
    source: str  # whose format it was recorded in
    context: Context  # of its last request
    turns: tuple[Sequence[Any], ...]  # in the vendor's format
    answer: Any  # of the last request; None where it was streamed

    @property
    def api(self) -> str:
        """The format by which it is read."""
        return read_as(self.source)


@cache
def talks(source: str) -> tuple[Talk, ...]:
    """The conversations of a format in which somebody spoke more than once; of each recording the longest request."""
    longest: dict[str, tuple[Record, tuple[Sequence[Any], ...]]] = {}
    for record in Wire().requests(source):
        turns = tuple(_turns(record))
        known = longest.get(record.conversation_id)
        if record.status == 200 and len(turns) > 1 and (known is None or len(turns) > len(known[1])):
            longest[record.conversation_id] = record, turns
    found = [_talk(source, record, turns) for record, turns in longest.values()]
    return tuple({_said(talk): talk for talk in found if talk is not None}.values())


def agent_of(talk: Talk) -> Agent:
    """The agent that had the conversation: its instructions, tools and options, on a backend of its format."""
    tools = {spec.name: _tool(spec) for spec in talk.context.tools if spec.name.isidentifier()}
    return Agent(
        "recorded",
        backend=Backend(BACKENDS[talk.api]),
        instructions=talk.context.system,
        tools=list(tools.values()),
        options=talk.context.options,
        policy=_LET_PASS,
    )


def _talk(source: str, record: Record, turns: tuple[Sequence[Any], ...]) -> Talk | None:
    try:
        context = adapter(read_as(source)).read_request(
            record.request or {}, model=record.model, provider=record.provider
        )
    except PerdureError:
        return None
    answer = record.response if isinstance(record.response, dict) and not record.is_stream else None
    return Talk(record.id, source, context, turns, answer)


def _said(talk: Talk) -> str:
    return json.dumps(talk.turns, sort_keys=True, default=str)


def _turns(record: Record) -> Iterator[Sequence[Any]]:
    items = (record.request or {}).get(_FIELDS.get(read_as(record.api), "messages"))
    if not isinstance(items, list):
        return
    turn: list[Any] = []
    for item in items:
        if _begins(item) and any(_begins(each) for each in turn):
            yield turn
            turn = []
        turn.append(item)
    if any(_begins(each) for each in turn):
        yield turn


def _begins(item: object) -> bool:
    """Whether something is what a user said."""
    if not isinstance(item, Mapping) or item.get("role") != "user":
        return False
    parts: Any = item.get("content", item.get("parts"))
    held = parts if isinstance(parts, list) else []
    return not any(
        isinstance(part, Mapping)
        and (part.get("type") == "tool_result" or "toolResult" in part or "functionResponse" in part)
        for part in held
    )


def _tool(spec: ToolSpec) -> Tool:
    """A tool of that declaration, which nobody calls."""

    def never(**_: Any) -> str:
        raise AssertionError("a switch calls no tool")

    return Tool(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        function=never,
        take=lambda given: Arguments(given, given),
        run=lambda arguments, call: never(),
    )
