"""The clock of a store is turned by hours: no input is overtaken, none waits for the clock, timers keep their time."""

from __future__ import annotations

import time
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.engines import contract
from perdure.engines.contract import CellWrite
from perdure.history.space import Space
from perdure.model.run import QUEUES
from perdure.runtime.session import records
from perdure.testing import Script, say, use

HOURS = 3_600_000_000_000  # ns


class Clock:
    """The clock of this host, turned by some hours."""

    def __init__(self) -> None:
        self.turned = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time_ns(self) -> int:
        """The time that it shows."""
        return time.time_ns() + round(self.turned * HOURS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that queues and timers go by."""
    found = Clock()
    monkeypatch.setattr(contract, "time", found)
    return found


@perdure.tool(effect="external_write", ask=True)
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def agent(*steps: Any) -> Agent:
    """An agent that says these steps."""
    return Agent("planner", backend=Script(*steps), tools=[send])


@pytest.fixture(params=["memory:", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store."""
    with perdure.open("memory:" if request.param == "memory:" else tmp_path / "store.db") as opened:
        yield opened


def inputs(thread: Thread) -> list[str]:
    """What was said to the agent, in the order in which it was taken."""
    return [entry.text for entry in thread.transcript() if entry.role == "user"]


@pytest.mark.parametrize("turns", [(2, 0, 0), (0, -3, 5), (5, -5, 0)])
def test_inputs_are_taken_in_the_order_in_which_they_were_queued(
    store: Store, clock: Clock, turns: tuple[int, ...]
) -> None:
    """All of them now, whatever the clock showed when each was queued."""
    thread = store.thread("t", agent=agent())
    for number, turned in enumerate(turns):
        clock.turned = turned
        thread.start(f"input {number}")
    clock.turned = 0

    store.work(agent(*[say("Done.")] * 3), until_idle=True)

    assert inputs(thread) == ["input 0", "input 1", "input 2"]


def test_inputs_of_an_earlier_version_are_not_overtaken(store: Store, clock: Clock) -> None:
    """It did not note the last time in the cell that counts the inputs."""
    thread = store.thread("t", agent=agent())
    clock.turned = 2
    thread.start("first")
    clock.turned = 0
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    records.apply(space, "empty", CellWrite(name=QUEUES, expected=1, value=None))

    thread.start("second")
    store.work(agent(*[say("Done.")] * 2), until_idle=True)

    assert inputs(thread) == ["first", "second"]


def test_an_input_passes_one_that_is_scheduled_for_later(store: Store, clock: Clock) -> None:
    """It was queued before the clock was turned back, so its own time is behind that of the scheduled one."""
    thread = store.thread("t", agent=agent())
    clock.turned = 2
    thread.start("now")
    clock.turned = 0
    thread.schedule("in an hour", at=datetime.now(UTC) + timedelta(hours=1))

    store.work(agent(say("Done.")), until_idle=True)
    before = inputs(thread)
    clock.turned = 1.1
    store.work(agent(say("Done.")), until_idle=True)

    assert (before, inputs(thread)) == (["now"], ["now", "in an hour"])


def test_a_decision_is_acted_on_after_the_clock_was_turned_back(store: Store, clock: Clock) -> None:
    """The run goes on now, not when the clock shows the time of the decision again."""
    asking = agent(use("send", to="ann"), say("Done."))
    thread = store.thread("t", agent=asking)
    thread.run("Send it.")
    clock.turned = 2
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    clock.turned = 0

    store.work(asking, until_idle=True)

    assert [run.state for run in thread.runs()] == ["succeeded"]


@pytest.mark.parametrize("scheduled", [0, 40])
def test_an_input_is_queued_and_taken_without_reading_what_is_scheduled(
    scheduled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many inputs wait for a later time, as many records are read."""
    read: list[str] = []

    def find(space: Space, id: str, **known: Any) -> records.VersionedRun | None:
        read.append(id)
        return real(space, id, **known)

    real = records.find
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent=agent())
        later = {thread.schedule("later", at=timedelta(hours=1)) for _ in range(scheduled)}
        monkeypatch.setattr(records, "find", find)

        thread.start("first")
        thread.start("second")
        store.work(agent(*[say("Done.")] * 2), until_idle=True)

        assert inputs(thread) == ["first", "second"]
        assert not later.intersection(read)
