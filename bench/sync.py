"""Makes each sync take a given time, so that figures of one disk can be repeated on any machine.

Files are put on memory, where a sync takes no time, and every connection sleeps in SQLite's commit hook: once for each
transaction that wrote, with SQLite's write lock held and the interpreter's released, as a real sync is waited for.
SQLite calls the C library's `usleep` itself, without Python: a hook in Python would need the interpreter's lock to
return, which a sync does not.  APSW does not offer that, but SQLite gives its functions to every extension that
is loaded, so an extension is loaded that is nothing but a function of ours.

What is not delayed: the syncs of a WAL checkpoint (two for a thousand pages), and other copies of the SQLite library,
which some peers use.  Child processes are told by the environment and call `slow_syncs_as_told`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import apsw

__all__ = [
    "MEMORY",
    "measured_sync",
    "slow_syncs",
    "slow_syncs_as_told",
    "told_microseconds",
    "without_syncs",
]

MEMORY = Path("/dev/shm")

_TOLD = "PERDURE_BENCH_SYNC_US"
_COMMIT_HOOK = 40  # its place in `sqlite3_api_routines`, which is never reordered
_PR_SET_TIMERSLACK = 29
_Entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_Hook = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_paused = False


def slow_syncs(milliseconds: float) -> None:
    """Let every connection that is opened from now on, here and in child processes, take so long for a sync."""
    usleep = _precise_usleep()
    wanted = round(1_000 * milliseconds)
    times: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        usleep(wanted)
        times.append(time.perf_counter() - start)
    # What it takes to be woken up, and no waiting for a busy processor.
    late = round(1e6 * min(times)) - wanted
    os.environ[_TOLD] = str(max(1, wanted - late))
    slow_syncs_as_told()


def told_microseconds() -> int:
    """Return how long a sync is to sleep, less than it is to take by the time of being woken up; 0: no length was set."""
    return int(os.environ.get(_TOLD, "0"))


def slow_syncs_as_told() -> None:
    """Do as the environment says; nothing if it says nothing."""
    microseconds = told_microseconds()
    if microseconds == 0:
        return
    usleep, set_hook = ctypes.cast(_precise_usleep(), ctypes.c_void_p), _commit_hook()

    def hook(connection: apsw.Connection) -> None:
        if connection.db_filename("main") and not _paused:
            set_hook(connection.sqlite3_pointer(), usleep, microseconds)

    apsw.connection_hooks.append(hook)


@contextmanager
def without_syncs(yes: bool = True) -> Generator[None]:
    """Leave connections as they are that are opened inside: stores that are filled without waiting for the disk."""
    global _paused  # noqa: PLW0603 - connections are opened deep inside of what is measured
    before, _paused = _paused, _paused or yes
    try:
        yield
    finally:
        _paused = before


def measured_sync(directory: Path) -> float:
    """The milliseconds that a sync really takes: what a commit takes longer with it than without."""
    with without_syncs():
        before = _commit_ms(directory / "unsynced.db")
    return _commit_ms(directory / "synced.db") - before


def _precise_usleep() -> Any:
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":  # else the kernel adds up to 50 µs; threads and children inherit this
        libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return libc.usleep


def _commit_ms(path: Path) -> float:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE one(value)")
    times: list[float] = []
    for at in range(100):
        start = time.perf_counter()
        connection.execute("INSERT INTO one VALUES (?)", (at,))
        times.append(time.perf_counter() - start)
    connection.close()
    return 1e3 * median(times)


class _Extension(apsw.VFS):
    """A file system whose only library is a function of ours."""

    def __init__(self, entry: Any) -> None:
        self._address = ctypes.cast(entry, ctypes.c_void_p).value or 0
        super().__init__("bench-extension", "")

    def xDlOpen(self, filename: str) -> int:  # noqa: N802 - SQLite's name
        return 1

    def xDlSym(self, handle: int, symbol: str) -> int:  # noqa: N802
        return self._address

    def xDlClose(self, handle: int) -> None:  # noqa: N802
        """Nothing was opened."""


def _commit_hook() -> Callable[[int, Any, int], object]:
    """SQLite's `sqlite3_commit_hook`, from the functions that it gives to extensions."""
    found: list[int] = []

    def enter(_db: int, _error: int, functions: Any) -> int:
        found.append(functions[_COMMIT_HOOK])
        return 0

    entry = _Entry(enter)
    extension = _Extension(entry)
    connection = apsw.Connection(":memory:", vfs="bench-extension")
    connection.enable_load_extension(True)
    connection.load_extension("bench", "enter")
    connection.close()
    extension.unregister()
    return _Hook(found[0])
