"""A store that is opened for reading, also where a part of its file is damaged.

Only the data on a damaged page is lost to a reader.  SQLite gives up a statement at the first page that it cannot use,
and the index of keys, the list of rows of each space and the sum over all spaces need pages of every thread.  So the
reader salvages what is left, row by row around such pages, into a database of its own, derives again what is derived
(`places`, `stretches` and the indexes), and answers from that for as long as the files are as they were.  Where others
write to the file all the time, each read is answered from a salvage of its own.  A row of the log that is lost has an
empty row in its place.

Nothing is taken on trust.  A space that has lost a row, a head, a cell or an entry does not add up to its seal any
more, so `verify` reports it, and so does every read of what is lost.  A number of a row that damage has made does not
keep the reader busy: no file has more rows than fit into it.

An engine that writes does no such thing: whether a write is recorded can only be answered from a whole log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import msgspec

from perdure.engines.forks import Rest
from perdure.engines.sqlite import schema
from perdure.engines.sqlite.commit.seals import add_up
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.engine import SqliteEngine, described
from perdure.engines.sqlite.file_system import beside, resolved, states_of
from perdure.engines.sqlite.format.index import Index
from perdure.engines.sqlite.maintenance.copy import back_up
from perdure.errors import Corrupt, Invalid, NotFound, Unavailable
from perdure.model.fork_safety import keep_forever

__all__ = ["SqliteReader", "open_sqlite"]

T = TypeVar("T")
States = list[tuple[int, int, int] | None]  # of the files of a store

_ROWS_AT_ONCE = 512
_NO_SUM = -1  # which cells cannot have
_NO_ROOM = frozenset(("disk_full", "cannot_open"))
_NO_SPACE = 0  # of a row of which nothing is known: no space has that number
_TEXTS = frozenset(("changeset", "spans", "bodies", "timeline", "move", "name", "value", "body"))
_LOG_COLUMNS = (
    "id space prev jump depth turn sequence events run keys at digest root "
    "fields changeset digests spans bodies pack timeline"
)
_LOG = _LOG_COLUMNS.split()
_ROW_BYTES_MIN = 16  # fewer than any row of the log takes in the file
_PROBE_ROWS = 64  # a part of `_ROWS_AT_ONCE`
_COUNTERS = frozenset(("barrier", "generation", "indexed_upto", "listed", "spaces"))
_KEYED = {
    "heads": ("space", "timeline", "move", "digest", "commit_row"),
    "cells": ("space", "name", "revision", "value", "listed", "position", "digest"),
    "entries": ("space", "position", "chain", "body"),
}


class SqliteReader(SqliteEngine):
    """A store in one SQLite file, for reading."""

    _salvaged: SalvagedStore | None = None  # None: no damaged page was met, or the files have changed since
    _has_salvaged = False
    # The files as they were when SQLite could read all of them, though a read was refused.
    _readable: States | None = None

    def backup(self, path: Path) -> None:
        """Copy the file; what is left of a damaged one is not a backup of it."""
        back_up(super()._read, path)

    def facts(self) -> dict[str, str | int]:
        """Return what is true of the file, and what of it is lost; the rows are those that are left."""
        facts = super().facts()
        with self._one_at_a_time:
            if self._has_salvaged:
                # The files may have changed since, and no read need have met the damage again.
                self._drop_unless_current()
                if self._salvaged is None:
                    self._salvage()
            salvaged = self._salvaged
            if salvaged is None:
                return facts
            of_file = super()._read(lambda db: described(db, self._options, log=salvaged.db))
            return {**of_file, "lost": salvaged.lost}

    def close(self) -> None:
        """Close it, and drop what was salvaged."""
        try:
            super().close()
        finally:
            with self._one_at_a_time:
                self._drop()

    def before_fork(self) -> None:
        """Finish what is under way, and close everything."""
        super().before_fork()
        if self._rest >= Rest.ALONE:
            self._drop()

    def after_fork_in_child(self) -> None:
        """Keep nothing of what was inherited; the first use of the store opens it."""
        super().after_fork_in_child()
        if self._salvaged is not None:
            keep_forever(self._salvaged.db)
            self._salvaged = None

    def _read(self, read: Callable[[Database], T]) -> T:
        error: Corrupt | None = None
        if self._salvaged is None:
            try:
                return super()._read(read)
            except Corrupt as met:
                error = met
        self._check_process()
        with self._one_at_a_time:
            self._check_open()
            self._drop_unless_current()
            if self._salvaged is None:
                try:
                    if error is None:
                        return super()._read(read)
                    raise error
                except Corrupt as met:
                    if not self._salvage(met):
                        raise
            # Made just now, or current.  One that was made just now is used even if the files have changed meanwhile:
            # they may do so all the time.
            return self._confirmed(read, cast("SalvagedStore", self._salvaged).db)

    def _salvage(self, met: Corrupt | None = None) -> bool:
        """Read from what is left of the file, from now on; False if SQLite can read all of it, or there is no room.

        In the second case the error that was `met` says so.
        """
        files = states_of(beside(self._path)[:2])
        if files == self._readable:
            return False
        try:
            self._salvaged = super()._read(lambda db: salvage(db, self._path, files))
        except Unavailable as error:
            if error.code not in _NO_ROOM:
                raise
            if met is not None:
                met.add_note(
                    f"What is left of it was not read: temporary files cannot be written ({error.__cause__})."
                )
            return False
        if self._salvaged is None:
            self._readable = files
            return False
        self._has_salvaged = True
        self._forget_reads()
        return True

    def _drop_unless_current(self) -> None:
        if self._salvaged is not None and not self._salvaged.is_current():
            self._drop()

    def _drop(self) -> None:
        """Close what was salvaged, and drop what was read from it; the caller has `_one_at_a_time`."""
        salvaged, self._salvaged = self._salvaged, None
        if salvaged is not None:
            salvaged.db.close()
            self._forget_reads()


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


class SalvagedStore(msgspec.Struct, frozen=True):
    """What is left of a store, in a database that no other connection sees, and what is lost, in words."""

    db: Database
    lost: str
    path: Path
    files: States  # as they were before they were read

    def is_current(self) -> bool:
        """True if the files of the store are as they were when they were read."""
        return states_of(beside(self.path)[:2]) == self.files


def salvage(db: Database, path: Path, files: States) -> SalvagedStore | None:
    """Read what is left of the store at `path`, on which `db` is a connection; None if SQLite can read all of it.

    `files` says how the files were before.  Everything is read in one transaction, whatever others write meanwhile.
    """
    db.execute("BEGIN")
    try:
        if _is_readable(db):
            return None
        left = cast("Database", apsw.Connection(""))  # a file that SQLite removes
        try:
            schema.create(left)
            left.execute("BEGIN")
            run = SalvageRun(db, left)
            run.run()
            left.execute("COMMIT")
        except BaseException:
            left.close()
            raise
    finally:
        # COMMIT would report the damage that was met, again.
        db.execute("ROLLBACK")
    return SalvagedStore(left, ", ".join(run.lost or ["only what is derived from the rest"]), path, files)


def _is_readable(db: Database) -> bool:
    try:
        return db.execute("PRAGMA quick_check(1)").get == "ok"
    except apsw.CorruptError:
        return False


class SalvageRun:
    """One salvage: from `_db` into `_left`."""

    def __init__(self, db: Database, left: Database) -> None:
        self._db, self._left = db, left
        self._rows_max = int(db.pragma("page_count")) * int(db.pragma("page_size")) // _ROW_BYTES_MIN
        self.lost: list[str] = []

    def run(self) -> None:
        """Read every table, and derive what is derived."""
        left = self._left
        names = self._read_names()
        self._read_log(names)
        has_cells = True
        for space in names:
            for table in _KEYED:
                has_cells &= self._read_keyed(table, space) or table != "cells"
        self._read_counters(has_cells=has_cells)
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
        spaces = frozenset(names)
        owners = self._read_owners(spaces)
        heads: list[tuple[Any]] = []
        self._until_damage("SELECT commit_row FROM heads", (), heads)
        known = max([0, *[last for _, last, _ in owners], *[row for (row,) in heads if self._is_row(row)]])
        first, left = 1, self._left
        while first <= self._rows_max and (
            self._copy_rows(first, first + _ROWS_AT_ONCE - 1) or first <= known
        ):
            first += _ROWS_AT_ONCE
        # Numbers of spaces that damage has made.
        left.execute("DELETE FROM log WHERE space NOT IN (SELECT id FROM spaces)")
        there = {row for (row,) in left.execute("SELECT id FROM log")}
        last = names[-1] if names else _NO_SPACE
        is_cut = not left.execute("SELECT 1 FROM log WHERE space=? LIMIT 1", (last,)).get
        # Where the newest space has lost all its rows, the last that is missing is its.
        end = max(there, default=0) + is_cut
        missing = [row for row in range(1, end + 1) if row not in there]
        for row in missing:
            own = last if is_cut and row == missing[-1] else _owner(owners, row)
            left.execute("INSERT INTO log(id, space, keys, pack) VALUES (?,?,x'',x'')", (row, own))
        for _, pairs in groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
            numbers = [row for _, row in pairs]
            self.lost.append(f"rows {numbers[0]} to {numbers[-1]} of the log")

    def _read_owners(self, spaces: frozenset[int]) -> list[tuple[int, int, int]]:
        """Return the stretches of rows that can be read, each with its space, in order."""
        found: list[tuple[object, ...]] = []
        self._until_damage("SELECT first, last, space FROM stretches", (), found)
        rows = cast(
            "list[tuple[int, int, int]]", [each for each in found if all(map(self._is_row, each[:2]))]
        )
        return sorted([(low, high, space) for low, high, space in rows if low <= high and space in spaces])

    def _is_row(self, value: object) -> bool:
        """True for a number that a row of a file of this size can have."""
        return type(value) is int and 0 < value <= self._rows_max

    def _copy_rows(self, low: int, high: int) -> int:
        """Copy the rows with these numbers that can be read; return how many."""
        found: list[tuple[Any, ...]] = []
        is_whole = self._until_damage(_select("log", _LOG, "WHERE id BETWEEN ? AND ?"), (low, high), found)
        numbers = [values[0] for values in found]
        # Without a gap: where damage has made a number too large, SQLite stops there, as if no row came after it.
        if is_whole and numbers == [*range(low, high + 1)]:
            return sum([self._insert("log", _LOG, values) for values in found if _is_in_form(values)])
        if low == high or (is_whole and not found and self._is_empty(low, high)):
            return 0
        middle = (low + high) // 2
        return self._copy_rows(low, middle) + self._copy_rows(middle + 1, high)

    def _is_empty(self, low: int, high: int) -> bool:
        """True if none of so many rows is found wherever SQLite begins; each alone is looked up only near others."""
        starts = range(low, high + 1, _PROBE_ROWS)
        found: list[Any] = []
        select = "SELECT id FROM log WHERE id BETWEEN ? AND ?"
        return (
            high - low + 1 == _ROWS_AT_ONCE
            and all([self._until_damage(select, (at, at + _PROBE_ROWS - 1), found) for at in starts])
            and not found
        )

    def _read_keyed(self, table: str, space: int) -> bool:
        """Copy the rows of a space, read from both ends of its keys to the damage; return True if all are there."""
        columns = _KEYED[table]
        ways = [f"WHERE space=? ORDER BY {columns[1]}{order}" for order in ("", " DESC")]
        is_whole = all([self._copy(table, columns, way, (space,)) for way in ways])
        if not is_whole:
            name = self._left.execute("SELECT name FROM spaces WHERE id=?", (space,)).get
            self.lost.append(f"{table} of '{name}'")
        return is_whole

    def _read_counters(self, *, has_cells: bool) -> None:
        """Write the counters.  The sums over all spaces are added up again, and are compared with those that were noted.

        The sum of the listed cells stays as it was noted, so that a listing is refused if one is lost.
        """
        found: list[tuple[Any, ...]] = []
        left = self._left
        is_whole = self._until_damage("SELECT name, value FROM meta", (), found)
        noted = {name: value for name, value in found if type(value) is int}
        if not is_whole or not noted.keys() >= _COUNTERS:
            self.lost.append("counters of the store")
        for name in ("barrier", "generation"):
            left.execute("UPDATE meta SET value=? WHERE name=?", (noted.get(name, 0), name))
        add_up(left)
        sums = dict(
            left.execute("SELECT name, value FROM meta WHERE name IN ('spaces', 'listed')").fetchall()
        )
        for name, what in (("spaces", "names of threads"), ("listed", "listed cells")):
            if name in noted and noted[name] != sums[name]:
                self.lost.append(what)
        if "listed" in noted or not has_cells:
            left.execute("UPDATE meta SET value=? WHERE name='listed'", (noted.get("listed", _NO_SUM),))

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


def _is_in_form(values: Sequence[object]) -> bool:
    """True for a row of the log with keys and content of the types that a writer gives them."""
    row = dict(zip(_LOG, values, strict=True))
    return type(row["space"]) is int and type(row["keys"]) is bytes and type(row["pack"]) is bytes


def _owner(owners: Sequence[tuple[int, int, int]], row: int) -> int:
    """Return the space whose stretch, in order, has the row; `_NO_SPACE` if none has."""
    at = bisect_right(owners, row, key=lambda owner: owner[0]) - 1
    return owners[at][2] if at >= 0 and row <= owners[at][1] else _NO_SPACE
