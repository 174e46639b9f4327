"""A conversation begun under one framework goes on under another, and leaves in every provider's format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("pydantic_ai.conversation_store")
pytest.importorskip("agents")
pytest.importorskip("claude_agent_sdk")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

import perdure
from perdure.errors import Conflict
from perdure.integrations import claude_agent, langgraph, openai_agents, pydantic_ai
from tests.coded import raises
from tests.integrations.exports import exports_faults
from tests.integrations.graphs import config

KEY: Any = {"project_key": "p", "session_id": "s"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened
        assert opened.verify().ok


def by_langgraph(store: perdure.Store, id: str, text: str) -> str:
    """One turn of a graph: a call, its result, an answer."""
    saver = langgraph.Saver(store)
    call = {"name": "look", "args": {"at": text}, "id": f"call_{text}"}

    def answer(state: Any) -> Any:
        seen = len(state["messages"])
        result = ToolMessage("seen", tool_call_id=f"call_{text}")
        return {"messages": [AIMessage("", tool_calls=[call]), result, AIMessage(f"re: {text} after {seen}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    given = [*saver.missed_messages(config(id)), HumanMessage(text)]
    graph.compile(checkpointer=saver).invoke({"messages": given}, config(id))
    return id


def by_pydantic(store: perdure.Store, id: str, text: str) -> str:
    """One run of an agent: a call, its result, an answer."""

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse([TextPart(f"re: {text} after {len(messages) - 2}")])
        return ModelResponse([ToolCallPart("look", {"at": text}, f"call_{text}")])

    async def main() -> None:
        conversations = pydantic_ai.Conversations(store)
        agent = Agent(FunctionModel(reply))
        agent.tool_plain(look)
        found = await conversations.load(id)
        options: dict[str, Any] = {"conversation": found} if found else {"conversation_id": id}
        await conversations.save(await agent.run(text, **options))

    asyncio.run(main())
    return id


def look(at: str) -> str:
    """Look."""
    return "seen"


def by_openai(store: perdure.Store, id: str, text: str) -> str:
    """One turn of a session: a call, its result, an answer."""

    session = openai_agents.Session(store.thread(id) if has(store, id) else store.thread(id, agent="a"))

    async def main() -> None:
        seen = len(await session.get_items()) + 1
        call = {"type": "function_call", "call_id": f"call_{text}", "name": "look", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": f"call_{text}", "output": "seen"}
        said = {"role": "assistant", "content": f"re: {text} after {seen}"}
        items: list[Any] = [{"role": "user", "content": text}, call, result, said]
        await session.add_items(items)

    asyncio.run(main())
    return id


def has(store: perdure.Store, id: str) -> bool:
    """True if there is such a thread."""
    return any(thread.id == id for thread in store.threads())


def by_claude(store: perdure.Store, id: str, text: str) -> str:
    """One turn of a session, which takes the conversation of the thread over if there is one."""

    lines = claude_agent.lines_of(store.thread(id), KEY)[0] if has(store, id) else []

    async def main() -> None:
        sessions = claude_agent.Sessions(store)
        await sessions.append(KEY, lines)
        seen = len(await sessions.load(KEY) or ()) + 1
        call = {"type": "tool_use", "id": f"call_{text}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"call_{text}", "content": "seen"}
        await sessions.append(
            KEY,
            [
                line("user", f"{text}-1", text),
                line("assistant", f"{text}-2", [call]),
                line("user", f"{text}-3", [result]),
                line("assistant", f"{text}-4", [{"type": "text", "text": f"re: {text} after {seen}"}]),
            ],
        )

    asyncio.run(main())
    return claude_agent.Sessions(store).thread(KEY).id


def line(role: str, uuid: str, content: Any) -> Any:
    """A line of a session."""
    about = {"id": uuid, "type": "message", "model": "claude-opus-4-5"} if role == "assistant" else {}
    return {
        "type": role,
        "uuid": uuid,
        "sessionId": "s",
        "message": {"role": role, "content": content, **about},
    }


TURNS: dict[str, Callable[[perdure.Store, str, str], str]] = {
    "langgraph": by_langgraph,
    "pydantic-ai": by_pydantic,
    "openai-agents": by_openai,
    "claude-agent": by_claude,
}


@pytest.mark.parametrize(("first", "second"), list(permutations(TURNS, 2)))
def test_a_conversation_goes_on_under_another_framework(
    store: perdure.Store, first: str, second: str
) -> None:
    """The second one sees what the first one said, nothing is said twice, and every provider accepts the whole."""
    begun = TURNS[first](store, "t", "one")
    thread = store.thread(TURNS[second](store, begun, "two"))
    said = [entry.text for entry in thread.transcript() if entry.role in ("user", "assistant") and entry.text]

    assert [said[0], said[2]] == ["one", "two"]
    assert len(said) == 4
    assert int(said[-1].rpartition(" ")[2]) == 5  # the four messages of the first turn, and the question
    assert exports_faults(thread) == []


def test_a_conversation_comes_back_to_the_first_framework(store: perdure.Store) -> None:
    """After a turn of each of the others; each message is there once."""
    for number, turn in enumerate(["langgraph", "pydantic-ai", "openai-agents", "langgraph", "pydantic-ai"]):
        TURNS[turn](store, "t", f"turn {number}")
    texts = [entry.text for entry in store.thread("t").transcript() if entry.role == "user"]
    last = store.thread("t").transcript()[-1].text

    assert texts == [f"turn {number}" for number in range(5)]
    assert last == "re: turn 4 after 17"


SALES, SUPPORT = "sales", "support"


@pytest.mark.parametrize(("agent", "listed"), [(SUPPORT, [SUPPORT]), (None, [SALES, SUPPORT])])
def test_conversations_of_another_agent_are_not_listed(
    store: perdure.Store, agent: str | None, listed: list[str]
) -> None:
    """By pydantic-ai, nor are their words found by an entry's id; a program that names no agent, the control, sees all."""

    async def main() -> None:
        heads: dict[str, str] = {}
        for own in (SALES, SUPPORT):
            run = await Agent(TestModel()).run("hi", conversation_id=own)
            saved = await pydantic_ai.Conversations(store, agent=own).save(run)
            heads[own] = saved[-1].id
        conversations = pydantic_ai.Conversations(store, agent=agent)
        found = await conversations.read_records()
        assert sorted(each.conversation_id for each in found) == listed
        for own in set(heads) - set(listed):
            with pytest.raises(KeyError):
                await conversations.read_history(heads[own])
        for own in listed:
            assert await conversations.read_entry(heads[own])

    asyncio.run(main())


def test_a_fork_of_a_conversation_of_another_agent_is_refused(store: perdure.Store) -> None:
    """Its entries are in the thread of that agent: it is not listed, and to load it is a conflict."""

    store.thread("b", agent=SUPPORT)

    async def main() -> None:
        free = pydantic_ai.Conversations(store)
        run = await Agent(TestModel()).run("hi", conversation_id="a")
        await pydantic_ai.Conversations(store, agent=SALES).save(run)
        await free.fork("a", at=2, new_conversation_id="b")
        assert len(await free.read_records()) == 2

        bound = pydantic_ai.Conversations(store, agent=SUPPORT)
        assert list(await bound.read_records()) == []
        with raises(Conflict, "thread_of_another_agent", agent=SALES):
            await bound.load("b")

    asyncio.run(main())


@pytest.mark.parametrize(("agent", "listed"), [(SUPPORT, [SUPPORT]), (None, [SALES, SUPPORT])])
def test_sessions_of_another_agent_are_not_listed(
    store: perdure.Store, agent: str | None, listed: list[str]
) -> None:
    """By the Claude Agent SDK, nor are their summaries, which have the first words."""
    line: Any = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "secret"}}

    async def main() -> None:
        for own in (SALES, SUPPORT):
            key: Any = {"project_key": "p", "session_id": own}
            await claude_agent.Sessions(store, agent=own).append(key, [line])
        sessions = claude_agent.Sessions(store, agent=agent)
        for found in (await sessions.list_sessions("p"), await sessions.list_session_summaries("p")):
            assert sorted(each["session_id"] for each in found) == listed

    asyncio.run(main())


@pytest.mark.parametrize(("agent", "listed"), [(SUPPORT, [SUPPORT]), (None, [SALES, SUPPORT])])
def test_checkpoints_of_another_agent_are_neither_listed_nor_deleted(
    store: perdure.Store, agent: str | None, listed: list[str]
) -> None:
    """By LangGraph, and they do not stand in the way: `list(None)` and `delete_for_runs` are about the agent's own threads."""
    for own in (SALES, SUPPORT):
        saver = langgraph.Saver(store, agent=own)
        saver.put(config(own, checkpoint_ns=""), empty_checkpoint(), {"run_id": "r"}, {})
    saver = langgraph.Saver(store, agent=agent)
    found = [each.config["configurable"]["thread_id"] for each in saver.list(None)]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    saver.delete_for_runs(["r"])
    left = [own for own in (SALES, SUPPORT) if langgraph.Saver(store).get_tuple(config(own)) is not None]

    assert sorted(found) == listed
    assert left == [own for own in (SALES, SUPPORT) if own not in listed]
