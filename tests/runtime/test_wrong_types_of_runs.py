"""What cannot be is refused where the mistake is made, in words, and nothing is begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid
from perdure.testing import Script, say
from tests.coded import raises

WRONG: dict[str, Callable[[], object]] = {
    "an input that is a number": lambda: thread().run(cast("Any", 3)),
    "an input that is empty": lambda: thread().run(""),
    "an input of blanks for a worker": lambda: thread().start(" \n"),
    "a decision about a ticket itself": lambda: thread().decide(cast("Any", object()), "approve"),
    "an agent's name where its tools are needed": lambda: perdure.open("memory:").resume(
        cast("Any", "clerk")
    ),
    "a backend that is a number": lambda: Agent("a", backend=cast("Any", 3)),
    "a class where a model is meant": lambda: Agent("a", backend=cast("Any", Script)),
    "a stop that is a number": lambda: Agent("a", stop=cast("Any", 3)),
    "instructions that are a number": lambda: Agent("a", instructions=cast("Any", 5)),
    "a script of words": lambda: Script(cast("Any", "hello")),
    "a timeout in words": lambda: perdure.tool(effect="none", timeout=cast("Any", "3"))(print_nothing),
}
CODES = {
    "an input that is a number": "input_invalid",
    "an input that is empty": "input_empty",
    "an input of blanks for a worker": "input_empty",
    "a decision about a ticket itself": "not_text",
    "an agent's name where its tools are needed": "not_an_agent",
    "a backend that is a number": "not_a_backend",
    "a class where a model is meant": "not_a_backend",
    "a stop that is a number": "agent_field_invalid",
    "instructions that are a number": "agent_field_invalid",
    "a script of words": "not_a_step",
    "a timeout in words": "tool_option_invalid",
}


def print_nothing() -> None:
    """Do nothing."""


def thread() -> perdure.Thread:
    """A thread with an agent that would answer."""
    return perdure.open("memory:").thread("t", agent=Agent("a", backend=Script(say("Hello."))))


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_in_words(what: str) -> None:
    """No traceback of internals, and no durable run that failed for it."""
    with raises(Invalid, CODES[what]):
        WRONG[what]()


def test_an_option_that_a_method_does_not_have_is_named_with_the_one_that_is_meant() -> None:
    """Also where another library calls it so; control: a `TypeError` of something else is left as it is."""
    run = cast("Any", thread().run)

    with pytest.raises(TypeError, match=r"Thread\.run\(\) has no option 'message_id'\. Did you mean 'id'\?"):
        run("go", message_id="m1")
    with pytest.raises(TypeError, match="Did you mean 'output'"):
        run("go", outptu=str)
    with pytest.raises(TypeError, match="positional"):
        run("go", "away")


def test_the_warning_about_an_effect_points_at_the_program() -> None:
    """At the line that declares the agent, also where `on` makes it again; not into the library."""
    with pytest.warns(perdure.errors.PerdureWarning) as found:
        Agent("a", tools=[print_nothing]).on(Script(say("Hello.")))

    assert {Path(each.filename).name for each in found} == {Path(__file__).name}
