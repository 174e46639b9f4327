"""`cherry_pick` of a turn that a run made: what its calls wrote is taken along, whichever commit wrote it."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.model.event import Picked
from perdure.testing import Script, say, use


@perdure.tool(effect="local_write", idempotent=True)
def note(path: str, call: Call) -> str:
    """Write a path."""
    call.put(path, "run")
    return "noted"


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with a title, and then a run that wrote two paths in two steps."""
    script = Script(use("note", path="/a.json"), use("note", path="/b.json"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[note]))
    thread.put("/title.json", "Trip")
    thread.run("go")
    return thread


@pytest.mark.parametrize("given", ["turn", "after"])
def test_everything_that_a_run_changed_is_picked(thread: Thread, given: str) -> None:
    """By the turn itself, or by its last commit."""
    turn = thread.turns()[-1]
    fork = thread.fork("aside", at=turn.before)

    taken = fork.cherry_pick(turn if given == "turn" else turn.after)

    assert (taken.paths, taken.base) == (2, turn.before)
    assert fork.paths("/") == ["/a.json", "/b.json", "/title.json"]
    assert fork.transcript() == []


def test_a_commit_within_the_run_is_picked_alone(thread: Thread) -> None:
    """A control: one commit's change is its own."""
    fork = thread.fork("aside", at=thread.turns()[-1].before)
    writes = [entry.digest for entry in reversed(thread.log()) if entry.patch.ops][1:]

    taken = fork.cherry_pick(writes[0])

    assert taken.paths == 1
    assert fork.paths("/") == ["/a.json", "/title.json"]


def test_a_turn_that_clashes_is_refused_whole(thread: Thread) -> None:
    """One path of it is different here: nothing is written."""
    turn = thread.turns()[-1]
    fork = thread.fork("aside", at=turn.before)
    head = fork.put("/b.json", "mine")

    with pytest.raises(errors.MergeConflict):
        fork.cherry_pick(turn)

    assert fork.head == head


def test_the_same_pick_again_gives_the_first_answer(thread: Thread) -> None:
    """Its event says where the turn began."""
    turn = thread.turns()[-1]
    fork = thread.fork("aside", at=turn.before)

    taken = [fork.cherry_pick(turn, op_id="pick-1") for _ in range(2)]

    assert taken[0] == taken[1]
    assert [event.since for event in fork.log()[0].events if isinstance(event, Picked)] == [turn.before]


def test_a_first_turn_is_picked_whole(store: Store) -> None:
    """It began from nothing."""
    script = Script(use("note", path="/a.json"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[note]))
    thread.run("go")
    turn = thread.turns()[-1]

    fork = thread.fork("aside", at=None)
    fork.put("/title.json", "Trip")

    assert fork.cherry_pick(turn).paths == 1


def test_the_commit_says_what_was_picked(thread: Thread) -> None:
    """In the words of the command line; a reason that is given stays as it is."""
    edit, turn = thread.turns()
    fork = thread.fork("aside", at=None)

    fork.cherry_pick(edit)
    fork.cherry_pick(turn)
    again = thread.fork("again", at=None)
    again.cherry_pick(turn, reason="the fix")

    assert [entry.reason for entry in reversed(fork.log())] == [
        f"cherry-pick {edit.reason}",
        "cherry-pick turn 1",
    ]
    assert again.log()[0].reason == "the fix"


def test_a_reason_too_long_to_repeat_is_left_out(thread: Thread) -> None:
    """An edit whose own reason has the greatest length can be picked too."""
    fork = thread.fork("aside")
    thread.put("/c.json", 1, reason="r" * 200)

    fork.cherry_pick(thread.turns()[-1])

    assert fork.log()[0].reason == "cherry-pick"
