"""A scripted model takes its steps in order, wherever its conversation is."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent
from perdure.errors import RunFailed
from perdure.model.run import Usage
from perdure.testing import Script, say, use


def test_a_newer_thread_begins_with_the_first_step() -> None:
    """The script was begun late in a long conversation; a short one has said less than it skipped there."""
    with perdure.open("memory:") as store:
        store.thread("long", agent=Agent("a", backend=Script(say("1"), say("2"), say("3")))).run("a")
        for words in ("b", "c"):
            store.thread("long", agent=Agent("a", backend=Script(say("and")))).run(words)
        script = Agent("a", backend=Script(say("First."), *(say("Second."),) * 4))

        said = [store.thread("long", agent=script).run("d").text]
        said += [store.thread("new", agent=script).run(words).text for words in ("a", "b")]

    assert said == ["First.", "First.", "Second."]


def test_a_turn_that_was_undone_is_taken_again() -> None:
    """The conversation is where it was before the turn, and so is the script; beyond its end it has nothing to say."""
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent=Agent("a", backend=Script(say("Hello."))))
        thread.run("a")
        thread = store.thread("t", agent=Agent("a", backend=Script(say("First."), say("Second."))))
        said = [thread.run(words).text for words in ("b", "c")]

        thread.undo(3)
        said += [thread.run(words).text for words in ("d", "e")]

        assert said == ["First.", "Second.", "First.", "Second."]
        with pytest.raises(RunFailed):
            thread.run("f")


def test_a_step_that_asks_for_a_tool_says_what_it_took() -> None:
    """As a step of words does; it is no argument of the tool."""
    step = use("note", item="x", usage=Usage(input_tokens=3))

    assert (step.usage, step.calls[0].arguments) == (Usage(input_tokens=3), {"item": "x"})


def test_a_script_goes_on_for_ever_with_then() -> None:
    """After its items, in turn after turn; control: without it the script ends."""
    with perdure.open("memory:") as store:
        thread = store.thread("a", agent=Agent("planner", backend=Script(say("One."), then=say("More."))))
        ends = store.thread("b", agent=Agent("planner", backend=Script(say("One."))))

        assert [thread.run("go").text for _ in range(4)] == ["One.", "More.", "More.", "More."]
        ends.run("go")
        with pytest.raises(RunFailed):
            ends.run("go")
