"""A tool may ask more than once: each question is durable, named in the history, and answered by itself."""

from __future__ import annotations

import perdure
from perdure import Agent, Call
from perdure.model.event import ToolCallSuspended
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
