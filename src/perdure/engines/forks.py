"""Takes part in forks of this process: finishes work before a fork, resumes it in the parent, starts over in the child.

Threads that fork at the same time take turns.
"""

from __future__ import annotations

import os
import weakref
from enum import IntEnum
from itertools import count
from threading import RLock
from typing import Protocol

__all__ = ["Rest", "watch"]


class ForkParticipant(Protocol):
    """Something open that takes part in forks."""

    def before_fork(self) -> None:
        """Finish what is under way."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Keep nothing of what was inherited."""
        ...


class Rest(IntEnum):
    """How far a store has gone to rest before a fork."""

    NONE = 0  # not requested
    MISSED = 1  # not at all
    ALONE = 2  # nothing else begins
    LED = 3  # no thread writes
    FULL = 4  # no thread reads, and everything is closed


_watched: weakref.WeakKeyDictionary[ForkParticipant, int] = weakref.WeakKeyDictionary()
_numbers = count()


def watch(forked: ForkParticipant) -> None:
    """Let `forked` take part in all forks from now on, as long as it lives."""
    _watched[forked] = _watched.get(forked, next(_numbers))


def _in_order() -> list[ForkParticipant]:
    """Return the participants in the order in which they began.

    Before a fork the newest finishes first: a search index was opened after the engine, and a thread that searches needs
    the engine to come to its end.
    """
    return sorted(_watched, key=_watched.__getitem__)


class _ForkInProgress:
    """The fork that is under way.  A signal handler may fork inside of it, on the same thread: then both are one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0

    def begin(self) -> bool:
        """Wait for this thread's turn; True if this is the outermost fork."""
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
        for forked in reversed(_in_order()):
            forked.before_fork()


def _after_in_parent() -> None:
    try:
        if _turn.is_outermost():
            for forked in _in_order():
                forked.after_fork_in_parent()
    finally:
        _turn.end()


def _after_in_child() -> None:
    global _turn  # noqa: PLW0603  # other threads of the parent may have waited for theirs
    _turn = _ForkInProgress()
    for forked in _in_order():
        forked.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
