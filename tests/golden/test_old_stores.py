"""Stores written by earlier releases: each still opens, reads and verifies, with the digests that it had.

A release adds one with `python -m tests.golden.test_old_stores VERSION`; none is ever changed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure

STORES = Path(__file__).parent / "stores"
HEADS = {"0.1.0": "99ca2aa4c7abd04dc888d252a2e7d8d0c935bd33e2d11bca68372b56f47f0673"}


class Ticking:
    """A clock that is later at each reading, except while it is stopped: moves had no time when the story was first told."""

    def __init__(self) -> None:
        self._now, self._step = 1_700_000_000_000_000, 1

    def __call__(self) -> int:
        self._now += self._step
        return self._now

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Let no time pass inside."""
        self._step = 0
        yield
        self._step = 1


def write(path: Path) -> str:
    """Write the store that stays: messages, values of every form, a fork, an undo, a promote, an artifact."""
    ticking = Ticking()
    ids = iter(f"id-{number:04}" for number in range(1, 10_000))
    with perdure.open(path, clock=ticking, ids=lambda: next(ids)) as store:
        thread = store.thread("shopping", agent="planner", owner="ann")
        for item in ("milk", "eggs", "carrots"):
            with thread.change(f"add {item}") as change:
                change.say("user", f"We need {item}.", id=f"m-{item}")
                change.put("/todos.json", [*change.get("/todos.json", default=[]), item])
                change.agent.put("/last.json", item)
        with ticking.stopped():
            fork = thread.fork("what-if", at="turn:2")
        with fork.change("edit") as change:
            change.append("/todos.json", "bread")
            change.put("/photo", b"\x89PNG\r\n", media_type="image/png")
        with ticking.stopped():
            thread.promote("what-if")
            thread.undo()
            thread.redo()
        thread.artifacts.put([b"a report " * 100], name="report")
        commit = thread.head.commit
    assert commit is not None
    return commit


@pytest.mark.parametrize("version", sorted(HEADS))
def test_a_store_of_an_earlier_release_reads_and_verifies(version: str, tmp_path: Path) -> None:
    """What was written then is what is read now."""
    path = tmp_path / "agents.db"
    shutil.copy(STORES / f"{version}.db", path)

    with perdure.open(path) as store:
        thread = store.thread("shopping", agent="planner")

        assert store.verify().faults == ()
        assert thread.head.commit == HEADS[version]
        assert thread.get("/todos.json") == ["milk", "eggs", "bread"]
        assert thread.at("turn:1").get("/todos.json") == ["milk"]
        assert [entry.message.text for entry in thread.transcript()] == ["We need milk.", "We need eggs."]
        assert store.agent("planner").get("/last.json") == "carrots"
        thread.put("/still.json", "writable")


def test_the_same_story_still_makes_the_same_digests(tmp_path: Path) -> None:
    """A digest's shape is for ever: the newest fixture's story, told again, ends at the same commit."""
    assert write(tmp_path / "again.db") == HEADS[max(HEADS)]


if __name__ == "__main__":
    print(write(STORES / f"{sys.argv[1]}.db"))
