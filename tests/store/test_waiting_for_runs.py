"""`wait` returns the result of a run that others carry on: a worker here, or one in another process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Result, Store, aio
from perdure.errors import Conflict, Invalid, NotFound, RunFailed, Unavailable
from perdure.runtime.run import queue
from perdure.runtime.session.broadcast import NewsThread
from perdure.runtime.session.environment import RunEnvironment
from perdure.testing import Script, fail, say, use
from tests.coded import raises
from tests.engines.postgres.stores import new_store
from tests.forked import ForkedProcess, commands

WAIT_SECONDS = 20.0
WORKER = """
import sys
import perdure
from perdure import Agent
from perdure.testing import Script, say

with perdure.open(sys.argv[1]) as store:
    store.work([Agent("planner", backend=Script(say("Done.")))], until_idle=True)
"""


@pytest.fixture(params=["file", "memory:", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "postgres":
        return new_store(request)
    return request.param if request.param == "memory:" else str(tmp_path / "store.db")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store."""
    with perdure.open(url) as opened:
        yield opened


@perdure.tool(effect="external_write", ask=True)
def pay() -> str:
    """Pay, if a person agrees."""
    return "paid"


@perdure.tool(effect="read_only")
def nap(call: Call) -> str:
    """Wait for a moment."""
    if call.decision is None:
        call.suspend(until=0.05)
    return "woken"


def agent(*steps: object) -> Agent:
    """An agent that takes these steps."""
    return Agent("planner", backend=Script(*steps), tools=[pay, nap])  # pyright: ignore[reportArgumentType]


@contextmanager
def working(store: Store, who: Agent) -> Generator[None]:
    """Let a worker do what is due, until the block ends."""
    stop = threading.Event()
    worker = threading.Thread(target=partial(store.work, [who], stop=stop))
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def test_the_result_is_the_one_that_run_returns(store: Store) -> None:
    """It is waited for before the run begins, and read when the run has ended long ago."""
    thread = store.thread("trip", agent=agent(say("Done.")))
    run = thread.start("Go.", id="m1")

    with working(store, agent(say("Done."))):
        result = thread.wait(run, WAIT_SECONDS)

    assert (result.run, result.status, result.text) == (run, "succeeded", "Done.")
    assert thread.wait(run) == thread.wait(run, 0) == thread.run("Go.", id="m1") == result


def test_a_queued_input_that_is_given_again_keeps_its_place(store: Store) -> None:
    """`run` begins only the one whose turn it is; `resume` is an order to begin that one now, whatever is before it."""
    thread = store.thread("trip", agent=agent(say("First."), say("Third."), say("Second.")))
    first, second, third = [thread.start(f"Go {each}.", id=each) for each in ("m1", "m2", "m3")]

    with raises(Conflict, "run_queued_behind", run=third, first=first, timeline="main"):
        thread.run("Go m3.", id="m3")
    assert {run.state for run in thread.runs()} == {"created"}

    assert thread.run("Go m1.", id="m1").run == first
    assert thread.resume(third).run == third
    assert thread.run("Go m2.", id="m2").run == second


@pytest.mark.parametrize("url", ["file", "postgres"], indirect=True)
def test_a_run_in_another_process_is_waited_for(store: Store, url: str) -> None:
    """Its end is written there, and this process hears of it."""
    thread = store.thread("trip", agent=agent())
    run = thread.start("Go.")

    with ForkedProcess(commands(), ["-c", WORKER, url]) as worker:
        result = thread.wait(run, WAIT_SECONDS)
        assert worker.wait(WAIT_SECONDS) == 0

    assert (result.status, result.text) == ("succeeded", "Done.")


def test_a_failed_run_raises_and_a_cancelled_one_says_so(store: Store) -> None:
    """As `run` does, with the same result."""
    thread = store.thread("trip", agent=agent())
    failed, cancelled = thread.start("Fail.", id="m1"), thread.start("Never.", id="m2")
    thread.cancel(cancelled, why="too late")

    with working(store, agent(fail())), pytest.raises(RunFailed) as waited:
        thread.wait(failed, WAIT_SECONDS)

    with pytest.raises(RunFailed) as again:
        thread.run("Fail.", id="m1", retry=False)
    assert waited.value.run == again.value.run
    assert thread.wait(cancelled) == thread.run("Never.", id="m2")
    assert thread.wait(cancelled).status == "cancelled"


def test_a_question_for_a_person_is_a_result_and_a_time_is_not(store: Store) -> None:
    """What a worker goes on with by itself is waited for: a timer, and a run whose decision was made."""
    script = (use("nap"), use("pay"), say("Paid."))
    thread = store.thread("trip", agent=agent(*script))
    run = thread.start("Pay.")

    with working(store, agent(*script)):
        asked = thread.wait(run, WAIT_SECONDS)
        thread.decide(asked.approvals[0].call, "approve", by="ann")
        paid = thread.wait(run, WAIT_SECONDS)

    assert (asked.status, asked.approvals[0].tool) == ("waiting", "pay")
    assert (paid.status, paid.text) == ("succeeded", "Paid.")


def test_a_question_that_was_undone_is_waited_for_no_more(store: Store) -> None:
    """Nothing goes on with it, so that the wait would not end; a redo brings the question back."""
    thread = store.thread("trip", agent=agent(use("pay"), say("Paid.")))
    asked = thread.run("Pay.")

    thread.undo()
    with raises(NotFound, "run_undone", run=asked.run, timeline="main"):
        thread.wait(asked.run, WAIT_SECONDS)

    thread.redo()
    assert thread.wait(asked.run, WAIT_SECONDS) == asked


def test_a_run_that_goes_on_when_the_time_is_over_is_left_alone(store: Store) -> None:
    """The error has its state; no worker was there, so nothing has begun."""
    thread = store.thread("trip", agent=agent())
    run = thread.start("Go.")
    before = thread.find_run(run)

    for seconds in (0, 0.05):
        with raises(Unavailable, "run_goes_on", run=run, thread="trip", state="created"):
            thread.wait(run, seconds)

    assert thread.find_run(run) == before
    with raises(NotFound, "run_not_found"):
        thread.wait("absent")
    for wrong in (-1, float("nan"), "1", True):
        with raises(Invalid, "timeout_invalid"):
            thread.wait(run, wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("hears", [True, False], ids=["news", "looking"])
def test_waiting_asks_nothing_while_nothing_happens(
    store: Store, monkeypatch: pytest.MonkeyPatch, hears: bool
) -> None:
    """The run is read twice, however long it is waited for; the control looks again and again."""
    thread = store.thread("trip", agent=agent())
    run = thread.start("Go.")
    if not hears:
        monkeypatch.setattr(NewsThread, "wait", _look_soon)
    looks: list[str] = []
    outcome = queue._outcome  # pyright: ignore[reportPrivateUsage]

    def counted(env: RunEnvironment, id: str) -> object:
        looks.append(id)
        return outcome(env, id)

    monkeypatch.setattr(queue, "_outcome", counted)

    with raises(Unavailable, "run_goes_on"):
        thread.wait(run, 0.4)

    assert (len(looks) <= 3) is hears


async def _look_soon(*_: object) -> int:
    await asyncio.sleep(0.001)
    return 0


def test_many_wait_on_one_event_loop_and_one_may_give_up(url: str) -> None:
    """A task that is cancelled leaves the run alone."""

    async def story() -> tuple[list[Result], str]:
        async with aio.open(url) as opened:
            thread = await opened.thread("trip", agent=agent())
            runs = [await thread.start(f"Go {number}.") for number in range(5)]
            waits = [asyncio.create_task(thread.wait(run, WAIT_SECONDS)) for run in runs]
            given_up = asyncio.create_task(thread.wait(runs[0]))
            await asyncio.sleep(0)
            given_up.cancel()
            worker = asyncio.create_task(opened.work([agent(*[say("Done.")] * 5)], until_idle=True))
            results = await asyncio.gather(*waits)
            await worker
            return results, (await thread.find_run(runs[0])).state

    results, state = asyncio.run(story())

    assert [result.text for result in results] == ["Done."] * 5
    assert state == "succeeded"
