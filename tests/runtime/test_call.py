"""The ways out of a call: suspension, and what a reconcile hook answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.runtime.tools.call import Call, Outcome, Ruling, Suspended, Suspension
from tests.coded import raises


@pytest.fixture
def call() -> Call:
    """A call without state."""
    return Call(id="c-1", tool="book", key="k", attempt=2, arguments={"price": 5})


def test_a_call_says_who_it_is(call: Call) -> None:
    """With the arguments as JSON, in a dictionary of its own."""
    assert (call.id, call.tool, call.key, call.attempt, call.arguments) == (
        "c-1",
        "book",
        "k",
        2,
        {"price": 5},
    )
    assert call.decision is None
    assert Call(id="c", tool="t", decision=Ruling(verdict="answer", value=3)).decision == Ruling(
        verdict="answer", value=3
    )


def test_a_suspension_carries_all_that_its_ticket_will_say(call: Call) -> None:
    """Parameters and schema as JSON text, the time in microseconds."""
    with pytest.raises(Suspended) as stopped:
        call.suspend(
            "Which seat?",
            action="choose",
            parameters={"seats": ["1A", "1B"]},
            response_schema={"type": "string"},
            expires_in=timedelta(minutes=1),
            on_timeout="deny",
            resume="result",
        )

    assert stopped.value.suspension == Suspension(
        message="Which seat?",
        action="choose",
        parameters='{"seats":["1A","1B"]}',
        response_schema='{"type":"string"}',
        expires_in_us=60_000_000,
        on_timeout="deny",
        resume="result",
    )


def test_a_tool_that_catches_every_error_does_not_catch_its_suspension(call: Call) -> None:
    """It is no error."""

    def careful() -> None:
        try:
            call.suspend("Really?")
        except Exception:
            pytest.fail("caught")

    with pytest.raises(Suspended):
        careful()


@pytest.mark.parametrize(
    ("option", "value"), [("on_timeout", "shrug"), ("resume", "later"), ("expires_in", 0)]
)
def test_a_suspension_that_cannot_be_answered_is_refused(call: Call, option: str, value: Any) -> None:
    """With an ordinary error, in the tool."""
    with raises(Invalid, "suspension_invalid", option=option):
        call.suspend("?", **{option: value})


def test_parameters_of_a_suspension_that_are_not_json_are_refused(call: Call) -> None:
    """They would be stored with the ticket."""
    with pytest.raises(Invalid):
        call.suspend("?", parameters={"a": object()})  # pyright: ignore[reportArgumentType]


def test_a_hook_has_three_answers(call: Call) -> None:
    """Done with a result, not done, and nobody knows."""
    assert call.done("ok") == Outcome("done", "ok")
    assert call.not_done() == Outcome("not_done")
    assert call.dont_know("no record") == Outcome("dont_know", why="no record")
