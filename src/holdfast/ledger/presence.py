"""Presence: whether a call is in the history of a line.

A call is named there by the message that asked for it, or by its run.  History is everything
behind a commit, through either parent.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.history import ancestry, reader
from holdfast.history.space import Space
from holdfast.model.digest import Digest

__all__ = ["behind", "commits_of", "present"]


def commits_of(space: Space, label: str | None) -> Sequence[Digest]:
    """The commits that hold what `label` names; none if it was never committed, or nothing names it."""
    return space.engine.labelled(space.name, label) if label else ()


def present(space: Space, label: str | None, head: Digest | None) -> bool:
    """Whether what `label` names is in the history of `head`."""
    return head is not None and any(behind(space, commit, head) for commit in commits_of(space, label))


def behind(space: Space, commit: Digest, head: Digest | None) -> bool:
    """Whether `commit` is in the history of `head`; None is before the first commit."""
    if head is None:
        return False
    if reader.is_ancestor(space, commit, head):
        return True
    return ancestry.contains(space, ancestry.point(space, head), ancestry.point(space, commit))
