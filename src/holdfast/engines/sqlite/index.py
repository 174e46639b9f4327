"""The index: from a key to the rows that may hold what it stands for.

Writing a random key into a B-tree at every commit would dirty a page per key, which is
what makes stores by hash slow.  So a row carries its own keys, and only every few
thousand keys are they sorted into `places` in one transaction.  Until then they are
found in memory: each process reads the keys of rows above `indexed_upto` once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import ROW_KEY, key_range, split

__all__ = ["Index"]

_BATCH_MIN, _BATCH_MAX = 4_096, 32_768
_FORGET_FROM = 4 * _BATCH_MAX
_PLACES = "SELECT row FROM places WHERE space=? AND key=?"


class Index:
    """One process's view of where keys are.  Thread-safe."""

    def __init__(self) -> None:
        """Know nothing yet; the first look-up reads what is not in `places`."""
        self._lock = threading.Lock()
        self._recent: dict[int, dict[bytes, int | tuple[int, ...]]] = {}  # per space, keys above `_upto`
        self._rows: dict[int, list[int]] = {}  # per space, rows above `_upto`
        self._count = 0  # of the keys in `_recent`
        self._upto = 0  # rows up to here are in `places`
        self._seen = -1  # rows up to here are known; -1: nothing was read yet

    def rows(self, connection: Database, space: int, key: bytes) -> list[int]:
        """Rows that may hold what `key` stands for, oldest first."""
        if not self.recent(space, key):
            self.catch_up(connection)
        return self.known(connection, space, key)

    def known(self, connection: Database, space: int, key: bytes) -> list[int]:
        """The same for a caller who knows that no other process has written since `catch_up`."""
        older = [row for (row,) in connection.execute(_PLACES, (space, key)).fetchall()]
        return older + [row for row in self.recent(space, key) if row not in older]

    def recent(self, space: int, key: bytes) -> tuple[int, ...]:
        """Those of `rows` that are known without looking into the database."""
        keys = self._recent.get(space)
        found = None if keys is None else keys.get(key)
        return () if found is None else _many(found)

    def later(self, connection: Database, space: int, key: bytes) -> Iterator[int]:
        """`rows`, looked up only when the first is asked for."""
        yield from self.rows(connection, space, key)

    def between(self, connection: Database, space: int, prefix: str) -> Iterator[int]:
        """Rows with a key among those of digests that start with these hex digits."""
        low, high = key_range(prefix)
        self.catch_up(connection)
        with self._lock:
            recent = [
                row
                for key, rows in self._recent.get(space, {}).items()
                if low <= key <= high
                for row in _many(rows)
            ]
        sql = "SELECT DISTINCT row FROM places WHERE space=? AND key BETWEEN ? AND ?"
        yield from sorted({row for (row,) in connection.execute(sql, (space, low, high))} | set(recent))

    def rows_of(self, connection: Database, space: int, after: int, limit: int) -> list[int]:
        """Rows of a space in order, those after `after`."""
        self.catch_up(connection)
        sql = "SELECT row FROM places WHERE space=? AND key=? AND row>? ORDER BY row LIMIT ?"
        rows = [row for (row,) in connection.execute(sql, (space, ROW_KEY, after, limit))]
        with self._lock:
            recent = [row for row in self._rows.get(space, ()) if row > after]
        return sorted({*rows, *recent})[:limit]

    def add(self, space: int, row: int, keys: list[bytes]) -> None:
        """A row was written by this process."""
        with self._lock:
            if row == self._seen + 1:
                self._note(space, row, keys)

    def catch_up(self, connection: Database) -> None:
        """Read the keys of rows that other processes wrote."""
        with self._lock:
            self._catch_up(connection)

    def reset(self) -> None:
        """Forget everything, because rows that were seen were rolled back."""
        with self._lock:
            self._clear()
            self._seen = -1

    def is_due(self) -> bool:
        """Whether enough keys have gathered to be worth sorting in; more in a larger store, where it costs more."""
        return self._count > min(_BATCH_MAX, max(_BATCH_MIN, self._upto // 4))

    def sort_in(self, connection: Database) -> int:
        """Move keys into `places`; the caller holds a write transaction and calls `sorted_in` after its commit."""
        with self._lock:
            if self._upto != _upto(connection):  # another process has sorted in what this one remembers
                self._clear()
                self._seen = -1
            self._catch_up(connection)
            places = [(space, ROW_KEY, row) for space, rows in self._rows.items() for row in rows]
            for space, keys in self._recent.items():
                places += [(space, key, row) for key, rows in keys.items() for row in _many(rows)]
            upto = self._seen
        places.sort()
        connection.executemany("INSERT OR IGNORE INTO places VALUES (?,?,?)", places)
        connection.execute("UPDATE meta SET value=? WHERE name='indexed_upto'", (upto,))
        return upto

    def sorted_in(self, upto: int) -> None:
        """What `sort_in` moved is durable; drop it from memory."""
        with self._lock:
            self._clear()
            self._upto = self._seen = upto

    def _catch_up(self, connection: Database) -> None:
        if self._seen < 0 or self._count > _FORGET_FROM:
            self._clear()
            self._upto = self._seen = _upto(connection)
        later = connection.execute("SELECT id, space, keys FROM log WHERE id>?", (self._seen,))
        for row, space, keys in later:
            self._note(space, row, split(keys))

    def _note(self, space: int, row: int, keys: list[bytes]) -> None:
        self._seen = row
        self._rows.setdefault(space, []).append(row)
        recent = self._recent.setdefault(space, {})
        self._count += len(keys)
        if recent.keys().isdisjoint(keys):
            recent.update(dict.fromkeys(keys, row))
            return
        for key in dict.fromkeys(keys):
            there = recent.get(key)
            recent[key] = row if there is None else (*_many(there), row)

    def _clear(self) -> None:
        self._recent = {}
        self._rows = {}
        self._count = 0


def _many(rows: int | tuple[int, ...]) -> tuple[int, ...]:
    return (rows,) if isinstance(rows, int) else rows


def _upto(connection: Database) -> int:
    value = connection.execute("SELECT value FROM meta WHERE name='indexed_upto'").get
    return int(str(value))
