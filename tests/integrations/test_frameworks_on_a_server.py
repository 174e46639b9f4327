"""Frameworks' stores and telemetry on PostgreSQL: what is written by one opening is read by another, deep equal.

LangGraph's saver passes its suite on a server in `test_langgraph_saver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_url

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]


class Openings:
    """Two openings of one store, which stand for two machines."""

    def __init__(self, here: perdure.Store, there: perdure.Store) -> None:
        self.here, self.there = here, there


@pytest.fixture
def openings() -> Iterator[Openings]:
    """Two openings of a store on the server; whatever was done, it verifies."""
    url = new_url()
    with perdure.open(url) as here, perdure.open(url) as there:
        yield Openings(here, there)
        assert there.verify().ok


def test_a_session_of_the_openai_agents_sdk(openings: Openings) -> None:
    """Items come back deep equal and in order, and a pop on one machine is seen on the other."""
    pytest.importorskip("agents")
    from tests.integrations.test_openai_agents_session import ITEMS, session

    asyncio.run(session(openings.here).add_items(ITEMS))
    asyncio.run(session(openings.there).pop_item())

    assert asyncio.run(session(openings.here).get_items()) == ITEMS[:-1]


def test_a_session_of_claude_agents(openings: Openings) -> None:
    """Lines come back deep equal, and the thread reads as a conversation."""
    pytest.importorskip("claude_agent_sdk")
    from perdure.integrations.claude_agent import Sessions
    from tests.integrations.test_claude_agent_sessions import KEY, TALK

    asyncio.run(Sessions(openings.here).append(KEY, TALK))
    loaded: Any = asyncio.run(Sessions(openings.there).load(KEY))

    assert loaded == TALK


def test_a_conversation_of_pydantic_ai(openings: Openings) -> None:
    """A conversation that one machine saves is a thread on the other."""
    pytest.importorskip("pydantic_ai")
    from tests.integrations.test_pydantic_ai_conversations import begun, texts

    begun(openings.here, "one", "two")

    assert texts(openings.there.thread("t")) == ["one", "re: one", "two", "re: two"]


def test_the_memory_of_langgraph(openings: Openings) -> None:
    """Items that one machine puts are found on the other, and so is their end."""
    pytest.importorskip("langgraph")
    from perdure.integrations.langgraph import Memory

    here, there = Memory(openings.here), Memory(openings.there)
    here.put(("users", "1"), "name", {"text": "Ann"})
    here.put(("users", "1"), "city", {"text": "Rome"})
    there.delete(("users", "1"), "city")

    assert [(each.key, each.value) for each in here.search(("users",))] == [("name", {"text": "Ann"})]


def test_telemetry_of_a_run_on_another_machine(openings: Openings) -> None:
    """The spans that are sent live here are those that the history gives there, once each."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from perdure import telemetry
    from tests.telemetry import scenes
    from tests.telemetry.test_live import ids

    exporter = InMemorySpanExporter()
    with telemetry.enable(openings.here, exporter=exporter):
        thread = scenes.with_tool(openings.there)

    sent = sorted(ids(exporter.get_finished_spans()))
    assert sent == sorted(
        (span.ref.trace, span.ref.span, span.name) for span in telemetry.thread_spans(thread)
    )
    assert len(sent) > 3
