"""A scripted model takes its steps in order, wherever its conversation is."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent
from perdure.errors import RunFailed
from perdure.model.run import Usage
from perdure.testing import Script, say, step, use
from perdure.testing.script import ScriptStep


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


@perdure.tool(effect="local_write")
def refund(id: str, amount: int) -> str:
    """Pay an order back."""
    return f"{id}: {amount}"


@perdure.tool(effect="local_write")
def measure(usage: str = "none", raw: str = "none") -> str:
    """Say what it was given."""
    return f"{usage}, {raw}"


def states(*items: ScriptStep) -> list[str]:
    """What became of the calls of a script."""
    with perdure.open("memory:") as store:
        agent = Agent("a", backend=Script(*items, say("Done.")), tools=[refund, measure])
        thread = store.thread("t", agent=agent)
        thread.run("Go")
        return [call.state for call in thread.calls()]


def test_a_tool_gets_arguments_of_the_names_that_use_has() -> None:
    """In a mapping any name is an argument, also beside others and with a name for the call."""
    mapped = use("refund", {"id": "A1"}, amount=40)
    both = use("refund", {"id": "A1", "amount": 40}, id="c1")
    others = use("measure", {"usage": "a lot", "raw": "beef"}, usage=Usage(input_tokens=3))

    assert [each.calls[0].arguments for each in (mapped, both)] == [{"id": "A1", "amount": 40}] * 2
    assert (mapped.calls[0].id, both.calls[0].id) == ("call_refund", "c1")
    assert (others.calls[0].arguments, others.usage.input_tokens) == ({"usage": "a lot", "raw": "beef"}, 3)
    assert use("refund", {"id": "A1"}, id="c1", raw="{}").calls[0].args == "{}"


@pytest.mark.parametrize(
    "step", [use("refund", id="A1", amount=40), step(say("So."), use("refund", id="A1"))]
)
def test_a_script_warns_of_an_argument_that_use_took_for_itself(step: ScriptStep) -> None:
    """The tool has an argument of that name and did not get it; the call is made as before."""
    with pytest.warns(perdure.errors.PerdureWarning) as warned:
        assert states(step) == ["failed"]

    assert [getattr(each.message, "code", None) for each in warned] == ["argument_name_taken"]


def test_a_script_does_not_warn_of_names_that_the_tool_got_or_does_not_have() -> None:
    """A call may have a name of its own, whatever the arguments of the tool are called."""
    got = use("refund", {"id": "A1"}, amount=40, id="c1")
    whole = use("refund", id="c2", raw='{"id": "A1", "amount": 40}')
    other = use("measure", id="c3")

    assert states(got, whole, other) == ["succeeded"] * 3
