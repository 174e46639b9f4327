"""Bisect: the first moment at which something is true, found by asking about few of them.

The question must be false at the old end of the line and true at the new end.  If it turns
true only once, the answer is where; if it turns several times, the answer is one of these
places: true there, and false just before.  A line of n commits takes about log2(n) questions.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.engines.contract import Step
from perdure.errors import Invalid, NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.digest import Digest

__all__ = ["bisect"]


def bisect(
    space: Space, at: Digest | None, predicate: Callable[[Step], bool], *, good: Digest | None = None
) -> Step:
    """The first commit after `good` and up to `at` where `predicate` is true.

    `good` stands on the same line of first parents; None is the moment before the first
    commit, when nothing is true yet.  A predicate that raises `NotFound` says false: what it
    asks about is not there yet.  Raises `Invalid` unless it is false at `good` and true at `at`.
    """
    if at is None:
        raise Invalid("nothing is committed on this line, so nothing was searched. Name another timeline.")
    newest = space.step(at)
    low, high = _depth_of(space, good, at), newest.place.depth
    if not _true_at(predicate, newest):
        raise Invalid(
            f"the predicate is not true at the new end ({at[:12]}), so nothing was searched. Ask the opposite, or "
            "begin at a moment where it is true."
        )
    if good is not None and _true_at(predicate, space.step(good)):
        raise Invalid(
            f"the predicate is true at the old end ({good[:12]}) already, so nothing was searched. Name an older one."
        )
    found = newest
    while high - low > 1:
        middle = (low + high) // 2
        step = space.back(at, skip=newest.place.depth - middle, limit=1)[0]
        if _true_at(predicate, step):
            high, found = middle, step
        else:
            low = middle
    return found


def _true_at(predicate: Callable[[Step], bool], step: Step) -> bool:
    try:
        return bool(predicate(step))
    except NotFound:
        return False


def _depth_of(space: Space, good: Digest | None, at: Digest) -> int:
    """Where the old end stands on the line."""
    if good is None:
        return -1
    if good == at or not reader.is_ancestor(space, good, at):
        raise Invalid(
            f"{good[:12]} does not stand before {at[:12]} on its line, so nothing was searched. Name a commit that "
            "log() shows after it."
        )
    return space.step(good).place.depth
