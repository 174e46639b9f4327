"""Forks of the process: what a child must not take over from its parent.

A forked child has one thread, and a copy of everything else.  A lock that another thread held stays
held for ever, a pool has no workers, and an event loop shares its epoll descriptor with the parent:
what the child unregisters there is unregistered for the parent too.  So whatever owns such a thing is
renewed in the child before any other code runs there, and inherited event loops, pools and
connections are neither used nor closed.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Protocol

__all__ = ["ForkRenewed", "ThreadLock", "keep_forever", "renew_in_child"]


class ForkRenewed(Protocol):
    """An object that a child makes anew."""

    def after_fork_in_child(self) -> None:
        """Keep nothing that belongs to the parent; wait for nothing."""
        ...


_watched: weakref.WeakSet[ForkRenewed] = weakref.WeakSet()


def renew_in_child(forked: ForkRenewed) -> None:
    """Have `forked` renewed in every child that is forked from now on, as long as it lives."""
    _watched.add(forked)


class ThreadLock:
    """A lock between the threads of one process, which is free in a forked child whoever held it."""

    def __init__(self) -> None:
        """Begin free."""
        self._lock = Lock()
        renew_in_child(self)

    def __enter__(self) -> None:
        """Wait until the lock is free, and take it."""
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        """Let it go."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Be free: whoever held it runs in the parent alone."""
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
