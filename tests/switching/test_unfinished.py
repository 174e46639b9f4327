"""A switch with an unfinished external write is refused or gated; a suspended approval survives it."""

from __future__ import annotations

import threading

import pytest

import perdure
from perdure import Agent, Policy, Store, Thread, Tool
from perdure.errors import Refused
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.coded import raises
from tests.switching.scenes import Counting, committed

B = "anthropic:claude-sonnet-5-5"


def payer(tool: Tool, *steps: ScriptStep, policy: Policy | None = None) -> Agent:
    """An agent that pays."""
    script = Script(*steps, backend="openai:gpt-5.6")
    return Agent("payer", backend=script, tools=[tool], policy=policy or Policy())


def uncertain(store: Store, world: Counting, policy: Policy | None = None) -> Thread:
    """A thread whose last payment nobody knows the outcome of."""
    agent = payer(world.tool(), use("pay", to="boom"), say("I do not know."), policy=policy)
    thread = store.thread("rent", agent=agent)
    thread.run("Pay")
    assert [call.state for call in thread.calls()] == ["unknown"]
    return thread


def test_an_unknown_write_is_in_the_way(store: Store, world: Counting) -> None:
    """Nobody could tell the new backend what became of it: nothing is switched, and the report says what to do."""
    thread = uncertain(store, world)
    before = thread.head

    with pytest.raises(Refused) as refused:
        thread.switch(B)
    assert isinstance(refused.value.report, perdure.Report)
    assert [item.topic for item in refused.value.report.items if item.gate == "block"] == ["unfinished"]

    assert thread.head == before
    assert not thread.check_switch(B).ok


def test_once_it_is_settled_the_switch_is_made(store: Store, world: Counting) -> None:
    """Control: what stood in the way was that call and nothing else."""
    thread = uncertain(store, world)
    (call,) = thread.calls()

    thread.resolve(call.id, "done", by="ann")

    assert thread.switch(Script(say("Hello."), backend=B)).switched
    assert world.done == {"boom": 1}


def test_an_imported_call_of_unknown_outcome_is_in_no_way(store: Store, world: Counting) -> None:
    """No run here made the call: the prompt says that its outcome is unknown, and the guard asks before an equal one."""
    call = {"name": "pay", "arguments": '{"to": "ann"}'}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": call}],
    }
    thread = store.thread("rent", agent=payer(world.tool()))
    thread.add([{"role": "user", "content": "Pay"}, asked], api="openai-chat")

    assert thread.switch(Script(use("pay", to="ann"), say("It waits."), backend=B)).switched
    thread.run("Was it paid?")

    assert [each.state for each in thread.calls()] == ["unknown", "awaiting_approval"]
    assert world.done == {}


def test_a_policy_can_leave_it_to_a_person(store: Store, world: Counting) -> None:
    """Refused without a name; with one the switch is made, and the checkpoint lists the call as maybe done."""
    thread = uncertain(store, world, Policy(unfinished="approve"))

    with raises(Refused, "switch_needs_approval") as refused:
        thread.switch(B)
    assert isinstance(refused.value.report, perdure.Report)
    assert refused.value.report.outcome == "approval"
    report = thread.switch(Script(say("Hello."), backend=B), approved_by="ann")

    assert committed(thread).approved_by == "ann"
    assert report.checkpoint is not None
    assert [(each.tool, each.state, each.is_written) for each in report.checkpoint.calls] == [
        ("pay", "unknown", True)
    ]


def test_a_policy_can_wait_for_a_call_that_is_under_way(store: Store) -> None:
    """The switch goes on when the call is settled, and not before."""
    begun, end = threading.Event(), threading.Event()

    @perdure.tool(effect="external_write")
    def slow() -> str:
        """Take a while."""
        begun.set()
        assert end.wait(30)
        return "done"

    agent = payer(slow, say("Hello."), policy=Policy(unfinished="wait"))
    thread = store.thread("rent", agent=agent)
    thread.run("Hello")
    by_hand = threading.Thread(target=lambda: store.thread("rent", agent=agent).call(slow, {}, id="call-1"))
    by_hand.start()
    assert begun.wait(30)
    ended = threading.Timer(0.2, end.set)
    ended.start()

    report = thread.switch(Script(say("Hello."), backend=B))

    by_hand.join()
    assert end.is_set()
    assert report.switched
    assert report.of("unfinished") is None


def test_without_waiting_a_call_that_is_under_way_is_in_the_way(store: Store) -> None:
    """Control: the usual policy refuses at once."""
    begun, end = threading.Event(), threading.Event()

    @perdure.tool(effect="external_write")
    def slow() -> str:
        """Take a while."""
        begun.set()
        assert end.wait(30)
        return "done"

    agent = payer(slow, say("Hello."))
    thread = store.thread("rent", agent=agent)
    by_hand = threading.Thread(target=lambda: store.thread("rent", agent=agent).call(slow, {}, id="call-1"))
    by_hand.start()
    assert begun.wait(30)

    with pytest.raises(Refused) as refused:
        thread.switch(B)
    assert isinstance(refused.value.report, perdure.Report)
    assert [item.topic for item in refused.value.report.items if item.gate == "block"] == ["unfinished"]

    end.set()
    by_hand.join()


def test_an_approval_that_waits_survives_a_switch_and_is_decided_after(store: Store, world: Counting) -> None:
    """The question is the same one; when it is approved the call is made once, and the new backend goes on."""
    agent = payer(world.tool(ask=True), use("pay", to="ann"))
    thread = store.thread("rent", agent=agent)
    waiting = thread.run("Pay Ann")
    (asked,) = waiting.approvals
    second = Script(say("Ann has her rent."), backend=B)

    report = thread.switch(second)
    assert thread.approvals() == [asked]
    thread.decide(asked.call, "approve", by="ben")
    result = thread.resume()

    assert (result.run, result.status, result.text) == (waiting.run, "succeeded", "Ann has her rent.")
    assert world.done == {"ann": 1}
    assert report.checkpoint is not None
    assert [each.call for each in report.checkpoint.pending_approvals] == [asked.call]
    assert len(second.contexts) == 1


def test_an_approval_can_be_denied_after_a_switch(store: Store, world: Counting) -> None:
    """Then nothing is done, and the new backend is told."""
    thread = store.thread("rent", agent=payer(world.tool(ask=True), use("pay", to="ann")))
    (asked,) = thread.run("Pay Ann").approvals
    second = Script(say("Very well."), backend=B)

    thread.switch(second)
    thread.decide(asked.call, "deny", by="ben", why="not this month")
    result = thread.resume()

    assert (result.status, world.done) == ("succeeded", {})
    assert "not this month" in str(list(second.contexts[0].messages))


def test_a_call_of_another_line_is_in_nobody_s_way_here(store: Store, world: Counting) -> None:
    """What became unknown on a fork does not keep main from being switched."""
    agent = payer(world.tool(), say("Hello."), use("pay", to="boom"), say("I do not know."))
    thread = store.thread("rent", agent=agent)
    thread.run("Hello")
    thread.fork("what-if").run("Pay")

    report = thread.switch(Script(say("Hello."), backend=B))

    assert report.switched
    assert not thread.on("what-if").check_switch(B).ok


def test_what_is_rendered_and_exported_of_a_call_under_way_says_that_it_may_have_happened(
    store: Store,
) -> None:
    """It was told as a call that waits for a decision, although the payment may have been made."""
    seen: list[str] = []

    @perdure.tool(effect="external_write")
    def pay(to: str) -> str:
        """Pay; the conversation is rendered meanwhile."""
        thread = store.thread("rent")
        seen.extend(str(each.body) for each in (thread.render(B), thread.export("openai-chat")))
        return "paid"

    store.thread("rent", agent=payer(pay, use("pay", to="ann"), say("Paid."))).run("Pay")

    assert ["The outcome of this call is unknown. It may have happened." in each for each in seen] == [
        True
    ] * 2
    assert not any("has not been carried out yet" in each for each in seen)


def test_between_turns_nothing_is_said_to_be_put_in(store: Store, world: Counting) -> None:
    """The next request ends with an input; the check listed a 'Continue.' that it never has."""
    thread = store.thread("rent", agent=payer(world.tool(), use("pay", to="ann"), say("Paid.")))
    thread.run("Pay")

    assert not [each for each in thread.check_switch(B).losses if each.kind == "repaired"]
    assert "Continue." in str(thread.render(B).body)  # control: a request without an input


def test_what_is_rendered_of_a_call_that_waits_says_so(store: Store, world: Counting) -> None:
    """Control: nothing of it has happened."""
    thread = store.thread("rent", agent=payer(world.tool(ask=True), use("pay", to="ann"), say("Paid.")))
    assert thread.run("Pay").status == "waiting"

    assert "This call has not been carried out yet" in str(thread.render(B).body)
    assert "This call has not been carried out yet" in str(thread.export("openai-chat").body)
