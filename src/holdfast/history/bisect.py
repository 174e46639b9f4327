"""Bisect: the first moment at which something is true, found by asking about few of them.

The question must be false at the old end of the line and true at the new end.  If it turns
true only once, the answer is where; if it turns several times, the answer is one of these
places: true there, and false just before.  A line of n commits takes about log2(n) questions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from holdfast.engines.contract import Step
from holdfast.errors import Invalid, NotFound
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.model.digest import Digest

__all__ = ["Found", "bisect"]

_Moment: TypeAlias = Callable[[int], Step]


class Found(msgspec.Struct, frozen=True):
    """The first moment at which it is true, and how many moments were asked about."""

    step: Step
    asked: int


def bisect(
    space: Space,
    at: Digest | None,
    predicate: Callable[[Step], bool],
    *,
    good: Digest | None = None,
    by: Literal["commit", "turn"] = "commit",
) -> Found:
    """The first commit, or last commit of a turn, after `good` and up to `at` where `predicate` is true.

    `good` stands on the same line of first parents; None is the moment before the first
    commit, when nothing is true yet.  A predicate that raises `NotFound` says false: what it
    asks about is not there yet.  Raises `Invalid` unless it is false at `good` and true at `at`.
    """
    if at is None:
        raise Invalid("nothing is committed on this line, so there is nothing to search.")
    asked = _Asked(predicate)
    low, high, moment = _ends(space, at, good, by)
    newest = moment(high)
    if not asked.true_at(newest):
        raise Invalid(f"the predicate is not true at the new end ({at[:12]}), so it never became true there.")
    if good is not None and asked.true_at(space.step(good)):
        raise Invalid(f"the predicate is true at the old end ({good[:12]}) already. Name an older one.")
    while high - low > 1:
        middle = (low + high) // 2
        step = moment(middle)
        if asked.true_at(step):
            high, newest = middle, step
        else:
            low = middle
    return Found(newest, asked.count)


class _Asked:
    """The predicate, and how often it was asked."""

    def __init__(self, predicate: Callable[[Step], bool]) -> None:
        self._predicate = predicate
        self.count = 0

    def true_at(self, step: Step) -> bool:
        self.count += 1
        try:
            return bool(self._predicate(step))
        except NotFound:
            return False


def _ends(
    space: Space, at: Digest, good: Digest | None, by: Literal["commit", "turn"]
) -> tuple[int, int, _Moment]:
    """The numbers of the old and the new end, and how to find the moments between them."""
    if good is not None and (good == at or not reader.is_ancestor(space, good, at)):
        raise Invalid(
            f"{good[:12]} does not stand before {at[:12]} on its line, so nothing lies between them."
        )
    newest = space.step(at)
    if by == "turn":
        return _turns_before(space, good, at), newest.place.turn, lambda turn: _turn(space, at, turn)
    low = -1 if good is None else space.step(good).place.depth
    return low, newest.place.depth, lambda depth: _commit(space, newest, depth)


def _turns_before(space: Space, good: Digest | None, at: Digest) -> int:
    """How many turns are over at `good`: one that goes on after it is not."""
    if good is None:
        return 0
    turn = space.step(good).place.turn
    return turn if _turn(space, at, turn).digest == good else turn - 1


def _commit(space: Space, newest: Step, depth: int) -> Step:
    skip = newest.place.depth - depth
    return space.engine.steps(space.name, newest.digest, skip=skip, limit=1)[0]


def _turn(space: Space, at: Digest, turn: int) -> Step:
    step = space.engine.turn(space.name, at, turn)
    if step is None:
        raise NotFound(f"there is no turn {turn} on the line that ends at {at[:12]}.")
    return step
