"""Plain code inside a run: tools and hooks of the plain face may use it like any other code."""

from __future__ import annotations

import holdfast
from holdfast import Agent, Plugin
from holdfast.runtime.plugin import Moment
from holdfast.testing import Script, say, use


def test_a_plain_tool_may_use_the_plain_face() -> None:
    """Nothing else runs on the loop of a plain run, so a tool that waits for a disk there holds up nobody."""
    with holdfast.open("memory:") as store:

        @holdfast.tool(effect="read_only")
        def note() -> str:
            store.thread("notes", agent="planner").put("/seen.json", True)
            return "noted"

        agent = Agent("planner", backend=Script(use("note"), say("Done.")), tools=[note])

        store.thread("trip", agent=agent).run("go")

        assert store.thread("notes").get("/seen.json") is True


def test_a_plain_tool_may_run_another_thread() -> None:
    """A run inside a run of the same thread of execution has a loop of its own, which is closed again."""
    with holdfast.open("memory:") as store:

        @holdfast.tool(effect="read_only")
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
    with holdfast.open("memory:") as store:

        def hook(moment: Moment) -> None:
            store.thread("notes", agent="planner").put("/phase.json", moment.phase)

        agent = Agent(
            "planner", backend=Script(say("Done.")), plugins=[Plugin("noter", before_inference=hook)]
        )

        store.thread("trip", agent=agent).run("go")

        assert store.thread("notes").get("/phase.json") == "before_inference"
