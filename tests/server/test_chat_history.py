"""The history of a thread as chat clients take it, also where a part of it is missing or no run wrote it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.integrations.openai_agents import Session
from perdure.model.event import MessageAppended
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.testing import say, use
from tests.server.client import Client, serving
from tests.server.test_chat_streams import AG_UI, AI_SDK, planner, said, sent

WRITTEN = [
    {"role": "user", "content": "Hello"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    {"role": "assistant", "content": "It rains."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "Welcome."},
]


def asked_once(store: Store) -> Thread:
    """A thread whose run has called a tool: four messages."""
    thread = store.thread("chat", agent=planner(use("weather", city="Oslo"), say("It rains.")))
    thread.run("Go", id="m1")
    return thread


def messages(client: Client, limit: int = 200) -> list[Any]:
    """The UI messages of the thread."""
    reply = client.get(f"{AI_SDK}?limit={limit}")
    assert reply.status == 200, reply.body
    return reply.json["messages"]


def kinds(message: Any) -> list[str]:
    """The kinds of the parts of a UI message, without the borders of steps."""
    return [part["type"] for part in message["parts"] if part["type"] != "step-start"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, [["text"]]),
        (2, [["text"]]),
        (3, [["tool-weather", "text"]]),
        (4, [["text"], ["tool-weather", "text"]]),
    ],
)
def test_a_history_may_begin_anywhere(store: Store, limit: int, expected: list[list[str]]) -> None:
    """A window that begins with the result of a call leaves it out: the client could not show it."""
    asked_once(store)
    with serving(store) as client:
        found = messages(client, limit)

    assert [kinds(each) for each in found] == expected


def test_a_window_that_has_only_a_result_has_no_empty_message(store: Store) -> None:
    """The AI SDK refuses a message without parts."""
    thread = store.thread("chat", agent=planner(use("weather", city="Oslo"), use("book", flight="SK1")))
    thread.run("Go", id="m1")
    with serving(store) as client:
        found = [messages(client, limit) for limit in range(1, 5)]

    assert all(message["parts"] for window in found for message in window)


def test_messages_that_no_run_wrote_are_grouped_between_those_of_the_user(store: Store) -> None:
    """A call and its result are one part of one message, as in a run."""
    thread = store.thread("chat", agent=planner())
    asyncio.run(Session(thread).add_items(WRITTEN))  # pyright: ignore[reportArgumentType]
    with serving(store) as client:
        found = messages(client)

    assert [each["role"] for each in found] == ["user", "assistant", "user", "assistant"]
    assert kinds(found[1]) == ["tool-weather", "text"]
    assert found[1]["parts"][1]["output"] == "rain"


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("path", [AI_SDK, AG_UI])
def test_a_forgotten_message_leaves_the_others(store: Store, path: str, number: int) -> None:
    """Whichever content a policy removed, the history is still read."""
    thread = asked_once(store)
    forget(thread, number)
    with serving(store) as client:
        reply = client.get(path)

    assert reply.status == 200, reply.body
    assert reply.json["messages"]


def test_a_stream_says_nothing_about_a_call_that_was_forgotten(store: Store) -> None:
    """The client of a stream stops with an error if it is told the result of a call that it was not told of."""
    thread = asked_once(store)
    forget(thread, 1)
    agent = planner()
    with serving(store, agent) as client:
        found = [each.data["type"] for each in sent(client, AI_SDK, said("Go"))]

    assert [each for each in found if each.startswith("tool-")] == []
    assert found[-1] == "finish"


def forget(thread: Thread, number: int) -> None:
    """Remove the content of a message of the thread."""
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    entries = [event for each in reversed(thread.log()) for event in each.events]
    body = [event.body for event in entries if isinstance(event, MessageAppended)][number]
    standing = space.engine.standing(space.name)
    space.engine.forget(space.name, (body,), why="the user asked", standing=standing)
