"""Forking: no connection is open while a process forks.

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

import os
import weakref
from enum import IntEnum
from threading import RLock
from typing import Protocol

__all__ = ["Forked", "Rest", "watch"]


class Forked(Protocol):
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


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(forked: Forked) -> None:
    """Let `forked` take part in all forks from now on, as long as it lives."""
    _watched.add(forked)


class _Turn:
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


_turn = _Turn()


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
    _turn = _Turn()
    for forked in list(_watched):
        forked.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
