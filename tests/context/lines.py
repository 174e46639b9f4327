"""Lines to be shown: threads with long, odd or switched conversations, and what holds of whatever is shown of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import perdure
from perdure import Agent, ContextLimits, Message, Store, Text, Thread, ToolCall, ToolResult
from perdure.providers import registry
from perdure.providers.validator import check
from perdure.testing import Script, say, step, use

BACKENDS = (
    "openai:gpt-5.6",
    "openai-chat:gpt-5.6",
    "anthropic:claude-sonnet-5-5",
    "google:gemini-2.5-pro",
    "bedrock:anthropic.claude-sonnet-5-5",
    "mistral:mistral-large-latest",
    "foundry:gpt-5.4",
    "ollama-chat:qwen3:8b",
    "gemini-interactions:gemini-2.5-pro",
)


@perdure.tool(effect="read_only")
def search(query: str) -> str:
    """Look something up."""
    return f"Found for {query}: " + "much of the same, " * 20


@perdure.tool(effect="external_write")
def book(flight: str) -> str:
    """Book a flight."""
    return f"{flight} is booked as R-1."


def planner(*steps: object, backend: str = "script:planner", limits: ContextLimits | None = None) -> Agent:
    """An agent that follows a script."""
    script = Script(*steps, backend=backend)  # pyright: ignore[reportArgumentType]
    return Agent(
        "planner",
        backend=script,
        instructions="You plan trips.",
        tools=[search, book],
        context=limits or ContextLimits(),
    )


def script_of(agent: Agent) -> Script:
    """The script that an agent follows."""
    assert isinstance(agent.backend, Script)
    return agent.backend


def questions(count: int, *, words: int = 60) -> list[object]:
    """Steps for so many turns: each looks something up and answers at length."""
    return [
        part
        for turn in range(count)
        for part in (
            step(say(f"Looking {turn}."), use("search", query=f"flight {turn}")),
            say(f"Answer {turn}: " + "words " * words),
        )
    ]


def asked(store: Store, agent: Agent, turns: int, *, id: str = "trip") -> Thread:
    """A thread on which so many questions were asked."""
    thread = store.thread(id, agent=agent)
    for turn in range(turns):
        thread.run(f"Question {turn}: which flight number {turn} goes to Rome?")
    return thread


def check_pairs(messages: Sequence[Message]) -> None:
    """Every call has one result right behind it, and no result is alone."""
    wanted: list[str] = []
    for message in messages:
        assert [each.call_id for each in message.tool_results] == wanted
        wanted = [call.id for call in message.tool_calls]
    assert wanted == []


def check_valid(thread: Thread, backend: str) -> None:
    """The request that a backend would be sent breaks no rule of its API."""
    target = registry.target(backend)
    body = thread.render(backend).body

    broken = check(body, target.api, provider=target.provider, model=target.model)

    assert [each for each in broken if each.level == "error"] == []
    assert json.dumps(body)


def user(text: str) -> Message:
    """Something that a user says."""
    return Message("user", (Text(text),))


def asking(*ids: str, text: str = "", tool: str = "search") -> Message:
    """An assistant that asks for tools."""
    calls = tuple(ToolCall(id, tool, json.dumps({"query": id})) for id in ids)
    return Message("assistant", (Text(text),) if text else (), calls)


def answer(*pairs: tuple[str, str]) -> Message:
    """What calls came to."""
    return Message("tool", (), (), tuple(ToolResult(id, "success", (Text(text),)) for id, text in pairs))
