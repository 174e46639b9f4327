"""Connections: how the database is opened, and what must not be done with an open one.

One connection writes, guarded by its user; readers take one from a pool and give it
back.  A forked child never uses nor closes what it inherited: closing would drop the
parent's locks, so inherited connections are kept, unused, until the process ends.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from threading import Condition, Lock
from typing import Any, cast

import apsw
import msgspec

from holdfast.engines.sqlite import schema
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.failures import translated
from holdfast.errors import Unavailable
from holdfast.model.forks import keep_forever

__all__ = ["Connections", "Options", "check_store"]

_BUSY_MS = 5_000  # for programs that use the file without our lock


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is opened."""

    path: str
    read_only: bool = False
    durable: bool = True  # False: survives the process, not a power loss
    vfs: str | None = None
    exclusive: bool = False  # one connection for everything: no shared memory is needed


def check_store(path: Path) -> None:
    """Raise `Corrupt` or `Unsupported` for a file that is no store of ours, changing nothing."""
    try:
        connection = cast("Database", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))
        try:
            connection.set_busy_timeout(_BUSY_MS)
            schema.check(connection, str(path))
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise translated(error, "opening", str(path)) from error
    except apsw.Error:
        return  # it cannot be read like this; whoever opens it is told why


class Connections:
    """The open connections of one process to one store."""

    def __init__(self, options: Options) -> None:
        """Open the connection that writes."""
        self._options = options
        self._idle: deque[Database] = deque()
        self._closed = False
        self._lock = Lock()  # taken by itself where nobody waits: that is a third of the cost
        self._turn = Condition(self._lock)
        self._in_use = 0  # readers that have not been given back
        self._is_at_rest = False
        self.writer = self._open()

    def take(self) -> Database:
        """A connection for reading, which must be given back."""
        with self._lock:
            while self._is_at_rest:
                self._turn.wait()
            if self._closed:
                raise Unavailable(f"{self._options.path} was closed; nothing was done. Open it again.")
            self._in_use += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open()
        except BaseException:
            with self._lock:
                self._count_down()
            raise

    def give_back(self, connection: Database) -> None:
        """Let others have the connection."""
        with self._lock:
            is_late = self._closed
            if not is_late:
                self._idle.append(connection)
            self._count_down()
        if is_late:
            connection.close()

    def close(self) -> None:
        """Close everything that is not in use; what is in use is closed when it is given back."""
        with self._lock:
            self._closed = True
        while self._idle:
            self._idle.pop().close()
        self.writer.close()

    def rest(self, seconds: float) -> bool:
        """Close everything and let nobody in until `wake`; False if readers have not come out within `seconds`."""
        with self._turn:
            self._is_at_rest = True
            if not self._turn.wait_for(lambda: self._in_use == 0, seconds):
                return False
            while self._idle:
                self._idle.pop().close()
            self.writer.close()
            return True

    def wake(self, *, reopen: bool) -> None:
        """Let readers in again, after opening what `rest` closed."""
        with self._turn:
            if reopen:
                self.writer = self._open()
            self._is_at_rest = False
            self._turn.notify_all()

    def refuse(self) -> None:
        """Let nobody in any more, and tell those who wait."""
        with self._turn:
            self._closed, self._is_at_rest = True, False
            self._turn.notify_all()

    def inherit(self) -> None:
        """In a forked child: keep what the parent opened from ever being closed, also when the process ends."""
        for connection in (self.writer, *self._idle):
            keep_forever(connection)

    def _count_down(self) -> None:
        self._in_use -= 1
        if self._is_at_rest:
            self._turn.notify_all()

    def _open(self) -> Database:
        options = self._options
        flags = (
            apsw.SQLITE_OPEN_READONLY
            if options.read_only
            else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        )
        connection = cast("Database", apsw.Connection(options.path, flags=flags, vfs=options.vfs))
        try:
            _prepare(connection, options)
        except BaseException as error:
            connection.close()
            if options.read_only and isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError):
                raise _unreadable(options.path) from error
            raise
        return connection


def _unreadable(path: str) -> Unavailable:
    return Unavailable(
        f"{path} cannot be read where it is: its directory is read-only, and SQLite has to keep a file beside a "
        "store that others may write to; nothing was opened. Change the rights, or copy the store."
    )


def _prepare(connection: Database, options: Options) -> None:
    connection.set_busy_timeout(_BUSY_MS)
    if options.exclusive:
        connection.pragma("locking_mode", "exclusive")
    schema.check(connection, options.path)  # before anything that would change another program's file
    if not options.read_only:
        # A row is a few KB: in pages of 4 KB a third of the space would be left over at their ends.
        connection.pragma("page_size", 8_192)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "extra" if options.durable else "normal")
        # Checkpoints run under our lock: an error inside one must not look like a failed commit.
        connection.pragma("wal_autocheckpoint", 0)
        if sys.platform == "darwin":
            connection.pragma("fullfsync", 1)
            connection.pragma("checkpoint_fullfsync", 1)
    for name, value in _ALWAYS:
        connection.pragma(name, value)


_ALWAYS: tuple[tuple[str, Any], ...] = (
    ("trusted_schema", 0),
    ("cell_size_check", 1),
    ("cache_size", -8_000),
    ("temp_store", "file"),
)
