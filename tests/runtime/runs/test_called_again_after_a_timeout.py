"""A tool does not answer in time, and the model calls it again, under a new id.

Nobody knows whether the first call happened, so the guard asks, also when its result has come in the
meantime: the model was told that nobody knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store
from perdure.model.context import Context
from perdure.runtime import failpoints
from perdure.runtime.tools.tool import Tool
from perdure.store.thread import Thread
from perdure.testing import Script, say, step, use
from perdure.testing.script import ScriptStep
from tests.runtime.runs.told import talk_of
from tests.runtime.runs.unguarded import guard_by_id_alone
from tests.runtime.runs.world import World

SECONDS = 0.2  # until the tool's time is up; it has begun by then
WAIT_SECONDS = 60.0  # only turns a hang into a failure


class Slow:
    """A tool that sends at once and answers only when it is let go."""

    def __init__(self, world: World) -> None:
        self.world, self.answers = world, threading.Event()
        self.asked = threading.Event()

    def tool(self, hook: Callable[[Call], Outcome] | None = None) -> Tool:
        """The tool, with a hook that finds out what became of it, or without."""

        @perdure.tool(effect="financial", timeout=SECONDS)
        def pay(amount: int, *, call: Call) -> str:
            self.world.do(amount, call.key, call.attempt)
            self.answers.wait(WAIT_SECONDS)
            return f"paid {amount}"

        if hook is not None:
            pay.reconcile(hook)
        return pay


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """A slow tool, let go at the end."""
    slow = Slow(World(tmp_path / "world"))
    yield slow
    slow.answers.set()


def settled(thread: Thread, number: int = 0) -> str:
    """The state of a call once it is not unclear any more."""
    for _ in range(int(WAIT_SECONDS / 0.01)):
        state = thread.calls()[number].state
        if state not in ("started", "unknown"):
            return state
        threading.Event().wait(0.01)
    return "unknown"


def payer(store: Store, slow: Slow, *script: ScriptStep | Callable[[Context], ScriptStep]) -> Thread:
    """A thread whose agent pays with the slow tool."""
    return store.thread("bills", agent=Agent("payer", backend=Script(*script), tools=[slow.tool()]))


def test_the_guard_asks(store: Store, slow: Slow) -> None:
    """The first call is unknown, the second waits, and one payment was made."""
    thread = payer(store, slow, use("pay", amount=3), use("pay", amount=3), say("Done."))

    result = thread.run("Pay")

    assert result.status == "waiting"
    assert [ticket.action for ticket in result.approvals] == ["repeat"]
    assert [call.state for call in thread.calls()] == ["unknown", "awaiting_approval"]
    assert slow.world.counted() == {"3": 1}


def test_the_guard_asks_also_when_the_result_came_late(store: Store, slow: Slow) -> None:
    """The ledger knows by now that it was done; the conversation does not, and the model means to repeat it."""

    def again(context: Context) -> ScriptStep:
        slow.answers.set()
        assert settled(thread) == "succeeded"
        return use("pay", amount=3)

    thread = payer(store, slow, use("pay", amount=3), again, say("Done."))

    result = thread.run("Pay")

    assert result.status == "waiting"
    assert [ticket.action for ticket in result.approvals] == ["repeat"]
    assert thread.calls()[0].late
    assert slow.world.counted() == {"3": 1}


@pytest.mark.parametrize("answer", ["done", "not_done", "dont_know"])
def test_a_result_that_comes_while_the_hook_is_asked_stands(store: Store, slow: Slow, answer: str) -> None:
    """Whatever the hook says then, the tool itself has said more; the run goes on with its result."""

    def hook(call: Call) -> Outcome:
        slow.answers.set()
        assert settled(thread) == "succeeded"
        return {"done": call.done("found"), "not_done": call.not_done(), "dont_know": call.dont_know()}[
            answer
        ]

    agent = Agent("payer", backend=Script(use("pay", amount=3), say("Done.")), tools=[slow.tool(hook)])
    thread = store.thread("bills", agent=agent)

    result = thread.run("Pay")

    assert result.status == "succeeded"
    assert [(call.state, call.late) for call in thread.calls()] == [("succeeded", True)]
    assert talk_of(thread)[2][3] == [("call 0", "success", "paid 3")]
    assert slow.world.counted() == {"3": 1}
    assert store.verify().ok


@pytest.mark.parametrize("alone", [True, False])
def test_a_result_that_comes_while_the_round_is_recorded_stands(
    store: Store, slow: Slow, alone: bool
) -> None:
    """Between the end of its time and the commit that tells of it."""

    def come() -> None:
        if thread.calls()[0].state == "started":
            slow.answers.set()
            assert settled(thread) == "succeeded"

    first = use("pay", amount=3) if alone else step(use("pay", amount=3), use("pay", amount=4))
    thread = payer(store, slow, first, say("Done."))
    failpoints.arm("while_recording", come)
    try:
        result = thread.run("Pay")
    finally:
        failpoints.disarm()

    assert result.status == "succeeded"
    assert talk_of(thread)[2][3][0] == ("call 0", "success", "paid 3")
    assert slow.world.repeated() == []
    assert store.verify().ok


def test_a_late_result_that_was_told_is_in_the_history(store: Store, slow: Slow) -> None:
    """Where the model was shown it after all, another payment is the model's business."""

    def come() -> None:
        if thread.calls()[0].state == "started":
            slow.answers.set()
            assert settled(thread) == "succeeded"

    thread = payer(store, slow, use("pay", amount=3), use("pay", amount=3), say("Done."))
    failpoints.arm("while_recording", come)
    try:
        result = thread.run("Pay")
    finally:
        failpoints.disarm()

    assert result.status == "succeeded"
    assert slow.world.counted() == {"3": 2}


def test_what_a_person_resolved_as_done_is_not_paid_again(store: Store, slow: Slow) -> None:
    """Nobody has told the model what the person knows, so the guard asks."""
    thread = payer(store, slow, use("pay", amount=3), say("Hm."), use("pay", amount=3), say("Done."))
    thread.run("Pay")
    thread.resolve(thread.calls()[0].id, "done", by="ann")

    result = thread.run("Has it been paid? If not, pay.")

    assert result.status == "waiting"
    assert slow.world.counted() == {"3": 1}


def test_a_guard_by_id_alone_pays_twice(store: Store, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the model's second call has an id of its own, so nothing stops it."""
    guard_by_id_alone(monkeypatch)
    thread = payer(store, slow, use("pay", amount=3), use("pay", amount=3), say("Done."))

    assert thread.run("Pay").status == "succeeded"

    assert slow.world.repeated() == ["3"]
