"""Calls that fail: which call of the disk, with which error, and how often.

Calls are counted from 0 in the order in which SQLite makes them, whatever they do.  A fault waits for the
first call from number `at` on that is of one of its kinds, and fails it and, if asked to, those after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import apsw

__all__ = ["EVERY_CALL", "DiskCall", "Faults"]


class DiskCall(StrEnum):
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


EVERY_CALL = frozenset(DiskCall)

# What SQLite's unix VFS answers when the operating system says EIO.
_ERRORS = {
    DiskCall.OPEN: apsw.SQLITE_CANTOPEN,
    DiskCall.CREATE: apsw.SQLITE_CANTOPEN,
    DiskCall.READ: apsw.SQLITE_IOERR_CORRUPTFS,  # of which SQLite makes SQLITE_CORRUPT on its way up
    DiskCall.WRITE: apsw.SQLITE_IOERR_WRITE,
    DiskCall.TRUNCATE: apsw.SQLITE_IOERR_TRUNCATE,
    DiskCall.SYNC: apsw.SQLITE_IOERR_FSYNC,
    DiskCall.SIZE: apsw.SQLITE_IOERR_FSTAT,
    DiskCall.DELETE: apsw.SQLITE_IOERR_DELETE,
    DiskCall.ACCESS: apsw.SQLITE_IOERR_ACCESS,
    DiskCall.SYNC_DIRECTORY: apsw.SQLITE_IOERR_DIR_FSYNC,
}


@dataclass(slots=True)
class _Fault:
    at: int
    error: int | None  # None: the usual one for the call
    times: int | None  # None: until healed
    calls: frozenset[DiskCall]

    def strikes(self, number: int, call: DiskCall) -> bool:
        if number < self.at or call not in self.calls or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults that a disk still has, and the calls that failed because of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed: list[tuple[int, DiskCall]] = []
        self._faults: list[_Fault] = []

    def add(self, at: int, *, error: int | None, times: int | None, calls: frozenset[DiskCall]) -> None:
        self._faults.append(_Fault(at, error, times, calls))

    def heal(self) -> None:
        self._faults.clear()

    def meet(self, call: DiskCall) -> Exception | None:
        """Count one call; return the error it must fail with, or None if it may go on."""
        number = self.calls
        self.calls += 1
        for fault in self._faults:
            if fault.strikes(number, call):
                self.failed.append((number, call))
                return apsw.exception_for(fault.error or _ERRORS[call])
        return None
