"""Stores written by earlier releases: each still opens, reads and verifies, with the digests that it had.

A release adds one with `python -m tests.golden.test_old_stores VERSION`; none is ever changed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import perdure

STORES = Path(__file__).parent / "stores"
HEADS = {"0.1.0": "99ca2aa4c7abd04dc888d252a2e7d8d0c935bd33e2d11bca68372b56f47f0673"}


def write(path: Path) -> str:
    """Write the store that stays: messages, values of every form, a fork, an undo, a promote, an artifact."""
    numbers = iter(range(1, 10_000))
    ids = iter(f"id-{number:04}" for number in range(1, 10_000))
    with perdure.open(
        path, clock=lambda: 1_700_000_000_000_000 + next(numbers), ids=lambda: next(ids)
    ) as store:
        thread = store.thread("shopping", agent="planner", owner="ann")
        for item in ("milk", "eggs", "carrots"):
            with thread.change(f"add {item}") as change:
                change.say("user", f"We need {item}.", id=f"m-{item}")
                change.put("/todos.json", [*change.get("/todos.json", default=[]), item])
                change.agent.put("/last.json", item)
        fork = thread.fork("what-if", at="turn:2")
        with fork.change("edit") as change:
            change.append("/todos.json", "bread")
            change.put("/photo", b"\x89PNG\r\n", media_type="image/png")
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
