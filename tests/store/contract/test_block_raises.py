"""A block raises after 22 of 40 puts, and the next reader sees the state before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import Change, Store, Thread
from perdure.errors import Invalid, NotFound, PerdureError


class CrashError(Exception):
    """What goes wrong in the middle of somebody's block."""


def test_a_block_that_raises_writes_nothing(thread: Thread, other: Store) -> None:
    """None of the 22 puts is seen by anybody, and the thread goes on working."""
    thread.put("/before.json", "kept")
    before = thread.head

    with pytest.raises(CrashError), thread.change("forty puts") as change:
        for number in range(40):
            if number == 22:
                raise CrashError
            change.put(f"/n/{number}.json", number)

    assert thread.head == other.thread("trip-42").head == before
    assert thread.paths() == ["/before.json"]
    thread.put("/n/0.json", "after")
    assert thread.paths() == ["/before.json", "/n/0.json"]


@pytest.mark.parametrize(
    ("error", "spoil"),
    [
        (NotFound, lambda change: change.delete("/absent.json")),
        (Invalid, lambda change: change.put("/bad.json", float("nan"))),
        (Invalid, lambda change: change.append("/before.json", 1)),
        (Invalid, lambda change: change.put("no-slash", 1)),
        (Invalid, lambda change: change.say("nobody", "hello")),
    ],
    ids=["absent", "nan", "not a list", "not a path", "not a role"],
)
def test_an_op_that_fails_fails_the_whole_block(
    thread: Thread, error: type[PerdureError], spoil: Callable[[Change], None]
) -> None:
    """A typed error leaves the state as it was before the block."""
    thread.put("/before.json", "kept")
    before = thread.head

    with pytest.raises(error), thread.change("spoilt") as change:
        change.put("/good.json", 1)
        spoil(change)

    assert thread.head == before
    assert thread.paths() == ["/before.json"]


def test_an_op_that_fails_leaves_the_block_as_it_was(thread: Thread) -> None:
    """A program that catches the error goes on from there; the failed op has done nothing."""
    with thread.change("careful") as change:
        change.put("/list.json", [1])
        with pytest.raises(Invalid):
            change.append("/list.json", float("inf"))
        with pytest.raises(NotFound):
            change.unset("/list.json", at=[7])
        with pytest.raises(Invalid):
            change.replace({"/ok.json": 1, "/__kernel/x": 2})
        change.append("/list.json", 2)

    assert thread.get("/list.json") == [1, 2]
    assert thread.paths() == ["/list.json"]


def test_a_block_that_changes_nothing_commits_nothing(thread: Thread) -> None:
    """Reading alone is no step of the history."""
    with thread.change("just looking") as change:
        assert change.get("/absent.json", default=None) is None

    assert thread.head.version == 0
    assert change.receipt is None


def test_writing_one_by_one_would_leave_half(thread: Thread) -> None:
    """Control: the same puts without a block leave 22 of 40 behind."""
    with pytest.raises(CrashError):
        for number in range(40):
            if number == 22:
                raise CrashError
            thread.put(f"/n/{number}.json", number)

    assert len(thread.paths("/n")) == 22
