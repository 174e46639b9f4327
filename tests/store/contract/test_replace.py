"""The whole state is replaced, then the past is visited: history is intact before and after."""

from __future__ import annotations

import pytest

from perdure import Store, Thread
from perdure.errors import NotFound


@pytest.fixture
def replaced(thread: Thread) -> Thread:
    """A thread that grew, was replaced, and grew on."""
    for number in range(5):
        with thread.change(f"grow {number}") as change:
            change.say("user", f"message {number}")
            change.put(f"/n/{number}.json", number)
    with thread.change("replace") as change:
        change.replace({"/fresh.json": "fresh"})
    thread.put("/n/0.json", "again")
    return thread


def test_every_moment_before_and_after_can_be_read(replaced: Thread) -> None:
    """Replacing is an op, never a wipe of history."""
    for number in range(5):
        assert len(replaced.at(f"version:{number + 1}").paths()) == number + 1
    assert replaced.at("version:6").paths() == ["/fresh.json"]
    assert replaced.paths() == ["/fresh.json", "/n/0.json"]
    assert replaced.get("/n/0.json") == "again"
    assert replaced.at("version:5").get("/n/0.json") == 0


def test_the_transcript_and_the_log_go_on(replaced: Thread, store: Store) -> None:
    """Messages are not state; a replacement does not touch them."""
    assert [entry.text for entry in replaced.transcript()] == [f"message {number}" for number in range(5)]
    assert [entry.reason for entry in replaced.log()][:2] == ["put", "replace"]
    assert store.verify().ok


def test_a_message_leads_to_the_state_of_its_moment(replaced: Thread) -> None:
    """Every transcript entry carries its commit and state root."""
    third = replaced.transcript()[2]

    view = replaced.at(third.id)

    assert view.paths() == [f"/n/{number}.json" for number in range(3)]
    assert (view.digest, view.root) == (third.commit, third.state)


def test_a_replacement_can_be_undone_forked_and_compared(replaced: Thread) -> None:
    """It is a turn like any other."""
    old = replaced.fork("old", at="version:5")
    difference = replaced.diff("version:5", "version:6")
    replaced.undo(2)

    assert old.paths() == replaced.paths() == [f"/n/{number}.json" for number in range(5)]
    assert [change.what for change in difference.state] == ["added", *["removed"] * 5]
    assert replaced.redo().commit
    assert replaced.paths() == ["/fresh.json", "/n/0.json"]


def test_control_a_wipe_would_be_seen(replaced: Thread, store: Store) -> None:
    """Removing the thread and beginning it again has the same state afterwards, and no past to visit."""
    state = {path: replaced.get(path) for path in replaced.paths()}
    replaced.rm()
    wiped = store.thread("trip-42", agent="planner")
    with wiped.change("replace") as change:
        change.replace(state)

    assert {path: wiped.get(path) for path in wiped.paths()} == state
    with pytest.raises(NotFound):
        wiped.at("version:5")
    assert wiped.transcript() == []
    assert [entry.reason for entry in wiped.log()] == ["replace"]
