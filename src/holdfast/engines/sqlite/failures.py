"""SQLite's errors in Holdfast's words.  The driver's error is the cause, never what is raised."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import apsw

from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable

__all__ = ["cause_of", "check_writable", "translated"]


def check_writable(path: Path) -> None:
    """Raise `Unavailable` if a file of the store is there and read-only.

    SQLite would open it all the same, and leave files of its own beside it that stay
    read-only when the store no longer is.  Such files get the rights of the store.
    """
    for file in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        if file.exists() and not os.access(file, os.W_OK):
            if file is not path:
                with suppress(OSError):  # left by whoever read the store while it was read-only
                    file.chmod(stat.S_IMODE(path.stat().st_mode))
            if not os.access(file, os.W_OK):
                raise _read_only("opening", str(path), f"no right to write {file}")


def translated(error: Exception, doing: str, place: str) -> HoldfastError:
    """What to raise for `error`, met while `doing` something to the store at `place`."""
    if isinstance(error, HoldfastError):
        return error
    code = getattr(error, "extendedresult", 0)
    detail = f"{type(error).__name__}: {error}"
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{place} is damaged or not a Holdfast store ({detail}); {doing} was not done. "
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
        f"{place} cannot be written: the file or its directory is read-only ({detail}); {doing} was not done. "
        "Change the rights; to read only, open it with read_only=True."
    )
