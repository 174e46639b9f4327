"""Plug-ins: code that takes part in every run of an agent, at fixed phases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.runtime.agent.plugin import PHASES, Hook, Moment, Phase, Plugin
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.runtime.failing import run_fails


@perdure.tool(effect="read_only")
def look(call: Call) -> list[str]:
    """Say what is there."""
    return call.paths("/")


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


def plugin(**hooks: Any) -> Plugin:
    """A plug-in with these hooks."""
    return Plugin("noter", **hooks)


def at_all(hook: Hook) -> dict[str, Hook]:
    """The same hook at every phase."""
    return dict.fromkeys(PHASES, hook)


def thread_of(store: Store, *plugins: Plugin, steps: int = 1) -> Thread:
    """A thread whose agent uses a tool that often and then speaks."""
    script = Script(*[use("look")] * steps, say("Done."))
    return store.thread("trip", agent=Agent("planner", backend=script, tools=[look], plugins=plugins))


def test_phases_come_in_their_order(store: Store) -> None:
    """Start, then inference and step for each step, then the end."""
    seen: list[str] = []

    thread_of(store, plugin(**at_all(lambda moment: seen.append(moment.phase)))).run("go")

    inside = ["before_inference", "after_inference", "step_end"]
    assert seen == ["run_start", *inside, *inside, "run_end"]


def test_each_phase_tells_what_there_is_to_tell(store: Store) -> None:
    """The context before inference, the message after it, the status at the end; the run always."""
    seen: list[Moment] = []

    result = thread_of(store, plugin(**at_all(seen.append))).run("go")

    assert {moment.run for moment in seen} == {result.run}
    context = seen[1].context
    assert context is not None
    assert [message.text for message in context.messages] == ["go"]
    assert [moment.message.text for moment in seen if moment.message] == ["", "", "Done.", "Done."]
    assert seen[-1].status == "succeeded"


def test_plugins_are_called_in_the_order_in_which_they_are_given(store: Store) -> None:
    """And a later one sees what an earlier one has written."""

    def first(moment: Moment) -> None:
        moment.put("/x.json", 1)

    async def second(moment: Moment) -> None:
        await asyncio.sleep(0)
        moment.put("/x.json", moment.get("/x.json") + 1)

    thread = thread_of(store, Plugin("one", run_end=first), Plugin("two", run_end=second))

    thread.run("go")

    assert thread.get("/x.json") == 2


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_hook_writes_is_committed_with_its_step(store: Store, phase: Phase) -> None:
    """It is in the commit that the phase belongs to, and in no other."""
    reasons = {"run_start": "user_message", "run_end": "run_finished"}

    def hook(moment: Moment) -> None:
        if moment.get("/at.json", default=None) is None:
            moment.put("/at.json", moment.phase)

    thread = thread_of(store, plugin(**{phase: hook}))

    thread.run("go")

    blame = thread.blame("/at.json")
    written = next(entry for entry in thread.log() if entry.digest == blame.commit)
    assert written.reason == reasons.get(phase, "assistant_turn_committed")


def test_a_hook_reads_its_own_writes_and_the_tools_see_them(store: Store) -> None:
    """Inside a run reads see the run's own writes."""

    def hook(moment: Moment) -> None:
        moment.put("/a.json", 1)
        moment.put("/b.json", 2)
        moment.delete("/a.json")
        assert moment.paths("/") == ["/b.json"]
        assert moment.get("/a.json", default="gone") == "gone"
        with pytest.raises(errors.NotFound):
            moment.get("/a.json")

    thread = thread_of(store, plugin(run_start=hook))

    thread.run("go")

    assert "/b.json" in str(thread.transcript()[2].message.tool_results)


@pytest.mark.parametrize("phase", PHASES)
def test_a_hook_that_raises_fails_the_run(store: Store, phase: Phase) -> None:
    """Nothing that it wrote stays, and the next run without it works."""

    def hook(moment: Moment) -> None:
        moment.put("/half.json", True)
        raise ValueError(f"no {moment.phase}")

    thread = thread_of(store, plugin(**{phase: hook}))

    with run_fails("ValueError"):
        thread.run("go")

    assert thread.paths("/") == []
    assert thread.runs()[0].state == "failed"
    assert thread.transcript()[0].text == "go"
    script = Script(say("Next."))
    assert store.thread("trip", agent=Agent("planner", backend=script)).run("again").text == "Next."
    answered = {each.call_id for message in script.contexts[0].messages for each in message.tool_results}
    assert {call.id for message in script.contexts[0].messages for call in message.tool_calls} == answered


def test_what_was_never_committed_is_never_shown(store: Store) -> None:
    """A step that a hook refused is not in the conversation of the next run, in this process or any other."""

    def hook(moment: Moment) -> None:
        raise ValueError("not that")

    thread = store.thread(
        "trip", agent=Agent("planner", backend=Script(say("secret")), plugins=[plugin(step_end=hook)])
    )
    with pytest.raises(errors.RunFailed):
        thread.run("one")
    script = Script(say("two!"))

    store.thread("trip", agent=Agent("planner", backend=script)).run("two")

    assert [message.text for message in script.contexts[0].messages] == ["one", "two"]


def test_where_a_plugin_hooks_the_start_the_input_is_durable_first(store: Store) -> None:
    """The hook can already read the input, as can anybody else."""
    seen: list[list[str]] = []

    def hook(moment: Moment) -> None:
        seen.append([entry.text for entry in store.thread("trip").transcript()])

    thread_of(store, plugin(run_start=hook)).run("go")

    assert seen == [["go"]]


def test_state_of_a_plugin_is_declared_with_its_agent(store: Store) -> None:
    """Its scope is kept to, and twice the same path is refused."""
    scoped = Plugin(
        "a", state=[perdure.state("/p", scope="run")], run_end=lambda moment: moment.put("/p/x.json", 1)
    )
    agent = Agent("planner", backend=Script(say("One.")), plugins=[scoped])
    thread = store.thread("trip", agent=agent)
    thread.run("go")
    assert thread.paths("/") == ["/p/x.json"]
    assert "/p" in agent.run_scoped_paths()

    with raises(errors.Invalid, "state_declared_twice", path="/p"):
        Agent("planner", plugins=[scoped, Plugin("b", state=[perdure.state("/p")])])


@pytest.mark.parametrize("path", ["/__run/x.json", "/__kernel/x.json", "/__tool_call_scope/a/x.json"])
def test_a_hook_cannot_write_under_reserved_prefixes(store: Store, path: str) -> None:
    """What is Perdure's own is not a plug-in's to change."""

    def hook(moment: Moment) -> None:
        moment.put(path, 1)

    thread = thread_of(store, plugin(run_end=hook))

    with run_fails("Invalid"):
        thread.run("go")
