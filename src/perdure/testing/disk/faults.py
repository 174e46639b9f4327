"""Calls that fail: which call of the disk, with which error, and how often.

Calls are counted from 0 in the order in which SQLite makes them, whatever they do.  A fault waits for the
first call from number `at` on that is of one of its kinds, and fails it and, if asked to, those after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import apsw

__all__ = ["EVERY_CALL", "Call", "Faults"]


class Call(StrEnum):
    """The calls of a disk that can fail."""

    OPEN = "open"
    CREATE = "create"  # an open that makes the file
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SIZE = "size"
    DELETE = "delete"
    ACCESS = "access"
    SYNC_DIRECTORY = "sync directory"


EVERY_CALL = frozenset(Call)

# What SQLite's unix VFS answers when the operating system says EIO.
_ERRORS = {
    Call.OPEN: apsw.SQLITE_CANTOPEN,
    Call.CREATE: apsw.SQLITE_CANTOPEN,
    Call.READ: apsw.SQLITE_IOERR_CORRUPTFS,  # of which SQLite makes SQLITE_CORRUPT on its way up
    Call.WRITE: apsw.SQLITE_IOERR_WRITE,
    Call.TRUNCATE: apsw.SQLITE_IOERR_TRUNCATE,
    Call.SYNC: apsw.SQLITE_IOERR_FSYNC,
    Call.SIZE: apsw.SQLITE_IOERR_FSTAT,
    Call.DELETE: apsw.SQLITE_IOERR_DELETE,
    Call.ACCESS: apsw.SQLITE_IOERR_ACCESS,
    Call.SYNC_DIRECTORY: apsw.SQLITE_IOERR_DIR_FSYNC,
}


@dataclass(slots=True)
class _Fault:
    at: int
    error: int | None  # None: the usual one for the call
    times: int | None  # None: until healed
    calls: frozenset[Call]

    def strikes(self, number: int, call: Call) -> bool:
        if number < self.at or call not in self.calls or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults that a disk still has, and the calls that failed because of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed: list[tuple[int, Call]] = []
        self._faults: list[_Fault] = []

    def add(self, at: int, *, error: int | None, times: int | None, calls: frozenset[Call]) -> None:
        self._faults.append(_Fault(at, error, times, calls))

    def heal(self) -> None:
        self._faults.clear()

    def meet(self, call: Call) -> Exception | None:
        """Count one call; the error it must fail with, or None if it may go on."""
        number = self.calls
        self.calls += 1
        for fault in self._faults:
            if fault.strikes(number, call):
                self.failed.append((number, call))
                return apsw.exception_for(fault.error or _ERRORS[call])
        return None
