"""Binds a write-ahead log to the database file that it was begun on.

SQLite replays any write-ahead log that it finds beside a database, also one that another store has left there, or an
older state of the same one, and closing the database merges it for good.  So the database has a random mark, in the row
`log_mark` of `meta`.  A transaction at the beginning of a log changes the mark, and notes in `log_base` which one the file
had.  A checkpoint takes the new mark into the file.  From then on the file has one of the two, and a log that knows
neither of its file's marks was written on another file.

A power loss can take a file back to where it was last synced.  SQLite syncs it when a checkpoint has moved the whole
log, and not when it moved a part.  So a log is bound only where the file certainly had everything that was written
before: the log is empty, or this process has moved all of it, or has restarted it, and no other process wrote since.
A log for which that is not certain stays as it is, and is accepted with a file that has its marks.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import apsw

from perdure.engines.sqlite.database import BUSY_MS, Database, connect
from perdure.engines.sqlite.file_system import beside
from perdure.errors import Corrupt

__all__ = ["LogBinding", "check_log", "open_immutable", "set_mark"]

_HEADER_BYTES = 32  # a log of this size or less has nothing to replay
_LOOKS_MAX = 100
_MARK = "SELECT value FROM meta WHERE name='log_mark'"
_MARKS = "SELECT value FROM meta WHERE name IN ('log_mark', 'log_base')"


class LogBinding:
    """Decides at the beginning of a transaction whether it binds the log.  The connection that writes uses it."""

    def __init__(self, path: str, *, is_on: bool) -> None:
        """Bind logs of the database at `path`; not where a write does not survive a power loss (`is_on` is False)."""
        self._path = path
        self._is_on = is_on
        self._version: int | None = None  # the data version at which the file had everything; None: not known
        self._is_moved = False  # at that version the file had all that the database has, its mark too
        self._has_bound = False  # the transaction that looked last has bound the log
        self.is_due = is_on  # the next transaction may bind the log

    def note_moved(self, version: int) -> None:
        """Let the next transaction bind the log: this process has moved all of it, at this data version."""
        self.is_due, self._version, self._is_moved = self._is_on, version, True

    def note_committed(self, version: int, *, is_log_new: bool) -> None:
        """After a commit that left this data version: let the next transaction bind a new log that has no mark yet."""
        is_due = is_log_new and not (self.is_due and self._has_bound)
        self.is_due, self._version, self._is_moved = self._is_on and is_due, version, False

    def bind(self, db: Database, version: int) -> None:
        """Bind the log in the open transaction, which begins at this data version, if the file certainly has everything."""
        self._has_bound = False
        is_current = version == self._version
        if not is_current and _has_frames(Path(self._path)):
            return
        mark = _mark_of(db)
        # Another process may have restarted the log and bound it: then the file does not have the mark.
        if not (is_current and self._is_moved) and _mark_in_file(self._path) != mark:
            return
        set_mark(db)
        db.execute("INSERT OR REPLACE INTO meta VALUES ('log_base', ?)", (mark,))
        self._has_bound = True


def check_log(path: Path) -> None:
    """Raise `Corrupt`, changing nothing, if the log beside the database at `path` was written on another file.

    A log that cannot be read without changing something, as in a directory that cannot be written, is not checked.
    """
    for _ in range(_LOOKS_MAX):  # other processes may begin a log between two looks
        if not path.exists() or not _has_frames(path):
            return
        in_file, in_log = _mark_in_file(str(path)), _marks_with_log(str(path))
        if in_file is None or in_log is None or in_file in in_log:
            return
        if _mark_in_file(str(path)) == in_file:
            raise _another_file(path)


def set_mark(db: Database) -> None:
    """Give the database a new mark."""
    mark = int.from_bytes(os.urandom(7)) or 1
    db.execute("INSERT OR REPLACE INTO meta VALUES ('log_mark', ?)", (mark,))


def open_immutable(path: str) -> Database:
    """Return a connection that reads the file alone, without its log and without locks."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return connect(f"file:{quote(path)}?mode=ro&immutable=1", flags=flags)


def _mark_in_file(path: str) -> int | None:
    """Return the mark of the database without its log; 0: it has none; None: the file alone cannot be read."""
    try:
        connection = open_immutable(path)
        try:
            return _mark_of(connection)
        finally:
            connection.close()
    except apsw.SQLError:  # there is no such table yet: all is in the log
        return 0
    except (apsw.Error, UnicodeError):
        return None


def _mark_of(db: Database) -> int:
    found = db.execute(_MARK).get
    return found if isinstance(found, int) else 0


def _marks_with_log(path: str) -> tuple[int, ...] | None:
    """Return the marks that the file may have, as the database with its log says; None: not known.

    The connection reads only, so that closing it merges nothing.
    """
    try:
        connection = connect(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            found = connection.execute(_MARKS).fetchall()
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError):  # two files were mixed
        return ()
    except apsw.Error:
        return None
    return tuple(row[0] for row in found) or (0,)


def _has_frames(path: Path) -> bool:
    """True if there is anything in the log of a database to replay."""
    try:
        return beside(path)[1].stat().st_size > _HEADER_BYTES
    except FileNotFoundError:
        return False


def _another_file(path: Path) -> Corrupt:
    log = beside(path)[1]
    return Corrupt(
        f"{log} was not written on {path.name} as it is: one of the two was replaced; nothing was opened or changed.",
        code="log_of_another_file",
        advice=f"Put back the file that belongs to the log. If you restored {path.name} from a copy, move {log.name} away, and use `perdure restore` next time.",
        path=str(path),
        log=str(log),
    )
