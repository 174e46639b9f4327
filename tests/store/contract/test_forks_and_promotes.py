"""Two forks of one commit; two threads each promoted.  All recorded, each main its own."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Head, Store, Thread
from perdure.errors import Conflict, Invalid, NotFound, Sealed, StaleHead
from perdure.store.plumbing import outbox
from tests.coded import raises


def grown(thread: Thread) -> Thread:
    """A thread with milk, eggs and carrots, one turn each."""
    items: list[str] = []
    for item in ("milk", "eggs", "carrots"):
        items.append(item)
        thread.put("/todos.json", list(items))
    return thread


def test_two_forks_of_one_commit_are_both_recorded(thread: Thread) -> None:
    """Each goes its own way, and neither touches main."""
    grown(thread)
    bread = thread.fork("bread", at="version:2")
    jam = thread.fork("jam", at="version:2")

    bread.put("/todos.json", [*bread.get("/todos.json"), "bread"])
    jam.put("/todos.json", [*jam.get("/todos.json"), "jam"])

    assert bread.get("/todos.json") == ["milk", "eggs", "bread"]
    assert jam.get("/todos.json") == ["milk", "eggs", "jam"]
    assert thread.get("/todos.json") == ["milk", "eggs", "carrots"]
    assert [hold.head.timeline for hold in thread.timelines()] == ["main", "bread", "jam"]
    assert bread.head.version == jam.head.version == 1


def test_two_threads_are_promoted_each_for_itself(store: Store) -> None:
    """Names of timelines belong to their thread; promoting one leaves the other alone."""
    trip = grown(store.thread("trip", agent="planner"))
    home = grown(store.thread("home", agent="planner"))
    trip.fork("what-if", at="version:1").put("/todos.json", ["trip"])
    home.fork("what-if", at="version:2").put("/todos.json", ["home"])
    old = trip.head, home.head

    trip.promote("what-if")
    assert home.head == old[1]
    home.promote("what-if")

    assert trip.get("/todos.json") == ["trip"]
    assert home.get("/todos.json") == ["home"]
    for thread, head in zip((trip, home), old, strict=True):
        kept = {hold.head.timeline: hold for hold in thread.timelines()}["main.v3"]
        assert kept.sealed
        assert kept.head.commit == head.commit
        assert thread.head.version == 4


def test_the_old_main_is_sealed_and_can_be_promoted_back(thread: Thread) -> None:
    """Nothing is lost by promoting; going back is promoting again."""
    grown(thread)
    thread.fork("what-if", at="version:1").put("/todos.json", ["what if"])
    old = thread.head
    thread.promote("what-if")

    with raises(Sealed, "sealed", timeline="main.v3"):
        thread.on("main.v3").put("/todos.json", [])
    again = thread.promote("main.v3")

    assert again == Head("main", 5, old.commit)
    assert thread.get("/todos.json") == ["milk", "eggs", "carrots"]
    assert thread.on("main.v4").get("/todos.json") == ["what if"]


def test_a_sealed_line_can_be_forked(thread: Thread) -> None:
    """Sealing ends writing on a line, not what can begin there."""
    line = grown(thread).fork("done")
    line.seal()

    with pytest.raises(Sealed):
        line.put("/x.json", 1)
    with pytest.raises(Sealed):
        line.undo()
    assert thread.on("done").fork("further").put("/x.json", 1).version == 1


def test_a_taken_name_is_refused(thread: Thread) -> None:
    """A timeline is begun once; names that Perdure gives are its own."""
    grown(thread).fork("what-if")

    with raises(Conflict, "timeline_exists", timeline="what-if"):
        thread.fork("what-if")
    for name in ("main", "main.v3"):
        with raises(Invalid, "timeline_name_reserved", name=name):
            thread.fork(name)
    for name in ("Main", "", "a b"):
        with raises(Invalid, "name_invalid", what="timeline"):
            thread.fork(name)
    with raises(NotFound, "timeline_not_found", timeline="what-iff", thread="trip-42", near=["what-if"]):
        thread.on("what-iff")
    with raises(NotFound, "timeline_not_found", timeline="nothing", thread="trip-42"):
        thread.promote("nothing")
    with raises(Invalid, "promoted_over_itself"):
        thread.promote("main")


def test_a_fork_may_begin_before_the_first_commit(thread: Thread) -> None:
    """The first turn has a before as well."""
    grown(thread)
    first = thread.turns()[0]

    empty = thread.fork("empty", at=first.before)

    assert first.before is None
    assert empty.head == Head("empty", 0, None)
    assert empty.paths() == []
    assert empty.put("/x.json", 1).version == 1


def test_undoing_the_first_turn_leaves_nothing_committed(thread: Thread) -> None:
    """The head moves to no commit at all, at a higher version."""
    grown(thread)

    head = thread.undo(3)

    assert head == Head("main", 4, None)
    assert thread.paths() == []
    assert thread.redo().version == 5
    assert thread.get("/todos.json") == ["milk", "eggs", "carrots"]
    with raises(NotFound, "too_few_turns", timeline="main", turns=3):
        thread.undo(4)


def test_control_handles_on_one_line_do_meet(store: Store, other: Store) -> None:
    """What keeps two forks and two threads apart is that they are two: the same steps on one of them collide."""
    trip = grown(store.thread("trip", agent="planner"))
    again = other.thread("trip")
    bread, same = trip.fork("bread", at="version:2"), again.on("bread")

    bread.put("/todos.json", ["bread"])
    with pytest.raises(StaleHead), bread.change("jam") as change:
        change.put("/todos.json", ["jam"])
        same.put("/todos.json", ["honey"])
    old = again.head
    trip.promote("bread")

    assert bread.get("/todos.json") == same.get("/todos.json") == ["honey"]
    assert again.head != old
    assert again.get("/todos.json") == ["honey"]


@pytest.mark.parametrize("winner", ["bread", "jam"])
def test_a_promotion_that_comes_second_is_stale(
    thread: Thread, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the other one promoted the same line or another; what was taken over is said once."""
    grown(thread)
    for name in ("bread", "jam"):
        with thread.fork(name).change("mine") as change:
            change.agent.put("/likes.json", name)
    promotion = outbox.promotion

    def late(*args: Any) -> object:
        found = promotion(*args)
        monkeypatch.setattr(outbox, "promotion", promotion)
        thread.promote(winner)
        return found

    monkeypatch.setattr(outbox, "promotion", late)
    read = thread.head

    with pytest.raises(StaleHead) as stale:
        thread.promote("bread")
    assert stale.value.expected == read
    assert thread.head.version == read.version + 1
    assert thread.agent_map().get("/likes.json") == winner
