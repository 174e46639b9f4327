"""SQLite's errors in Holdfast's words.  The driver's error is the cause, never what is raised."""

from __future__ import annotations

import errno

import apsw

from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable

__all__ = ["translated"]


def translated(error: Exception, doing: str, place: str) -> HoldfastError:
    """What to raise for `error`, met while `doing` something to the store at `place`."""
    if isinstance(error, HoldfastError):
        return error
    code = getattr(error, "extendedresult", 0)
    detail = f"{type(error).__name__}: {error}"
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(f"{place} is damaged or not a Holdfast store ({detail}); {doing} was not done.")
        case apsw.FullError():
            return _full(doing, place)
        case apsw.ReadOnlyError():
            return _read_only(doing, place, detail)
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(
                f"another program holds {place}; {doing} was not done. Try again.", retry_after=0.1
            )
        case apsw.CantOpenError():
            return NotFound(
                f"{place} cannot be opened ({detail}); {doing} was not done. Check the path and its rights."
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


def _full(doing: str, place: str) -> Unavailable:
    return Unavailable(
        f"the disk that holds {place} is full; {doing} was not done. Free some space and try again."
    )


def _read_only(doing: str, place: str, detail: str) -> Unavailable:
    return Unavailable(
        f"{place} cannot be written: the file or its directory is read-only ({detail}); {doing} was not done. "
        "Change the rights, or open it with read_only=True."
    )
