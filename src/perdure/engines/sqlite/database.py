"""A database connection as this engine uses it.

The driver's own annotations need a newer Python than we support to be read in full;
these protocols describe the few calls that we make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import apsw

__all__ = ["BUSY_MS", "Database", "RowCursor", "connect"]

BUSY_MS = 5_000  # for programs that use the file without our lock


class RowCursor(Protocol):
    """The rows of one statement."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return the rows."""
        ...

    def get_description(self) -> tuple[tuple[Any, ...], ...]:
        """Return the name and type of each column."""
        ...

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        ...

    def close(self) -> None:
        """Drop the rows that were not read."""
        ...

    def execute(self, statements: str, bindings: Sequence[object] | None = None, /) -> RowCursor:
        """Run SQL; the earlier result is dropped.  Read rows to the end: a statement under way stays open."""
        ...

    @property
    def get(self) -> Any:
        """Return the one value, the one row, or None."""
        ...


class Database(Protocol):
    """An open connection."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        ...

    def execute(self, statements: str, bindings: Sequence[object] | None = None, /) -> RowCursor:
        """Run SQL."""
        ...

    def cursor(self) -> RowCursor:
        """Return a cursor that can be used again and again."""
        ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[object]], /) -> RowCursor:
        """Run SQL once for each row of bindings."""
        ...

    def pragma(self, name: str, value: str | int | None = None, /) -> Any:
        """Read or set a pragma."""
        ...

    def data_version(self) -> int:
        """Return a number that differs, inside a transaction, if another connection has written since."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement that inserts or updates has changed."""
        ...

    def last_insert_rowid(self) -> int:
        """Return the number of the row inserted last."""
        ...

    def set_busy_timeout(self, milliseconds: int, /) -> None:
        """Set how long to wait for programs that do not use our lock."""
        ...

    def set_wal_hook(self, hook: Callable[[Any, str, int], int], /) -> None:
        """Call `hook` after each commit with the number of pages in the write-ahead log."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
        """Move pages from the write-ahead log into the database."""
        ...

    def create_scalar_function(
        self, name: str, callable: Callable[..., object] | None, numargs: int = -1
    ) -> None:
        """Add an SQL function."""
        ...

    def close(self, force: bool = False, /) -> None:
        """Close it."""
        ...


def connect(path: str, *, flags: int, vfs: str | None = None) -> Database:
    """Return a connection on which no trigger runs, and on which SQL cannot edit the schema."""
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return cast("Database", connection)
