"""A step with very many calls, or very much state: what happened is never too much to record."""

from __future__ import annotations

import perdure
from perdure import Agent, Call
from perdure.testing import Script, say, step, use


@perdure.tool(effect="read_only")
def look(at: int) -> int:
    """Look."""
    return at


@perdure.tool(effect="external_write")
def fill(call: Call) -> str:
    """Fill the state."""
    for number in range(12):
        call.put(f"/big/{number}.json", "x" * 1_000_000)
    return "filled"


def test_a_step_with_more_calls_than_a_write_of_a_program_may_hold_is_carried_out() -> None:
    """A model's appetite must not brick its thread."""
    script = Script(step(*(use("look", at=number) for number in range(1_100))), say("Seen."), say("Again."))
    store = perdure.open("memory:")
    thread = store.thread("t", agent=Agent("a", backend=script, tools=[look]))

    result = thread.run("Look everywhere")

    assert (result.status, result.text) == ("succeeded", "Seen.")
    assert {call.state for call in thread.calls()} == {"succeeded"}
    assert thread.run("And now?").text == "Again."
    assert store.verify().ok


def test_a_call_that_writes_more_than_a_change_by_hand_may_is_recorded() -> None:
    """The effect has happened; refusing its state would lose what is true."""
    store = perdure.open("memory:")
    thread = store.thread("t", agent=Agent("a", backend=Script(use("fill"), say("Done.")), tools=[fill]))

    assert thread.run("Fill it").status == "succeeded"
    assert len(thread.paths("/big")) == 12
