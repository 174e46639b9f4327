"""A tool may ask more than once: each question is durable, named in the history, and answered by itself."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

import perdure
from perdure import Agent, Call
from perdure.errors import Conflict, Decided
from perdure.model.event import ToolCallSuspended
from perdure.model.ticket import Verdict
from perdure.testing import Script, say, step, use


@perdure.tool(effect="none")
def book(place: str, *, call: Call) -> str:
    """Book a table, after two questions."""
    if call.decision is None:
        call.suspend("Which day?", action="day")
    if call.decision.value == "Monday":
        call.suspend("Which hour?", action="hour")
    return f"booked {place} at {call.decision.value}"


def answer(thread: perdure.Thread, value: str) -> None:
    """Answer the only question that waits."""
    [ticket] = thread.approvals()
    thread.decide(ticket.id, "answer", value=value, by="ann")


def test_a_run_waits_for_each_question_of_a_tool(store: perdure.Store) -> None:
    """The second question suspends the call again instead of running the tool for ever."""
    agent = Agent("a", backend=Script(step(use("book", place="inn")), say("Done.")), tools=[book])
    thread = store.thread("trip", agent=agent)
    thread.run("Book")

    answer(thread, "Monday")
    [second] = store.resume(agent)
    answer(thread, "noon")
    [last] = store.resume(agent)

    assert ([each.action for each in second.approvals], last.text) == (["hour"], "Done.")
    named = [
        event.ticket for at in thread.log() for event in at.events if isinstance(event, ToolCallSuspended)
    ]
    assert len(set(named)) == 2


def test_a_direct_call_waits_for_each_question_of_its_tool(store: perdure.Store) -> None:
    """The ticket of the second question is in the store before the caller gets it."""
    thread = store.thread("trip", agent=Agent("a", backend=Script(say("."))))
    first = thread.call(book, {"place": "inn"}, id="c")

    answer(thread, "Monday")
    second = thread.call(book, {"place": "inn"}, id="c")
    answer(thread, "noon")
    last = thread.call(book, {"place": "inn"}, id="c")

    assert [each.ticket and each.ticket.action for each in (first, second, last)] == ["day", "hour", None]
    assert last.text == "booked inn at noon"


@perdure.tool(effect="financial")
def wire(amount: int, *, call: Call) -> str:
    """Send money, after two questions that take the same answer."""
    if call.decision is None:
        call.suspend("Send it?")
    if not call.scratch.get("/checked", default=None):
        call.scratch.put("/checked", True)
        call.suspend("A second pair of eyes: really?")
    return f"sent {amount}"


@pytest.fixture
def wired(store: perdure.Store) -> perdure.Thread:
    """A thread whose run waits for the first of two questions about one call."""
    agent = Agent("a", backend=Script(use("wire", amount=900), say("Sent.")), tools=[wire])
    thread = store.thread("trip", agent=agent)
    thread.run("Wire it")
    return thread


@pytest.mark.parametrize(("verdict", "by"), [("approve", "ann"), ("approve", "ben"), ("deny", "ann")])
def test_a_decision_that_names_the_call_does_not_answer_its_second_question(
    wired: perdure.Thread, verdict: Verdict, by: str
) -> None:
    """It may be the first decision sent again, or one of a person who has read the first question only."""
    (first,) = wired.approvals()
    wired.decide(first.call, "approve", by="ann")
    (second,) = wired.resume().approvals

    with pytest.raises(Conflict) as refused:
        wired.decide(first.call, verdict, by=by)

    facts = refused.value.facts
    assert (refused.value.code, facts["ticket"], facts["earlier"]) == (
        "question_not_named",
        second.id,
        first.id,
    )
    assert [each.id for each in wired.approvals()] == [second.id]


def test_a_decision_that_names_the_question_is_about_that_alone(wired: perdure.Thread) -> None:
    """Sent again it gives the decided ticket, while the second question waits and after it was decided otherwise."""
    (first,) = wired.approvals()
    made = wired.decide(first.id, "approve", by="ann")
    (second,) = wired.resume().approvals

    assert wired.decide(first.id, "approve", by="ann") == made
    assert wired.approvals() == [second]
    wired.decide(second.id, "deny", by="ben")
    assert wired.decide(first.id, "approve", by="ann") == made
    with pytest.raises(Decided):
        wired.decide(first.id, "deny", by="ann")


def test_a_decision_with_an_op_id_is_one_act(wired: perdure.Thread) -> None:
    """The request that names the call, sent again, gets its first decision and leaves the second question open."""
    (first,) = wired.approvals()
    made = wired.decide(first.call, "approve", by="ann", op_id="click-1")
    (second,) = wired.resume().approvals

    assert wired.decide(first.call, "approve", by="ann", op_id="click-1") == made
    with pytest.raises(Decided):
        wired.decide(first.call, "deny", by="ann", op_id="click-1")
    assert wired.approvals() == [second]


def test_a_call_that_only_waited_for_a_time_before_is_decided_by_its_id(store: perdure.Store) -> None:
    """No person was asked before, so the id of the call names the only question."""

    @perdure.tool(effect="none")
    def remind(*, call: Call) -> str:
        """Wait for a moment, and then ask."""
        if not call.scratch.get("/waited", default=None):
            call.scratch.put("/waited", True)
            call.suspend(until=timedelta(seconds=0.01))
        if call.decision is None or call.decision.by is None:
            call.suspend("Now?")
        return "reminded"

    agent = Agent("a", backend=Script(use("remind"), say("Done.")), tools=[remind])
    thread = store.thread("trip", agent=agent)
    thread.run("Remind me")
    time.sleep(0.05)
    (asked,) = thread.resume().approvals

    thread.decide(asked.call, "approve", by="ann")

    assert (asked.follows is not None, thread.resume().text) == (True, "Done.")
