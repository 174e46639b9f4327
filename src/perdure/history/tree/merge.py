"""Merging two maps that began as one: what happened to each path that they changed.

Only facts are found here.  What to do about a path that both sides changed differently is for
whoever knows what the values mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

import msgspec

from perdure.history.tree.compare import diff
from perdure.history.tree.entry import Entry
from perdure.history.tree.view import Tree

__all__ = ["Meeting", "merge3"]

_BATCH = 256


class Meeting(msgspec.Struct, frozen=True):
    """A path that their side changed, and how it stands on all three; None: the path holds nothing there."""

    path: str
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None

    @property
    def verdict(self) -> Literal["taken", "same", "conflict"]:
        """`taken`: only they changed it.  `same`: both did, to the same.  `conflict`: both did, differently."""
        if self.ours == self.base:
            return "taken"
        return "same" if self.ours == self.theirs else "conflict"


def merge3(base: Tree, ours: Tree, theirs: Tree) -> Iterator[Meeting]:
    """Every path that differs between `base` and `theirs`, in order, beside what `ours` holds there.

    Paths that only we changed are not named: they stay as they are.
    """
    changes = diff(base, theirs)
    while batch := list(islice(changes, _BATCH)):
        held = ours.get_many(change.path for change in batch)
        for change in batch:
            yield Meeting(change.path, change.before, held.get(change.path), change.after)
