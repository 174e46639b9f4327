"""A thread is not removed under a run, nor while nobody knows what became of a call."""

from __future__ import annotations

import perdure
from perdure import Agent, Call
from perdure.errors import Busy, Conflict, NotFound
from perdure.testing import Script, say, use
from tests.coded import raises


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def test_a_thread_is_not_removed_under_a_run() -> None:
    """The ledger would go with it, and with it what keeps the call from being made twice."""
    store = perdure.open("memory:")
    met: list[Exception] = []

    @perdure.tool(effect="external_write")
    def remove(call: Call) -> str:
        try:
            store.thread("t").rm(force=True)
        except Conflict as error:
            met.append(error)
        return call.id

    thread = store.thread("t", agent=Agent("a", backend=Script(use("remove"), say("Done.")), tools=[remove]))

    thread.run("Remove yourself")

    assert [type(error) for error in met] == [Busy]
    assert [call.state for call in thread.calls()] == ["succeeded"]


def test_a_thread_with_an_open_question_is_kept_unless_it_is_given_up() -> None:
    """Whoever removes it has to say that the open calls do not matter."""
    store = perdure.open("memory:")
    thread = store.thread("t", agent=Agent("a", backend=Script(use("pay", amount=3)), tools=[pay]))
    thread.run("Pay 3")

    with raises(Conflict, "calls_not_settled", thread="t", calls=(thread.approvals()[0].call,)):
        thread.rm()
    thread.rm(force=True)

    with raises(NotFound, "thread_not_found", thread="t"):
        store.thread("t")


def test_resuming_without_a_backend_takes_no_line() -> None:
    """The natural mistake after a decision costs nothing: the right call works at once."""
    store = perdure.open("memory:")
    agent = Agent("a", backend=Script(use("pay", amount=3), say("Paid.")), tools=[pay])
    thread = store.thread("t", agent=agent)
    thread.decide(thread.run("Pay 3").approvals[0].call, "approve")

    with raises(perdure.errors.Invalid, "backend_missing", agent="a"):
        store.thread("t").resume()

    assert thread.resume().status == "succeeded"


def test_a_live_run_is_named_before_its_open_calls() -> None:
    """Without force too: a call that the run has started is the run's business, and it is `Busy`."""
    store = perdure.open("memory:")
    met: list[Exception] = []

    @perdure.tool(effect="external_write")
    def remove(call: Call) -> str:
        try:
            store.thread("t").rm()
        except Conflict as error:
            met.append(error)
        return call.id

    agent = Agent("a", backend=Script(use("remove"), say("Done.")), tools=[remove])

    store.thread("t", agent=agent).run("Remove yourself")

    assert [type(error) for error in met] == [Busy]
