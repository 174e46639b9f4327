"""Presence: which processes use a store, told by locks that end with them, and the clock of this boot.

Each use of a store has a name of its own and a file of that name in `<store>-held/`, locked
as long as the process lives.  The kernel lets the lock go however the process ends, so a
free lock is the proof that it is gone, and a stopped process keeps it.  Files left behind
are removed by whoever finds them free.

A file is locked under another name before it gets its own: nobody can find it unlocked.
Names are never used again, so removing a file can only hit the one that was looked at.

A lock belongs to every process that has inherited the descriptor.  So no thread is in the
middle of this while the process forks, and a child closes what it got before it does
anything else; closing, unlike unlocking, takes nothing from the parent.

Only these files are opened here, never the database: closing a descriptor of it would drop
SQLite's own locks.

Forking: no connection is open while a process forks.

SQLite keeps its own account of the locks that a process holds.  A forked child inherits
that account but not the locks: it would believe to hold what only its parent holds, and
another process could take the write-ahead log away from under it.  So before a fork every
store of the process comes to rest: the write under way is finished, readers come out, and
connections are closed.  Afterwards the parent opens its own again, and a child does so
when it first uses the store.

A store that does not come to rest in time cannot be used in the child.  Threads that fork at
the same time take turns, from the first store's rest to the last one's waking.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
import weakref
from contextlib import suppress
from enum import IntEnum
from functools import cache
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Protocol

import msgspec

from perdure.engines.contract import Instant
from perdure.engines.holders import is_name, new_name
from perdure.engines.sqlite.errors import translated
from perdure.engines.sqlite.file_system import make_file, mode_beside
from perdure.errors import Unavailable

__all__ = ["Presence", "ForkParticipant", "Rest", "watch"]


class ForkParticipant(Protocol):
    """Something open that takes part in forks."""

    def before_fork(self) -> None:
        """Come to rest."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Keep nothing of what was inherited."""
        ...


class Rest(IntEnum):
    """How far a store has come to rest before a fork."""

    NONE = 0  # it was not asked to
    MISSED = 1  # not at all
    ALONE = 2  # nothing else begins
    LED = 3  # nobody writes
    FULL = 4  # nobody reads, and everything is closed


_watched: weakref.WeakSet[ForkParticipant] = weakref.WeakSet()


def watch(forked: ForkParticipant) -> None:
    """Let `forked` take part in all forks from now on, as long as it lives."""
    _watched.add(forked)


class _ForkInProgress:
    """The fork that is under way.  A signal handler may fork inside of it, on the same thread: then it is one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0

    def begin(self) -> bool:
        """Wait for one's turn; whether this is the outermost."""
        self._lock.acquire()
        self._depth += 1
        return self._depth == 1

    def is_outermost(self) -> bool:
        return self._depth == 1

    def end(self) -> None:
        self._depth -= 1
        self._lock.release()


_turn = _ForkInProgress()


def _before() -> None:
    if _turn.begin():
        for forked in list(_watched):
            forked.before_fork()


def _after_in_parent() -> None:
    try:
        if _turn.is_outermost():
            for forked in list(_watched):
                forked.after_fork_in_parent()
    finally:
        _turn.end()


def _after_in_child() -> None:
    global _turn  # noqa: PLW0603  # other threads of the parent may have waited for theirs
    _turn = _ForkInProgress()
    for forked in list(_watched):
        forked.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first counts sleep too
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NEW = ".new"  # a mark that is not locked yet
_TRIES = 100
_SWEPT_MAX = 1_000


class _LockedFile(msgspec.Struct, frozen=True):
    """A file that is locked."""

    path: Path
    file: int


class Presence:
    """One opening of a store, as other processes see it."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """Take part in forks; nothing is marked before somebody asks for the holder.

        The marks lie beside the file that `path` leads to: whoever came by a link must find them too.
        """
        place = Path(os.path.realpath(path))
        self._place, self._marks = str(place), place.with_name(place.name + "-held")
        self._read_only = read_only
        self._closed = False
        self._mark: _LockedFile | None = None
        self._alone = RLock()  # reentrant, because a signal handler may fork
        self._rests = False
        watch(self)

    def instant(self) -> Instant:
        """Now, on the clock of this boot."""
        self._check_open()
        return Instant(_clock_name(), time.clock_gettime_ns(_CLOCK) // 1_000)

    def holder(self) -> str:
        """The name of this opening, marked from the first time that it is asked for."""
        with self._alone:
            self._check_open()
            if self._read_only:
                raise Unavailable(
                    f"{self._place} was opened read-only, so nothing can be held there; nothing was done.",
                    code="opened_read_only",
                    advice="Open it without read_only=True.",
                    path=str(self._place),
                )
            if self._mark is None:
                self._mark = self._marked()
            return self._mark.path.name

    def gone(self, holder: str) -> bool:
        """Whether there is no mark of that name, or its lock is free."""
        with self._alone:
            self._check_open()
            if not is_name(holder) or (self._mark is not None and self._mark.path.name == holder):
                return False
            return _is_left(self._marks / holder, removes=not self._read_only)

    def close(self) -> None:
        """Remove the mark; closing again is no error."""
        with self._alone:
            self._closed = True
            if self._mark is not None:
                with suppress(OSError):  # whoever finds it later removes it
                    self._mark.path.unlink(missing_ok=True)
                    self._marks.rmdir()
                os.close(self._mark.file)
                self._mark = None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._place} was closed; nothing was done. Open it again.")

    def _marked(self) -> _LockedFile:
        try:
            for _ in range(_TRIES):
                # Another opening that tidies up may remove an empty directory, or a file that is not locked yet.
                with suppress(FileExistsError):
                    self._make_directory()
                with suppress(FileNotFoundError, BlockingIOError):
                    return _new_mark(self._marks, mode_beside(Path(self._place)))
        except OSError as error:
            raise translated(error, "marking who holds it", self._place) from error
        finally:
            _sweep(self._marks)
        raise Unavailable(
            f"{self._marks} cannot be written to; nothing was done. Try again.", retry_after=1.0
        )

    def _make_directory(self) -> None:
        """Make the directory of the marks, for all users who may use the store."""
        self._marks.mkdir(mode=0o700)
        mode = mode_beside(Path(self._place))
        with suppress(FileNotFoundError):  # somebody tidied it away again: it was empty
            self._marks.chmod(mode | (mode & 0o444) >> 2)

    # ---- forks

    def before_fork(self) -> None:
        """Let no thread be in the middle of anything."""
        self._alone.acquire()
        self._rests = True

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._rests:  # else it was opened while the process forked
            self._rests = False
            self._alone.release()

    def after_fork_in_child(self) -> None:
        """Have nothing to do with the parent's mark."""
        self._alone, self._rests = RLock(), False
        if self._mark is not None:
            os.close(self._mark.file)
            self._mark = None


def _new_mark(directory: Path, mode: int) -> _LockedFile:
    """A locked file of a new name; raises `OSError` if somebody tidied it away in the making."""
    path = directory / new_name()
    new = path.with_suffix(_NEW)
    file = make_file(new, mode)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        os.close(file)
        raise
    return _LockedFile(path, file)


def _is_left(path: Path, *, removes: bool) -> bool:
    """Whether no process has that file locked, or there is none; a file that is left is removed.

    The lock is shared, so that two who look at the same time do not take each other for the holder.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:  # that is no proof
        return False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # whoever put it there is not one of us
            return False
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if removes:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _sweep(directory: Path) -> None:
    """Remove the marks of processes that are gone."""
    with suppress(OSError), os.scandir(directory) as found:
        for each in islice(found, _SWEPT_MAX):
            if is_name(each.name.removesuffix(_NEW)):
                _is_left(Path(each.path), removes=True)


@cache
def _clock_name() -> str:
    """What tells this boot from any other; where the platform does not say, no two processes share a clock."""
    with suppress(OSError):
        return f"boot:{_BOOT_ID.read_text(encoding='ascii').strip()}"
    session = _sysctl(b"kern.bootsessionuuid") if sys.platform == "darwin" else None
    return f"boot:{session}" if session else f"process:{new_name()}"


def _sysctl(name: bytes) -> str | None:
    """What the kernel of a Mac says about itself; None if it does not."""
    import ctypes

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    ended: int = ctypes.CDLL(None).sysctlbyname(name, text, ctypes.byref(size), None, ctypes.c_size_t(0))
    return text.value.decode("ascii", "replace") or None if ended == 0 else None
