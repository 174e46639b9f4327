"""SQLite's errors in Perdure's words.  The driver's error is the cause, never what is raised.

SQLite calls a store corrupt where the disk only failed to give it (EIO).  So before anything is called
damaged, its files are read once more: what cannot be read is `Unavailable`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.file_system import beside
from perdure.errors import Corrupt, NotFound, PerdureError, Unavailable

__all__ = ["cause_of", "check_writable", "confirmed", "look_again", "translated"]


_T = TypeVar("_T")

_CHUNK_BYTES = 1 << 20


def check_writable(path: Path) -> None:
    """Raise `Unavailable` if a file of the store is there and read-only.

    SQLite would open it all the same, and leave files of its own beside it that stay
    read-only when the store no longer is.  Such files get the rights of the store.
    """
    for file in beside(path):
        if file.exists() and not os.access(file, os.W_OK):
            if file is not path:
                with suppress(OSError):  # left by whoever read the store while it was read-only
                    file.chmod(stat.S_IMODE(path.stat().st_mode))
            if not os.access(file, os.W_OK):
                raise _read_only("opening", str(path), f"no right to write {file}")


def confirmed(
    read: Callable[[Database], _T], db: Database, *, forget: Callable[[], None], place: str, vfs: str | None
) -> _T:
    """What `read` finds on `db`; damage is `Corrupt` only if a second look at the disk finds it too.

    A disk or a cable that errs once is not a damaged store.  `forget` drops what was kept of the first look.
    """
    try:
        return _once(read, db, place, vfs)
    except Corrupt:
        with suppress(apsw.Error):
            look_again(db, forget)
        return _once(read, db, place, vfs)


def look_again(db: Database, forget: Callable[[], None]) -> None:
    """Have the next read on `db` go to the disk."""
    forget()
    db.pragma("shrink_memory")


def _once(read: Callable[[Database], _T], db: Database, place: str, vfs: str | None) -> _T:
    try:
        return read(db)
    except UnicodeDecodeError as error:  # a column that was never text has become text
        raise Corrupt(f"{place} holds text that is none; nothing was read. Run `perdure verify`.") from error
    except apsw.Error as error:
        raise translated(error, "reading", place, vfs=vfs) from error


def translated(error: Exception, doing: str, place: str, *, vfs: str | None = None) -> PerdureError:
    """What to raise for `error`, met while `doing` something to the store at `place`, a file of that `vfs`."""
    if isinstance(error, PerdureError):
        return error
    code = getattr(error, "extendedresult", 0)
    detail = f"{type(error).__name__}: {error}"
    match error:
        case apsw.CorruptError() | apsw.NotADBError() if _cannot_be_read(place, vfs):
            return Unavailable(
                f"the disk does not give what {place} holds ({detail}); {doing} was not done. Try again; if it fails "
                "again, the disk may be failing: restore a backup to another one.",
                retry_after=1.0,
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{place} is damaged or not a Perdure store ({detail}); {doing} was not done. "
                "Choose another path, or restore a backup."
            )
        case apsw.FullError():
            return _full(doing, place)
        case apsw.ReadOnlyError():
            return _read_only(doing, place, detail)
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(
                f"another program holds {place}; {doing} was not done. Try again.", retry_after=0.1
            )
        case apsw.CantOpenError() if not Path(place).exists():
            return NotFound(f"{place} cannot be opened ({detail}); {doing} was not done. Check the path.")
        case apsw.CantOpenError():
            return Unavailable(
                f"{place} cannot be opened ({detail}); {doing} was not done. Check its rights."
            )
        case FileNotFoundError():
            return NotFound(
                f"the directory of {place} does not exist ({error.filename}); {doing} was not done. Create it first."
            )
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return _full(doing, place)
        case OSError(errno=errno.EROFS | errno.EACCES | errno.EPERM):
            return _read_only(doing, place, f"{error.strerror}: {error.filename}")
        case OSError():
            return Unavailable(f"{place} cannot be used ({detail}); {doing} was not done.")
        case apsw.PermissionsError() | apsw.AuthError():
            return Unavailable(f"no right to use {place} ({detail}); {doing} was not done.")
        case _:
            return Unavailable(f"{place} failed ({detail}, code {code}); {doing} was not done.")


def _cannot_be_read(place: str, vfs: str | None) -> bool:
    """Whether the disk fails while the files of the store are read from end to end.

    They are opened by SQLite's own layer: any other way to close them would drop the locks of this process.
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
            # A short read is a file that another process has shortened meanwhile, not a failing disk.
            if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_SHORT_READ:
                return True
        finally:
            file.xClose()
    return False


def cause_of(error: BaseException) -> str:
    """Why something failed, in a few words."""
    match error:
        case apsw.FullError():
            return "the disk is full"
        case apsw.ReadOnlyError():
            return "the file or its directory is read-only"
        case _:
            return f"{type(error).__name__}: {error}"


def _full(doing: str, place: str) -> Unavailable:
    return Unavailable(
        f"the disk that holds {place} is full; {doing} was not done. Free some space and try again."
    )


def _read_only(doing: str, place: str, detail: str) -> Unavailable:
    return Unavailable(
        f"{place} cannot be written: the file or its directory is read-only ({detail}); {doing} was not done.",
        code="file_read_only",
        advice="Change the rights; to read only, open it with read_only=True.",
        path=place,
    )
