"""Others write to a line while a run is on it; undo, a second run and a message there are `Busy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.model.event import ConflictCovered
from perdure.model.run import HeadPolicy
from perdure.runtime.agent.plugin import Moment, Phase, Plugin
from perdure.runtime.events import Happened, Happening
from perdure.testing import Script, fail, say, use
from tests.coded import raises

POLICIES: list[HeadPolicy] = ["each_step", "on_success"]
PHASES: list[Phase] = ["run_start", "before_inference", "after_inference", "step_end", "run_end"]

Visit = Callable[[Thread], object]


def with_visit(store: Store, visit: Visit) -> Thread:
    """A thread whose run writes two paths, and during whose tool somebody else visits it."""

    @perdure.tool(effect="local_write", idempotent=True)
    def work(call: Call) -> str:
        call.put("/a.json", "run")
        call.put("/deep/b.json", "run")
        visit(store.thread("trip"))
        return "worked"

    script = Script(use("work"), say("Done."))
    return store.thread("trip", agent=Agent("planner", backend=script, tools=[work]))


def covered(events: list[Happening]) -> list[str]:
    """The paths that commits say they have covered."""
    happened = [each.event for each in events if isinstance(each, Happened)]
    return [event.path for event in happened if isinstance(event, ConflictCovered)]


def state(thread: Thread) -> dict[str, object]:
    """Everything that is there."""
    return {path: thread.get(path) for path in thread.paths("/")}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unrelated_path_and_the_runs_own_both_land(store: Store, policy: HeadPolicy) -> None:
    """A web handler sets a title: it is there at the end, as is what the run wrote, and nothing was covered."""
    thread = with_visit(store, lambda other: other.put("/title.json", "web"))

    events = list(thread.stream("go", head_policy=policy))

    assert state(thread) == {"/a.json": "run", "/deep/b.json": "run", "/title.json": "web"}
    assert covered(events) == []
    assert store.verify().ok


@pytest.mark.parametrize("policy", POLICIES)
def test_on_the_same_path_the_runs_value_stands_on_top(store: Store, policy: HeadPolicy) -> None:
    """The run does not die: its value is there, a `conflict` event names what it covered, and that can be read."""
    heads: list[perdure.Head] = []
    thread = with_visit(store, lambda other: heads.append(other.put("/a.json", "web")))

    events = list(thread.stream("go", head_policy=policy))

    assert state(thread) == {"/a.json": "run", "/deep/b.json": "run"}
    assert covered(events) == ["/a.json"]
    assert thread.at(heads[0]).get("/a.json") == "web"
    assert store.verify().ok


@pytest.mark.parametrize("policy", POLICIES)
def test_a_change_by_hand_belongs_to_the_runs_turn(store: Store, policy: HeadPolicy) -> None:
    """There is one turn, and undo steps over all of it, the handler's write included."""
    thread = with_visit(store, lambda other: other.put("/title.json", "web"))
    thread.put("/before.json", 1)

    thread.run("go", head_policy=policy)

    assert len(thread.turns()) == 2
    thread.undo()
    assert state(thread) == {"/before.json": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_call_by_hand_belongs_to_the_runs_turn(store: Store, policy: HeadPolicy) -> None:
    """One tool call without an agent, in the middle of a run: one turn, both calls settled."""

    @perdure.tool(effect="external_write")
    def send(call: Call) -> str:
        call.put("/sent.json", True)
        return "sent"

    thread = with_visit(store, lambda other: other.call(send, {}, id="by-hand"))

    result = thread.run("go", head_policy=policy)

    assert result.status == "succeeded"
    assert len(thread.turns()) == 1
    assert thread.get("/sent.json") is True
    assert [call.state for call in thread.calls()] == ["succeeded"] * 2
    assert store.verify().ok


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_write_at_any_phase_lands(store: Store, phase: Phase, policy: HeadPolicy) -> None:
    """Whatever the run is doing when somebody writes, also to a path that the phase writes itself."""
    visits: list[str] = []

    def hook(moment: Moment) -> None:
        visits.append(moment.phase)
        store.thread("trip").put(f"/theirs/{len(visits)}.json", "web")
        store.thread("trip").put("/both.json", f"web {len(visits)}")
        moment.put("/both.json", "run")

    hooks: dict[str, Any] = {phase: hook}
    plugin = Plugin("visited", **hooks)
    script = Script(use("look"), say("Done."))
    agent = Agent("planner", backend=script, tools=[look], plugins=[plugin])
    thread = store.thread("trip", agent=agent)

    events = list(thread.stream("go", head_policy=policy))

    assert thread.get("/both.json") == "run"
    assert len(thread.paths("/theirs")) == len(visits)
    assert set(covered(events)) == {"/both.json"}
    assert len(thread.turns()) == 1
    assert store.verify().ok


@perdure.tool(effect="read_only")
def look() -> str:
    """Look around."""
    return "seen"


def _say(other: Thread) -> None:
    with other.change("chat") as change:
        change.say("user", "hello?")


BUSY: dict[str, Visit] = {
    "undo": lambda other: other.undo(),
    "undo to": lambda other: other.undo(to=None),
    "redo": lambda other: other.redo(),
    "seal": lambda other: other.seal(),
    "promote": lambda other: other.promote("aside"),
    "merge": lambda other: other.merge("aside"),
    "say": _say,
}


@pytest.mark.parametrize("what", BUSY)
def test_what_would_take_the_line_away_is_busy(store: Store, what: str) -> None:
    """While a run lives on a line nobody moves it back, promotes over it, or speaks in between."""
    seen: list[BaseException] = []

    def visit(other: Thread) -> None:
        try:
            BUSY[what](other)
        except errors.PerdureError as error:
            seen.append(error)

    with_visit(store, visit).put("/first.json", 1)
    store.thread("trip").fork("aside").put("/second.json", 2)

    result = with_visit(store, visit).run("go")

    assert [type(error) for error in seen] == [errors.Busy]
    assert result.status == "succeeded"


def _retract(other: Thread) -> None:
    with other.change("take back") as change:
        change.retract(other.transcript()[0].id)


OWN_BUSY: dict[str, Visit] = {
    **BUSY,
    "retract": _retract,
    "run": lambda other: other.run("me too"),
    "switch": lambda other: other.switch(Script(backend="script:other")),
}
del OWN_BUSY["promote"]  # of any timeline it moves `main`


@pytest.mark.parametrize("what", OWN_BUSY)
def test_what_would_take_the_own_line_of_a_run_away_is_busy(store: Store, what: str) -> None:
    """A run that moves the head on success writes to a line of its own, which it holds as well."""
    seen: list[BaseException] = []

    def visit(other: Thread) -> None:
        (line,) = [each for each in other.timelines() if each.head.timeline.startswith("run/")]
        try:
            OWN_BUSY[what](store.thread("trip", agent=agent, timeline=line.head.timeline))
        except errors.PerdureError as error:
            seen.append(error)

    agent = Agent("planner", backend=Script(say("Quick.")))
    thread = with_visit(store, visit)
    thread.fork("aside").put("/second.json", 2)

    result = thread.run("go", head_policy="on_success")

    assert [type(error) for error in seen] == [errors.Busy]
    assert result.status == "succeeded"
    visit(thread)
    assert errors.Busy not in [type(error) for error in seen[1:]]  # control: it has ended


def test_a_second_run_is_busy_and_one_on_a_fork_is_not(store: Store) -> None:
    """One run lives on a line; other lines are free."""
    seen: list[object] = []
    quick = Agent("planner", backend=Script(say("Quick.")))

    def visit(other: Thread) -> None:
        with raises(errors.Busy, "busy", timeline="main"):
            store.thread("trip", agent=quick).run("me too")
        other.fork("aside")
        seen.append(store.thread("trip", agent=quick, timeline="aside").run("me too").text)

    result = with_visit(store, visit).run("go")

    assert (result.text, seen) == ("Done.", ["Quick."])


def test_after_the_run_all_of_that_is_possible(store: Store) -> None:
    """A control: the line is free once the run has ended."""
    thread = with_visit(store, lambda other: None)
    thread.run("go")

    thread.undo()
    thread.redo()
    _say(thread)

    assert thread.transcript()[-1].text == "hello?"


@pytest.mark.parametrize("policy", POLICIES)
def test_while_a_run_waits_the_line_is_free(store: Store, policy: HeadPolicy) -> None:
    """A waiting run holds no lease: others write, say something and run, and then it goes on on top of that."""

    @perdure.tool(effect="external_write", ask=True)
    def pay(call: Call) -> str:
        call.put("/paid.json", True)
        return "paid"

    agent = Agent("planner", backend=Script(use("pay"), say("Done.")), tools=[pay])
    thread = store.thread("trip", agent=agent)
    waiting = thread.run("go", head_policy=policy)
    thread.put("/title.json", "web")
    store.thread("trip", agent=Agent("planner", backend=Script(say("Other.")))).run("meanwhile")
    thread.decide(waiting.approvals[0].call, "approve")

    closing = Agent("planner", backend=Script(say(""), say("Done.")), tools=[pay])
    result = store.thread("trip", agent=closing).resume(waiting.run)

    assert result.status == "succeeded"
    assert state(thread) == {"/paid.json": True, "/title.json": "web"}
    assert store.verify().ok


@pytest.mark.parametrize("policy", POLICIES)
def test_others_writes_survive_a_run_that_fails(store: Store, policy: HeadPolicy) -> None:
    """Under either policy what the handler wrote is there, and nothing of the run's."""

    @perdure.tool(effect="local_write", idempotent=True)
    def work(call: Call) -> str:
        call.put("/a.json", "run")
        store.thread("trip").put("/title.json", "web")
        return "worked"

    agent = Agent("planner", backend=Script(use("work"), fail()), tools=[work])
    thread = store.thread("trip", agent=agent)

    with pytest.raises(errors.RunFailed):
        thread.run("go", head_policy=policy)

    assert state(thread) == {"/title.json": "web"}


def test_the_agents_map_is_changed_once_however_the_commits_are_placed(store: Store) -> None:
    """Commits that are put on top of others' are not handed over to the agent's map a second time."""

    @perdure.tool(effect="local_write", idempotent=True)
    def work(call: Call) -> str:
        call.agent.put("/by.json", "run")
        store.thread("trip").put("/title.json", "web")
        return "worked"

    agent = Agent("planner", backend=Script(use("work"), say("Done.")), tools=[work])
    thread = store.thread("trip", agent=agent)

    thread.run("go", head_policy="on_success")

    assert [entry.reason for entry in store.agent("planner").log()] == ["tool_results_committed"]
    assert thread.agent_map().get("/by.json") == "run"
    assert store.verify().ok
