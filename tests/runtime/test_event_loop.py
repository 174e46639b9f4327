"""Plain code inside a run: tools and hooks of the plain face may use it like any other code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import perdure
from perdure import Agent, Message, Plugin, Text
from perdure.model.context import Context
from perdure.providers.contract import Finished, ModelEvent
from perdure.runtime.agent.plugin import Moment
from perdure.testing import Script, say, use


def test_a_plain_tool_may_use_the_plain_face() -> None:
    """Nothing else runs on the loop of a plain run, so a tool that waits for a disk there holds up nobody."""
    with perdure.open("memory:") as store:

        @perdure.tool(effect="read_only")
        def note() -> str:
            store.thread("notes", agent="planner").put("/seen.json", True)
            return "noted"

        agent = Agent("planner", backend=Script(use("note"), say("Done.")), tools=[note])

        store.thread("trip", agent=agent).run("go")

        assert store.thread("notes").get("/seen.json") is True


def test_a_plain_tool_may_run_another_thread() -> None:
    """A run inside a run of the same thread of execution has a loop of its own, which is closed again."""
    with perdure.open("memory:") as store:

        @perdure.tool(effect="read_only")
        def ask_other() -> str:
            return (
                store.thread("inner", agent=Agent("planner", backend=Script(say("inner words"))))
                .run("x")
                .text
            )

        agent = Agent("planner", backend=Script(use("ask_other"), say("Done.")), tools=[ask_other])
        thread = store.thread("trip", agent=agent)

        result = thread.run("go")

        assert result.text == "Done."
        assert "inner words" in str(thread.transcript()[2].message.tool_results)


def test_a_plain_hook_may_use_the_plain_face() -> None:
    """A plug-in of a plain run writes through another handle."""
    with perdure.open("memory:") as store:

        def hook(moment: Moment) -> None:
            store.thread("notes", agent="planner").put("/phase.json", moment.phase)

        agent = Agent(
            "planner", backend=Script(say("Done.")), plugins=[Plugin("noter", before_inference=hook)]
        )

        store.thread("trip", agent=agent).run("go")

        assert store.thread("notes").get("/phase.json") == "before_inference"


class Stubborn:
    """A model during whose step somebody presses Ctrl-C, and again while it does not end."""

    backend = "script:stubborn"

    def __init__(self, times: int) -> None:
        """Be interrupted that often."""
        self._left = times

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Speak, in the end."""
        while self._left:
            self._left -= 1
            asyncio.get_running_loop().call_soon(_interrupt)
            await asyncio.sleep(600)
        yield Finished(message=Message("assistant", (Text("Done."),)))


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_ends_a_run_and_waits_until_that_is_recorded() -> None:
    """The run says that its caller was cancelled before the interrupt is raised."""
    with perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=Stubborn(1)))

        with pytest.raises(KeyboardInterrupt):
            thread.run("go")

        record = thread.runs()[0]
        assert (record.state, record.why) == ("failed", "the caller was cancelled")


class Deaf(Stubborn):
    """The same, and it does not end when it is told to."""

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Go on whatever happens."""
        while True:
            try:
                async for event in super().step(context):
                    yield event
                return
            except asyncio.CancelledError:
                continue


def test_ctrl_c_twice_leaves_a_run_that_does_not_end_and_its_line_is_free() -> None:
    """Nobody keeps its lease any more: the next run, on the same thread, finishes it first."""
    with perdure.open("memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            store.thread("trip", agent=Agent("planner", backend=Deaf(2))).run("go")
        script = Script(say("One."), say("Two."), backend=Stubborn.backend)
        thread = store.thread("trip", agent=Agent("planner", backend=script))
        assert thread.runs()[0].state == "running"

        result = thread.run("again")

        assert result.text == "Two."
        assert [run.state for run in thread.runs()] == ["succeeded", "succeeded"]
