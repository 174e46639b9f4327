"""A store that is opened for reading, also where a part of its file is damaged.

A damaged page costs what it holds.  SQLite gives up a statement at the first page that it cannot use, and the index of
keys, the list of rows of each space and the sum over all spaces need pages of every thread.  So the reader salvages what
is left, row by row around such pages, into a database of its own, derives again what is derived (`places`, `stretches`
and the indexes), and answers from that for as long as the files are as they were.  A row of the log that is lost has an
empty row in its place.

Nothing is taken on trust.  A space that has lost a row, a head, a cell or an entry does not add up to its seal any
more, so `verify` reports it, and so does every read of what is lost.

An engine that writes does no such thing: whether a write is recorded can only be answered from a whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import msgspec

from perdure.engines.sqlite import schema
from perdure.engines.sqlite.commit.seals import add_up
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.file_system import beside, resolved
from perdure.engines.sqlite.format.index import Index
from perdure.engines.sqlite.maintenance.copy import back_up
from perdure.errors import Corrupt, Invalid, NotFound

__all__ = ["SqliteReader", "open_sqlite"]

T = TypeVar("T")

_ROWS_AT_ONCE = 512
_NO_SPACE = 0  # of a row of which nothing is known: no space has that number
_TEXTS = frozenset(("changeset", "spans", "bodies", "timeline", "move", "name", "value", "body"))
_LOG = (
    *(
        "id",
        "space",
        "prev",
        "jump",
        "depth",
        "turn",
        "sequence",
        "events",
        "run",
        "keys",
        "at",
        "digest",
        "root",
    ),
    *("fields", "changeset", "digests", "spans", "bodies", "pack", "timeline"),
)
_KEYED = {
    "heads": ("space", "timeline", "move", "digest", "commit_row"),
    "cells": ("space", "name", "revision", "value", "listed", "position", "digest"),
    "entries": ("space", "position", "chain", "body"),
}


class SqliteReader(SqliteEngine):
    """A store in one SQLite file, for reading."""

    _salvaged: Salvaged | None = None  # None: no damaged page was met

    def backup(self, path: Path) -> None:
        """Copy the file; what is left of a damaged one is not a backup of it."""
        back_up(super()._read, path)

    def facts(self) -> dict[str, str | int]:
        """Return what is true of the file, and what of it is lost."""
        facts, salvaged = super().facts(), self._salvaged
        return facts if salvaged is None else {**facts, "lost": salvaged.lost}

    def _read(self, read: Callable[[Database], T]) -> T:
        if self._salvaged is None:
            try:
                return super()._read(read)
            except Corrupt:
                if not self._salvage():
                    raise
        with self._one_at_a_time:
            salvaged = self._salvaged
            if salvaged is not None and salvaged.is_current():
                self._check_open()
                return self._confirmed(read, salvaged.db)
            self._salvaged = None
            self._forget_reads()
        return self._read(read)

    def _salvage(self) -> bool:
        """Read from what is left of the file, from now on; False if SQLite can read all of it."""
        with self._one_at_a_time:
            if self._salvaged is None:
                self._salvaged = super()._read(lambda db: salvage(db, self._path))
                self._forget_reads()
            return self._salvaged is not None


def open_sqlite(
    path: Path, *, read_only: bool = False, create: bool = True, durability: str = "power_loss"
) -> SqliteEngine:
    """Return the engine on the store at `path`; raise `NotFound` if it does not exist and may not be created."""
    if durability not in ("power_loss", "process_crash"):
        raise Invalid(
            f"durability {durability!r} is not 'power_loss' or 'process_crash'; nothing was opened.",
            code="durability_unknown",
            durability=durability,
        )
    if not path.exists() and (read_only or not create):
        raise NotFound(
            f"there is no store at {path}; nothing was opened.",
            code="store_not_found",
            advice="Create one with `perdure init`.",
            path=str(path),
        )
    if path.is_dir():
        raise NotFound(
            f"{path} is a directory, not a store; nothing was opened.",
            code="is_a_directory",
            advice=f"Name a file in it, such as {path / 'perdure.db'}.",
            path=str(path),
        )
    kind = SqliteReader if read_only else SqliteEngine
    return kind(resolved(path), read_only=read_only, durable=durability == "power_loss")


# ---- what is left of a damaged file


class Salvaged(msgspec.Struct, frozen=True):
    """What is left of a store, in a database that no other connection sees, and what is lost, in words."""

    db: Database
    lost: str
    path: Path
    files: list[tuple[int, int, int] | None]  # as they were when they were read

    def is_current(self) -> bool:
        """True if the files of the store are as they were when they were read."""
        return _files(self.path) == self.files


def salvage(db: Database, path: Path) -> Salvaged | None:
    """Read what is left of the store at `path`, on which `db` is a connection; None if SQLite can read all of it."""
    files = _files(path)
    if _is_readable(db):
        return None
    left = cast("Database", apsw.Connection(""))  # a file that SQLite removes
    schema.create(left)
    left.execute("BEGIN")
    reading = _Reading(db, left)
    reading.run()
    left.execute("COMMIT")
    lost = reading.lost or ["only what is derived from the rest"]
    return Salvaged(left, ", ".join(lost), path, files)


def _files(path: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for file in beside(path)[:2]:
        try:
            status = file.stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _is_readable(db: Database) -> bool:
    try:
        return db.execute("PRAGMA quick_check(1)").get == "ok"
    except apsw.CorruptError:
        return False


class _Reading:
    """One salvage: from `_db` into `_left`."""

    def __init__(self, db: Database, left: Database) -> None:
        self._db, self._left = db, left
        self.lost: list[str] = []

    def run(self) -> None:
        """Read every table, and derive what is derived."""
        left = self._left
        names = self._read_names()
        self._read_log(names)
        for space in names:
            for table in _KEYED:
                self._read_keyed(table, space)
        self._read_counters()
        index = Index()
        index.sorted_in(index.sort_in(left))

    def _read_names(self) -> list[int]:
        """Copy the names of spaces, from the table and from the index on it, which have the same; return the numbers."""
        for way in ("NOT INDEXED ORDER BY id", "INDEXED BY sqlite_autoindex_spaces_1 ORDER BY name"):
            for order in ("", " DESC"):
                self._copy("spaces", ("id", "name"), f"{way}{order}", ())
        return [number for (number,) in self._left.execute("SELECT id FROM spaces ORDER BY id")]

    def _read_log(self, names: Sequence[int]) -> None:
        """Copy the rows of the log, with an empty row for each that is lost."""
        owners: list[tuple[int, int, int]] = []
        heads: list[tuple[int]] = []
        self._until_damage("SELECT first, last, space FROM stretches", (), owners)
        self._until_damage("SELECT coalesce(commit_row, 0) FROM heads", (), heads)
        known = max([0, *[last for _, last, _ in owners], *[row for (row,) in heads]])
        first, left = 1, self._left
        while self._copy_rows(first, first + _ROWS_AT_ONCE - 1) or first <= known:
            first += _ROWS_AT_ONCE
        left.execute(
            "DELETE FROM log WHERE space NOT IN (SELECT id FROM spaces)"
        )  # numbers that damage has made
        there = {row for (row,) in left.execute("SELECT id FROM log")}
        last = names[-1] if names else _NO_SPACE
        is_cut = not left.execute("SELECT 1 FROM log WHERE space=? LIMIT 1", (last,)).get
        end = (
            max(there, default=0) + is_cut
        )  # the newest space has lost all its rows: the last that is missing is its
        missing = [row for row in range(1, end + 1) if row not in there]
        for row in missing:
            space = next(
                (space for low, high, space in owners if low <= row <= high and space in names), _NO_SPACE
            )
            own = last if is_cut and row == missing[-1] else space
            left.execute("INSERT INTO log(id, space, keys, pack) VALUES (?,?,x'',x'')", (row, own))
        for _, pairs in groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
            numbers = [row for _, row in pairs]
            self.lost.append(f"rows {numbers[0]} to {numbers[-1]} of the log")

    def _copy_rows(self, low: int, high: int) -> int:
        """Copy the rows with these numbers that can be read; return how many."""
        found: list[tuple[Any, ...]] = []
        is_whole = self._until_damage(_select("log", _LOG, "WHERE id BETWEEN ? AND ?"), (low, high), found)
        numbers = [values[0] for values in found]
        # Without a gap: where damage has made a number too large, SQLite stops there, as if no row came after it.
        if is_whole and numbers == [*range(low, high + 1)]:
            return sum([self._insert("log", _LOG, values) for values in found])
        middle = (low + high) // 2
        return 0 if low == high else self._copy_rows(low, middle) + self._copy_rows(middle + 1, high)

    def _read_keyed(self, table: str, space: int) -> None:
        """Copy the rows of a space, read from both ends of its keys to the damage."""
        columns = _KEYED[table]
        ways = [f"WHERE space=? ORDER BY {columns[1]}{order}" for order in ("", " DESC")]
        if not all([self._copy(table, columns, way, (space,)) for way in ways]):
            name = self._left.execute("SELECT name FROM spaces WHERE id=?", (space,)).get
            self.lost.append(f"{table} of '{name}'")

    def _read_counters(self) -> None:
        """Write the counters.  The sums over all spaces are added up again, and are compared with those that were noted."""
        found: list[tuple[Any, ...]] = []
        if not self._until_damage("SELECT name, value FROM meta", (), found):
            self.lost.append("counters of the store")
        noted = {name: value for name, value in found if isinstance(value, int)}
        for name in ("barrier", "generation"):
            self._left.execute("UPDATE meta SET value=? WHERE name=?", (noted.get(name, 0), name))
        add_up(self._left)
        names = self._left.execute("SELECT value FROM meta WHERE name='spaces'").get
        if names != noted.get("spaces"):
            self.lost.append("names of threads")

    def _copy(self, table: str, columns: Sequence[str], which: str, bindings: Sequence[object]) -> bool:
        """Copy rows up to the first that cannot be read; return True if all can."""
        found: list[tuple[Any, ...]] = []
        is_whole = self._until_damage(_select(table, columns, which), bindings, found)
        for values in found:
            if values[0] == bindings[0] if bindings else values[0] > 0:
                is_whole &= self._insert(table, columns, values)
        return is_whole

    def _until_damage(self, select: str, bindings: Sequence[object], found: list[Any]) -> bool:
        """Append the rows of a statement up to the first that cannot be read; return True if all can."""
        try:
            found.extend(self._db.execute(select, bindings))  # those before the error stay in the list
        except (apsw.CorruptError, UnicodeDecodeError):
            return False
        return all([isinstance(value, int | bytes | str | None) for values in found for value in values])

    def _insert(self, table: str, columns: Sequence[str], values: Sequence[object]) -> bool:
        """Insert a row, unless it is there; return False if it is none that a writer makes."""
        marks = ", ".join("CAST(? AS TEXT)" if name in _TEXTS else "?" for name in columns)
        try:
            self._left.execute(
                f"INSERT OR IGNORE INTO {table}({', '.join(columns)}) VALUES ({marks})", values
            )
        except (apsw.ConstraintError, apsw.MismatchError):
            return False
        return True


def _select(table: str, columns: Sequence[str], which: str) -> str:
    """Return the statement that reads rows, with text as bytes: damage may have left what is not UTF-8."""
    read = ", ".join(f"CAST({name} AS BLOB)" if name in _TEXTS else name for name in columns)
    return f"SELECT {read} FROM {table} {which}"
