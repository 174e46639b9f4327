"""Heads and cells from memory: never older than what any reader has seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.engines.contract import CellWrite, Hold, Receipt
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.errors import PerdureError
from perdure.model.head import Head
from perdure.testing.engines.builders import SPACE, START, made, moved, write
from tests.crash.spying import spied

MILK, EGGS = made("milk"), made("eggs")
AFTER_MILK = Head("main", 1, MILK.digest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    """A store with one commit."""
    engine = SqliteEngine(path)
    engine.apply(write("milk", MILK, moved(START, MILK)))
    yield engine
    engine.close()


@pytest.fixture
def other(path: Path, engine: SqliteEngine) -> Iterator[SqliteEngine]:
    """Another opening of the same store, as another process has it."""
    other = SqliteEngine(path)
    yield other
    other.close()


def reads(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked up in the database from now on."""
    found: list[str] = []
    take = engine._connections.take

    def told() -> object:
        found.append("read")
        return take()

    monkeypatch.setattr(engine._connections, "take", told)
    return found


def head(engine: SqliteEngine) -> Head:
    """Where main stands."""
    hold = engine.hold(SPACE, "main")
    assert hold is not None
    return hold.head


def test_a_head_that_has_not_moved_since_is_not_looked_up(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote it knows where it stands."""
    found = reads(engine, monkeypatch)

    assert head(engine) == AFTER_MILK
    assert found == []


def test_what_another_process_wrote_is_seen_at_once(engine: SqliteEngine, other: SqliteEngine) -> None:
    """Heads and cells alike, each time one of the two has written."""
    seat = CellWrite(name="seat", expected=0, value=b"1")
    assert (head(other), other.cell(SPACE, "seat")) == (AFTER_MILK, None)

    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS), seat))

    assert head(other) == Head("main", 2, EGGS.digest)
    cell = other.cell(SPACE, "seat")
    assert cell is not None
    assert cell.revision == 1


def test_control_a_lock_file_that_does_not_count_leaves_others_behind(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number in the file is all that tells them."""
    assert head(other) == AFTER_MILK
    lock = engine._lock
    assert lock is not None
    release = FileLock.release

    def uncounted(self: FileLock, *, settled: bool) -> None:
        self.count -= 1
        release(self, settled=settled)

    monkeypatch.setattr(FileLock, "release", uncounted)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert head(other) == AFTER_MILK


def test_where_the_lock_file_was_removed_the_database_is_asked(
    path: Path, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens the store then counts in a file of its own."""
    os.unlink(path.with_name(path.name + "-lock"))
    other = SqliteEngine(path)

    other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert head(engine) == Head("main", 2, EGGS.digest)
    other.close()


def test_no_reader_sees_a_head_that_is_not_durable(engine: SqliteEngine) -> None:
    """Asked in the middle of a write, the store answers what stood before it, until COMMIT is through."""
    seen: list[Hold | None] = []

    def ask(statement: str) -> None:
        if statement.startswith(("BEGIN", "COMMIT")):
            seen.append(engine.hold(SPACE, "main"))

    spied(engine, before=ask, after=ask)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert [hold.head.version for hold in seen if hold] == [1, 1, 1, 2]


def test_a_refused_or_failed_write_leaves_the_head_as_it_was(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not written is not remembered."""

    def failing(statement: str) -> None:
        if statement.startswith("COMMIT"):
            raise apsw.IOError("the disk is gone")

    answers: list[Receipt | PerdureError] = []
    for number in range(2):
        if number:
            spied(engine, before=failing)
        try:
            stale = Head("main", 7, MILK.digest) if not number else AFTER_MILK
            answers.append(engine.apply(write(f"eggs {number}", EGGS, moved(stale, EGGS))))
        except PerdureError as error:
            answers.append(error)

        assert head(engine) == AFTER_MILK
    assert all(isinstance(answer, PerdureError) for answer in answers)
