"""An undo, or a fork from before, takes a letter out of the history and not out of the world.

Run again, the guard asks before the letter is sent once more, and the ledger shows the first sending.
"""

from __future__ import annotations

import pytest

from perdure import Store
from perdure.store.thread import Thread
from perdure.testing import say, use
from tests.runtime.runs.postman import postman
from tests.runtime.runs.unguarded import guard_by_id_alone
from tests.runtime.runs.world import World


@pytest.fixture
def thread(store: Store, world: World) -> Thread:
    """A thread on which a letter to Ann was sent."""
    thread = store.thread("letters", agent=postman(world, *(use("mail", to="ann"), say("Done.")) * 3))
    assert thread.run("Write to Ann").status == "succeeded"
    return thread


def test_after_an_undo_the_guard_asks(thread: Thread, world: World) -> None:
    """The same letter is not sent again by itself; the question names the first one."""
    (first,) = thread.calls()

    thread.undo()
    result = thread.run("Write to Ann")

    assert result.status == "waiting"
    assert [(ticket.action, ticket.tool) for ticket in result.approvals] == [("repeat", "mail")]
    assert first.id in (result.approvals[0].parameters or "")
    assert world.counted() == {"ann": 1}


def test_the_ledger_still_shows_the_first_sending(thread: Thread) -> None:
    """Undone calls are not in the transcript, and stay in the ledger with their result."""
    thread.undo()

    (first,) = thread.calls()
    assert thread.transcript() == []
    assert (first.state, first.attempt) == ("succeeded", 1)
    assert first.result is not None


def test_on_a_fork_from_before_the_guard_asks(thread: Thread, world: World) -> None:
    """A fork that does not hold the letter in its history asks; its own history stays clean meanwhile."""
    fork = thread.fork("what-if", at=thread.turns()[-1].before)

    result = fork.run("Write to Ann")

    assert result.status == "waiting"
    assert [ticket.action for ticket in fork.approvals()] == ["repeat"]
    assert fork.paths("/") == []
    assert world.counted() == {"ann": 1}


def test_on_a_fork_from_after_it_is_the_model_s_business(thread: Thread, world: World) -> None:
    """Whoever has the first letter in the conversation and wants another, means another."""
    fork = thread.fork("later")

    assert fork.run("Write to Ann again").status == "succeeded"
    assert world.counted() == {"ann": 2}


def test_what_was_sent_on_a_merged_line_is_asked_about(thread: Thread, world: World) -> None:
    """A merge brings no messages: the model of the line was never told of the letter."""
    thread.fork("side").run("Write to Ann again")
    thread.undo()
    other = thread.fork("other")
    other.put("/note.json", 1)
    other.merge("side")

    result = other.run("Write to Ann")

    assert [ticket.action for ticket in result.approvals] == ["repeat"]
    assert world.counted() == {"ann": 2}


@pytest.mark.parametrize("letters", [1, 2])
@pytest.mark.parametrize("how", ["all", "last result", "last request"])
def test_what_was_taken_out_of_the_conversation_is_asked_about(
    store: Store, thread: Thread, world: World, how: str, letters: int
) -> None:
    """The model does not see what was taken back, and no result without its request; the second letter is one that the
    guard had let pass before."""
    for _ in range(letters - 1):
        thread.run("Write to Ann again")
    spoken = thread.transcript()
    results = [each.id for each in spoken if each.message.tool_results]
    requests = [each.id for each in spoken if each.message.tool_calls]

    with thread.change("take back") as change:
        if how == "all":
            change.retract_all()
        else:
            change.retract((results if how == "last result" else requests)[-1])
    again = store.thread("letters", agent=postman(world, use("mail", to="ann"), say("Done.")))

    assert again.run("Write to Ann").status == "waiting"
    assert world.counted() == {"ann": letters}


def test_after_a_retraction_is_undone_it_is_the_model_s_business(thread: Thread, world: World) -> None:
    """Control: the letter is in the conversation again."""
    with thread.change("take back") as change:
        change.retract_all()
    thread.undo()

    assert thread.run("Write to Ann again").status == "succeeded"
    assert world.counted() == {"ann": 2}


@pytest.mark.parametrize("where", ["undo", "fork"])
def test_what_is_denied_is_not_sent_and_the_run_goes_on(thread: Thread, world: World, where: str) -> None:
    """The model is told, and comes to its end."""
    again = _again(thread, where)
    ticket = again.run("Write to Ann").approvals[0]

    again.decide(ticket.call, "deny", by="bob")
    result = again.resume()

    assert (result.status, result.text) == ("succeeded", "Done.")
    assert world.counted() == {"ann": 1}


@pytest.mark.parametrize("where", ["undo", "fork"])
def test_what_is_approved_is_sent_once_more(thread: Thread, world: World, where: str) -> None:
    """A person who knows of the first letter may want a second; resuming again sends no third."""
    again = _again(thread, where)
    ticket = again.run("Write to Ann").approvals[0]

    again.decide(ticket.call, "approve", by="bob")
    result = again.resume()

    assert result.status == "succeeded"
    assert world.counted() == {"ann": 2}
    assert [call.state for call in again.calls()] == ["succeeded", "succeeded"]


def test_an_undo_of_an_undone_past_is_asked_about_every_time(thread: Thread, world: World) -> None:
    """However often it is undone, nothing goes out without a question."""
    for _ in range(3):
        thread.undo()
        assert thread.run("Write to Ann").status == "waiting"

    assert world.counted() == {"ann": 1}


def test_redo_brings_the_letter_back_into_the_history(thread: Thread, world: World) -> None:
    """After a redo the line holds it again, and another one is the model's business."""
    thread.undo()
    thread.redo()

    assert thread.run("Write to Ann again").status == "succeeded"
    assert world.counted() == {"ann": 2}


@pytest.mark.parametrize("where", ["undo", "fork"])
def test_a_guard_by_id_alone_sends_twice(
    thread: Thread, world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the second call has an id of its own, so nothing stops it."""
    guard_by_id_alone(monkeypatch)

    assert _again(thread, where).run("Write to Ann").status == "succeeded"

    assert world.repeated() == ["ann"]


def _again(thread: Thread, where: str) -> Thread:
    """The line from before the letter."""
    if where == "fork":
        return thread.fork("again", at=thread.turns()[-1].before)
    thread.undo()
    return thread
