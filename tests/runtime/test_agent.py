"""Stop policies: when a run has done enough, whatever the model wants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import perdure
from perdure import Agent, Store, Thread, errors
from perdure.model.run import Usage
from perdure.runtime.agent.agent import COUNTERS, Stop
from perdure.testing import Script, say, step, use
from perdure.testing.script import Item

USAGE = Usage(input_tokens=7, output_tokens=3)


@perdure.tool(effect="read_only")
def look(q: str = "x") -> str:
    """Look something up."""
    return f"saw {q}"


@perdure.tool(effect="external_write", ask=True)
def pay() -> str:
    """Pay, if somebody agrees."""
    return "paid"


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory whose clock goes on by a second each time it is looked at."""
    seconds = count(1_700_000_000)
    with perdure.open("memory:", clock=lambda: next(seconds) * 1_000_000) as opened:
        yield opened


def thread_of(store: Store, stop: Stop, *items: Item) -> Thread:
    """A thread whose agent is stopped by that policy."""
    return store.thread("trip", agent=Agent("planner", backend=Script(*items), tools=[look, pay], stop=stop))


def endless(number: int = 20) -> list[Item]:
    """Steps that go on looking, each time for something else."""
    return [step(use("look", q=str(each)), say("", usage=USAGE)) for each in range(number)]


def test_a_run_is_stopped_after_so_many_steps(store: Store) -> None:
    """It is no failure: what it did stays, and the status says so."""
    thread = thread_of(store, Stop(steps=3), *endless())

    result = thread.run("go")

    assert (result.status, result.steps, result.why) == ("stopped", 3, "the run reached its limit of 3 steps")
    assert [call.state for call in thread.calls()] == ["succeeded"] * 3
    assert thread.log()[0].reason == "run_finished"


def test_a_run_that_ends_by_itself_is_not_stopped(store: Store) -> None:
    """A control: a limit that is just not reached changes nothing."""
    result = thread_of(store, Stop(steps=3), use("look"), use("look"), say("Done.")).run("go")

    assert result.status == "succeeded"


def test_a_limit_of_one_is_said_in_the_singular(store: Store) -> None:
    """One step is a step."""
    assert thread_of(store, Stop(steps=1), *endless()).run("go").why == "the run reached its limit of 1 step"


def test_tokens_cost_and_time_are_counted(store: Store) -> None:
    """Each limit stops the run at the first step at which it is reached."""
    price = Stop(cost=2.5, price=lambda usage: usage.output_tokens / 3)

    tokens = thread_of(store, Stop(tokens=25), *endless()).run("go")
    cost = thread_of(store, price, *endless()).run("go")
    seconds = thread_of(store, Stop(seconds=30.0), *endless()).run("go")

    assert (tokens.status, tokens.steps) == ("stopped", 3)
    assert (cost.status, cost.steps, cost.why) == ("stopped", 3, "the run reached its cost limit of 2.5")
    assert seconds.status == "stopped"
    assert seconds.why == "the run reached its limit of 30 seconds"


def test_the_same_call_again_and_again_is_stopped(store: Store) -> None:
    """Counted by what a call means; other arguments are another call."""
    same = thread_of(store, Stop(repeats=3), *[use("look")] * 9, say("Done.")).run("go")
    others = thread_of(store, Stop(repeats=3), *endless(5), say("Done.")).run("go")

    assert (same.status, same.steps) == ("stopped", 3)
    assert others.status == "succeeded"


def test_counters_are_of_run_scope(store: Store) -> None:
    """They begin anew with the next run, and are in the state only where they are needed."""
    thread = thread_of(store, Stop(tokens=25), *endless(2), say("Done.", usage=USAGE))
    thread.run("go")
    assert thread.paths("/") == [COUNTERS]

    again = thread_of(store, Stop(tokens=25), *endless(2), say("Done.")).run("again")

    assert again.status == "succeeded"
    assert thread.get(COUNTERS)["steps"] == 3


def test_counters_survive_an_interruption(store: Store) -> None:
    """A run that is cut off and resumed is stopped where it would have been."""
    times = count(1)

    @perdure.tool(effect="read_only", name="look")
    def cut_off(q: str) -> str:
        if next(times) == 2:
            raise KeyboardInterrupt
        return f"saw {q}"

    script = Script(*endless())
    agent = Agent("planner", backend=script, tools=[cut_off], stop=Stop(tokens=45, steps=None))
    thread = store.thread("trip", agent=agent)
    with pytest.raises(KeyboardInterrupt):
        thread.run("go")

    result = thread.resume()

    assert (result.status, result.steps) == ("stopped", 5)


def test_steps_are_counted_over_a_suspension(store: Store) -> None:
    """A run that waited is not given its steps a second time."""
    thread = thread_of(store, Stop(steps=2), use("pay"), use("look"), use("look"), say("Done."))
    waiting = thread.run("go")
    thread.decide(waiting.approvals[0].call, "approve")

    result = thread.resume()

    assert (result.status, result.steps) == ("stopped", 2)


def test_what_is_stopped_under_on_success_reaches_the_line(store: Store) -> None:
    """Stopped is no failure: the head comes to what was done."""
    thread = thread_of(store, Stop(steps=1), *endless())

    result = thread.run("go", head_policy="on_success")

    assert result.status == "stopped"
    assert [entry.role for entry in thread.transcript()] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    "limits", [{"steps": 0}, {"tokens": -1}, {"seconds": 0.0}, {"cost": 0.0}, {"repeats": 0}]
)
def test_a_limit_that_no_run_could_keep_is_refused(limits: dict[str, float]) -> None:
    """A limit is above 0."""
    with pytest.raises(errors.Invalid):
        Stop(**limits)  # pyright: ignore[reportArgumentType]


def test_without_limits_a_run_goes_on(store: Store) -> None:
    """None is no limit of that kind."""
    result = thread_of(store, Stop(steps=None), *endless(150), say("Done.")).run("go")

    assert (result.status, result.steps) == ("succeeded", 151)
