"""A line that is cut in the middle of a run that waits: what it waits for is gone from there, and so is the run."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Store, Thread, errors
from perdure.model.context import Context
from perdure.testing import Script, say, step, use
from perdure.testing.script import ScriptStep
from tests.coded import raises


def speak(context: Context) -> ScriptStep:
    """Ask for a letter and for one that somebody has to agree to, unless it was asked for before."""
    if any(message.tool_calls for message in context.messages):
        return say("Done.")
    return step(use("send", to="ann"), use("plead", to="ben"))


@pytest.fixture
def sent() -> list[str]:
    """Who got a letter."""
    return []


@pytest.fixture
def thread(store: Store, sent: list[str]) -> Thread:
    """A thread with a run that waits: of two letters one is sent, and somebody has to agree to the other."""

    @perdure.tool(effect="external_write")
    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    @perdure.tool(effect="external_write", ask=True)
    def plead(to: str) -> str:
        """Send a letter, if somebody agrees."""
        sent.append(to)
        return "sent"

    thread = store.thread("trip", agent=Agent("planner", backend=Script(*[speak] * 9), tools=[send, plead]))
    thread.run("go")
    return thread


def cut(thread: Thread, before: str) -> None:
    """Let the line be one that ends before the commit of that reason."""
    log = thread.log()
    place = next(index for index, commit in enumerate(log) if commit.reason == before)
    thread.promote(thread.fork("half", at=log[place + 1].digest).timeline)


def test_a_run_that_was_cut_before_its_question_does_not_go_on(
    store: Store, thread: Thread, sent: list[str]
) -> None:
    """It would ask everything anew, and its first question would stay open for ever."""
    run = thread.runs()[-1].id
    cut(thread, "assistant_turn_committed")

    with raises(errors.NotFound, "run_undone", run=run):
        thread.resume(run)
    thread.cancel(run)

    assert (store.approvals(), thread.runs()[-1].state, sent) == ([], "cancelled", ["ann"])
    assert [call.state for call in thread.calls(run=run)] == ["succeeded", "cancelled"]


def test_what_is_asked_for_after_the_cut_passes_the_guard(thread: Thread, sent: list[str]) -> None:
    """The next run does not know of the letter that was sent; the ledger does."""
    cut(thread, "assistant_turn_committed")

    asked = thread.run("and now?").approvals

    assert sorted(ticket.action for ticket in asked) == ["approve", "repeat"]
    assert sent == ["ann"]


def test_a_run_that_was_cut_after_its_question_goes_on(thread: Thread, sent: list[str]) -> None:
    """The control: the question is in the conversation, and the ledger knows what came of the other call."""
    run = thread.runs()[-1].id
    cut(thread, "tool_results_committed")

    (ticket,) = thread.approvals()
    thread.decide(ticket.call, "approve")

    assert (thread.resume(run).status, sent) == ("succeeded", ["ann", "ben"])
