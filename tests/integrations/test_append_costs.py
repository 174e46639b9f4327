"""What it costs to append to a long session of an agent SDK: as much as to a short one, in calls of functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("agents")
pytest.importorskip("claude_agent_sdk")

import perdure
from perdure import Store
from perdure.integrations.claude_agent import Sessions
from perdure.integrations.openai_agents import Session

FEW, TIMES, AT_MOST = 100, 12, 1.5
TEXT = "a question of some length " * 8
Append = Callable[[str, int], Awaitable[None]]  # to the session of that name, so many


class Meter:
    """Counts the calls of functions on threads that begin while it is entered: the workers of an integration."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._is_on, self._calls = False, 0

    def __enter__(self) -> Meter:
        threading.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]  # as its documentation says

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self._calls += self._is_on and event in ("call", "c_call")

    async def counted(self, work: Awaitable[None]) -> int:
        """Return how many functions were called for something."""
        self._calls, self._is_on = 0, True
        await work
        self._is_on = False
        return self._calls


def growth(fill: Append, append: Append, many: int) -> float:
    """Return how many times the work of an append into a hundred an append into `many` is, at the least of several.

    Work is counted and not timed, so that it does not depend on the machine.
    """

    async def begin() -> None:
        await fill("few", FEW)
        for _ in range(many // 200):
            await fill("many", 200)

    async def main(meter: Meter) -> float:
        few = min([await meter.counted(append("few", 1)) for _ in range(TIMES)])
        return min([await meter.counted(append("many", 1)) for _ in range(TIMES)]) / few

    asyncio.run(begin())
    with Meter() as meter:
        return asyncio.run(main(meter))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store on disk."""
    with perdure.open(tmp_path / "agents.db", blocking=True) as opened:
        yield opened


class WholeSessions(Sessions):
    """A control: it looks for lines that came before by reading the session, as a store without names of moments has to."""

    def _append(self, key: Any, entries: Any) -> None:
        known = {each.get("uuid") for each in self._load(key) or ()}
        super()._append(key, [each for each in entries if each.get("uuid") not in known])


class WholeSession(Session):
    """A control: it reads the items before it adds one."""

    def _add(self, items: Any) -> None:
        super()._add([each for each in items if each not in self._get(None)])


def claude(store: Store, kind: type[Sessions]) -> Append:
    """Appends lines to sessions of the Claude Agent SDK."""
    sessions = kind(store)

    async def append(name: str, count: int) -> None:
        said = [
            {"type": "user", "uuid": str(uuid4()), "message": {"role": "user", "content": TEXT}}
            for _ in range(count)
        ]
        await sessions.append({"project_key": "p", "session_id": name}, said)  # pyright: ignore[reportArgumentType]

    return append


def openai(store: Store, kind: type[Session]) -> Append:
    """Appends items to sessions of the OpenAI Agents SDK."""
    sessions = {name: kind(store.thread(name, agent="a")) for name in ("few", "many")}

    async def append(name: str, count: int) -> None:
        await sessions[name].add_items(
            [{"role": "user", "content": f"{uuid4()} {TEXT}"} for _ in range(count)]
        )

    return append


def test_a_line_costs_as_much_in_a_long_session_of_claude(store: Store) -> None:
    """It is found by its id whether it came before, without reading the session."""
    assert growth(claude(store, Sessions), claude(store, Sessions), 2_000) <= AT_MOST


def test_an_item_costs_as_much_in_a_long_session_of_openai(store: Store) -> None:
    """The items before it are not read."""
    assert growth(openai(store, Session), openai(store, Session), 10_000) <= AT_MOST


def test_a_session_store_that_reads_the_session_is_found_out(store: Store) -> None:
    """Control: a store that reads what is there before it appends breaks the rule."""
    assert growth(claude(store, Sessions), claude(store, WholeSessions), 600) > AT_MOST


def test_a_session_that_reads_its_items_is_found_out(store: Store) -> None:
    """Control: a session of the OpenAI Agents SDK that reads what is there before it adds breaks the rule."""
    assert growth(openai(store, Session), openai(store, WholeSession), 800) > AT_MOST
