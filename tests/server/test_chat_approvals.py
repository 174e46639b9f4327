"""Approvals by chat clients: what was decided goes on, whichever process is first to carry the run on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.runtime.run import control
from perdure.store.store import Store
from perdure.testing import Script, say, step, use
from tests.server.client import WAIT_SECONDS, Client, Reply, key, serving
from tests.server.test_chat_streams import AG_UI, AI_SDK, asked, frames, said, sent
from tests.server.test_streams import pausing, until


class Bank:
    """A tool that asks before it pays, and that a test can hold while it pays."""

    def __init__(self) -> None:
        """Let payments pass."""
        self.paying, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def agent(self, *steps: Any, pieces: int = 1) -> Agent:
        """An agent that pays."""

        @perdure.tool(effect="financial", ask=True)
        def pay(amount: int) -> str:
            """Pay an amount."""
            self.paying.set()
            assert self.may_end.wait(WAIT_SECONDS)
            return f"paid {amount}"

        return Agent("payer", backend=Script(*steps, pieces=pieces), tools=[pay])


@pytest.fixture
def bank() -> Generator[Bank]:
    """A bank whose payments have all ended when the test ends."""
    found = Bank()
    yield found
    found.may_end.set()


def approval(questions: list[Any], path: str) -> dict[str, Any]:
    """What a client sends that approves all questions, in the protocol of a path."""
    if path == AG_UI:
        resume = [
            {"interruptId": each["approvalId"], "status": "resolved", "payload": True} for each in questions
        ]
        return asked("Pay", resume=resume)
    parts = [
        {
            "type": "tool-pay",
            "toolCallId": each["toolCallId"],
            "state": "approval-responded",
            "approval": {"id": each["approvalId"], "approved": True},
        }
        for each in questions
    ]
    return {"messages": [{"id": "x", "role": "assistant", "parts": parts}]}


def questions(client: Client) -> list[Any]:
    """What the agent asks after the user has asked it to pay."""
    found = sent(client, AI_SDK, said("Pay"))
    return [each.data for each in found if each.data["type"] == "tool-approval-request"]


def overtaken(monkeypatch: pytest.MonkeyPatch, first: Callable[[], None]) -> None:
    """Let `first` go on with the run when the server has read it and is about to take it."""
    taken = control._continued  # pyright: ignore[reportPrivateUsage]
    calls: list[None] = []

    def continued(*args: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            first()
        return taken(*args)

    monkeypatch.setattr(control, "_continued", continued)


@pytest.mark.parametrize("path", [AI_SDK, AG_UI])
@pytest.mark.parametrize("is_held", [False, True], ids=["which has ended it", "which holds it"])
def test_an_approved_run_that_another_worker_takes_first_is_streamed_all_the_same(
    store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch, path: str, is_held: bool
) -> None:
    """The decision was recorded, so the client gets what comes of it, wherever the run goes on."""
    agent = bank.agent(use("pay", amount=1), say("Paid."))
    thread = store.thread("chat", agent=agent)
    worker = threading.Thread(target=thread.resume)

    def take_over() -> None:
        if is_held:
            bank.may_end.clear()
        worker.start()
        assert bank.paying.wait(WAIT_SECONDS)
        if not is_held:
            worker.join()

    with serving(store, agent) as client:
        body = approval(questions(client), path)
        overtaken(monkeypatch, take_over)
        reply = answered(client, path, body, bank)
        worker.join()

    assert reply.status == 200, reply.body
    assert b"Paid." in reply.body
    assert [run.state for run in thread.runs()] == ["succeeded"]


def answered(client: Client, path: str, body: Any, bank: Bank) -> Reply:
    """The whole answer to a request; payments end once it has begun."""
    with client.connected() as connection:
        response = client._sent(connection, "POST", path, body, None, None)  # pyright: ignore[reportPrivateUsage]
        bank.may_end.set()
        return Reply(response.status, {}, response.read())


@pytest.mark.parametrize("path", [AI_SDK, AG_UI])
def test_a_run_goes_on_although_another_person_decided_one_of_its_questions(
    store: Store, bank: Bank, path: str
) -> None:
    """The client is told who was first, its other answer counts, and the run does not wait for ever."""
    agent = bank.agent(step(use("pay", amount=1), use("pay", amount=2)), say("Paid."))
    thread = store.thread("chat", agent=agent)
    with serving(store, agent) as client:
        first, second = questions(client)
        bob = Client(client.port, key(store, "bob", "approver"))
        bob.post("/v1/threads/chat/decide", {"call": first["toolCallId"], "verdict": "deny"})

        reply = client.post(path, approval([first, second], path))

        until(lambda: [run.state for run in thread.runs()] == ["succeeded"])
    assert (reply.status, reply.json["code"]) == (409, "decided")
    assert [call.state for call in thread.calls()] == ["denied", "succeeded"]


@pytest.mark.parametrize("is_named", [True, False], ids=["named by its id", "not named"])
def test_a_question_is_answered_after_another_turn(store: Store, bank: Bank, is_named: bool) -> None:
    """The client sends its whole list, in which the decision is in an earlier message: the answer continues that one."""
    agent = bank.agent(use("pay", amount=1), say("Hello."), say("Paid."))
    thread = store.thread("chat", agent=agent)

    with serving(store, agent) as client:
        (late,) = approval(questions(client), AI_SDK)["messages"]
        sent(client, AI_SDK, said("Hi", id="m2"))
        first, second = (each.id for each in thread.runs())
        listed = [*said("Pay")["messages"], {**late, "id": first}, *said("Hi", id="m2")["messages"]]
        parts = [{"type": "text", "text": "Hello."}]
        body = {"messages": [*listed, {"id": second, "role": "assistant", "parts": parts}]}
        body |= {"messageId": first} if is_named else {}
        found = sent(client, AI_SDK, body)

    assert [run.state for run in thread.runs()] == ["succeeded", "succeeded"]
    assert "Paid." in [each.data.get("delta") for each in found]
    assert {each.data["messageId"] for each in found if each.data["type"] == "start"} == {first}


def test_an_approval_of_which_nothing_is_overtaken_is_streamed_from_here(store: Store, bank: Bank) -> None:
    """Control: without another worker the server itself goes on, and the stream ends with the run."""
    agent = bank.agent(use("pay", amount=1), say("Paid."))
    store.thread("chat", agent=agent)
    with serving(store, agent) as client:
        found = frames(client.post(AI_SDK, approval(questions(client), AI_SDK)).body)

    assert found[-1].data == {"type": "finish", "finishReason": "stop"}


def test_a_stream_goes_on_after_the_commits_of_another_run(
    store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waited while another one wrote to its timeline, and went on; read afterwards, its answer is whole.

    The reader waits for nothing: the run has ended, whatever others write after it.
    """
    monkeypatch.setattr("perdure.server.protocols.run_parts._NEWS_SECONDS", 10 * WAIT_SECONDS)
    steps = use("pay", amount=1), say("Words of the other run."), say("Paid."), say("More.")
    thread = store.thread("chat", agent=bank.agent(*steps, pieces=4))
    first = thread.run("Pay", id="m1").run
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    thread.run("Speak", id="m2")
    thread.resume(first)
    thread.run("Speak again", id="m3")

    with serving(store) as client:
        read = client.get(f"{AI_SDK}/x/stream?message={first}").body

    assert "".join(frame.data.get("delta", "") for frame in frames(read)) == "Paid."


def test_a_stream_has_no_words_of_another_run(store: Store, bank: Bank) -> None:
    """While a decided run waits for a worker, another run may speak on its timeline."""
    steps = use("pay", amount=1), say("Words of the other run."), say("Paid.")
    thread = store.thread("chat", agent=bank.agent(*steps, pieces=4))
    first = thread.run("Pay", id="m1").run
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    held, go_on = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: thread.run("Speak", id="m2"))

    with serving(store) as client, client.connected() as connection, pausing(held, go_on):
        other.start()
        assert held.wait(WAIT_SECONDS)
        connection.request("GET", f"{AI_SDK}/x/stream?message={first}", headers=client.own)
        response = connection.getresponse()
        read = b""
        while b"tool-approval-request" not in read:
            read += response.readline()
        go_on.set()
        other.join()
        thread.resume(first)
        read += response.read()

    assert "".join(frame.data.get("delta", "") for frame in frames(read)) == "Paid."
    assert [run.state for run in thread.runs()] == ["succeeded"] * 2
