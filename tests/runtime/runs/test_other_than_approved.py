"""An approval covers exactly what was shown; what is about to run now is asked about anew."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure import Agent, Call, Store
from perdure.ledger import repeat_guard, tickets
from perdure.model.call import CallRecord
from perdure.runtime.tools.tool import Tool
from perdure.store.thread import Thread
from perdure.testing import Script, say, use
from tests.runtime.runs.world import World


def paying(world: World, tool: Tool) -> Agent:
    """An agent that pays 3 with that tool."""
    return Agent("payer", backend=Script(use("pay", amount=3), say("Done.")), tools=[tool])


def pay_in(world: World, currency: str, version: str | None = None) -> Tool:
    """A tool that pays in a currency which the model need not name."""

    @perdure.tool(effect="financial", ask=True, version=version)
    def pay(amount: int, currency: str = currency, *, call: Call) -> str:
        world.do(f"{amount} {currency}", call.key, call.attempt)
        return "paid"

    return pay


def edited_to(store: Store, world: World, amount: int) -> list[str]:
    """Pay 3, change the next payment to `amount`, and return what the guard asks about then."""
    steps = (use("pay", amount=3), say("Done."), use("pay", amount=30))
    thread = store.thread("t", agent=Agent("payer", backend=Script(*steps), tools=[pay_in(world, "EUR")]))
    for input, value in (("Pay three.", 3), ("Pay thirty.", amount)):
        (ticket,) = thread.run(input).approvals
        thread.decide(ticket.call, "edit", value={"amount": value, "currency": "EUR"}, by="ann")
        asked = thread.resume().approvals if value == 3 else finishing_on(store, world).resume().approvals
    return [each.message for each in asked]


def finishing_on(store: Store, world: World) -> Thread:
    """Return the thread with the agent whose model has nothing more to ask for."""
    return store.thread("t", agent=finishing(world))


def test_arguments_that_a_person_made_equal_to_a_payment_are_asked_about(store: Store, world: World) -> None:
    """The model asked for thirty; who changed that to three may not know that three were paid."""
    (question,) = edited_to(store, world, 3)

    assert "was done before; the model had asked for other arguments" in question
    assert world.counted() == {"3 EUR": 1}
    thread = finishing_on(store, world)
    thread.decide(thread.approvals()[0].id, "approve", by="ann")
    assert thread.resume().status == "succeeded"
    assert world.counted() == {"3 EUR": 2}


def test_control_other_arguments_that_a_person_gave_are_not(store: Store, world: World) -> None:
    """Four were not paid before."""
    assert edited_to(store, world, 4) == []
    assert world.counted() == {"3 EUR": 1, "4 EUR": 1}


WAITING = ("awaiting_approval", "approved")
OTHERWISE = {"another default": ("GBP", None), "another version": ("EUR", "2")}


@pytest.mark.parametrize("change", OTHERWISE)
@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_what_changed_since_the_approval_is_asked_again(
    store: Store, world: World, change: str, verdict: str
) -> None:
    """Another default, another version of the tool: nothing is paid until somebody has seen that."""
    before = store.thread("bills", agent=paying(world, pay_in(world, "EUR")))
    (ticket,) = before.run("Pay").approvals
    if verdict == "approve":
        before.decide(ticket.call, "approve", by="ann")
    else:
        before.decide(ticket.call, "edit", value={"amount": 4}, by="ann")

    after = store.thread("bills", agent=paying(world, pay_in(world, *OTHERWISE[change])))
    result = after.resume()

    assert result.status == "waiting"
    assert world.deeds() == []
    (asked,) = result.approvals
    assert (asked.call, asked.action) == (ticket.call, "approve")
    assert asked.id != ticket.id
    assert asked.fingerprint != ticket.fingerprint


@pytest.mark.parametrize(("verdict", "paid"), [("approve", {"3 GBP": 1}), ("deny", {})])
def test_the_new_question_is_decided_like_any_other(
    store: Store, world: World, verdict: str, paid: dict[str, int]
) -> None:
    """Approved, exactly what was shown now is paid, once."""
    thread = _changed(store, world)
    (asked,) = thread.resume().approvals

    thread.decide(asked.id, "approve" if verdict == "approve" else "deny", by="ann")

    assert thread.resume().status == "succeeded"
    assert world.counted() == paid


def test_what_did_not_change_is_not_asked_again(store: Store, world: World) -> None:
    """A new process with the same tool goes on."""
    store.thread("bills", agent=paying(world, pay_in(world, "EUR"))).run("Pay")
    thread = store.thread("bills", agent=paying(world, pay_in(world, "EUR")))

    thread.decide(thread.calls()[0].id, "approve", by="ann")

    assert thread.resume().status == "succeeded"
    assert world.counted() == {"3 EUR": 1}


def test_edited_arguments_are_what_is_paid(store: Store, world: World) -> None:
    """An edit is the approval of other arguments: these run, and not the model's."""
    thread = store.thread("bills", agent=paying(world, pay_in(world, "EUR")))
    (ticket,) = thread.run("Pay").approvals

    thread.decide(ticket.call, "edit", value={"amount": 2, "currency": "SEK"}, by="ann")

    assert thread.resume().status == "succeeded"
    assert world.counted() == {"2 SEK": 1}


def test_an_approval_that_is_not_bound_pays_what_nobody_saw(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: where a yes is a yes, another currency is paid than the one that was approved."""
    thread = _changed(store, world)

    def bound(record: CallRecord, fingerprint: str) -> bool:
        return True

    monkeypatch.setattr(tickets, "still_bound", bound)

    assert thread.resume().status == "succeeded"
    assert world.counted() == {"3 GBP": 1}


def _changed(store: Store, world: World) -> Thread:
    """A thread on which 3 EUR were approved, and the tool pays in GBP by now."""
    before = store.thread("bills", agent=paying(world, pay_in(world, "EUR")))
    (ticket,) = before.run("Pay").approvals
    before.decide(ticket.call, "approve", by="ann")
    return store.thread("bills", agent=paying(world, pay_in(world, "GBP")))


@perdure.tool(effect="financial", name="pay")
def pay_if_told(amount: int, call: Call) -> str:
    """Ask a question of its own."""
    if call.decision is None:
        call.suspend("May I?")
    return "paid"


def asked_twice(
    store: Store, world: World, second: int, *, is_done: bool, is_own: bool = False
) -> tuple[str, str]:
    """Ask for 3, and for `second` under another input; return the first call and the second question."""
    pay = pay_if_told if is_own else pay_in(world, "EUR")
    steps = (use("pay", amount=3), *([say("Done.")] if is_done else []), use("pay", amount=second))
    thread = store.thread("t", agent=Agent("payer", backend=Script(*steps), tools=[pay]))
    thread.run("Pay three.")
    first = thread.approvals()[0].call
    if is_done:
        thread.decide(first, "approve", by="ann")
        thread.resume()
    thread.run("Pay.")
    (question,) = [each.message for each in thread.approvals() if each.call != first]
    return first, question


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_person_is_told_of_an_equal_call_before(
    store: Store, world: World, is_done: bool, is_own: bool
) -> None:
    """It waits as well, or was done, whether the run asks or the tool; control: nothing is said of another call."""
    first, question = asked_twice(store, world, 3, is_done=is_done, is_own=is_own)

    assert f"the same call, '{first}', was {'done' if is_done else 'requested'} before" in question


@pytest.mark.parametrize("is_done", [False, True])
def test_control_of_another_call_a_person_is_told_nothing(store: Store, world: World, is_done: bool) -> None:
    """Its arguments are others, so approving both pays what was asked for."""
    _, question = asked_twice(store, world, 4, is_done=is_done)

    assert "same call" not in question


def finishing(world: World) -> Agent:
    """Return the agent whose model has nothing more to ask for."""
    return Agent("payer", backend=Script(then=say("Done.")), tools=[pay_in(world, "EUR")])


def test_a_payment_that_was_made_since_it_was_asked_about_is_asked_about_again(
    store: Store, world: World
) -> None:
    """The first question was asked before the second input, so it said nothing of the payment made for that."""
    first, _ = asked_twice(store, world, 3, is_done=False)
    thread = store.thread("t", agent=finishing(world))
    (second,) = [each for each in thread.approvals() if each.call != first]
    thread.decide(second.call, "approve", by="ann")
    thread.resume(second.run)

    thread.decide(first, "approve", by="ben")
    asked = thread.resume().approvals

    assert world.counted() == {"3 EUR": 1}
    assert [(each.call, each.action) for each in asked] == [(first, "repeat")]


def test_control_who_was_told_of_an_equal_call_is_asked_once(store: Store, world: World) -> None:
    """The second question named the first call, which was paid before it was answered."""
    first, _ = asked_twice(store, world, 3, is_done=False)
    thread = store.thread("t", agent=finishing(world))
    for ticket in sorted(thread.approvals(), key=lambda each: each.call != first):
        thread.decide(ticket.call, "approve", by="ann")
        assert thread.resume(ticket.run).status == "succeeded"

    assert world.counted() == {"3 EUR": 2}


def timed_twice(store: Store, world: World, second: int) -> Thread:
    """Return a thread whose two inputs asked for payments, 3 and `second`, that both waited for a time."""

    @perdure.tool(effect="financial")
    def pay(amount: int, call: Call) -> str:
        if call.decision is None:
            call.suspend(until=0.5)  # both inputs are given before the time comes
        world.do(amount, call.key, call.attempt)
        return "paid"

    steps = (use("pay", amount=3), use("pay", amount=second), say("Done."), say("Done."))
    agent = Agent("payer", backend=Script(*steps), tools=[pay])
    thread = store.thread("t", agent=agent)
    thread.run("Pay three.")
    thread.run("Pay.")
    while any(call.state in WAITING for call in thread.calls()) and not thread.approvals():
        store.work(agent, until_idle=True)
    return thread


def test_a_call_that_waited_for_a_time_does_not_repeat_what_was_done_since(
    store: Store, world: World
) -> None:
    """Both inputs asked for one payment while it waited, so no model saw it done, and no person was asked."""
    thread = timed_twice(store, world, 3)

    (asked,) = thread.approvals()
    assert (world.counted(), asked.action) == ({"3": 1}, "repeat")
    assert json.loads(asked.parameters or "{}")["case"] == "since"

    thread.decide(asked.call, "approve", by="ann")
    thread.resume()
    assert world.counted() == {"3": 2}


def test_control_another_call_that_waited_for_a_time_is_made(store: Store, world: World) -> None:
    """It is no repeat."""
    thread = timed_twice(store, world, 4)

    assert (world.counted(), thread.approvals()) == ({"3": 1, "4": 1}, [])


def test_control_without_the_rule_it_is_paid_twice(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the second payment back is that its model asked before it could know of the first."""
    monkeypatch.setattr(repeat_guard, "_was_known", lambda *_: True)

    timed_twice(store, world, 3)

    assert world.counted() == {"3": 2}
