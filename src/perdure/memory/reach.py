"""Reach: whether the commit that wrote something is still held by a live head of its thread.

Undo moves a head away from a commit, and redo back to it: nothing is written to a memory for
either, since what counts is looked up when it is retrieved.  Whether one commit is behind another never
changes, so that is remembered for good; where the heads of a thread stand, as long as nothing was
written there.

Every timeline has a live head but two kinds: the old main that a promotion put aside, and the
line of a run that has not come to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from perdure.engines.contract import Hold
from perdure.errors import NotFound
from perdure.history import ancestry, reader
from perdure.history.space import ALIVE, Space
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.memory import Source

__all__ = ["Line", "Reach", "Threads"]

Threads: TypeAlias = Callable[[str, str], Space]
"""The space of that name, whose commits call it by that label."""

Line: TypeAlias = "tuple[str, Digest | None]"
"""A space, and the commit in it that somebody stands on."""

_K = TypeVar("_K")
_V = TypeVar("_V")

_PAGE = 100
_KNOWN_MAX = 20_000
_SPACES_MAX = 256  # each remembers commits of its own
_KEPT = re.compile(r"main\.v[0-9]+\Z")
_RUNS_OWN = re.compile(r"run/[a-z0-9][a-z0-9._-]*/[0-9]+\Z")


class Reach:
    """What can be reached, in all threads of one store.  Thread-safe: each change is one operation on a dictionary."""

    def __init__(self, threads: Threads) -> None:
        """Look into the spaces that `threads` gives."""
        self._threads = threads
        self._spaces: dict[str, Space] = {}
        self._tips: dict[str, tuple[int, tuple[Digest, ...]]] = {}
        self._behind: dict[tuple[Digest, Digest], bool] = {}

    def holds(self, source: Source, standing: Line | None = None) -> bool:
        """Whether what came from `source` counts, for somebody who stands on that line too."""
        try:
            space = self._space(source)
            tips = self._live(space)
            if standing is not None and standing[0] == space.name and standing[1] is not None:
                tips = (standing[1], *tips)
            return any(self._is_behind(space, tip, source.commit) for tip in tips)
        except NotFound:
            return False  # the thread was removed, and what was left of it is gone

    def _space(self, source: Source) -> Space:
        found = self._spaces.get(source.space)
        if found is None:
            _make_room(self._spaces, _SPACES_MAX)
            found = self._spaces[source.space] = self._threads(source.space, source.thread)
        return found

    def _live(self, space: Space) -> tuple[Digest, ...]:
        """The commits of the live heads of a thread."""
        standing = space.engine.standing(space.name)  # first: what moves meanwhile makes this one out of date
        known = self._tips.get(space.name)
        if known is not None and known[0] == standing:
            return known[1]
        tips = () if space.engine.cell(space.name, ALIVE) is not None else _tips(space)
        _make_room(self._tips)
        self._tips[space.name] = standing, tips
        return tips

    def _is_behind(self, space: Space, tip: Digest, commit: Digest) -> bool:
        known = self._behind.get((tip, commit))
        if known is None:
            known = reader.is_ancestor(space, commit, tip) or ancestry.contains(
                space, ancestry.point(space, tip), ancestry.point(space, commit)
            )
            _make_room(self._behind)
            self._behind[tip, commit] = known
        return known


def _tips(space: Space) -> tuple[Digest, ...]:
    tips: dict[Digest, None] = {}
    after = ""
    while page := space.engine.holds(space.name, after=after, limit=_PAGE):
        after = page[-1].head.timeline
        tips |= {hold.head.commit: None for hold in page if hold.head.commit and _is_live(space, hold)}
    return tuple(tips)


def _is_live(space: Space, hold: Hold) -> bool:
    timeline = hold.head.timeline
    if _RUNS_OWN.match(timeline):
        return False
    if not _KEPT.match(timeline):
        return True
    moves = space.engine.moves(space.name, timeline, limit=1)
    return not (moves and moves[0].act is Act.KEEP)


def _make_room(known: dict[_K, _V], most: int = _KNOWN_MAX) -> None:
    if len(known) >= most:
        known.clear()
