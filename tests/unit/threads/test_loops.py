"""A blocking call on a running event loop is refused before it does anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Store, Thread
from holdfast.errors import Invalid

CALLS: dict[str, Callable[[Store, Thread], object]] = {
    "open": lambda store, thread: holdfast.open("memory:"),
    "thread": lambda store, thread: store.thread("new", agent="planner"),
    "verify": lambda store, thread: store.verify(),
    "head": lambda store, thread: thread.head,
    "get": lambda store, thread: thread.get("/n.json", default=None),
    "put": lambda store, thread: thread.put("/n.json", 1),
    "undo": lambda store, thread: thread.undo(),
    "fork": lambda store, thread: thread.fork("what-if"),
    "with": lambda store, thread: thread.change("x").__enter__(),
    "agent": lambda store, thread: store.agent("planner"),
    "artifacts": lambda store, thread: thread.artifacts.put(b"x"),
    "with store": lambda store, thread: store.__enter__(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_blocking_call_is_refused_on_a_loop(call: Callable[[Store, Thread], object]) -> None:
    """The message names the call and where its twin is; nothing was done."""
    with holdfast.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner")

        async def on_loop() -> None:
            with pytest.raises(Invalid, match=r"holdfast\.aio"):
                call(store, thread)

        asyncio.run(on_loop())

        assert thread.head.version == 0
        assert [each.id for each in store.threads()] == ["trip-42"]


def test_the_same_calls_work_beside_a_loop() -> None:
    """Control: in a worker thread, or when no loop runs, nothing is refused."""
    with holdfast.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner")

        async def beside() -> None:
            await asyncio.to_thread(thread.put, "/n.json", 1)

        asyncio.run(beside())

        assert thread.get("/n.json") == 1


def test_what_reads_nothing_is_not_refused() -> None:
    """A handle says what it is anywhere."""
    with holdfast.open("memory:") as store:
        thread = store.thread("trip-42", agent="planner", owner="ann")

        async def on_loop() -> tuple[object, ...]:
            return thread.id, thread.agent, thread.owner, thread.timeline, repr(thread)

        assert asyncio.run(on_loop())[:4] == ("trip-42", "planner", "ann", "main")
