"""A thread is not removed under a run, nor while nobody knows what became of a call."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Stop, Store, Thread
from perdure.errors import Busy, Conflict, NotFound, RunFailed
from perdure.model.run import RUN_STATES, RunState
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


_ENDED: tuple[RunState, ...] = ("succeeded", "failed", "cancelled", "stopped")


def _thread(store: Store, *steps: object, **options: object) -> Thread:
    agent = Agent("a", backend=Script(*steps), tools=[pay], **options)  # pyright: ignore[reportArgumentType]
    return store.thread("t", agent=agent)


def _with_run(store: Store, state: str) -> Thread:
    """Return a thread whose only run is in that state, and whose calls are settled."""
    match state:
        case "created":
            thread = _thread(store)
            thread.start("Pay 3")
        case "waiting":
            thread = _thread(store, use("pay", amount=3))
            thread.decide(thread.run("Pay 3").approvals[0].call, "deny")
        case "succeeded":
            thread = _thread(store, say("Done."))
            thread.run("Pay 3")
        case "failed":
            thread = _thread(store)
            with pytest.raises(RunFailed):
                thread.run("Pay 3")
        case "cancelled":
            thread = _thread(store)
            thread.cancel(thread.start("Pay 3"))
        case _:
            assert state == "stopped"
            thread = _thread(store, use("pay", amount="x"), stop=Stop(steps=1))
            thread.run("Pay 3")
    assert [run.state for run in thread.runs()] == [state]
    return thread


@pytest.mark.parametrize("state", [each for each in RUN_STATES if each != "running"])
def test_a_thread_is_removed_only_if_its_runs_have_ended(state: RunState) -> None:
    """A run whose last call was decided still has to go on; the control is that each ended run lets the thread go."""
    with perdure.open("memory:") as store:
        thread = _with_run(store, state)

        if state in _ENDED:
            thread.rm()
        else:
            code = {"created": "inputs_not_begun", "waiting": "runs_waiting"}[state]
            with raises(Conflict, code, thread="t", runs=(thread.runs()[0].id,)):
                thread.rm()

        assert (not list(store.threads())) == (state in _ENDED)


def test_a_waiting_run_is_given_up_by_force_or_ended_first() -> None:
    """Both ways that the refusal names let the thread go."""
    with perdure.open("memory:") as store:
        _with_run(store, "waiting").rm(force=True)
        thread = _with_run(store, "waiting")
        thread.cancel(thread.runs()[0].id)
        thread.rm()

        assert list(store.threads()) == []


def test_a_waiting_run_on_a_fork_keeps_the_thread() -> None:
    """Every timeline counts, not `main` alone."""
    with perdure.open("memory:") as store:
        thread = _thread(store, say("Hello."), use("pay", amount=3))
        thread.run("Hello")
        fork = thread.fork("side")
        fork.decide(fork.run("Pay 3").approvals[0].call, "deny")

        with raises(Conflict, "runs_waiting", thread="t"):
            thread.rm()
