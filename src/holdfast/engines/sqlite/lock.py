"""The inter-process lock: writers of different processes queue instead of spinning.

SQLite's own lock makes a waiting process sleep and guess.  Here it waits in the kernel,
on a lock file beside the store, until the holder lets go or its deadline passes.  Who
holds the lock is the kernel's knowledge, so a killed holder leaves nothing to clean up.

The file holds the holder's pid, and nothing while everything is settled.  So whoever finds
a pid there, and the lock free, comes after a holder that died or was left in doubt: what
it was writing may be half there, and may come back.

Only this file is opened here: closing any other descriptor of the database would drop
SQLite's own locks on it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from holdfast.errors import Unavailable

__all__ = ["FileLock"]

_NOBODY = b" " * 12


class FileLock:
    """One process's handle on the lock file.  Not reentrant; one thread of the process holds it at a time."""

    def __init__(self, path: Path) -> None:
        """Open, and create, the lock file."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._mine = b"%-12d" % os.getpid()
        self._waiting: set[int] = set()  # descriptors of waits that are under way

    def acquire(self, seconds: float) -> bool:
        """Hold the lock; whether the holder before has left something unsettled.

        Raises `Unavailable`, naming the holder, if it cannot be had within `seconds`.
        """
        if not _taken(self._file):
            self._wait(seconds)
        try:
            left = self._holder() != ""
            os.pwrite(self._file, self._mine, 0)
        except OSError:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            raise
        return left

    def release(self, *, settled: bool) -> None:
        """Let go; what is not `settled` the next holder is told of."""
        if settled:
            with suppress(OSError):  # then the next holder makes sure in vain
                os.pwrite(self._file, _NOBODY, 0)
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def was_left(self) -> bool:
        """Whether something is unsettled and nobody is about to settle it."""
        if self._holder() == "":
            return False
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _taken(file) and self._holder() != ""
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the descriptor.  A wait that is under way closes its own when it ends: the number may be reused."""
        os.close(self._file)

    def inherit(self) -> None:
        """In a forked child: close what came along, waits included, as their threads did not; the parent's lock stays."""
        for file in (self._file, *self._waiting):
            os.close(file)
        self._waiting.clear()

    def _wait(self, seconds: float) -> None:
        """Wait in the kernel, in a thread of its own, because such a wait cannot be given a deadline."""
        waiter = _Waiter(self._path, self._waiting)
        if waiter.won(seconds):
            # The waiter's descriptor has the lock; hand it over by using that descriptor from now on.
            old, self._file = self._file, waiter.file
            self._waiting.discard(waiter.file)
            os.close(old)
            return
        raise Unavailable(
            f"{self._path} was held by process {self._holder() or 'unknown'} for {seconds:g} seconds; nothing was written. Try again.",
            retry_after=1.0,
        )

    def _holder(self) -> str:
        return os.pread(self._file, len(_NOBODY), 0).decode(errors="replace").strip()


def _taken(file: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Waiter:
    """A wait for the lock that can be given up: the thread then closes its descriptor when it wins."""

    def __init__(self, path: Path, waiting: set[int]) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._waiting = waiting
        waiting.add(self.file)
        self._decided = threading.Lock()
        self._given_up = False
        self._won = threading.Event()
        threading.Thread(target=self._run, name="holdfast-lock", daemon=True).start()

    def won(self, seconds: float) -> bool:
        """Whether the lock was had in time; if not, or if the wait is interrupted, it is given up for good."""
        try:
            self._won.wait(seconds)
        except BaseException:
            self.give_up()
            raise
        with self._decided:
            self._given_up = not self._won.is_set()
            return not self._given_up

    def give_up(self) -> None:
        """Let go of the lock, now or when it is had."""
        with self._decided:
            self._given_up = True
            if self._won.is_set():
                self._close()

    def _run(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with self._decided:
            if self._given_up:
                self._close()
            else:
                self._won.set()

    def _close(self) -> None:
        self._waiting.discard(self.file)
        os.close(self.file)
