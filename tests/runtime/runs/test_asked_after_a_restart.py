"""The first question about a payment names an equal one that may have been made, also if another opening made it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

import pytest

import perdure
from perdure import Agent, Call, Store, Thread
from perdure.model.effect import Effect
from perdure.runtime.tools.tool import Ask, RepeatGuard, Tool
from perdure.testing import Script, say, use

ASKS: dict[str, Ask] = {"always": True, "a function": lambda call: call.arguments["to"] != "nobody"}
MAY = "it may have happened"

paid: list[str] = []


@pytest.fixture(autouse=True)
def _nobody_is_paid() -> None:
    paid.clear()


def paying(
    ask: Ask = True,
    *,
    how: Literal["raise", "kill", "return"] = "return",
    key: str | None = None,
    repeat_guard: RepeatGuard = "ask",
    effect: Effect = "financial",
) -> Tool:
    """Return a tool that pays, and may then end with an error or with its process."""

    @perdure.tool(effect=effect, ask=ask, key=key, repeat_guard=repeat_guard)
    def pay(to: str) -> str:
        paid.append(to)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise TimeoutError("no answer")
        return "paid"

    return pay


def on(
    store: Store,
    tool: Tool,
    *,
    to: str = "eve",
    backend: str = "one",
    timeline: str = "main",
    agent: str = "payer",
) -> Thread:
    """Return the thread, for an agent that makes one payment."""
    script = Script(use("pay", to=to), say("Hm."), backend=backend)
    return store.thread("bills", agent=Agent(agent, backend=script, tools=[tool]), timeline=timeline)


def approve_all(thread: Thread) -> None:
    """Approve what waits, and go on."""
    for ticket in thread.approvals():
        thread.decide(ticket.call, "approve", by="ann")
        thread.resume()


def pay_once(store: Store, tool: Tool) -> str:
    """Make the first payment, which a person approves; return its call."""
    thread = on(store, tool)
    thread.run("Pay Eve.")
    approve_all(thread)
    (call,) = thread.calls()
    assert paid == ["eve"]
    return call.id


@pytest.mark.parametrize("to", ["eve", "bob"])
@pytest.mark.parametrize("ask", ASKS)
def test_an_error_of_another_opening_is_in_the_first_question(
    store: Store, store_url: str, ask: str, to: str
) -> None:
    """One approval is then enough; control: another payment is asked about plainly."""
    first = pay_once(store, paying(ASKS[ask], how="raise"))

    with perdure.open(store_url) as other:
        thread = on(other, paying(ASKS[ask]), to=to)
        (question,) = thread.run("Pay.").approvals
        approve_all(thread)
        states = [each.state for each in thread.calls()]

    repeat = ("repeat", f"the same call to pay, '{first}', is unknown: {MAY}")
    plain = ("approve", "pay (financial) asks for approval before it runs")
    assert (question.action, question.message) == (repeat if to == "eve" else plain)
    assert (paid, states) == (["eve", to], ["unknown", "succeeded"])


@pytest.mark.parametrize("to", ["eve", "bob"])
@pytest.mark.parametrize("ask", ASKS)
def test_a_payment_whose_process_was_killed_is_in_the_first_question(
    tmp_path: Path, ask: str, to: str
) -> None:
    """The killed process recorded no outcome; control: another payment is asked about plainly."""
    path = tmp_path / "bills.db"
    child = os.fork()
    if child == 0:
        with perdure.open(path) as store:
            thread = on(store, paying(ASKS[ask], how="kill"))
            thread.run("Pay Eve.")
            approve_all(thread)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    with perdure.open(path) as store:
        on(store, paying(ASKS[ask])).resume()
        thread = on(store, paying(ASKS[ask]), to=to)
        (question,) = thread.run("Pay.").approvals

    is_repeat = to == "eve"
    assert question.action == ("repeat" if is_repeat else "approve")
    assert (MAY in question.message, "same call" in question.message) == (is_repeat, is_repeat)
    assert paid == []  # in this process


@pytest.mark.parametrize("where", ["undone", "fork", "switched"])
def test_a_payment_that_the_model_does_not_know_of_is_in_the_first_question(
    store: Store, store_url: str, where: str
) -> None:
    """It was undone, is on another timeline, or another model asked for it."""
    first = pay_once(store, paying())
    with perdure.open(store_url) as other:
        thread, timeline = on(other, paying()), "main"
        if where == "undone":
            thread.undo()
        if where == "fork":
            timeline = thread.fork("beside", at="version:1").timeline
        if where == "switched":
            thread.switch(Script(use("pay", to="eve"), say("Hm."), backend="two"))

    with perdure.open(store_url) as other:
        backend = "two" if where == "switched" else "one"
        (question,) = on(other, paying(), backend=backend, timeline=timeline).run("Pay.").approvals

    assert question.action == "repeat"
    assert first in question.message
    assert paid == ["eve"]


def test_a_key_is_not_looked_up_before_the_gate(store: Store, store_url: str) -> None:
    """A call without a question of its own, whose key an unclear call has, is asked about once and not twice."""
    first = pay_once(store, paying(False, how="raise", key="pay-{to}"))

    with perdure.open(store_url) as other:
        thread = on(other, paying(False, key="pay-{to}"))
        (question,) = thread.run("Pay.").approvals

    assert (question.action, question.message) == (
        "repeat",
        f"the same call to pay, '{first}', is unknown: {MAY}",
    )


@pytest.mark.parametrize("to", ["eve", "bob"])
@pytest.mark.parametrize("error", [True, False])
def test_an_imported_payment_is_in_the_first_question(
    store: Store, store_url: str, error: bool, to: str
) -> None:
    """It was made elsewhere, or ended in an error there; control: another payment is asked about plainly."""
    asked = {"type": "tool_use", "id": "t1", "name": "pay", "input": {"to": "eve"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Hm.", "is_error": error}
    said = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": [asked]},
        {"role": "user", "content": [result]},
    ]
    on(store, paying()).add(said, api="anthropic-messages")

    with perdure.open(store_url) as other:
        (question,) = on(other, paying(), to=to).run("Pay.").approvals

    assert question.action == ("repeat" if to == "eve" else "approve")
    assert (MAY in question.message) == (error and to == "eve")


def delegating(store: Store, tool: Tool) -> Thread:
    """Return a thread whose agent lets another agent make the payment."""
    child = Agent("payer", backend=Script(use("pay", to="eve"), say("Hm.")), tools=[tool])

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return str(call.run(child, "Pay", thread="books").text)

    boss = Agent("boss", backend=Script(use("delegate"), say("Well."), backend="one"), tools=[delegate])
    return store.thread("bills", agent=boss)


def test_a_child_run_is_asked_about_once(store: Store, store_url: str) -> None:
    """Its own thread and the root thread have a gate each, and the approval covers both."""
    thread = delegating(store, paying(how="raise"))
    thread.run("Pay Eve.")
    approve_all(thread)
    assert paid == ["eve"]

    with perdure.open(store_url) as other:
        thread = delegating(other, paying())
        (question,) = thread.run("Pay Eve again.").approvals
        approve_all(thread)
        left = thread.approvals()

    assert (question.action, MAY in question.message) == ("repeat", True)
    assert (paid, [*left]) == (["eve", "eve"], [])


@pytest.mark.parametrize("to", ["eve", "bob"])
def test_a_tool_that_may_repeat_tells_of_an_unclear_call(store: Store, store_url: str, to: str) -> None:
    """The guard allows it, and the tool asks; control: nothing is said about another payment."""
    first = pay_once(store, paying(how="raise", repeat_guard="allow"))

    with perdure.open(store_url) as other:
        (question,) = on(other, paying(repeat_guard="allow"), to=to).run("Pay.").approvals

    told = f"; the same call, '{first}', was unknown when this was asked: {MAY}" if to == "eve" else ""
    assert question.action == "approve"
    assert question.message == f"pay (financial) asks for approval before it runs{told}"


def test_an_unclear_call_is_told_before_newer_ones_that_were_done(store: Store) -> None:
    """Whoever decides has to know the payment that may have been made and was not settled."""
    first = pay_once(store, paying(how="raise", repeat_guard="allow"))
    thread = on(store, paying(repeat_guard="allow"))
    thread.run("Pay.")
    approve_all(thread)

    (question,) = on(store, paying(repeat_guard="allow")).run("Once more.").approvals

    assert f"'{first}', was unknown" in question.message


def test_the_root_is_told_what_became_of_a_call_of_a_child(store: Store) -> None:
    """The root's entry says that it started; the child's ledger says that it failed, was done, or is not known."""
    thread = delegating(store, paying(how="raise", repeat_guard="allow"))
    thread.run("Pay Eve.")
    approve_all(thread)

    (question,) = on(store, paying(repeat_guard="allow"), agent="boss").run("Pay Eve.").approvals

    assert f"was unknown when this was asked: {MAY}" in question.message


def test_the_root_is_told_of_a_call_of_a_child_that_waits(store: Store) -> None:
    """Its ticket is in the thread of the child; approving both pays twice."""
    delegating(store, paying()).run("Pay Eve.")
    (waiting,) = store.approvals()

    thread = on(store, paying(), agent="boss")
    thread.run("Pay Eve.")

    (question,) = [
        each.message for each in thread.approvals() if each.tool == "pay" and each.call != waiting.call
    ]
    assert f"the same call, '{waiting.call}', was requested before and waited when this was asked" in question


@pytest.mark.parametrize("verdict", ["approve", "edit", "deny"])
def test_an_approved_call_that_has_not_run_is_told(
    store: Store, verdict: Literal["approve", "edit", "deny"]
) -> None:
    """It will be made as soon as its run goes on; control: one that was denied will not, and nothing is said."""
    thread = on(store, paying(), to="bob" if verdict == "edit" else "eve")
    (ticket,) = thread.run("Pay.").approvals
    thread.decide(ticket.call, verdict, value={"to": "eve"} if verdict == "edit" else None, by="ann")

    (question,) = [each for each in on(store, paying()).run("Pay Eve.").approvals if each.call != ticket.call]

    will_run = f"the same call, '{ticket.call}', was approved before and had not run when this was asked"
    assert (will_run in question.message) == (verdict != "deny")
    assert paid == []
