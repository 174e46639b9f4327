"""After a switch the new model asks for an external write that was done before: it is not run, and the guard asks."""

from __future__ import annotations

import pytest

from perdure import Agent, Store, Thread
from perdure.testing import Script, say, use
from tests.switching.scenes import Counting

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"


def paid(store: Store, world: Counting, *, guard: str = "ask") -> Thread:
    """A thread on which Ann was paid."""
    tool = world.tool(guard="allow" if guard == "allow" else "ask")
    agent = Agent("payer", backend=Script(use("pay", to="ann"), say("Paid."), backend=A), tools=[tool])
    thread = store.thread("rent", agent=agent)
    thread.run("Pay Ann")
    assert world.done == {"ann": 1}
    return thread


def test_the_guard_asks_before_it_is_done_again(store: Store, world: Counting) -> None:
    """The run waits for a person, and Ann is paid once."""
    thread = paid(store, world)
    thread.switch(Script(use("pay", to="ann"), say("Paid again."), backend=B))

    result = thread.run("Did Ann get her rent?")

    assert result.status == "waiting"
    assert [ticket.action for ticket in result.approvals] == ["repeat"]
    assert world.done == {"ann": 1}


@pytest.mark.parametrize("is_denied", [True, False])
def test_a_denied_repeat_holds_for_the_first_model_too(
    store: Store, world: Counting, is_denied: bool
) -> None:
    """After the switch back the model that had paid asks once more: the guard asks again.

    Control: where no person was asked in between, the same model may repeat what it did itself.
    """
    thread = paid(store, world)
    thread.switch(Script(*((use("pay", to="ann"),) if is_denied else ()), say("Well."), backend=B))
    result = thread.run("Did Ann get her rent?")
    if is_denied:
        thread.decide(result.approvals[0].call, "deny", by="ben", why="once is enough")
        thread.resume()
    thread.switch(Script(use("pay", to="ann"), say("Paid again."), backend=A))

    result = thread.run("Did Ann get her rent?")

    assert result.status == ("waiting" if is_denied else "succeeded")
    assert world.done == {"ann": 1 if is_denied else 2}
    assert all(each.message.endswith("was denied as a repeat: once is enough") for each in result.approvals)


def test_a_fork_from_before_the_denial_is_not_bound_by_it(store: Store, world: Counting) -> None:
    """The denial is in no history of it; there the guard asks because Ann was paid elsewhere."""
    thread = paid(store, world)
    before = thread.head.commit
    thread.switch(Script(use("pay", to="ann"), say("Well."), backend=B))
    asked = thread.run("Did Ann get her rent?").approvals[0]
    thread.decide(asked.call, "deny", by="ben")
    thread.resume()

    fork = thread.fork("other", at=before)
    result = fork.with_agent(
        Agent("payer", backend=Script(use("pay", to="ann"), say("Paid."), backend=A), tools=[world.tool()])
    ).run("Pay Ann")

    assert result.status == "succeeded"  # one line, one backend: the model may want it
    assert world.done == {"ann": 2}


def test_without_the_guard_it_is_done_again(store: Store, world: Counting) -> None:
    """Control: where the tool lets repeats pass, the same script pays twice."""
    thread = paid(store, world, guard="allow")
    thread.switch(Script(use("pay", to="ann"), say("Paid again."), backend=B))

    thread.run("Did Ann get her rent?")

    assert world.done == {"ann": 2}


def test_the_new_model_is_told_that_it_was_done(store: Store, world: Counting) -> None:
    """In what it is shown the call is a sentence that names tool and arguments, and says not to repeat it."""
    thread = paid(store, world)
    second = Script(say("She did."), backend=B)
    thread.switch(second)

    thread.run("Did Ann get her rent?")

    (context,) = second.contexts
    told = "\n".join(message.text for message in context.messages)
    assert "`pay`" in told
    assert '{"to": "ann"}' in told
    assert "do not repeat" in told.lower()
    assert not any(message.tool_calls for message in context.messages)
    assert world.done == {"ann": 1}


def test_something_else_may_be_done(store: Store, world: Counting) -> None:
    """Another payment is not a repeat, and is made."""
    thread = paid(store, world)
    thread.switch(Script(use("pay", to="ben"), say("Paid."), backend=B))

    assert thread.run("Pay Ben too").status == "succeeded"
    assert world.done == {"ann": 1, "ben": 1}


def test_a_switch_executes_nothing(store: Store, world: Counting) -> None:
    """Neither the check nor the switch, there or back, calls a tool or asks a model."""
    thread = paid(store, world)
    second = Script(backend=B)

    thread.check_switch(second)
    thread.switch(second)
    thread.switch(Script(backend=A))

    assert world.done == {"ann": 1}
    assert second.contexts == []
