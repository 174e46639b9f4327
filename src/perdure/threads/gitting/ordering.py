"""Which commits are still to be written, and in which order: parents before children.

A line is written from its oldest new commit on.  Where one of its commits has a second parent
that is not there yet, that line comes first; it cannot need anything of the first line that is
not written yet, for what it needs is behind the commit that waits.

Nothing is looked up by walking: along a line everything behind a commit that is there is there
too, so where the new ones begin is found by halving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.engines.contract import Step
from perdure.history import ancestry
from perdure.history.ancestry import Point
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.threads.gitting.repository import Tip

__all__ = ["Known", "unwritten"]

_BATCH = 100


class Known:
    """The commits that git has, or will have once the stream has been read, and what git calls them."""

    def __init__(self, space: Space, tips: Mapping[str, Tip]) -> None:
        """Begin with what the repository has: `tips`, and the lines behind them."""
        self._space = space
        self._marks: dict[Digest, int] = {}
        named = {tip.commit: tip.git for tip in tips.values()}
        points = [(ancestry.point(space, commit), git) for commit, git in named.items()]
        self._tips = sorted(points, key=lambda tip: tip[0].depth, reverse=True)

    def __len__(self) -> int:
        """How many the stream has."""
        return len(self._marks)

    def add(self, commit: Digest) -> int:
        """Take up a commit that the stream has now; its mark."""
        mark = len(self._marks) + 1
        self._marks[commit] = mark
        return mark

    def mark(self, commit: Digest) -> int | None:
        """The mark of a commit; None if it is not in the stream."""
        return self._marks.get(commit)

    def name(self, commit: Digest) -> str | None:
        """What git calls a commit: its mark, or a place behind a tip; None if git does not have it."""
        mark = self._marks.get(commit)
        return f":{mark}" if mark else self._behind(commit) if self._tips else None

    def floor(self, tip: Point) -> int:
        """The depth of the last commit on the line of `tip` that git has; -1 if it has none."""
        low, high = -1, tip.depth + 1
        for other, _ in self._tips:
            if other.depth <= low:
                break  # the deepest come first: none of the others can reach further
            met = ancestry.meet(self._space, tip, other)
            low = max(low, met.depth if met else -1)
        while high - low > 1:
            middle = (low + high) // 2
            found = ancestry.ancestor(self._space, tip, middle)
            if found and found.digest in self._marks:
                low = middle
            else:
                high = middle
        return low

    def _behind(self, commit: Digest) -> str | None:
        wanted = ancestry.point(self._space, commit)
        for tip, git in self._tips:
            if wanted.depth <= tip.depth and ancestry.ancestor(self._space, tip, wanted.depth) == wanted:
                return f"{git}~{tip.depth - wanted.depth}"
        return None


def unwritten(space: Space, tip: Digest, known: Known) -> Iterator[Step]:
    """The commits behind `tip`, and itself, that git does not have, parents first.

    Whoever takes one adds it to `known` before asking for the next.
    """
    waiting = [_Line(space, tip, known)]
    while waiting:
        step = waiting[-1].next
        if step is None:
            waiting.pop()
            continue
        missing = [parent for parent in step.commit.parents[1:] if known.name(parent) is None]
        if missing:
            waiting.append(_Line(space, missing[0], known))
        else:
            waiting[-1].drop()
            yield step


class _Line:
    """The new commits of one line, the oldest first, read a batch at a time."""

    def __init__(self, space: Space, tip: Digest, known: Known) -> None:
        self._space = space
        self._tip = ancestry.point(space, tip)
        self._depth = known.floor(self._tip) + 1  # of the next one that was not read
        self._batch: list[Step] = []  # the next last

    @property
    def next(self) -> Step | None:
        if not self._batch and self._depth <= self._tip.depth:
            top = min(self._depth + _BATCH - 1, self._tip.depth)
            skip, limit = self._tip.depth - top, top - self._depth + 1
            self._batch = list(self._space.back(self._tip.digest, skip=skip, limit=limit))
            self._depth = top + 1
            for step in self._batch:
                self._space.steps.put(step)  # each is soon asked for again, as a parent
        return self._batch[-1] if self._batch else None

    def drop(self) -> None:
        self._batch.pop()
