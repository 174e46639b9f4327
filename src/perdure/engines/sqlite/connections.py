"""Opens the database, and keeps the rules for open connections.

One connection writes, guarded by its user; readers take one from a pool and give it
back.  A forked child never uses nor closes what it inherited: closing would drop the
parent's locks, so inherited connections are kept, unused, until the process ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import apsw
import msgspec

from perdure.engines.sqlite import schema
from perdure.engines.sqlite.database import BUSY_MS, Database, connect
from perdure.engines.sqlite.errors import closed_error, translated
from perdure.engines.sqlite.file_system import beside, states_of
from perdure.engines.sqlite.log_binding import check_log, open_immutable
from perdure.errors import Unavailable
from perdure.model.fork_safety import keep_forever

__all__ = ["Connections", "Options", "check_store", "UnchangedFiles"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which a store is opened."""

    path: str
    read_only: bool = False
    durable: bool = True  # False: survives the process, not a power loss
    vfs: str | None = None
    exclusive: bool = False  # one connection for everything: no shared memory is needed
    is_frozen: bool = False  # nothing can be written in its directory: it is read without locks


def check_store(path: Path) -> None:
    """Raise `Invalid`, `Corrupt` or `Unsupported` for a file that is not a sound store of ours, changing nothing."""
    try:
        connection = connect(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            schema.check(connection, str(path))
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise translated(error, "it was not opened", str(path)) from error
    except apsw.Error:
        return  # it cannot be read like this; opening it raises the reason


class Connections:
    """The open connections of one process to one store."""

    def __init__(self, options: Options) -> None:
        """Open the connection that writes; raises `Corrupt` if the log beside the file was written on another one."""
        if options.vfs is None:
            check_log(Path(options.path))
        self.options = options
        self._idle: deque[Database] = deque()
        self._closed = False
        self._lock = Lock()  # taken alone where no thread waits: that is a third of the cost
        self._turn = Condition(self._lock)
        self._in_use = 0  # readers that have not been given back
        self._is_at_rest = False
        self.writer = self._open()
        self.files: StoreFiles | None = None  # None: the store is read-only, or not a file

    def remember_files(self) -> None:
        """Remember which files are those of the store; called once its schema is there."""
        if self.options.vfs is None and not self.options.read_only:
            self.files = StoreFiles(Path(self.options.path))

    def take(self) -> Database:
        """Return a connection for reading, which the caller must give back."""
        with self._lock:
            while self._is_at_rest:
                self._turn.wait()
            if self._closed:
                raise closed_error(self.options.path)
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
        """Put the connection back into the pool."""
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
        """Close everything and admit no reader until `wake`; False if readers are still active after `seconds`."""
        with self._turn:
            self._is_at_rest = True
            if not self._turn.wait_for(lambda: self._in_use == 0, seconds):
                return False
            while self._idle:
                self._idle.pop().close()
            self.writer.close()
            return True

    def wake(self, *, reopen: bool) -> None:
        """Admit readers again, after opening what `rest` closed."""
        with self._turn:
            if reopen:
                self.writer = self._open()
                self.remember_files()
            self._is_at_rest = False
            self._turn.notify_all()

    def refuse(self) -> None:
        """Admit no reader any more, and raise in those that wait."""
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
        options = self.options
        if options.is_frozen:
            connection = _frozen(Path(options.path))
        elif options.read_only:
            connection = connect(options.path, flags=apsw.SQLITE_OPEN_READONLY, vfs=options.vfs)
        else:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            connection = connect(options.path, flags=flags, vfs=options.vfs)
        try:
            _prepare(connection, options)
        except BaseException as error:
            connection.close()
            if options.read_only and isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError):
                if not options.is_frozen and _is_frozen(Path(options.path)):
                    self.options = msgspec.structs.replace(options, exclusive=True, is_frozen=True)
                    return self._open()
                raise _unreadable(options.path) from error
            raise
        return connection


def _is_frozen(path: Path) -> bool:
    """True if nothing can be written beside the store, and no process has it open: it would have shared memory there."""
    return path.exists() and not os.access(path.parent, os.W_OK) and not beside(path)[2].exists()


def _frozen(path: Path) -> Database:
    """Return a connection to a store that no process can write to.

    Without locks SQLite reads an unmerged log and needs no shared memory for that.  It cannot do without a log
    unless the option `immutable` says that the file never changes.  We never set it while there is a log: SQLite would ignore the log.
    """
    if beside(path)[1].exists():
        return connect(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none")
    return open_immutable(str(path))


def _unreadable(path: str) -> Unavailable:
    return Unavailable(
        f"{path} cannot be read where it is: its directory is read-only, and SQLite has to keep a file beside a store that others may write to; nothing was opened.",
        code="directory_read_only",
        advice="Change the rights, or copy the store.",
        path=path,
    )


def _prepare(connection: Database, options: Options) -> None:
    connection.set_busy_timeout(BUSY_MS)
    if options.exclusive:
        connection.pragma("locking_mode", "exclusive")
    schema.check(connection, options.path)  # before anything that would change another program's file
    if not options.read_only:
        # A row is a few KB: in pages of 4 KB a third of the space would be left over at their ends.
        connection.pragma("page_size", 8_192)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "extra" if options.durable else "normal")
        # A row that moves to another page would leave its bytes behind, where nothing that forgets it finds them.
        connection.pragma("secure_delete", "fast")
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


# Longer than a tick of any kernel's clock, and than the steps in which file systems count; and the same
# where a time has parts of a microsecond, so that only the kernel's tick is left, of 10 ms at most.
_TICK_NS, _FINE_TICK_NS = 3_000_000_000, 100_000_000


class StoreFiles:
    """The files of an open store, as they were when it was opened.

    A database that was deleted or replaced lives on without a name, and so does a log: what is written
    there is lost when it is closed.

    To delete, move or replace a file changes the time of its directory.  While that time is the same as when the files
    were last looked at, they need not be looked at again; a time that was recent then proves nothing, because two
    changes within one tick of the kernel's clock leave the same time.
    """

    def __init__(self, path: Path) -> None:
        """Remember the files at `path`."""
        self._opened = {str(file): _identity(str(file)) for file in beside(path)}
        self._directory = str(path.parent)
        self._seen: tuple[int, int, int] | None = (
            None  # the directory and its time; None: the time proves nothing
        )

    def check(self) -> bool:
        """Raise `Unavailable` if one of them was deleted, moved or replaced since.

        True if no file in the directory was since the last check, which proves the same for the lock file.
        """
        try:
            status = os.stat(self._directory)  # before every write, so without a Path
        except OSError:
            self._check_each()
            return False
        # Not the time of modification: `rsync -a`, `tar` and `cp -a` set that one back.
        changed_ns = status.st_ctime_ns
        seen = status.st_dev, status.st_ino, changed_ns
        if seen == self._seen:
            return True
        self._check_each()
        tick = min(_TICK_NS, _FINE_TICK_NS) if changed_ns % 1_000 else _TICK_NS
        is_old = time.time_ns() - changed_ns > tick
        self._seen = seen if is_old and None not in self._opened.values() else None
        return False

    def _check_each(self) -> None:
        for file, identity in self._opened.items():
            found = _identity(file)
            if found == identity:
                continue
            if identity is not None:
                raise Unavailable(
                    f"{file} was deleted, moved or replaced while the store was open; nothing was written.",
                    code="file_replaced",
                    advice="Put the file back, or open the store again.",
                    path=file,
                )
            self._opened[file] = found  # SQLite has made it since


class UnchangedFiles:
    """The files of a store that is read without locks, because nothing can be written in its directory.

    A program that can still write there, by another mount, is noticed afterwards.
    """

    def __init__(self, path: Path) -> None:
        """Remember what the files at `path` hold."""
        self._path, self._read = path, states_of(beside(path))

    def check(self) -> None:
        """Raise `Unavailable` if one of them has changed since."""
        if states_of(beside(self._path)) != self._read:
            raise Unavailable(
                f"{self._path} is on a read-only file system and was changed from elsewhere while it was open; nothing was read.",
                code="file_changed",
                advice="Open it again.",
                path=str(self._path),
            )


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
