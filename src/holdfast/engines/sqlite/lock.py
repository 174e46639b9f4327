"""The inter-process lock: writers of different processes queue instead of spinning.

SQLite's own lock makes a waiting process sleep and guess.  Here it waits in the kernel,
on a lock file beside the store, until the holder lets go or its deadline passes.  The
file holds the holder's pid, for the error message only; who holds the lock is the
kernel's knowledge, so a killed holder leaves nothing to clean up.

Only this file is opened here: closing any other descriptor of the database would drop
SQLite's own locks on it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from holdfast.errors import Unavailable

__all__ = ["FileLock"]


class FileLock:
    """One process's handle on the lock file.  Not reentrant; one thread of the process holds it at a time."""

    def __init__(self, path: Path) -> None:
        """Open, and create, the lock file."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._mine = b"%-12d" % os.getpid()
        self._waiting: set[int] = set()  # descriptors of waits that are under way

    def acquire(self, seconds: float) -> None:
        """Hold the lock; raises `Unavailable`, naming the holder, if it cannot be had within `seconds`."""
        if not self._try():
            self._wait(seconds)
        os.pwrite(self._file, self._mine, 0)

    def release(self) -> None:
        """Let go."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close every descriptor; in a forked child this leaves the parent's lock alone."""
        for file in (self._file, *self._waiting):
            os.close(file)
        self._waiting.clear()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, seconds: float) -> None:
        """Wait in the kernel, in a thread of its own, because such a wait cannot be given a deadline."""
        waiter = _Waiter(self._path, self._waiting)
        if waiter.won(seconds):
            # The waiter's descriptor has the lock; hand it over by using that descriptor from now on.
            old, self._file = self._file, waiter.file
            self._waiting.discard(waiter.file)
            os.close(old)
            return
        holder = self._holder()
        raise Unavailable(
            f"{self._path} was held by process {holder} for {seconds:g} seconds; nothing was written. Try again.",
            retry_after=1.0,
        )

    def _holder(self) -> str:
        return os.pread(self._file, 12, 0).decode(errors="replace").strip() or "unknown"


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
        deadline = time.monotonic() + seconds
        self._won.wait(max(0.0, deadline - time.monotonic()))
        with self._decided:
            self._given_up = not self._won.is_set()
            return not self._given_up

    def _run(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with self._decided:
            if self._given_up:
                self._waiting.discard(self.file)
                os.close(self.file)
            else:
                self._won.set()
