"""Who decided is known: from the effect financial up a name is required, and it is kept wherever one is given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store, Thread, aio, errors
from perdure.model.effect import EFFECTS, Effect
from perdure.model.ticket import Verdict
from perdure.testing import Script, say, use

NAMED = EFFECTS[EFFECTS.index("financial") :]
VALUES: dict[Verdict, object] = {"approve": None, "deny": None, "edit": {"amount": 3}, "answer": "by hand"}


def waiting(store: Store, effect: Effect) -> Thread:
    """A thread with a call of this effect that waits for a decision."""

    @perdure.tool(effect=effect, ask=True)
    def act(amount: int) -> str:
        return f"done {amount}"

    agent = Agent("actor", backend=Script(use("act", amount=5), say("Done.")), tools=[act])
    thread = store.thread("trip", agent=agent)
    thread.run("go")
    return thread


def unclear(store: Store, effect: Effect, searched: list[str]) -> Thread:
    """A thread with a call of this effect whose outcome nobody knows, until `searched` holds something."""

    @perdure.tool(effect=effect)
    def act() -> str:
        raise ConnectionError("reset by peer")

    @act.reconcile
    def find(call: Call) -> Outcome:
        return call.done("found") if searched else call.dont_know("the search is down")

    agent = Agent("actor", backend=Script(use("act"), say("Done.")), tools=[act])
    thread = store.thread("trip", agent=agent)
    thread.run("go")
    return thread


@pytest.mark.parametrize("verdict", VALUES)
@pytest.mark.parametrize("effect", NAMED)
def test_a_decision_about_money_or_more_needs_a_name(store: Store, effect: Effect, verdict: Verdict) -> None:
    """Nothing is recorded without one, and the same decision with one is."""
    thread = waiting(store, effect)
    (ticket,) = thread.approvals()

    with pytest.raises(errors.Invalid):
        thread.decide(ticket.call, verdict, value=VALUES[verdict])

    assert thread.approvals() == [ticket]
    decided = thread.decide(ticket.call, verdict, value=VALUES[verdict], by="ann")
    assert decided.decision is not None
    assert decided.decision.by == "ann"


@pytest.mark.parametrize("effect", [each for each in EFFECTS if each not in NAMED])
def test_below_that_a_name_may_be_left_out(store: Store, effect: Effect) -> None:
    """Control: other decisions are taken without one."""
    thread = waiting(store, effect)

    decided = thread.decide(thread.approvals()[0].call, "approve")

    assert decided.decision is not None
    assert decided.decision.by is None


def test_saying_what_became_of_a_payment_needs_a_name(store: Store) -> None:
    """The repeat guard believes whoever says it, so the record says who."""
    thread = unclear(store, "financial", [])
    (call,) = thread.calls()

    with pytest.raises(errors.Invalid):
        thread.resolve(call.id, "not_done")

    assert thread.calls() == [call]
    thread.resolve(call.id, "not_done", by="ann")
    assert thread.trace(call.id).passed[-1].by == "ann"


def test_who_had_a_tool_asked_is_kept(store: Store) -> None:
    """The tool's answer counts, and the way of the call says who asked."""
    searched: list[str] = []
    thread = unclear(store, "external_write", searched)
    (call,) = thread.calls()

    searched.append("the outbox")
    thread.reconcile(call.id, by="ann")

    assert thread.trace(call.id).passed[-1].by == "ann"


def test_who_cancelled_is_kept_with_the_run_and_its_questions(store: Store) -> None:
    """A run that waits is ended, and the decision on its call names who did it."""
    thread = waiting(store, "financial")
    (ticket,) = thread.approvals()

    record = thread.cancel(by="ann")

    assert (record.state, record.cancelled_by) == ("cancelled", "ann")
    closed = thread.trace(ticket.call).ticket
    assert closed is not None
    assert closed.decision is not None
    assert (closed.decision.verdict, closed.decision.by) == ("cancel", "ann")


def test_the_awaitable_face_asks_for_a_name_too(tmp_path: Path) -> None:
    """The rule is the ledger's, not the face's."""
    with perdure.open(tmp_path / "s.db") as store:
        waiting(store, "financial")

    async def cancelled() -> str | None:
        async with aio.open(tmp_path / "s.db") as store:
            thread = await store.thread("trip")
            (ticket,) = await thread.approvals()
            with pytest.raises(errors.Invalid):
                await thread.decide(ticket.call, "approve")
            return (await thread.cancel(by="ann")).cancelled_by

    assert asyncio.run(cancelled()) == "ann"
