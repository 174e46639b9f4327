"""A blocking call on a running event loop is refused before it does anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import Invalid
from tests.coded import raises

CALLS: dict[str, Callable[[Store, Thread], object]] = {
    "its twin perdure.aio.open": lambda store, thread: perdure.open("memory:"),
    "its twin perdure.aio.Store.thread": lambda store, thread: store.thread("new", agent="planner"),
    "its twin perdure.aio.Store.verify": lambda store, thread: store.verify(),
    "its twin perdure.aio.Thread.head": lambda store, thread: thread.head,
    "its twin perdure.aio.Thread.get": lambda store, thread: thread.get("/n.json", default=None),
    "its twin perdure.aio.Thread.put": lambda store, thread: thread.put("/n.json", 1),
    "its twin perdure.aio.Thread.undo": lambda store, thread: thread.undo(),
    "its twin perdure.aio.Thread.fork": lambda store, thread: thread.fork("what-if"),
    "its twin perdure.aio.Thread.change": lambda store, thread: thread.change("x"),
    "its twin perdure.aio.Store.agent": lambda store, thread: store.agent("planner"),
    "its twin perdure.aio.Store.threads": lambda store, thread: store.threads(),
    "its twin perdure.aio.Artifacts.put": lambda store, thread: thread.artifacts.put(b"x"),
    "`async with` on a perdure.aio.Store": lambda store, thread: store.__enter__(),
}


@pytest.mark.parametrize(("twin", "call"), CALLS.items(), ids=CALLS.keys())
def test_a_blocking_call_is_refused_on_a_loop(twin: str, call: Callable[[Store, Thread], object]) -> None:
    """The message names the call and its twin; nothing was done."""
    with perdure.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner")

        async def on_loop() -> None:
            with pytest.raises(Invalid) as refused:
                call(store, thread)
            assert refused.value.code == "blocks_event_loop"
            assert str(refused.value.advice).startswith(f"Use {twin};")

        asyncio.run(on_loop())

        assert thread.head.version == 0
        assert [each.id for each in store.threads()] == ["trip-42"]


ITEMS: dict[str, Callable[[Store, Thread, str], Iterator[object]]] = {
    "Store.threads": lambda store, thread, digest: store.threads(),
    "Store.agents": lambda store, thread, digest: store.agents(),
    "Thread.entries": lambda store, thread, digest: thread.entries(),
    "Artifacts.ls": lambda store, thread, digest: thread.artifacts.ls(),
    "Artifacts.get": lambda store, thread, digest: thread.artifacts.get(digest),
}


@pytest.mark.parametrize(("twin", "call"), ITEMS.items(), ids=ITEMS.keys())
def test_items_are_refused_on_a_loop_one_by_one(
    twin: str, call: Callable[[Store, Thread, str], Iterator[object]]
) -> None:
    """What was asked for beside a loop is not read on one, and can be read on beside it afterwards."""
    with perdure.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner")
        thread.put("/n.json", 1)
        items = call(store, thread, thread.artifacts.put(b"x"))

        async def on_loop() -> None:
            with raises(Invalid, "blocks_event_loop", call=twin):
                next(items)

        asyncio.run(on_loop())

        assert len(list(items)) == 1


def test_the_same_calls_work_beside_a_loop() -> None:
    """Control: in a worker thread, or when no loop runs, nothing is refused."""
    with perdure.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner")

        async def beside() -> None:
            await asyncio.to_thread(thread.put, "/n.json", 1)

        asyncio.run(beside())

        assert thread.get("/n.json") == 1


def test_a_change_is_not_entered_on_a_loop() -> None:
    """Also one that was prepared beside it."""
    with perdure.open("memory:") as store:
        change = store.thread("trip-42", agent="planner").change("x")

        async def on_loop() -> None:
            with raises(Invalid, "blocks_event_loop", call="Change.__enter__"):
                change.__enter__()

        asyncio.run(on_loop())


def test_what_reads_nothing_is_not_refused() -> None:
    """A handle says what it is anywhere."""
    with perdure.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner", owner="ann")

        async def on_loop() -> tuple[object, ...]:
            return thread.id, thread.agent, thread.owner, thread.timeline, repr(thread)

        assert asyncio.run(on_loop())[:4] == ("trip-42", "planner", "ann", "main")
