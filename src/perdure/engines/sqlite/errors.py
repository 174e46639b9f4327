"""Translates SQLite's errors into Perdure's.  The driver's error is the cause, and is never raised itself.

SQLite calls a store corrupt where the disk only failed to read it (EIO).  So before this module calls anything
damaged, it reads the files once more: what cannot be read is `Unavailable`.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.file_system import beside
from perdure.errors import Corrupt, NotFound, PerdureError, Unavailable

__all__ = [
    "busy_error",
    "commit_error",
    "in_doubt_error",
    "cause_of",
    "check_writable",
    "closed_error",
    "confirmed",
    "look_again",
    "is_text",
    "read_only_error",
    "translated",
]


_T = TypeVar("_T")

_CHUNK_BYTES = 1 << 20


def check_writable(path: Path) -> None:
    """Raise `Unavailable` if a file of the store exists and is read-only.

    SQLite would still open it, and leave files of its own beside it that stay
    read-only when the store no longer is.  Such files get the rights of the store.
    """
    for file in beside(path):
        if file.exists() and not os.access(file, os.W_OK):
            if file is not path:
                with suppress(OSError):  # left by a process that read the store while it was read-only
                    file.chmod(stat.S_IMODE(path.stat().st_mode))
            if not os.access(file, os.W_OK):
                raise _read_only("it was not opened", str(path), f"no right to write {file}")


def confirmed(
    read: Callable[[Database], _T], db: Database, *, forget: Callable[[], None], place: str, vfs: str | None
) -> _T:
    """Return what `read` finds on `db`; raise `Corrupt` only if a second look at the disk finds the damage too.

    A disk or a cable that errs once is not a damaged store.  `forget` drops what was kept of the first look.
    """
    try:
        return _once(read, db, place, vfs)
    except Corrupt:
        with suppress(apsw.Error):
            look_again(db, forget)
        return _once(read, db, place, vfs)


def look_again(db: Database, forget: Callable[[], None]) -> None:
    """Make the next read on `db` go to the disk."""
    forget()
    db.pragma("shrink_memory")


def _once(read: Callable[[Database], _T], db: Database, place: str, vfs: str | None) -> _T:
    try:
        return read(db)
    except UnicodeDecodeError as error:  # a column that was never text has become text
        raise damaged(
            f"{place} holds text that is not UTF-8; nothing was read.", "text_damaged", path=place
        ) from error
    except apsw.Error as error:
        raise translated(error, "nothing was read", place, vfs=vfs) from error


def translated(error: Exception, left: str, place: str, *, vfs: str | None = None) -> PerdureError:
    """Return what to raise for `error`, met at the store at `place`, a file of that `vfs`; `left` is what was not done."""
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, OSError):
        return _of_operating_system(error, left, place)
    detail = f"{type(error).__name__}: {error}"
    match error:
        case apsw.CorruptError() | apsw.NotADBError() if _cannot_be_read(place, vfs):
            advice = "Try again; if it fails again, the disk may be failing: restore a backup to another one."
            what = f"the disk cannot read {place} ({detail}); {left}."
            return Unavailable(what, code="disk_failing", advice=advice, retry_after=1.0, path=place)
        case apsw.CorruptError() | apsw.NotADBError():
            advice = "Choose another path, or restore a backup."
            what = f"{place} is damaged or not a Perdure store ({detail}); {left}."
            return Corrupt(what, code="file_damaged", advice=advice, path=place)
        case apsw.FullError():
            return _full(left, place)
        case apsw.ReadOnlyError():
            return _read_only(left, place, detail)
        case apsw.BusyError() | apsw.LockedError():
            what = f"another program holds {place}; {left}."
            return Unavailable(what, code="store_locked", advice="Try again.", retry_after=0.1, path=place)
        case apsw.CantOpenError():
            kind, advice = (
                (Unavailable, "Check its rights.") if Path(place).exists() else (NotFound, "Check the path.")
            )
            return kind(
                f"{place} cannot be opened ({detail}); {left}.", code="cannot_open", advice=advice, path=place
            )
        case apsw.PermissionsError() | apsw.AuthError():
            return Unavailable(
                f"no right to use {place} ({detail}); {left}.", code="permission_denied", path=place
            )
        case _:
            result = getattr(error, "extendedresult", 0)
            what = f"{place} failed ({detail}, code {result}); {left}."
            return Unavailable(what, code="sqlite_failed", path=place, result=result)


def _of_operating_system(error: OSError, left: str, place: str) -> PerdureError:
    match error.errno:
        case errno.ENOENT:
            what = f"the directory of {place} does not exist ({error.filename}); {left}."
            return NotFound(what, code="directory_not_found", advice="Create it first.", path=place)
        case errno.ENOSPC | errno.EDQUOT:
            return _full(left, place)
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return _read_only(left, place, f"{error.strerror}: {error.filename}")
        case _:
            what = f"{place} cannot be used ({type(error).__name__}: {error}); {left}."
            return Unavailable(what, code="file_failed", path=place)


def _cannot_be_read(place: str, vfs: str | None) -> bool:
    """True if the disk fails while the files of the store are read from end to end.

    SQLite's own layer opens them: any other way to close them would drop the locks of this process.
    """
    for name, kind in ((place, apsw.SQLITE_OPEN_MAIN_DB), (f"{place}-wal", apsw.SQLITE_OPEN_WAL)):
        try:
            file = apsw.VFSFile(vfs or "", name, [apsw.SQLITE_OPEN_READONLY | kind, 0])
        except apsw.Error:
            continue  # there is none, or it is not the disk that refuses it
        try:
            size = file.xFileSize()
            for offset in range(0, size, _CHUNK_BYTES):
                file.xRead(min(_CHUNK_BYTES, size - offset), offset)
        except apsw.Error as error:
            # A short read means that another process has shortened the file, not that the disk fails.
            if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_SHORT_READ:
                return True
        finally:
            file.xClose()
    return False


def is_text(place: str) -> bool:
    """True if a file is text from its first byte to its last and has no log beside it, so that nothing of a store is in it.

    It is read as in `_cannot_be_read`, whose reason counts here too.
    """
    if Path(f"{place}-wal").exists():
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        file = apsw.VFSFile("", place, [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    except apsw.Error:
        return False
    try:
        size = file.xFileSize()
        for offset in range(0, size, _CHUNK_BYTES):
            read = file.xRead(min(_CHUNK_BYTES, size - offset), offset)
            if b"\0" in read:  # each page of a database has some
                return False
            decoder.decode(read, final=offset + _CHUNK_BYTES >= size)
    except (apsw.Error, UnicodeDecodeError):
        return False
    finally:
        file.xClose()
    return True


def busy_error(place: str, seconds: float) -> Unavailable:
    """Return the error of a write that has waited so long for other threads."""
    return Unavailable(
        f"other threads of this process wrote to {place} for {seconds:g} seconds; nothing was written.",
        code="store_busy",
        advice="Try again.",
        retry_after=1.0,
        seconds=seconds,
    )


def commit_error(place: str, error: BaseException) -> Unavailable:
    """Return the error of a write that is certainly not stored, because its COMMIT failed with `error`."""
    if isinstance(error, apsw.FullError):
        return _full("nothing was written", place)
    return Unavailable(
        f"{place} failed at the moment of commitment ({cause_of(error)}); nothing was written.",
        code="commit_failed",
        advice="Try again.",
        retry_after=0.1,
        path=place,
    )


def in_doubt_error(place: str, why: str) -> Unavailable:
    """Return the error of work in a transaction of its own whose COMMIT failed."""
    return Unavailable(
        f"{place} failed at the moment of commitment ({why}); whether the change was made is not known.",
        code="change_in_doubt",
        advice="Make it again.",
    )


def closed_error(place: str | Path) -> Unavailable:
    """Return the error for a use of a store that the program has closed."""
    return Unavailable(
        f"{place} was closed; nothing was done.",
        code="store_closed",
        advice="Open it again.",
        path=str(place),
    )


def read_only_error(place: str | Path) -> Unavailable:
    """Return the error for a write to a store that the program opened read-only."""
    return Unavailable(
        f"{place} was opened read-only; nothing was written.",
        code="opened_read_only",
        advice="Open it without read_only=True.",
        path=str(place),
    )


def cause_of(error: BaseException) -> str:
    """Return why something failed, in a few words."""
    match error:
        case apsw.FullError():
            return "the disk is full"
        case apsw.ReadOnlyError():
            return "the file or its directory is read-only"
        case _:
            return f"{type(error).__name__}: {error}"


def _full(left: str, place: str) -> Unavailable:
    return Unavailable(
        f"the disk that holds {place} is full; {left}.",
        code="disk_full",
        advice="Free some space and try again.",
        path=place,
    )


def _read_only(left: str, place: str, detail: str) -> Unavailable:
    return Unavailable(
        f"{place} cannot be written: the file or its directory is read-only ({detail}); {left}.",
        code="file_read_only",
        advice="Change the rights; to read only, open it with read_only=True.",
        path=place,
    )
