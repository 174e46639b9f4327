"""The names under which programs use a store, and which of these uses are over.

A lease names the use of the store that holds it.  An engine that lives in one process keeps the names in `Openings`.
An engine that several processes share marks them by `HostPresence`, where all processes of a host can see them.

Each such use has a file of its own, locked as long as its process lives.  The kernel releases the lock however the
process ends, so a free lock proves that the process is gone, and a stopped process keeps it.  The proof is good
only for the very file that the process had locked, by device and inode.  A file that is not there proves nothing.  So a
use that is closed, or found to be over, is noted in a list before its file is removed.

A file is locked under another name before it gets its own, so no process can find it unlocked.
Names are never used again, so removing a file can only remove the one that was looked at.

A lock belongs to every process that has inherited the descriptor.  So no thread is in the middle of this while the
process forks, and a child closes what it got before it does anything else.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import RLock

import msgspec

from perdure.engines.contract import Instant
from perdure.engines.forks import watch
from perdure.errors import Unavailable

__all__ = ["HostPresence", "Openings", "boot_instant", "boot_name", "is_name", "new_name"]

_RANDOM = r"[0-9a-f]{32}"
_IDENTITY = re.compile(
    _RANDOM + r"-(?P<device>[0-9a-f]{1,16})-(?P<inode>[0-9a-f]{1,16})-(?P<boot>[0-9a-f]{16})"
)
_NAME = re.compile(f"{_RANDOM}|{_IDENTITY.pattern}")


def new_name() -> str:
    """Return a new name that was never used and never will be again."""
    return secrets.token_hex(16)


def is_name(text: str) -> bool:
    """True if `text` can be such a name; it is then safe as the name of a file."""
    return _NAME.fullmatch(text) is not None


class Openings:
    """The openings of a store that lives in one process.  Not thread-safe: its user has a lock."""

    def __init__(self) -> None:
        """Begin without any opening, on a clock of its own."""
        self._clock = f"process:{new_name()}"
        self._over: set[str] = set()

    def instant(self) -> Instant:
        """Return the time now, on this process's monotonic clock."""
        return Instant(self._clock, time.monotonic_ns() // 1_000)

    def enter(self) -> str:
        """Return the name of one more opening."""
        return new_name()

    def leave(self, name: str) -> None:
        """End that opening; one that is over is no error."""
        self._over.add(name)

    def gone(self, name: str) -> bool:
        """True if that opening is over.

        A forked child has a copy of the store, which does not hear of its parent's openings: the parent may be alive.
        """
        return name in self._over


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first counts sleep too
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NEW = ".new"  # a lock file that is not locked yet
_CLOSED, _BEFORE = "closed", ".before"  # the names of uses that are over, one to a line
_CLOSED_BYTES_MAX = 256 * 1024  # of one of these files: then it takes the place of the other
_TRIES = 100
_SWEPT_MAX = 1_000


def boot_instant() -> Instant:
    """Return the time now, on the clock of this boot."""
    return Instant(boot_name(), time.clock_gettime_ns(_CLOCK) // 1_000)


@cache
def boot_name() -> str:
    """Return a name for this boot; where the platform has none, each process has a clock of its own."""
    with suppress(OSError):
        return f"boot:{_BOOT_ID.read_text(encoding='ascii').strip()}"
    session = _sysctl(b"kern.bootsessionuuid") if sys.platform == "darwin" else None
    return f"boot:{session}" if session else f"process:{new_name()}"


class _LockFile(msgspec.Struct, frozen=True):
    """A file that is locked."""

    path: Path
    file: int


class HostPresence:
    """One use of a store, as other processes of the same host see it: a lock file in a directory that they share.

    The name of the use is that of its file: a random part, the device and the inode of the file, and this boot.  So
    who asks whether the use is over knows that the file it has opened is that use's own, and not a copy, or another of
    the same name in another container.  Raises `OSError` where a file cannot be made or read.
    """

    def __init__(
        self,
        directory: Path,
        *,
        mode: Callable[[], int] = lambda: 0o600,
        closed: Path | None = None,
        is_local: bool = False,
        read_only: bool = False,
    ) -> None:
        """Make files in `directory`, with `mode`; nothing is made before a caller asks for the holder.

        `closed` is the list of uses that are over; None: it is in the directory.
        `is_local`: no other host can have files of this directory locked, so that a free lock also proves
        that a use before the last start of this host is over.  `read_only`: files of those who are gone stay.
        """
        self._directory, self._mode = directory, mode
        self._closed = closed or directory / _CLOSED
        self._is_local, self._read_only = is_local, read_only
        self._mark: _LockFile | None = None
        self._alone = RLock()  # reentrant, because a signal handler may fork
        self._rests = False
        watch(self)

    def holder(self) -> str:
        """Return the name of this use, marked when a caller first asks for it."""
        with self._alone:
            if self._mark is None:
                self._mark = self._marked()
            return self._mark.path.name

    def gone(self, holder: str) -> bool:
        """True if that use was closed, or its own lock file is here and its lock is free; such a file is removed."""
        found = _IDENTITY.fullmatch(holder)
        with self._alone:
            if found is None or (self._mark is not None and self._mark.path.name == holder):
                return False
            is_this_boot = found["boot"] == _boot()
            if not is_this_boot and not self._is_local:
                return False
            device = int(found["device"], 16) if is_this_boot else None
            path = self._directory / holder
            if self._is_left(path, (device, int(found["inode"], 16))):
                return True
            return self._was_closed(holder)

    def close(self) -> None:
        """Note that this use is over, and remove its file; closing again is no error."""
        with self._alone:
            if self._mark is not None:
                with suppress(OSError):  # then the file stays, and its lock is free
                    self._note_closed(self._mark.path.name)
                    self._mark.path.unlink(missing_ok=True)
                    self._directory.rmdir()  # unless something else is in it
                os.close(self._mark.file)
                self._mark = None

    # ---- files

    def _marked(self) -> _LockFile:
        try:
            for _ in range(_TRIES):
                # Another process that tidies up may remove a file that is not locked yet.
                with suppress(FileExistsError):
                    self._make_directory()
                with suppress(FileNotFoundError, BlockingIOError):
                    return self._new_mark()
        finally:
            self._sweep()
        raise Unavailable(
            f"{self._directory} cannot be written to; nothing was done.",
            code="marks_not_writable",
            advice="Try again.",
            retry_after=1.0,
        )

    def _make_directory(self) -> None:
        """Make the directory, for all users who may use the store."""
        self._directory.mkdir(mode=0o700)
        mode = self._mode()
        with suppress(FileNotFoundError):  # another process removed it again
            self._directory.chmod(mode | (mode & 0o444) >> 2)

    def _new_mark(self) -> _LockFile:
        """Return a locked file of a new name; raise `OSError` if another process removed it before it was locked."""
        random = new_name()
        new = self._directory / f"{random}{_NEW}"
        file = os.open(new, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, self._mode())
        try:
            os.fchmod(file, self._mode())  # whatever the umask
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stats = os.fstat(file)
            path = self._directory / f"{random}-{stats.st_dev:x}-{stats.st_ino:x}-{_boot()}"
            new.rename(path)
        except BaseException:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            os.close(file)
            raise
        return _LockFile(path, file)

    def _is_left(self, path: Path, identity: tuple[int | None, int] | None) -> bool:
        """True if that file is here, is the one of this device and inode (None: any), and no process has it locked.

        The lock is shared, so that two processes that look at the same time do not take each other for the holder.
        """
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # a file that is not here proves nothing
            return False
        try:
            stats = os.fstat(file)
            if not stat.S_ISREG(stats.st_mode):  # no process of ours put it there
                return False
            if identity is not None and identity not in ((stats.st_dev, stats.st_ino), (None, stats.st_ino)):
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if not self._read_only:
                with suppress(OSError):
                    if identity is not None:
                        self._note_closed(path.name)
                    path.unlink(missing_ok=True)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def _sweep(self) -> None:
        """Remove the files of processes that are gone."""
        with suppress(OSError), os.scandir(self._directory) as found:
            for each in islice(found, _SWEPT_MAX):
                if _IDENTITY.fullmatch(each.name):
                    self.gone(each.name)
                elif is_name(each.name.removesuffix(_NEW)):
                    self._is_left(Path(each.path), None)

    def _note_closed(self, name: str) -> None:
        """Add a name to the list of uses that are over; a list that has become long replaces the one before it."""
        path = self._closed
        file = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self._mode()
        )
        try:
            if os.write(file, f"{name}\n".encode()) and os.fstat(file).st_size >= _CLOSED_BYTES_MAX:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(path).st_ino == os.fstat(file).st_ino:
                    path.replace(path.with_name(path.name + _BEFORE))
        except BlockingIOError:  # another process replaces it
            pass
        finally:
            os.close(file)

    def _was_closed(self, name: str) -> bool:
        line = f"{name}\n".encode()
        for each in (self._closed, self._closed.with_name(self._closed.name + _BEFORE)):
            with suppress(OSError):
                if line in each.read_bytes():
                    return True
        return False

    # ---- forks

    def before_fork(self) -> None:
        """Wait until no thread is in the middle of anything."""
        self._alone.acquire()
        self._rests = True

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._rests:  # else it was opened while the process forked
            self._rests = False
            self._alone.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's lock file: closing, unlike unlocking, takes nothing from the parent."""
        self._alone, self._rests = RLock(), False
        if self._mark is not None:
            os.close(self._mark.file)
            self._mark = None


@cache
def _boot() -> str:
    """Return what stands for this boot in the name of a lock file."""
    return sha256(boot_name().encode()).hexdigest()[:16]


def _sysctl(name: bytes) -> str | None:
    """Return what the kernel of a Mac reports under this name; None if it reports nothing."""
    import ctypes

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    ended: int = ctypes.CDLL(None).sysctlbyname(name, text, ctypes.byref(size), None, ctypes.c_size_t(0))
    return text.value.decode("ascii", "replace") or None if ended == 0 else None
