"""Backups are taken while other processes write; each is one moment of the store, whole, and a store of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import perdure
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Conflict, PerdureError, Unavailable
from perdure.testing.engines.builders import value, write
from tests.coded import raises
from tests.crash import jobs
from tests.crash.campaign import sized
from tests.crash.jobs import Log
from tests.crash.processes import running

BACKUPS = sized(4, 60)
SECONDS = sized(1.5, 40.0)


def test_every_backup_is_one_moment_of_the_history(path: Path) -> None:
    """Each holds a beginning of what was written, no shorter than the one before, and verifies."""
    with perdure.open(path) as store, ExitStack() as stack:
        for id in ("hot", "side"):
            store.thread(id, agent="planner")
        others = [
            stack.enter_context(running(jobs.write_and_read, str(path), str(number), 3, SECONDS))
            for number in range(2)
        ]
        copies = [path.with_name(f"copy-{number}.db") for number in range(BACKUPS)]
        while store.thread("hot").head.version < 5:
            time.sleep(0.01)
        for copy in copies:
            store.backup(copy)
            time.sleep(SECONDS / (3 * BACKUPS))
        logs: list[Log] = [other.answer() for other in others]
        final = [entry.digest for entry in reversed(store.thread("hot").log())]

    assert [error for log in logs for error in log.errors] == []
    lengths = [check_copy(copy, final) for copy in copies]
    assert lengths == sorted(lengths)
    assert 0 < lengths[-1] < len(final)


def check_copy(copy: Path, final: Sequence[str]) -> int:
    """Check one backup against the final history; how many commits it has."""
    with perdure.open(copy) as store:
        assert store.verify().faults == ()
        hot = store.thread("hot")
        line = [entry.digest for entry in reversed(hot.log())]
        assert line == final[: len(line)]
        assert hot.get("/count.json", default=0) == len(line)
        hot.put("/written-to.json", "the copy")
        return len(line)


def test_a_restored_backup_takes_the_place_of_the_store(path: Path) -> None:
    """Moved to where the store was, it is the store, and goes on from its own moment."""
    with perdure.open(path) as store:
        head = store.thread("trip-42", agent="planner").put("/a", 1)
        store.backup(path.with_name("copy.db"))
        store.thread("trip-42").put("/a", 2)
    for left in path.parent.glob("store.db*"):
        left.unlink()
    os.replace(path.with_name("copy.db"), path)

    with perdure.open(path) as store:
        thread = store.thread("trip-42")
        assert (thread.head, thread.get("/a")) == (head, 1)
        assert thread.put("/a", 3).version == head.version + 1


def test_a_backup_that_fails_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a copy under the wanted name, nor anything beside it."""
    with closing(SqliteEngine(path)) as engine:
        engine.apply(write("op", value("x")))

        def no_sync(file: int) -> None:
            raise OSError(5, "no sync")

        monkeypatch.setattr(os, "fsync", no_sync)
        with raises(Unavailable, "backup_failed"):
            engine.backup(path.with_name("copy.db"))

    assert list(path.parent.glob("copy*")) == []


def test_two_backups_to_one_name_make_one(path: Path) -> None:
    """The second finds the name taken, also by a file that is no backup."""
    with closing(SqliteEngine(path)) as engine:
        engine.apply(write("op", value("x")))
        engine.backup(path.with_name("copy.db"))
        before = path.with_name("copy.db").read_bytes()

        with raises(Conflict, "file_exists", path=str(path.with_name("copy.db"))):
            engine.backup(path.with_name("copy.db"))

        assert path.with_name("copy.db").read_bytes() == before


def test_control_a_file_copied_while_it_is_written_is_no_backup(path: Path) -> None:
    """The database file alone, without its log, lacks what was acknowledged: what `cp` would save."""
    with perdure.open(path) as store:
        thread = store.thread("trip-42", agent="planner")
        for number in range(20):
            thread.put("/a", number)
        path.with_name("copy.db").write_bytes(path.read_bytes())

    try:
        with perdure.open(path.with_name("copy.db")) as store:
            found = store.thread("trip-42").get("/a", default=None)
    except PerdureError:
        found = None
    assert found != 19
