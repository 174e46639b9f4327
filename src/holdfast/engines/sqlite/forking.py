"""Forking: no connection is open while a process forks.

SQLite keeps its own account of the locks that a process holds.  A forked child inherits
that account but not the locks: it would believe to hold what only its parent holds, and
another process could take the write-ahead log away from under it.  So before a fork every
store of the process comes to rest: the write under way is finished, readers come out, and
connections are closed.  Afterwards the parent opens its own again, and a child does so
when it first uses the store.

A store that does not come to rest in time cannot be used in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forked", "watch"]


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


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(forked: Forked) -> None:
    """Let `forked` take part in all forks from now on, as long as it lives."""
    _watched.add(forked)


def _before() -> None:
    for forked in list(_watched):
        forked.before_fork()


def _after_in_parent() -> None:
    for forked in list(_watched):
        forked.after_fork_in_parent()


def _after_in_child() -> None:
    for forked in list(_watched):
        forked.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
