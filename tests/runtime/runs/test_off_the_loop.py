"""No event loop waits for a disk: whatever a run on it needs of the store is done on a worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

import perdure
from perdure import Agent, Call, Outcome, aio
from perdure.engines.contract import Engine, Receipt, Write
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.errors import Unavailable
from perdure.testing import Script, say, step, use
from tests.runtime.runs.injecting import Wire, opened, unavailable

CHEAP = ("holder", "instant")  # known to the process


class Watched(Wire):
    """A wire that notes what was asked of the engine on a thread that runs an event loop."""

    def __init__(self, inner: Engine) -> None:
        """Pass everything on."""
        super().__init__(inner)
        self.seen: list[str] = []

    def apply(self, write: Write) -> Receipt:
        """Pass the write on."""
        self._note("apply")
        return super().apply(write)

    def __getattr__(self, name: str) -> Any:
        """Pass it on, noted."""
        found = getattr(self.inner, name)
        if not callable(found) or name in CHEAP:
            return found

        def noted(*given: Any, **named: Any) -> Any:
            self._note(name)
            return cast("Callable[..., Any]", found)(*given, **named)

        return noted

    def _note(self, name: str) -> None:
        if asyncio.events._get_running_loop() is not None:
            self.seen.append(name)


def store_of(wire: Watched) -> aio.Store:
    """A store for an event loop, whose engine is watched."""
    return aio.Store(ThreadPoolExecutor(4), opened(wire, "memory:"))


@pytest.fixture
def kept() -> MemoryStore:
    """What outlives one opening."""
    return MemoryStore()


def test_an_engine_that_is_asked_on_a_loop_is_noted(kept: MemoryStore) -> None:
    """A control: the watch sees what it is there to see."""
    wire = Watched(MemoryEngine(kept))

    async def main() -> None:
        wire.cell("thread:1", "lease/main")
        await asyncio.to_thread(wire.cell, "thread:1", "lease/main")

    asyncio.run(main())

    assert wire.seen == ["cell"]


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_a_run_asks_nothing_of_the_disk_on_its_loop(kept: MemoryStore, policy: str) -> None:
    """Calls side by side, with state of their own, an approval, and the run's end."""

    @perdure.tool(effect="external_write")
    async def send(to: str, call: Call) -> str:
        await asyncio.to_thread(call.put, f"/sent/{to}.json", to)
        await asyncio.to_thread(lambda: call.agent.put("/last.json", to))
        return to

    @perdure.tool(effect="external_write", ask=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    wire = Watched(MemoryEngine(kept))
    script = Script(
        step(use("send", to="ann"), use("send", to="bob")), use("pay", amount=3), say("Done."), say("Bye.")
    )

    async def main() -> str:
        async with store_of(wire) as store:
            agent = Agent("planner", backend=script, tools=[send, pay])
            thread = await store.thread("trip", agent=agent)
            waiting = await thread.run("go", head_policy=policy)  # pyright: ignore[reportArgumentType]
            await thread.decide(waiting.approvals[0].call, "approve")
            await thread.resume()
            return (await thread.run("and?")).text

    assert asyncio.run(main()) == "Bye."
    assert wire.seen == []


def test_a_late_result_is_recorded_off_the_loop(kept: MemoryStore) -> None:
    """An async tool that could not be stopped in time ends on the loop; what it came to is written elsewhere."""
    wire = Watched(MemoryEngine(kept))

    @perdure.tool(effect="external_write", timeout=0.01)
    async def slow() -> str:
        while True:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
            return "sent after all"

    async def main() -> str:
        async with store_of(wire) as store:
            thread = await store.thread("trip", agent="planner")
            await thread.call(slow, {}, id="c1")
            while (await thread.calls())[0].state == "unknown":
                await asyncio.sleep(0.01)
            return (await thread.call(slow, {}, id="c1")).text

    assert asyncio.run(main()) == "sent after all"
    assert wire.seen == []


def test_a_call_that_was_cut_off_is_taken_up_off_the_loop(kept: MemoryStore) -> None:
    """Whether its process is gone is asked of the disk, and so is what the hook finds and writes."""

    @perdure.tool(effect="external_write")
    async def send() -> str:
        return "sent"

    @send.reconcile
    async def found(call: Call) -> Outcome:
        return call.not_done()

    async def cut_off(wire: Watched) -> None:
        store = store_of(wire)
        thread = await store.thread("trip", agent=Agent("planner", tools=[send]))
        wire.arm(unavailable, nth=2, times=100)
        with pytest.raises(Unavailable):
            await thread.call(send, {}, id="c1")
        await store.close()

    async def take_up(wire: Watched, how: str) -> str:
        async with store_of(wire) as store:
            thread = await store.thread("trip", agent=Agent("planner", tools=[send]))
            if how == "reconcile":
                return (await thread.reconcile("c1")).state
            return (await thread.call(send, {}, id="c1")).state

    first = Watched(MemoryEngine(kept))
    asyncio.run(cut_off(first))
    wires = [Watched(MemoryEngine(kept)) for _ in range(2)]

    states = [asyncio.run(take_up(wire, how)) for wire, how in zip(wires, ("reconcile", "call"), strict=True)]

    assert states == ["requested", "succeeded"]
    assert [each.seen for each in (first, *wires)] == [[], [], []]


@pytest.mark.parametrize("effect", ["read_only", "external_write"])
def test_what_a_tool_puts_after_it_was_cut_off_does_not_enter_the_state(
    kept: MemoryStore, effect: str
) -> None:
    """Its time was up; the code that goes on is refused, and what it had put before is not applied either."""
    told: list[str] = []
    over, done = threading.Event(), threading.Event()

    @perdure.tool(effect=effect, timeout=0.02)  # pyright: ignore[reportArgumentType]
    def slow(call: Call) -> str:
        call.put("/before.json", True)
        over.wait(10)
        for put in (call.put, call.scratch.put, call.agent.put):
            try:
                put("/late.json", True)
            except perdure.errors.Invalid as error:
                told.append(str(error))
        done.set()
        return "late"

    thread = opened(Watched(MemoryEngine(kept)), "memory:").thread("trip", agent="planner")

    thread.call(slow, {}, id="c1")
    over.set()
    assert done.wait(10)
    while thread.calls()[0].state == "unknown":
        time.sleep(0.01)

    assert thread.paths("/") == []
    assert thread.agent_map().paths("/") == []
    assert ["this call is over" in each for each in told] == [True] * 3
