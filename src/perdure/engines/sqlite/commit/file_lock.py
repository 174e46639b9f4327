"""The lock between processes: writers of different processes queue instead of spinning.

SQLite's own lock makes a waiting process sleep and guess.  Here it waits in the kernel on a lock file beside the store,
until the holder lets go or the deadline passes.  The kernel knows which process holds the
lock, so a killed holder leaves nothing to clean up.

The file has the holder's pid, and is empty of one while everything is settled.  So a process that finds a pid there,
and the lock free, follows a holder that died or was left in doubt: what that one was writing may be half there, and may
come back.  After the pid the file has a count that grows whenever the lock is released with everything settled.  A
process that reads the same count again knows that no process has written in between.

The count grows by the number of spaces that were written to, and the numbers of the last of these follow it.  So a
process that reads a higher count knows what is new without asking the database.  At the end is the count again: a
process that reads while another one writes finds two counts that differ, and asks.

Only this file is opened here: closing any other descriptor of the database would drop SQLite's own locks on it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection
from pathlib import Path
from struct import unpack_from

from perdure.engines.sqlite.file_system import open_file
from perdure.errors import Unavailable

__all__ = ["SPACES_MAX", "SPACE_MAX", "FileLock"]

_flock, _TAKE = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB
_pread, _fstat, _number = os.pread, os.fstat, int.from_bytes  # read once: the count is read before every read
_NO_HOLDER = b" " * 12
_SETTLED = (_NO_HOLDER, b"")
_PID_BYTES, _COUNTED_BYTES = 12, 20  # of the pid, and with the count behind it
SPACES_MAX, SPACE_MAX, _SPACE_BYTES = 15, 0xFFFF_FFFF, 4  # how many spaces follow, the newest first; 0: any
_UNKNOWN = bytes(SPACES_MAX * _SPACE_BYTES)
_SPACES_END = _COUNTED_BYTES + len(_UNKNOWN)
_BYTES = _SPACES_END + _COUNTED_BYTES - _PID_BYTES  # with the count again
_IDLE_SECONDS = 2.0  # after which an unused thread ends


class FileLock:
    """One process's handle on the lock file.  Not reentrant; one thread of the process holds it at a time."""

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        """Open the lock file; one that is created gets `mode`."""
        self._path = path
        self._file = open_file(path, mode)
        self._mine = b"%-12d" % os.getpid()
        self.count = 0  # the count that the file had when the lock was taken, or was given when it was released; -1: not known
        self.is_held = False  # by this process, for certain
        self._written = b""  # what the file had when the lock was taken
        self._waiter = _Waiter(path, mode)

    def acquire(self, seconds: float) -> bool:
        """Take the lock; return True if the holder before has left something unsettled.

        Raises `Unavailable`, naming the holder, if the lock is not free within `seconds`.
        """
        try:
            _flock(self._file, _TAKE)
        except BlockingIOError:
            self._wait(seconds)
        file = self._file
        try:
            content = os.pread(file, _BYTES, 0)
            os.pwrite(file, self._mine, 0)
        except OSError:
            _flock(file, fcntl.LOCK_UN)
            raise
        self._written = content
        self.count, self.is_held = _number(content[_PID_BYTES:_COUNTED_BYTES], "big"), True
        return content[:_PID_BYTES] not in _SETTLED

    def release(self, *, settled: bool, spaces: Collection[int] = (0,)) -> None:
        """Let go of the lock; if not `settled`, the next holder learns that something is unsettled.

        `spaces` are the numbers of all that were written to, a few; 0: any may have been.
        """
        new = len(spaces)
        count, self.count = self.count + new, -1
        if settled:
            number = count.to_bytes(_COUNTED_BYTES - _PID_BYTES, "big")
            written = b"".join([each.to_bytes(_SPACE_BYTES, "big") for each in spaces])
            written += _spaces_in(self._written)
            try:
                os.pwrite(self._file, _NO_HOLDER + number + written[: len(_UNKNOWN)] + number, 0)
                self.count = count
            except OSError:
                pass  # then the next holder settles once more than needed
        self.is_held = False
        _flock(self._file, fcntl.LOCK_UN)

    def writes(self) -> int:
        """Return the count that the file has now; -1 while a process holds the lock, or has left something unsettled."""
        file = self._file
        try:
            content = _pread(file, _COUNTED_BYTES, 0)
            if not _fstat(file).st_nlink:
                return -1  # it was removed, and other processes count in another one
        except OSError:
            return -1
        return _number(content[_PID_BYTES:], "big") if not content or content.startswith(_NO_HOLDER) else -1

    def written_since(self, count: int) -> tuple[int, set[int] | None]:
        """Return what `writes` returns, and the numbers of the spaces that were written to since that count; None: any."""
        file = self._file
        try:
            content = _pread(file, _BYTES, 0)
            if not _fstat(file).st_nlink:
                return -1, None
        except OSError:
            return -1, None
        if content and not content.startswith(_NO_HOLDER):
            return -1, None
        return _number(content[_PID_BYTES:_COUNTED_BYTES], "big"), _spaces_since(content, count)

    def written_before(self, count: int) -> set[int] | None:
        """While the lock is held: return the spaces that were written to between that count and this holder; None: any."""
        return _spaces_since(self._written, count)

    def is_removed(self) -> bool:
        """True if the file has no name any more: other processes lock and count in another one."""
        return not os.fstat(self._file).st_nlink

    def was_left(self) -> bool:
        """True if something is unsettled and no process is about to settle it."""
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
        self._waiter.stop()

    def inherit(self) -> None:
        """In a forked child: close the inherited descriptors, the waiter's too, since its thread is not there; the parent keeps its lock."""
        os.close(self._file)
        if self._waiter.file is not None:
            os.close(self._waiter.file)

    def _wait(self, seconds: float) -> None:
        if seconds <= 0 or not self._waiter.won(seconds):
            holder = self._holder()
            raise Unavailable(
                f"process {holder or 'unknown'} held {self._path} for {seconds:g} seconds; nothing was written.",
                code="store_locked",
                advice="Try again.",
                retry_after=1.0,
                path=str(self._path),
                process=holder,
                seconds=seconds,
            )
        # The waiter's descriptor has the lock: it is ours from now on, and the waiter gets the other one.
        self._file = self._waiter.trade(self._file)

    def _holder(self) -> str:
        return os.pread(self._file, _PID_BYTES, 0).decode(errors="replace").strip()


def _spaces_in(content: bytes) -> bytes:
    """Return the spaces that the file names; those of a file that was read while it was written are not known."""
    is_whole = content[_SPACES_END:_BYTES] == content[_PID_BYTES:_COUNTED_BYTES] != b""
    return content[_COUNTED_BYTES:_SPACES_END] if is_whole else _UNKNOWN


def _spaces_since(content: bytes, count: int) -> set[int] | None:
    """Return the spaces that were written to since that count; None if the file does not have all of them."""
    new = _number(content[_PID_BYTES:_COUNTED_BYTES], "big") - count
    if count < 0 or not 0 <= new <= SPACES_MAX:
        return None
    found = set(unpack_from(f">{new}I", _spaces_in(content)))
    return None if 0 in found else found


def _taken(file: int) -> bool:
    """Take the lock if it is free; True if it was."""
    try:
        _flock(file, _TAKE)
    except BlockingIOError:
        return False
    return True


class _Waiter:
    """Waits for the lock in the kernel, on a thread of its own, because such a wait cannot have a deadline.

    The thread stays for a while: starting one for every wait would cost more than the wait.  A
    wait that was given up goes on in the kernel; the thread then lets go, or hands the lock to
    a caller that waits by then.  An interruption at any point leaves the waiter usable.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self.file: int | None = None  # the thread's own descriptor; None: it was not needed yet, or is closed
        self._path, self._mode = path, mode
        self._thread: threading.Thread | None = None
        self._decided = threading.Lock()  # over the four that follow
        self._is_asked = False  # the thread is to get the lock, and has not
        self._is_wanted = False  # a caller waits for it
        self._has_won = False  # `file` has the lock, and no caller has taken it over
        self._is_stopped = False
        self._call, self._answer = threading.Lock(), threading.Lock()  # free: there is one
        self._call.acquire()
        self._answer.acquire()

    def won(self, seconds: float) -> bool:
        """True if the lock was taken in time; if not, or if the wait is interrupted, the caller has given it up for good."""
        try:
            if self._ask():
                self._answer.acquire(timeout=seconds)
        except BaseException:
            self._give_up()
            raise
        with self._decided:
            self._is_wanted = False
            return self._has_won

    def trade(self, file: int) -> int:
        """Return the descriptor that has the lock, in exchange for one that the next wait can use."""
        with self._decided:
            won, self.file, self._has_won = self.file, file, False
        assert won is not None
        return won

    def stop(self) -> None:
        """End the thread and close its descriptor, now or when it returns from the kernel."""
        with self._decided:
            self._is_stopped = True
            if self._thread is None:
                self._close()
        _free(self._call)

    def _ask(self) -> bool:
        """Have the thread take the lock; False if it already has it, from a wait that was interrupted."""
        with self._decided:
            if self._has_won:
                return False
            self._answer.acquire(blocking=False)  # for a caller that waits no longer
            if self.file is None:
                self.file = open_file(self._path, self._mode)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="perdure-lock", daemon=True)
                self._thread.start()
            self._is_asked = self._is_wanted = True
        _free(self._call)
        return True

    def _give_up(self) -> None:
        with self._decided:
            self._is_wanted = False
            if self._has_won and self.file is not None:
                fcntl.flock(self.file, fcntl.LOCK_UN)
                self._has_won = False

    def _run(self) -> None:
        while self._call.acquire(timeout=_IDLE_SECONDS) or not self._may_end():
            file = self.file
            if self._is_asked and file is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            if not self._decide():
                return

    def _decide(self) -> bool:
        """Hand the lock over, or let go of it; True if the thread goes on."""
        with self._decided:
            if self._is_stopped or self._thread is not threading.current_thread():
                self._close()
                return False
            if self._is_asked and self.file is not None:
                self._is_asked = False
                if self._is_wanted:
                    self._has_won = True
                    _free(self._answer)
                else:
                    fcntl.flock(self.file, fcntl.LOCK_UN)
            return True

    def _may_end(self) -> bool:
        with self._decided:
            if self._is_asked or self._is_stopped:
                return False
            self._thread = None
            return True

    def _close(self) -> None:
        if self._is_stopped and self.file is not None:
            os.close(self.file)
            self.file = None


def _free(lock: threading.Lock) -> None:
    """Let the caller that waits for `lock` go on, now or when it arrives; only one thread frees a lock."""
    if lock.locked():
        lock.release()
