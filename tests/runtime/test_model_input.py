"""What a model is told of calls whose results are not on its line."""

from __future__ import annotations

import perdure
from perdure import Agent
from perdure.testing import Script, say, use


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(script: Script) -> Agent:
    """One who pays, if somebody agrees."""
    return Agent("a", backend=script, tools=[pay])


def shown(script: Script) -> str:
    """What the last context says of the call's result."""
    results = [each for message in script.contexts[-1].messages for each in message.tool_results]
    return "".join(getattr(block, "text", "") for block in results[-1].content)


def test_a_call_that_waits_is_shown_as_waiting() -> None:
    """A new input meanwhile begins a run of its own, which must not ask for the same again."""
    store = perdure.open("memory:")
    store.thread("t", agent=agent(Script(use("pay", amount=3)))).run("Pay 3")
    script = Script(say("I am waiting."))

    store.thread("t", agent=agent(script)).run("Well?")

    assert "waits for somebody's decision" in shown(script)


def test_a_call_that_was_carried_out_on_another_line_is_not_shown_as_waiting() -> None:
    """The fork holds the question, the answer came on main: whoever asks on the fork is told that it was done."""
    store = perdure.open("memory:")
    thread = store.thread("t", agent=agent(Script(use("pay", amount=3), say("Paid."))))
    call = thread.run("Pay 3").approvals[0].call
    thread.fork("what-if")
    thread.decide(call, "approve")
    thread.resume()
    script = Script(say("It is done, I hear."))

    store.thread("t", agent=agent(script), timeline="what-if").run("Well?")

    assert "was carried out, on another line" in shown(script)
