"""A run, then undo: transcript and state as before the input; the ledger still knows."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.testing import Script, fail, say, use
from perdure.testing.script import Item


@perdure.tool(effect="external_write")
def book(flight: str, call: Call) -> str:
    """Book a flight."""
    call.put("/booked.json", flight)
    call.agent.put("/count.json", call.agent.get("/count.json", default=0) + 1)
    return f"booked {flight}"


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    return f"paid {amount}"


def thread_with(store: Store, *items: Item) -> Thread:
    """The thread, for an agent that takes these steps."""
    return store.thread("trip", agent=Agent("planner", backend=Script(*items), tools=[book, pay]))


def test_undo_after_a_run_goes_back_to_before_its_input(store: Store) -> None:
    """Messages and state are those of the turn before, whole."""
    thread_with(store, say("Hello.")).run("Hi")
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.put("/title.json", "Trip")
    before, said = thread.root, [entry.id for entry in thread.transcript()]
    thread.run("Book it")

    thread.undo()

    assert thread.root == before
    assert [entry.id for entry in thread.transcript()] == said
    assert len(thread.turns()) == 2


def test_the_ledger_still_knows_after_an_undo(store: Store) -> None:
    """The world cannot be undone: the call is listed, with its result."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.run("Book it")

    thread.undo()

    (call,) = thread.calls()
    assert (call.state, call.tool) == ("succeeded", "book")
    assert call.result is not None
    assert thread.runs()[0].state == "succeeded"


def test_the_agents_own_map_is_not_undone_with_a_thread(store: Store) -> None:
    """It has an undo of its own."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.run("Book it")

    thread.undo()

    assert store.agent("planner").get("/count.json") == 1


def test_redo_brings_the_whole_turn_back(store: Store) -> None:
    """Undo and redo step over one run, however many commits it has."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.run("Book it")
    after, said = thread.root, [entry.text for entry in thread.transcript()]
    thread.undo()

    thread.redo()

    assert thread.root == after
    assert [entry.text for entry in thread.transcript()] == said


def test_the_next_run_after_an_undo_sees_nothing_of_what_was_undone(store: Store) -> None:
    """Neither words nor state; and the same booking is not made again without asking."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.run("Book it")
    thread.undo()
    script = Script(use("book", flight="SK1"), say("Again."))
    again = store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))

    result = again.run("Book it, please")

    assert [message.text for message in script.contexts[0].messages] == ["Book it, please"]
    assert result.status == "waiting"
    assert result.approvals[0].action == "repeat"


def test_undo_after_a_failed_run_steps_over_all_of_it(store: Store) -> None:
    """A failed run is one turn too."""
    thread_with(store, say("Hello.")).run("Hi")
    thread = thread_with(store, use("book", flight="SK1"), fail())
    with pytest.raises(errors.RunFailed):
        thread.run("Book it")

    thread.undo()

    assert [entry.text for entry in thread.transcript()] == ["Hi", "Hello."]


def test_a_waiting_run_that_was_undone_is_not_resumed(store: Store) -> None:
    """Neither by name, nor at start-up; nobody can decide for it; and after redo it goes on."""
    agent = Agent("planner", backend=Script(use("pay", amount=3), say("Done.")), tools=[book, pay])
    thread = store.thread("trip", agent=agent)
    waiting = thread.run("Pay")
    call = waiting.approvals[0].call
    thread.undo()

    assert store.resume(agent) == []
    with pytest.raises(errors.NotFound):
        thread.resume(waiting.run)
    with pytest.raises(errors.Conflict):
        thread.decide(call, "approve")
    assert thread.head.commit is None

    thread.redo()
    thread.decide(call, "approve")
    assert thread.resume().text == "Done."


def test_a_waiting_run_that_was_undone_can_be_cancelled(store: Store) -> None:
    """It ends, its question is withdrawn, and the line is not touched."""
    thread = thread_with(store, use("pay", amount=3), say("Done."))
    waiting = thread.run("Pay")
    thread.undo()
    head = thread.head

    record = thread.cancel(waiting.run)

    assert record.state == "cancelled"
    assert thread.head == head
    assert store.approvals() == []
    assert [call.state for call in thread.calls()] == ["cancelled"]


@pytest.mark.parametrize("by", ["cancel", "worker"])
@pytest.mark.parametrize("line", ["main", "side"])
def test_an_approved_call_of_an_undone_run_ends_with_its_run(store: Store, by: str, line: str) -> None:
    """It is cancelled with its run, on a fork too, so that nothing is left to settle and the thread can be removed."""
    thread = thread_with(store, use("pay", amount=5), say("Done."))
    call = thread.run("Pay").approvals[0].call
    here = thread.fork("side") if line == "side" else thread
    here.decide(call, "approve", by="ann")
    here.undo()

    if by == "worker":
        store.work(Agent("planner", backend=Script(say("More.")), tools=[book, pay]), until_idle=True)
    for run in thread.runs():
        thread.cancel(run.id)

    assert {each.state for each in thread.calls()} == {"cancelled"}
    assert {each.state for each in thread.runs()} == {"cancelled"}
    assert store.verify().ok
    thread.rm()


def test_the_same_input_after_an_undo_gives_the_first_result(store: Store) -> None:
    """An id names one run for ever; whoever wants another run gives another id."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    first = thread.run("Book it", id="m1")
    thread.undo()

    assert thread.run("Book it", id="m1") == first
    assert thread.head.commit is None


def test_the_same_input_after_an_undo_into_its_run_gives_the_first_result(store: Store) -> None:
    """Wherever within the run the line stands, and also after a further undo, the answer is the first one."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    first = thread.run("Book it", id="m1")
    commits = [entry.digest for entry in thread.log()]

    again = [thread.run("Book it", id="m1") for commit in (*commits, None) if thread.undo(to=commit)]

    assert again == [first] * (len(commits) + 1)


def test_control_a_record_of_calls_in_the_state_is_undone_with_it(store: Store) -> None:
    """Where a program notes in the thread what it has sent, an undo takes the note along; the ledger's stays."""
    thread = thread_with(store, use("book", flight="SK1"), say("Done."))
    thread.run("Book it")
    noted = thread.get("/booked.json")

    thread.undo()

    assert noted == "SK1"
    assert thread.get("/booked.json", default=None) is None
    assert [call.tool for call in thread.calls()] == ["book"]
