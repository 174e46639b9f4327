"""The owner of a run is stopped past its lease, another process takes over, and the first wakes up.

Whatever the old holder still tries to write is refused, the result of its own call is recorded once,
and nothing is paid twice: that a hook finds nothing done is not believed while somebody may still
wake up and do it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store
from perdure.engines.contract import Instant
from perdure.engines.sqlite import SqliteEngine
from perdure.model.message import Text
from perdure.runtime.session.environment import StoreRuntime
from perdure.runtime.session.lease import Lost
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.store.thread import Thread
from perdure.testing import Script, say, step, use
from tests.crash.campaign import sized
from tests.crash.processes import Other, running
from tests.runtime.runs.opened import store_on
from tests.runtime.runs.stopping import (
    PLACES,
    THREAD,
    Place,
    await_stop,
    pay_and_stop,
    payer,
    take_over,
    wake,
)
from tests.runtime.runs.world import World

LEASE_SECONDS = 1.5  # long enough that a busy machine does not take it from a process that was not stopped
ROUNDS = sized(1, 10)  # at each of five places

HOUR = 3_600_000_000  # µs


class Ahead(SqliteEngine):
    """An engine whose clock is an hour ahead, so that every lease has ended: no test has to wait for it."""

    def instant(self) -> Instant:
        """An hour later."""
        now = super().instant()
        return Instant(now.clock, now.at + HOUR)


class Scene:
    """A store, the world beside it, and a process that was stopped while it paid."""

    def __init__(self, path: Path, other: Other) -> None:
        self.path, self.other = path, other
        self.world = World(f"{path}.world")
        self.asked = 0

    @contextmanager
    def second(self, engine: type[SqliteEngine], calls: int = 1) -> Generator[tuple[Store, Thread]]:
        """The thread as a second process has it, whose hook says that nothing was done."""
        with store_on(engine(self.path)) as store:
            yield store, store.thread(THREAD, agent=payer(self.world, hook=self.nothing_done, calls=calls))

    def nothing_done(self, call: Call) -> Outcome:
        """What the hook says."""
        self.asked += 1
        return call.not_done()


@contextmanager
def stopped(path: Path, place: Place, *, lease: float | None = None, calls: int = 1) -> Generator[Scene]:
    """A process that has stopped at that place."""
    told = str(path), f"{path}.world", place, lease, calls
    with running(pay_and_stop, *told) as other:
        await_stop(other)
        yield Scene(path, other)


def outlived(path: Path, place: Place, engine: type[SqliteEngine], lease: float | None) -> list[str]:
    """What is wrong after somebody took over, finished, and the first went on."""
    with stopped(path, place, lease=lease) as scene, scene.second(engine) as (store, thread):
        result = take_over(thread)
        before = (thread.head, len(thread.log()))

        wake(scene.other)
        came = scene.other.answer()

        after = (thread.head, len(thread.log()))
        (call,) = thread.calls()
        again = thread.run("Is it paid? If not, pay.")
        return [
            *([f"the second ended as {result.status}"] if result.status != "succeeded" else []),
            *([f"the first ended as {came}"] if came != "Lost" else []),
            *(["something was written late"] if before != after else []),
            *([f"the call is {call.state}"] if call.state != _ends(place, lease, call.late) else []),
            *(["it was paid again"] if scene.world.repeated() or again.status != "waiting" else []),
            *(str(fault) for fault in store.verify().faults),
        ]


def _ends(place: Place, lease: float | None, late: bool) -> str:
    """A late result stands; who finds before its tool begins that its time is over never begins."""
    if place == "after_started" and lease is not None:
        return "unknown"
    return "succeeded" if late else "recorded late"


@pytest.mark.parametrize("place", sized(["after_started", "first byte", "while_recording"], PLACES))
def test_nothing_is_paid_twice(tmp_path: Path, place: Place) -> None:
    """The lease runs out while the process is stopped; it knows so when it wakes up."""
    found = [
        outlived(tmp_path / f"{number}.db", place, SqliteEngine, LEASE_SECONDS) for number in range(ROUNDS)
    ]

    assert found == [[]] * ROUNDS


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_paid_twice_by_whom_no_clock_tells(tmp_path: Path, place: Place) -> None:
    """Only the second process has seen the time go by; the first believes in its lease, and is refused."""
    found = [outlived(tmp_path / f"{number}.db", place, Ahead, None) for number in range(ROUNDS)]

    assert found == [[]] * ROUNDS


@pytest.mark.parametrize("place", ["before_intent", "after_turn", "before_finish"])
def test_whoever_is_stopped_between_payments_says_nothing_more(tmp_path: Path, place: Place) -> None:
    """The second goes on from what is durable, and the run has one end."""
    with stopped(tmp_path / "s.db", place) as scene, scene.second(Ahead) as (store, thread):
        assert take_over(thread).status == "succeeded"
        before = (thread.head, thread.calls())

        wake(scene.other)

        assert scene.other.answer() == "Lost"
        assert (thread.head, thread.calls()) == before
        assert [entry.reason for entry in thread.log()].count("run_finished") == 1
        assert scene.world.counted() == {"0": 1}
        assert store.verify().ok


def test_a_late_result_brings_what_its_call_wrote(tmp_path: Path) -> None:
    """It comes between the taking-over and the round's commit: then the round applies it, state and all."""
    with stopped(tmp_path / "s.db", "sent") as scene:

        def hook(call: Call) -> Outcome:
            wake(scene.other)
            assert scene.other.answer() == "Lost"
            return call.not_done()

        with store_on(Ahead(scene.path)) as store:
            thread = store.thread(THREAD, agent=payer(scene.world, hook=hook))
            result = take_over(thread)

            assert result.status == "succeeded"
            assert thread.get("/paid/0.json") == 1
            assert [(call.state, call.late) for call in thread.calls()] == [("succeeded", True)]
            assert store.verify().ok
        assert scene.world.counted() == {"0": 1}


@pytest.mark.parametrize("place", ["first byte", "sent"])
def test_all_results_of_a_round_are_recorded_late(tmp_path: Path, place: Place) -> None:
    """Tools that ran side by side when their process was stopped."""
    with (
        stopped(tmp_path / "s.db", place, calls=3) as scene,
        scene.second(Ahead, calls=3) as (store, thread),
    ):
        take_over(thread)

        wake(scene.other)
        assert scene.other.answer() == "Lost"

        assert {call.state for call in thread.calls()} == {"succeeded"}
        assert scene.world.counted() == {"0": 1, "1": 1, "2": 1}
        assert store.verify().ok


def test_who_ends_only_while_the_hook_looks_is_not_counted_as_gone(tmp_path: Path) -> None:
    """It wakes up, pays and dies after the hook has looked: what the hook saw is no proof."""
    with stopped(tmp_path / "s.db", "first byte") as scene:

        def hook(call: Call) -> Outcome:
            found = call.done("found") if scene.world.knows(call.key) else call.not_done()
            wake(scene.other)
            while not scene.world.deeds():
                time.sleep(0.001)
            assert scene.other.process.pid is not None
            os.kill(scene.other.process.pid, signal.SIGKILL)
            scene.other.process.join()
            return found

        with store_on(Ahead(scene.path)) as store:
            thread = store.thread(THREAD, agent=payer(scene.world, hook=hook))
            take_over(thread)

        assert scene.world.counted() == {"0": 1}


def test_who_is_gone_is_believed(tmp_path: Path) -> None:
    """Proof that nobody can wake up any more lets the second process pay, once."""
    with stopped(tmp_path / "s.db", "first byte") as scene:
        scene.other.kill()

        with scene.second(SqliteEngine) as (_, thread):
            result = thread.resume()

        assert result.status == "succeeded"
        assert scene.asked == 1
        assert scene.world.counted() == {"0": 1}


def test_who_believes_the_hook_pays_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: where a holder without a lease counts as gone, its payment comes on top of ours."""

    def gone(self: SqliteEngine, holder: str) -> bool:
        return True

    with (
        stopped(tmp_path / "s.db", "first byte") as scene,
        scene.second(SqliteEngine) as (_, thread),
    ):
        monkeypatch.setattr(SqliteEngine, "gone", gone)
        take_over(thread)
        monkeypatch.undo()

        wake(scene.other)
        scene.other.answer()

        assert scene.world.repeated() == ["0"]


def _end_lease(keeper: LeaseKeeper) -> None:
    """Let the only lease that is kept be over."""
    (kept,) = keeper._kept.values()  # pyright: ignore[reportPrivateUsage]
    kept.renewed(kept.lease, 0.0)


def _asleep(keeper: LeaseKeeper, paid: list[str], *, tools: int) -> Agent:
    """An agent whose tools sleep past the run's lease at their first attempt."""
    begun: list[str] = []

    async def sleep(name: str) -> str:
        begun.append(name)
        if len(begun) == tools:
            _end_lease(keeper)
        if begun.count(name) == 1:
            await asyncio.sleep(60)
        return name

    @perdure.tool(effect="external_write")
    async def pay() -> str:
        paid.append("paid")
        return await sleep("pay")

    @perdure.tool(effect="read_only")
    async def look() -> str:
        return await sleep("look")

    pay.reconcile(lambda call: call.done("pay"))
    calls = step(*[use("pay"), use("look")][:tools])
    return Agent("payer", backend=Script(calls, say("Done.")), tools=[pay, look])


@pytest.mark.parametrize("tools", [1, 2], ids=["alone", "side by side"])
def test_a_run_that_wakes_up_before_it_is_taken_over_settles_nothing(tmp_path: Path, tools: int) -> None:
    """The loss of its lease ended its tools, and says nothing of what they did: the next process finds out."""
    keeper, paid = LeaseKeeper(poll=0.05), list[str]()
    with perdure.open(tmp_path / "s.db") as store:
        store._resources.runtimes.append(StoreRuntime(keeper))  # pyright: ignore[reportPrivateUsage]
        thread = store.thread(THREAD, agent=_asleep(keeper, paid, tools=tools))
        with pytest.raises(Lost):
            thread.run("Pay.")
        left = [call.state for call in thread.calls()]

        result = thread.resume()
        told = [each.content for entry in thread.transcript() for each in entry.message.tool_results]

    assert left == ["started", "requested"][:tools]
    assert (result.status, paid) == ("succeeded", ["paid"])
    assert told == [(Text("pay"),), (Text("look"),)][:tools]


def test_a_thread_that_outlives_the_lease_of_its_run_still_records_its_result(tmp_path: Path) -> None:
    """No process can stop the tool: what it returns after the loss is what the next process is told."""
    keeper, paid, goes_on = LeaseKeeper(poll=0.05), list[str](), threading.Event()

    @perdure.tool(effect="external_write", timeout=60)
    def pay() -> str:
        _end_lease(keeper)
        assert goes_on.wait(60)
        paid.append("paid")
        return "paid after all"

    agent = Agent("payer", backend=Script(use("pay"), say("Done.")), tools=[pay])
    with perdure.open(tmp_path / "s.db") as store:
        store._resources.runtimes.append(StoreRuntime(keeper))  # pyright: ignore[reportPrivateUsage]
        thread = store.thread(THREAD, agent=agent)
        with pytest.raises(Lost):
            thread.run("Pay.")
        left = [call.state for call in thread.calls()]
        goes_on.set()  # closing the store waits for the tool

    with perdure.open(tmp_path / "s.db") as store:
        thread = store.thread(THREAD, agent=agent)
        late = [(call.state, call.late) for call in thread.calls()]
        status = thread.resume().status

    assert (left, late) == (["started"], [("succeeded", True)])
    assert (status, paid) == ("succeeded", ["paid"])


def test_a_follower_of_a_run_that_was_cut_off_hears_of_no_call_that_has_begun(tmp_path: Path) -> None:
    """The ledger says that the call has started, but no process carries it out any more."""
    keeper, paid = LeaseKeeper(poll=0.05), list[str]()
    with perdure.open(tmp_path / "s.db") as store:
        store._resources.runtimes.append(StoreRuntime(keeper))  # pyright: ignore[reportPrivateUsage]
        thread = store.thread(THREAD, agent=_asleep(keeper, paid, tools=1))
        with pytest.raises(Lost):
            thread.run("Pay.")

        followed = [event.type for event in thread.follow()]
        states = [call.state for call in thread.calls()]

    assert (states, "call.progress" in followed) == (["started"], False)
    assert followed[-1] == "committed"
