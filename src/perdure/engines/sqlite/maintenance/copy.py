"""Copies of a store: a backup while others write, and its views as plain tables.

A backup is a consistent copy of the store in a new file.  `export_tables` is for programs that have no Perdure: two of
the views open what is packed, which stock SQLite cannot; in the new file all of them are tables.  The file is made with
the mode 0600, and is removed again if anything goes wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import apsw

from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.engines.sqlite.database import Database, connect
from perdure.engines.sqlite.errors import translated
from perdure.engines.sqlite.file_system import mode_beside
from perdure.engines.sqlite.log_binding import set_mark
from perdure.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from perdure.engines.sqlite.sql import Sql

__all__ = ["back_up", "export_tables", "is_open", "sync_names", "write_lock"]

_LOCK_SECONDS = 30.0


def back_up(read: Callable[[Callable[[Database], object]], object], path: Path) -> None:
    """Copy what `read` reads to the new file `path`, which appears whole or not at all.

    Raises `Conflict` if the file exists, `Unavailable` if it cannot be written.
    """
    if path.exists():
        raise Conflict(
            f"{path} exists already; nothing was copied.",
            code="file_exists",
            advice="Choose another path, or remove it first.",
            path=str(path),
        )
    partial = _new_file(path)
    try:
        read(lambda db: _vacuum(db, partial, path))
        _mark(partial)
        _sync(partial)
        os.link(partial, path)  # fails if another process made the file by now
    except FileExistsError as error:
        raise Conflict(
            f"{path} exists already; nothing was copied.",
            code="file_exists",
            advice="Choose another path.",
            path=str(path),
        ) from error
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        partial.unlink(missing_ok=True)
    sync_names(path.parent)


def _vacuum(db: Database, partial: Path, path: Path) -> None:
    try:
        db.execute("VACUUM INTO ?", (str(partial),)).fetchall()
    except apsw.FullError as error:  # only the new file is written
        raise translated(error, "there is no backup", str(path)) from error


def _mark(path: Path) -> None:
    """Give a copy a mark of its own, so that no log of its original is taken for one of its own."""
    db = connect(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        set_mark(db)
    finally:
        db.close()


@contextmanager
def write_lock(path: Path) -> Generator[None]:
    """Hold the write lock of the store at `path`: nothing writes to it, or opens it for writing, meanwhile.

    Raises `Unavailable` if another process holds the lock all the time.
    """
    lock = FileLock(path.with_name(path.name + "-lock"), mode_beside(path))
    try:
        is_left = lock.acquire(_LOCK_SECONDS)
        try:
            yield
        finally:
            lock.release(settled=not is_left)
    finally:
        lock.close()


def is_open(path: Path) -> bool:
    """True if the store at `path` is open in any process; the caller holds its write lock.

    The last connection that closes a database removes its log.
    """
    db = cast("Database", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()
    finally:
        db.close()
    return Path(f"{path}-wal").exists()


def _new_file(path: Path) -> Path:
    """Return an empty file beside `path`, under a name that no other process uses."""
    import tempfile  # no other function needs it, nor what it imports

    try:
        file, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise _failed(path, error) from error
    os.close(file)
    return Path(name)


def _failed(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"{path} could not be written ({error}); there is no backup.",
        code="backup_failed",
        advice="Check its directory.",
        path=str(path),
    )


def sync_names(path: Path) -> None:
    """Make the names in a directory durable."""
    _sync(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


_THREADS_OWN = (
    "conversation_events",
    "tool_events",
    "state_checkpoints",
    "memory_references",
    "artifact_references",
    "provider_metadata",
    "timelines",
    "runs",
    "steps",
    "ledger",
    "approvals",
)
_COMMITS = "SELECT {} FROM thread_commits c JOIN log l ON l.id = c.row WHERE c.conversation_id = ?1"

# What is taken of each view: everything, and what belongs to the thread ?1.
_QUERIES: dict[str, tuple[str, str]] = {
    "conversations": ("SELECT * FROM conversations", "SELECT * FROM conversations WHERE id = ?1"),
    **{
        name: (f"SELECT * FROM {name}", f"SELECT * FROM {name} WHERE conversation_id = ?1")
        for name in _THREADS_OWN
    },
    "state_commits": (
        "SELECT * FROM state_commits",
        f"SELECT * FROM state_commits WHERE hash IN ({_COMMITS.format('lower(hex(l.digest))')})",
    ),
    "state_snapshots": (
        "SELECT * FROM state_snapshots",
        (
            "SELECT DISTINCT lower(hex(root)) AS hash, perdure_snapshot(space, root) AS entries FROM log "
            f"WHERE id IN ({_COMMITS.format('l.id')})"
        ),
    ),
    "state_values": (
        "SELECT * FROM state_values",
        (
            "SELECT DISTINCT json_extract(o.value, '$.hash') AS hash, json_extract(o.value, '$.content') AS content "
            "FROM log l JOIN json_each(perdure_objects(l.id)) o WHERE json_extract(o.value, '$.kind') = 'value' "
            "AND l.space = (SELECT space FROM threads WHERE id = ?1)"
        ),
    ),
}


def export_tables(sql: Sql, target: Path, *, thread: str | None) -> dict[str, int]:
    """Write every view as a table to a new file, of one thread or of all; return how many rows each has.

    Raises `Conflict` if the file exists, `NotFound` if its directory does not; nothing is left behind then.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise Conflict(
            f"{target} exists already; nothing was written.",
            code="file_exists",
            advice="Name a new file.",
            path=str(target),
        ) from error
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no directory {target.parent}; nothing was written.",
            code="directory_not_found",
            path=str(target.parent),
        ) from error
    try:
        return _filled(sql, target, thread)
    except BaseException as error:
        target.unlink()
        if isinstance(error, apsw.Error):
            raise translated(error, "the tables were not written", str(target)) from error
        raise


def _filled(sql: Sql, target: Path, thread: str | None) -> dict[str, int]:
    opened = apsw.Connection(str(target))
    written: dict[str, int] = {}
    try:
        database = cast("Database", opened)
        database.execute("BEGIN")
        for name, (everything, of_one) in _QUERIES.items():
            columns = [str(row[0]) for row in sql.query("SELECT name FROM pragma_table_info(?)", (name,))[1]]
            rows = (sql.query(everything) if thread is None else sql.query(of_one, (thread,)))[1]
            database.execute(f"CREATE TABLE {name}({', '.join(columns)})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
            written[name] = int(database.execute(f"SELECT count(*) FROM {name}").get)
        database.execute("COMMIT")
    finally:
        opened.close()
    return written
