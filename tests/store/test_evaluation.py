"""Recorded turns are run again on forks of their own, with bounded effects, and scored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Store
from perdure.model.context import Context
from perdure.store.evaluation import Trial
from perdure.testing import Script, fail, say, use
from perdure.testing.script import ScriptStep

paid: list[int] = []


@perdure.tool(effect="external_write")
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return "paid"


@perdure.tool(effect="read_only")
def look() -> str:
    """Look."""
    return "rain"


def same(trial: Trial) -> float:
    """Score 1 if the new answer is the recorded one."""
    return float(trial.text == trial.turn.text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a thread of three turns, one of which pays."""
    paid.clear()
    script = Script(say("One."), use("pay", amount=5), say("Two."), say("Three."))
    with perdure.open(tmp_path / "agents.db") as opened:
        thread = opened.thread("t", agent=Agent("a", backend=script, tools=[pay]))
        for text in ("first", "second", "third"):
            thread.run(text)
        yield opened


def candidate(*steps: ScriptStep) -> Agent:
    """Return another version of the agent, on another backend."""
    return Agent("a", backend=Script(*steps, backend="script:new"), tools=[pay, look], version="2")


def test_each_turn_is_run_again_on_a_fork_and_scored(store: Store) -> None:
    """Three trials, three forks, a mean, and the line itself is as it was."""
    before = store.thread("t").head

    def answer(context: Context) -> ScriptStep:
        return say("Two.")

    agent = Agent("a", backend=Script(*[answer] * 8, backend="script:new"), tools=[pay])
    found = store.evaluate(agent, ["t"], score=same, name="new")

    assert [trial.score for trial in found.trials] == [0.0, 1.0, 0.0]
    assert found.score == pytest.approx(1 / 3)
    assert store.thread("t").head == before
    lines = {hold.head.timeline for hold in store.thread("t").timelines()}
    assert {"eval/new/1", "eval/new/2", "eval/new/3"} <= lines
    assert store.verify().ok


def test_a_trial_sees_what_its_turn_saw_and_nothing_later(store: Store) -> None:
    """The fork of the third turn has two turns before it, and the input of the third."""
    agent = candidate(say("Again."))
    found = store.evaluate(agent, ["t"], turns=[3], name="third")

    fork = store.thread("t", timeline=found.trials[0].timeline)
    said = [entry.text for entry in fork.transcript() if entry.role == "user"]
    assert said == ["first", "second", "third"]
    assert [trial.turn.number for trial in found.trials] == [3]


def test_no_payment_is_made_again(store: Store) -> None:
    """A call beyond the allowed effect is denied, and the trial names it."""
    found = store.evaluate(candidate(use("pay", amount=5), say("Paid.")), ["t"], turns=[2], name="bounded")

    assert paid == [5]
    assert found.trials[0].denied == ("pay",)
    assert found.trials[0].text == "Paid."


@pytest.mark.parametrize("is_there", [True, False])
def test_a_child_on_a_named_thread_runs_on_a_fork_of_it(store: Store, *, is_there: bool) -> None:
    """The named thread is as it was, or has no message; calls there are bounded too, and the trial has the answer."""
    helper = Agent(
        "helper", backend=Script(say("Archived."), use("pay", amount=7), say("Helped.")), tools=[pay]
    )
    archive = store.thread("archive", agent=helper)
    if is_there:
        archive.run("before")
    else:
        archive.rm()
        helper = Agent("helper", backend=Script(use("pay", amount=7), say("Helped.")), tools=[pay])
    before = [entry.text for entry in store.thread("archive", agent=helper).transcript()]

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        return call.run(helper, "now", thread="archive").text

    agent = Agent("a", backend=Script(use("delegate"), say("Done."), backend="script:new"), tools=[delegate])
    found = store.evaluate(agent, ["t"], turns=[1], name="named")

    archive = store.thread("archive")
    (fork,) = [each.head.timeline for each in archive.timelines() if each.head.timeline.startswith("child/")]
    assert (found.trials[0].text, paid) == ("Done.", [5])
    assert (
        [entry.text for entry in archive.transcript()]
        == before
        == (["before", "Archived."] if is_there else [])
    )
    assert archive.on(fork).transcript()[-1].text == "Helped."
    assert store.verify().ok


def test_the_same_evaluation_again_runs_nothing_twice(store: Store) -> None:
    """An evaluation that was interrupted goes on under its name."""
    first = store.evaluate(candidate(say("Again.")), ["t"], turns=[1], name="once")
    again = store.evaluate(candidate(), ["t"], turns=[1], name="once")

    assert again.trials[0].result == first.trials[0].result


def test_a_trial_that_fails_leaves_the_others(store: Store) -> None:
    """Its error is in the table, and the rest is scored."""

    def by_turn(context: Context) -> ScriptStep:
        return fail() if context.messages[-1].text == "first" else say("Fine.")

    agent = Agent("a", backend=Script(*[by_turn] * 4, backend="script:new"), tools=[pay])
    found = store.evaluate(agent, ["t"], turns=[1, 3], score=lambda trial: 1.0, name="half")

    assert [trial.score for trial in found.trials] == [None, 1.0]
    assert found.trials[0].error is not None
    assert found.score == 1.0


def test_another_backend_is_switched_to_on_the_fork_alone(store: Store) -> None:
    """The fork is on the new backend, by a checked switch; the thread stays on the old one."""
    found = store.evaluate(candidate(say("Again.")), ["t"], turns=[3], name="switch")

    assert store.thread("t", timeline=found.trials[0].timeline).backend == "script:new"
    assert store.thread("t").backend == "script:test"
