"""Words do not settle a call: a message by hand cannot answer a call of the ledger that is open."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.errors import Conflict
from perdure.model.message import Text, ToolCall, ToolResult
from perdure.testing import Script, say, use
from tests.coded import raises

SENT: list[str] = []


@perdure.tool(effect="external_write", ask=True)
def send(to: str) -> str:
    """Send, after a person was asked."""
    SENT.append(to)
    return f"sent to {to}"


@perdure.tool(effect="external_write")
def post(to: str) -> str:
    """Fail, so that nobody knows whether anything was sent."""
    raise ConnectionError("no answer")


@pytest.fixture
def store() -> Store:
    """A store in memory; nothing was sent."""
    SENT.clear()
    return perdure.open("memory:")


def answered(thread: Thread, call: str) -> None:
    """Say by hand that a call was made."""
    with thread.change("answer") as change:
        change.say("tool", tool_results=[ToolResult(call, "success", (Text("sent"),))])


def test_a_call_that_waits_is_not_answered_by_a_message(store: Store) -> None:
    """It still waits, nothing was written, and the decision is what counts."""
    agent = Agent("a", backend=Script(use("send", to="ann"), say("Done.")), tools=[send])
    thread = store.thread("t", agent=agent)
    call = thread.run("Send").approvals[0].call
    before = thread.head

    with pytest.raises(Conflict):
        answered(thread, call)

    assert thread.head == before
    thread.decide(call, "approve")
    assert thread.resume().status == "succeeded"
    assert SENT == ["ann"]


@pytest.mark.parametrize("how", ["once", "whole", "op_id"])
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "vendor's"])
def test_a_call_that_waits_is_not_answered_by_an_imported_message(
    store: Store, how: str, is_ours: bool
) -> None:
    """Another program made the call and says so in the list: the thread would say the same, and make it again."""
    agent = Agent("a", backend=Script(use("send", id="c1", to="ann"), say("Done.")), tools=[send])
    thread = store.thread("t", agent=agent)
    call = thread.run("Send").approvals[0].call
    id, before = call if is_ours else "c1", thread.head
    said = {"id": id, "type": "function", "function": {"name": "send", "arguments": '{"to": "ann"}'}}
    asked = [{"role": "user", "content": "Send"}, {"role": "assistant", "tool_calls": [said]}]
    result = {"role": "tool", "tool_call_id": id, "content": "sent"}

    with raises(Conflict, "call_open"):
        if how == "op_id":
            thread.add([result], api="openai-chat", op_id="again")
        else:
            thread.add([*asked, result], api="openai-chat", once=how == "once", whole=how == "whole")

    assert thread.head == before
    thread.decide(call, "deny")
    assert thread.resume().status == "succeeded"
    assert SENT == []


def test_a_call_whose_outcome_nobody_knows_is_not_answered_by_a_message(store: Store) -> None:
    """Somebody has to say what became of it, with `resolve`."""
    thread = store.thread("t", agent="a")
    state = thread.call(post, {"to": "ann"}, id="c-1").state

    with pytest.raises(Conflict):
        answered(thread, "c-1")

    assert state == "unknown"


def test_a_call_that_the_ledger_does_not_have_is_answered(store: Store) -> None:
    """Control: a conversation that was had elsewhere is written down as it was."""
    thread = store.thread("t", agent="a")
    with thread.change("asked") as change:
        change.say("assistant", tool_calls=[ToolCall("c-1", "send", "{}")])

    answered(thread, "c-1")

    assert len(thread.transcript()) == 2


def test_a_call_that_was_made_may_be_told_again(store: Store) -> None:
    """Control: what is settled cannot be made to look otherwise."""
    thread = store.thread("t", agent="a")
    thread.decide(thread.call(send, {"to": "ann"}, id="c-1").id, "deny")

    answered(thread, "c-1")

    assert [call.state for call in thread.calls()] == ["denied"]
