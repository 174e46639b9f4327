"""State of a run and of a call never leaks into the next; state of the thread always survives."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Plugin, Store, errors
from perdure.runtime.agent.plugin import Moment
from perdure.runtime.agent.state import State
from perdure.testing import Script, fail, say, use
from perdure.testing.script import Item

DRAFT = perdure.state("/draft", scope="run")


@perdure.tool(effect="read_only")
def note(text: str, call: Call) -> str:
    """Write to every scope."""
    call.put("/draft/text.json", text)
    call.put("/notes.json", [*call.get("/notes.json", default=[]), text])
    call.scratch.put("/half.json", text)
    return text


@perdure.tool(effect="read_only")
def look(call: Call) -> str:
    """Say what is there."""
    return " ".join(call.paths("/")) or "nothing"


@perdure.tool(effect="read_only")
def ask_twice(call: Call) -> str:
    """Suspend once, with something in scratch, and read it again afterwards."""
    if call.decision is None:
        call.scratch.put("/half.json", "kept")
        call.put("/draft/asked.json", True)
        call.suspend("Go on?")
    return f"{call.scratch.get('/half.json')} {call.get('/draft/asked.json')}"


def planner(*items: Item, state: tuple[State, ...] = (DRAFT,)) -> Agent:
    """An agent that declares a path of run scope."""
    return Agent("planner", backend=Script(*items), tools=[note, look, ask_twice], state=state)


def ran(store: Store, *items: Item) -> perdure.Thread:
    """A thread after a run of these steps."""
    thread = store.thread("trip", agent=planner(*items))
    thread.run("go")
    return thread


def test_state_of_a_run_is_there_until_the_next_one_begins(store: Store) -> None:
    """After a run its state can still be read; state of the thread too."""
    thread = ran(store, use("note", text="a"), say("Done."))

    assert thread.paths("/") == ["/draft/text.json", "/notes.json"]


def test_state_of_a_run_is_gone_when_the_next_one_looks(store: Store) -> None:
    """The first thing that the next run sees is the thread's state alone."""
    ran(store, use("note", text="a"), say("Done."))

    thread = ran(store, use("look"), say("Done."))

    results = [entry.message.tool_results for entry in thread.transcript() if entry.message.tool_results]
    assert str(results[-1]).count("/notes.json") == 1
    assert "/draft" not in str(results[-1])
    assert thread.paths("/") == ["/notes.json"]


def test_without_the_declaration_the_same_state_survives(store: Store) -> None:
    """A control: what is not declared lives in the thread's scope."""
    thread = store.thread("trip", agent=planner(use("note", text="a"), say("Done."), state=()))
    thread.run("go")

    store.thread("trip", agent=planner(say("Done."), state=())).run("again")

    assert thread.paths("/") == ["/draft/text.json", "/notes.json"]


def test_the_cleaning_is_in_the_history(store: Store) -> None:
    """What a run clears at its start can be read at the moment before."""
    thread = ran(store, use("note", text="a"), say("Done."))
    before = thread.head

    ran(store, say("Done."))

    assert thread.at(before).get("/draft/text.json") == "a"
    assert [commit.reason for commit in thread.log()][-2:] == ["assistant_turn_committed", "user_message"]
    assert store.verify().ok


def test_scratch_of_a_call_is_gone_when_it_settles(store: Store) -> None:
    """No commit of a run leaves anything under a call's own prefix."""
    thread = ran(store, use("note", text="a"), say("Done."))

    for commit in thread.log():
        assert not [path for path in thread.at(commit.digest).paths("/") if path.startswith("/__tool_call")]


def test_scratch_and_run_state_outlive_a_suspension(store: Store) -> None:
    """A call that waits finds what it had put aside; when it settles that is gone."""
    agent = planner(use("ask_twice"), say("Done."))
    thread = store.thread("trip", agent=agent)
    waiting = thread.run("go")
    thread.decide(waiting.approvals[0].call, "approve")

    result = thread.resume()

    assert result.status == "succeeded"
    assert "kept True" in str(thread.transcript()[2].message.tool_results)
    assert not [path for path in thread.paths("/") if path.startswith("/__tool_call")]


def test_a_run_begun_while_another_waits_clears_run_scope_but_not_its_scratch(store: Store) -> None:
    """The open call of the first run finds its scratch after a second run."""
    agent = planner(use("ask_twice"), say("Done."))
    thread = store.thread("trip", agent=agent)
    waiting = thread.run("go")
    store.thread("trip", agent=planner(use("look"), say("Meanwhile."))).run("other")
    assert "/draft/asked.json" not in thread.paths("/")
    thread.decide(waiting.approvals[0].call, "deny", why="no")

    result = store.thread("trip", agent=planner(say(""), say(""), say("Done."))).resume(waiting.run)

    assert result.status == "succeeded"
    assert not [path for path in thread.paths("/") if path.startswith("/__tool_call")]


def test_state_of_a_failed_run_does_not_leak(store: Store) -> None:
    """A run that failed in its middle leaves nothing in run scope for the next one."""
    thread = store.thread("trip", agent=planner(use("note", text="a"), fail()))
    with pytest.raises(errors.RunFailed):
        thread.run("go")

    ran(store, say("Done."))

    assert thread.paths("/") == []


def test_state_of_a_plugin_that_is_not_loaded_is_left_alone(store: Store) -> None:
    """Only what this run's agent and plug-ins declare is cleared."""

    def hook(moment: Moment) -> None:
        moment.put("/guest/seen.json", True)

    guest = Plugin("guest", state=[perdure.state("/guest", scope="run")], run_end=hook)
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Done.")), plugins=[guest]))
    thread.run("go")

    ran(store, say("Done."))

    assert thread.paths("/") == ["/guest/seen.json"]


def test_a_run_cut_off_before_its_plugins_began_cleans_up_when_it_is_resumed(store: Store) -> None:
    """Where a plug-in hooks the start the input is durable first; the cleaning is made up for."""
    seen: list[list[str]] = []

    def start(moment: Moment) -> None:
        seen.append(moment.paths("/"))
        if len(seen) == 2:
            raise KeyboardInterrupt
        moment.put("/draft/by.json", len(seen))

    starter = Plugin("starter", state=[DRAFT], run_start=start)
    agents = [
        Agent("planner", backend=Script(say(word)), plugins=[starter]) for word in ("one", "two", "two")
    ]
    store.thread("trip", agent=agents[0]).run("1")
    with pytest.raises(KeyboardInterrupt):
        store.thread("trip", agent=agents[1]).run("2")

    result = store.thread("trip", agent=agents[2]).resume()

    assert result.text == "two"
    assert seen == [[], [], []]
    assert store.thread("trip").get("/draft/by.json") == 3


def test_a_whole_new_state_leaves_run_scope_and_waiting_calls_untouched(store: Store) -> None:
    """`run(state=…)` replaces the thread's state alone; what waits still waits."""
    thread = store.thread("trip", agent=planner(use("ask_twice"), say("Done.")))
    thread.put("/old.json", 1)
    waiting = thread.run("go")

    store.thread("trip", agent=planner(say("New."))).run("other", state={"/new.json": 2})

    scratch = [path for path in thread.paths("/") if path.startswith("/__tool_call")]
    assert [path for path in thread.paths("/") if not path.startswith("/__")] == ["/new.json"]
    assert len(scratch) == 1
    assert [ticket.call for ticket in thread.approvals()] == [waiting.approvals[0].call]
