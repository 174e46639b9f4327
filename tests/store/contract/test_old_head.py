"""A writer holds an old head, and the same version number has come to stand elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perdure
from perdure import Head, Store, Thread
from perdure.engines.contract import Receipt, Write
from perdure.errors import NotFound, StaleHead
from tests.coded import raises


@perdure.tool(effect="external_write")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def three_turns(thread: Thread) -> None:
    """A line at version 3."""
    for number in range(3):
        thread.put("/n.json", number)


def test_undo_does_not_make_an_old_head_good_again(thread: Thread, other: Store) -> None:
    """Undo and redo lead to the same commit, at a higher version."""
    three_turns(thread)
    before = thread.head

    with pytest.raises(StaleHead) as caught, thread.change("late") as change:
        change.put("/n.json", "late")
        other.thread("trip-42").undo()
        other.thread("trip-42").redo()

    assert caught.value.expected == before
    assert caught.value.actual == Head("main", 5, before.commit)
    assert thread.get("/n.json") == 2


def test_promote_does_not_let_an_old_head_through(thread: Thread, other: Store) -> None:
    """The same number on a promoted line is another head."""
    three_turns(thread)
    thread.fork("what-if", at="version:1").put("/n.json", "fork")

    with pytest.raises(StaleHead), thread.change("late") as change:
        change.put("/n.json", "late")
        other.thread("trip-42").promote("what-if")

    assert thread.get("/n.json") == "fork"


def test_rebase_never_goes_across_an_undo(thread: Thread, other: Store) -> None:
    """What was read may have been undone, so the block is not put on top of what came instead."""
    three_turns(thread)

    with pytest.raises(StaleHead), thread.change("late", on_conflict="rebase") as change:
        change.put("/elsewhere.json", "late")
        other.thread("trip-42").undo()

    with pytest.raises(StaleHead), thread.change("late", on_conflict="rebase") as change:
        change.put("/elsewhere.json", "late")
        other.thread("trip-42").redo()
        other.thread("trip-42").put("/other.json", 1)


def test_a_rebased_commit_names_the_ledger_as_it_is_then(
    thread: Thread, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once named the ledger of the head that it began from, so a call that came between was not in its view."""
    thread.call(pay, {"amount": 1}, id="first")
    engine, mine = thread._resources.engine, [thread]
    apply = engine.apply

    def late(write: Write) -> Receipt:
        if mine:
            mine.pop()
            other.thread("trip-42").call(pay, {"amount": 2}, id="second")
            other.thread("trip-42").put("/other.json", 2)
        return apply(write)

    monkeypatch.setattr(engine, "apply", late)
    with thread.change("late", on_conflict="rebase") as change:
        change.put("/elsewhere.json", 3)

    commit = thread.head.commit
    assert commit is not None
    new, parent = thread._space.back(commit, limit=2)
    assert (mine, parent.commit.reason) == ([], "put")
    assert new.commit.ledger.position >= parent.commit.ledger.position > 2


def test_a_thread_begun_again_is_another_thread(store: Store, thread: Thread, other: Store) -> None:
    """The same id, version and even content, but a handle opened before is stale."""
    thread.put("/n.json", 1)

    with pytest.raises(StaleHead) as caught, thread.change("late") as change:
        change.put("/n.json", "late")
        other.thread("trip-42").rm()
        other.thread("trip-42", agent="planner").put("/n.json", 1)

    again = store.thread("trip-42")
    assert caught.value.expected.version == again.head.version == 1
    assert "removed" in str(caught.value)
    assert again.get("/n.json") == 1
    assert again._space.name != thread._space.name


WAYS: dict[str, Callable[[Thread], object]] = {
    "put": lambda thread: thread.put("/n.json", 2),
    "rebase": lambda thread: thread.put("/n.json", 2, on_conflict="rebase"),
    "delete": lambda thread: thread.delete("/n.json"),
    "fork": lambda thread: thread.fork("what-if"),
    "seal": lambda thread: thread.seal(),
    "undo": lambda thread: thread.undo(),
    "undo to": lambda thread: thread.undo(to=None),
    "redo": lambda thread: thread.redo(),
    "promote": lambda thread: thread.promote("what-if"),
    "merge": lambda thread: thread.merge("what-if"),
    "artifact": lambda thread: thread.artifacts.put(b"x"),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS.keys())
def test_every_way_to_write_through_a_stale_handle_is_refused(
    store: Store, write: Callable[[Thread], object]
) -> None:
    """Whatever a handle on a removed thread is asked to write, it says that its head is stale."""
    old = store.thread("trip-42", agent="planner")
    old.put("/n.json", 1)
    old.fork("what-if")
    store.thread("trip-42").rm()
    new = store.thread("trip-42", agent="planner")

    with pytest.raises(StaleHead):
        write(old)

    assert new.head == Head("main", 0, None)
    with pytest.raises(StaleHead):
        old.put("/n.json", 2)


def test_an_unwritten_thread_that_was_begun_again_is_stale_too(store: Store) -> None:
    """Both heads are version 0 with nothing committed; still they are heads of two threads."""
    old = store.thread("trip-42", agent="planner")
    old.rm()
    new = store.thread("trip-42", agent="planner")

    with pytest.raises(StaleHead):
        old.put("/n.json", 1)

    assert new.paths() == []


def test_reads_of_a_removed_thread_are_refused(store: Store) -> None:
    """Nothing is read from a thread that is gone, except through a view that was taken before."""
    old = store.thread("trip-42", agent="planner")
    old.put("/n.json", 1)
    view = old.at()
    old.rm()

    with raises(NotFound, "thread_removed", thread="trip-42"):
        old.get("/n.json")
    with raises(NotFound, "thread_not_found", thread="trip-42"):
        store.thread("trip-42")
    assert view.get("/n.json") == 1


def write_by_version_alone(thread: Thread, version: int) -> None:
    """What a writer does that remembers no more than the number."""
    present = thread.head
    if present.version == version:
        with thread.change("late", head=present) as change:
            change.put("/n.json", "late")


def test_comparing_the_version_alone_would_overwrite(store: Store, thread: Thread) -> None:
    """Control: the number that was read stands elsewhere now, and a writer that trusts it overwrites."""
    thread.put("/n.json", "first")
    read = thread.head
    thread.rm()
    again = store.thread("trip-42", agent="planner")
    again.put("/n.json", "second")

    with pytest.raises(StaleHead), again.change("late", head=read) as change:
        change.put("/n.json", "late")
    assert again.get("/n.json") == "second"

    write_by_version_alone(again, read.version)
    assert again.get("/n.json") == "late"
