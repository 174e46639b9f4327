"""Renews locks and resources in a forked child process.

A forked child has one thread, and a copy of everything else.  A lock that another thread held stays
locked for ever, a pool has no workers, and an event loop shares its epoll descriptor with the parent:
what the child unregisters there is unregistered for the parent too.  So each owner of such a resource
is renewed in the child before any other code runs there, and inherited event loops, pools and
connections are neither used nor closed.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Protocol

__all__ = ["ForkRenewed", "ThreadLock", "keep_forever", "renew_in_child"]


class ForkRenewed(Protocol):
    """An object that a forked child has to renew."""

    def after_fork_in_child(self) -> None:
        """Drop what belongs to the parent, without waiting for anything."""
        ...


_watched: weakref.WeakSet[ForkRenewed] = weakref.WeakSet()


def renew_in_child(forked: ForkRenewed) -> None:
    """Renew `forked` in every child that is forked from now on, as long as `forked` exists."""
    _watched.add(forked)


class ThreadLock:
    """A lock between the threads of one process; it is always free in a forked child."""

    def __init__(self) -> None:
        """Begin free."""
        self._lock = Lock()
        renew_in_child(self)

    def __enter__(self) -> None:
        """Wait until the lock is free, and take it."""
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        """Release the lock."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Replace the lock: its holder runs in the parent alone."""
        self._lock = Lock()


def keep_forever(inherited: object) -> None:
    """Keep an inherited object from being finalized in this process, also when the interpreter ends."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _after_in_child() -> None:
    for forked in list(_watched):
        forked.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
