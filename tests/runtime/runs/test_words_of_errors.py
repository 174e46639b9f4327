"""What a tool says when it fails reaches the model whole, or with a line that says how much is left out."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.errors import NotDone
from perdure.testing import Script, say, use

LONG = "".join(f"line {number} of the error\n" for number in range(400)) + "the cause: a missing comma"
ENDLESS = "begins. " + "x" * 1_000_000 + " the cause: a missing comma"


def told(error: Exception, effect: Any) -> tuple[str, str | None]:
    """What a model is told of a call whose tool raised `error`, and what the ledger says of it."""

    @perdure.tool(effect=effect)
    def fail() -> str:
        raise error

    agent = Agent("a", backend=Script(use("fail"), say("It failed.")), tools=[fail])
    thread = perdure.open("memory:").thread("t", agent=agent)
    thread.run("Go")
    results = [each for entry in thread.transcript() for each in entry.message.tool_results]
    text = "".join(getattr(block, "text", "") for block in results[0].content)
    return text, thread.calls()[0].why


@pytest.mark.parametrize("effect", ["none", "local_write", "external_write"])
@pytest.mark.parametrize("kind", [ValueError, NotDone])
def test_a_long_error_is_told_whole(effect: str, kind: type[Exception]) -> None:
    """The cause often stands at its end; the record in the ledger has its beginning."""
    text, why = told(kind(LONG), effect)

    assert LONG in text
    assert why is not None
    assert "line 1 of the error" in why
    assert len(why) <= 2_000


def test_an_error_without_end_is_told_with_how_much_is_left_out() -> None:
    """Head and tail are told, as of a result."""
    text, _ = told(ValueError(ENDLESS), "none")

    assert len(text) < 20_000
    assert "begins." in text
    assert "the cause: a missing comma" in text
    assert f"of {len('ValueError: ' + ENDLESS):,} characters are left out" in text


def test_a_short_error_is_told_as_it_is() -> None:
    """Control: nothing is said to be left out."""
    text, why = told(ValueError("no"), "none")

    assert "ValueError: no" in text
    assert "left out" not in text
    assert why == "ValueError: no"
