"""A row that is whole and belongs to another store is not taken for a move of this one."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import perdure
from perdure.errors import PerdureError
from perdure.model.commit import MoveRecord


def build(path: Path, value: str) -> None:
    """A store with a fork, an undo and a redo."""
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        thread.put("/a.json", value)
        thread.fork("side").put("/b.json", value)
        thread.undo()
        thread.redo()


def moves_of(path: Path) -> list[list[MoveRecord]]:
    """The moves of both timelines."""
    with perdure.open(path, read_only=True) as store:
        return [store.thread("t", timeline=line).moves() for line in ("main", "side")]


def exchanged(path: Path, other: Path, row: int) -> None:
    """Put the row of another store in the place of one of this."""
    with closing(sqlite3.connect(path)) as db:
        names = [each[1] for each in db.execute("PRAGMA table_info(log)") if each[1] not in ("id", "space")]
        db.execute("ATTACH ? AS other", (str(other),))
        sets = ", ".join(f"{name} = (SELECT {name} FROM other.log WHERE id = {row})" for name in names)
        db.execute(f"UPDATE main.log SET {sets} WHERE id = {row}")
        db.commit()


def test_no_move_of_another_store_is_listed(tmp_path: Path) -> None:
    """Each row of the log is exchanged in turn: the list is the true one, or an error; some rows must be refused."""
    mine, other, edited = tmp_path / "mine.db", tmp_path / "other.db", tmp_path / "edited.db"
    build(mine, "mine")
    build(other, "other")
    true, refused = moves_of(mine), 0
    with closing(sqlite3.connect(mine)) as db:
        rows = [each for (each,) in db.execute("SELECT id FROM log")]

    for row in rows:
        shutil.copyfile(mine, edited)
        exchanged(edited, other, row)
        try:
            assert moves_of(edited) == true, f"row {row}"
        except PerdureError:
            refused += 1

    assert refused >= 3
