"""What is asked of one run, one call, or the last few costs the same in a long thread as in a short one.

Everything that an engine gives back is counted, in threads of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any

import pytest

import perdure
from perdure import Agent, Thread, errors
from perdure.engines.memory import MemoryEngine
from perdure.model.context import Context
from perdure.projections.calls import decode_transition
from perdure.testing import Script, say, step, use
from perdure.testing.script import ScriptStep
from tests.crash.campaign import sized
from tests.runtime.runs.adversity import Adversity
from tests.runtime.runs.injecting import Wire, opened

SHORT, LONG = 4, 60  # runs
CALLS = 6  # of each
SLACK = 1.25  # what is found by halving costs a step more
FIRST = "the first"

READS = frozenset(
    {
        "cell",
        "cells",
        "listed",
        "entries",
        "steps",
        "events",
        "objects",
        "holds",
        "moves",
        "labelled",
        "turn",
        "hold",
    }
)


class Meter(Wire):
    """A wire that counts all that is read."""

    read = 0

    def __getattribute__(self, name: str) -> Any:
        """What the engine has, counted where it is a reading."""
        if name not in READS:
            return super().__getattribute__(name)
        reads = getattr(self.inner, name)

        def counted(*args: Any, **how: Any) -> Any:
            found = reads(*args, **how)
            self.read += 1 + (len(found) if isinstance(found, list | tuple) else 0)  # pyright: ignore[reportUnknownArgumentType]
            return found

        return counted


@perdure.tool(effect="external_write")
def send(to: int) -> str:
    """Send something."""
    return f"sent {to}"


@perdure.tool(effect="external_write", ask=True)
def plead(to: int) -> str:
    """Send something, if somebody agrees."""
    return f"sent {to}"


def sending() -> Agent:
    """An agent that sends several letters a turn, never the same twice."""
    numbers = count()

    def speak(context: Context) -> ScriptStep:
        if context.messages[-1].role == "user":
            return step(*(use("send", to=next(numbers)) for _ in range(CALLS)))
        return say("Done.")

    return Agent("planner", backend=Script(*[speak] * 4 * LONG), tools=[send, plead])


class Met:
    """A thread with runs behind it, and what is read of it."""

    def __init__(self, runs: int, *, sudden: bool = False, long_ids: bool = False) -> None:
        """Run so often, all within a moment or twice a second; `long_ids` do not begin with the time."""
        now, numbers = [10**15], count()

        def clock() -> int:
            now[0] += 1 if sudden else 20_000
            return now[0]

        ids = (lambda: f"id-{next(numbers):030d}") if long_ids else None
        self.meter = Meter(MemoryEngine())
        self.store = opened(self.meter, "memory:", clock=clock, ids=ids)
        self.thread = self.store.thread("trip", agent=sending())
        first = self.thread.run("go", id=FIRST)
        self.first, self.call = first.run, self.thread.calls()[0].id
        self.hand = self.thread.call(send, {"to": -1}, id="by-hand").id
        for _ in range(runs):
            self.thread.run("go")

    def cost(self, ask: Callable[[Met], object]) -> int:
        """What is read for an answer."""
        self.meter.read = 0
        ask(self)
        return self.meter.read


@cache
def met_with(runs: int) -> Met:
    """A thread that tests share: they read it, or run once more."""
    return Met(runs)


def calls_of_a_run(met: Met) -> None:
    """Ask for the calls of the first run."""
    assert len(met.thread.calls(run=met.first)) == CALLS


def cost_of_a_run(met: Met) -> None:
    """Ask what the first run cost."""
    ((run, cost, _),) = met.thread.costs(run=met.first)
    assert (run, cost.steps > 0) == (met.first, True)


def result_of_a_run(met: Met) -> None:
    """Give the first input again: its result is given, and nothing runs."""
    assert met.thread.run("go", id=FIRST).run == met.first


def way_of_a_call(met: Met) -> None:
    """Ask for the way that the first call took."""
    assert len(met.thread.trace(met.call).passed) == 2


def way_of_a_call_by_hand(met: Met) -> None:
    """The same of a call that was entered before its commit."""
    assert len(met.thread.trace(met.hand).passed) == 2


def last_few(met: Met) -> None:
    """Ask for the last few runs and calls."""
    assert (len(met.thread.runs(limit=5)), len(met.thread.calls(limit=5))) == (5, 5)


def what_waits(met: Met) -> None:
    """Ask what waits here, and anywhere."""
    assert (met.thread.approvals(), met.store.approvals()) == ([], [])


def next_turn(met: Met) -> None:
    """Run once more."""
    assert met.thread.run("go").status == "succeeded"


def everything(met: Met) -> None:
    """Ask for all calls."""
    assert len(met.thread.calls()) > CALLS


@pytest.mark.parametrize(
    "ask",
    [
        calls_of_a_run,
        cost_of_a_run,
        result_of_a_run,
        way_of_a_call,
        way_of_a_call_by_hand,
        what_waits,
        next_turn,
    ],
)
def test_what_is_read_does_not_grow_with_the_thread(ask: Callable[[Met], object]) -> None:
    """Fifteen times as many calls, and the same reading."""
    short, long = met_with(SHORT).cost(ask), met_with(LONG).cost(ask)

    assert long <= short * SLACK


def test_reading_everything_grows() -> None:
    """The control: the meter sees what is read."""
    short, long = met_with(SHORT).cost(everything), met_with(LONG).cost(everything)

    assert long > short * SLACK * 5


@pytest.mark.parametrize("how", [{}, {"sudden": True}, {"long_ids": True}])
def test_the_last_few_are_found_among_many(how: dict[str, bool]) -> None:
    """Also where all came at once, or ids do not tell the time: a fraction is read, and the last are given."""
    met = Met(LONG, **how) if how else met_with(LONG)
    calls, runs = met.thread.calls(), met.thread.runs()

    read = met.cost(last_few)

    assert read < len(calls) // 2 < met.cost(everything)
    assert (met.thread.calls(limit=5), met.thread.runs(limit=5)) == (calls[-5:], runs[-5:])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(sized(3, 8)))
def test_whatever_happened_each_run_has_the_calls_that_the_ledger_says(store_url: str, seed: int) -> None:
    """And each call took the way that the log says, read from its beginning."""
    world = Adversity(store_url, seed)
    with world.store:
        for turn in range(12):
            world.act(turn)
        world.injecting.wire.disarm()
        thread = world.thread

        for run in {*(run.id for run in thread.runs()), *(call.run or "" for call in thread.calls())}:
            assert thread.calls(run=run) == [call for call in thread.calls() if call.run == run]
        for call in thread.calls():
            assert len(thread.trace(call.id).passed) == _entries_about(thread, call.id)


def test_calls_of_runs_that_are_not_where_they_were_are_found() -> None:
    """Undone, promoted away in mid-run, ended while undone: the ledger has their calls all the same."""
    met = Met(2)
    thread = met.thread
    undone = thread.run("undo me").run
    thread.undo()
    cut = thread.run("cut me").run
    middle = [step for step in thread.log() if step.run == cut][-2].digest
    thread.promote(thread.fork("half", at=middle).timeline)
    asking = Agent("planner", backend=Script(use("plead", to=1), say("Done.")), tools=[send, plead])
    waiting = met.store.thread("trip", agent=asking).run("plead").run
    thread.undo()
    thread.cancel(waiting)

    found = {run: thread.calls(run=run) for run in (undone, cut, waiting)}

    assert [len(calls) for calls in found.values()] == [CALLS, CALLS, 1]
    assert thread.calls(run="nobody") == []


def test_calls_of_a_run_whose_own_line_was_turned_back_are_found() -> None:
    """Somebody undoes the line on which a run keeps its commits until it succeeds: no call of it is lost."""
    store = opened(Meter(MemoryEngine()), "memory:")

    @perdure.tool(effect="read_only")
    def meddle() -> str:
        thread = store.thread("trip")
        (own,) = [hold.head.timeline for hold in thread.timelines() if hold.head.timeline.startswith("run/")]
        thread.on(own).undo()
        return "undone"

    backend = Script(step(use("meddle"), use("send", to=1)), use("send", to=2), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=backend, tools=[send, meddle]))
    with suppress(errors.RunFailed):
        thread.run("go", head_policy="on_success")

    (run,) = thread.runs()

    assert len(thread.calls()) > 1
    assert thread.calls(run=run.id) == thread.calls()


def _entries_about(thread: Thread, call: str) -> int:
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    entries = space.engine.entries(space.name, limit=100_000)
    return sum(decode_transition(entry.body).call == call for entry in entries)
