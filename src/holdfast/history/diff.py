"""Comparing two moments: what differs in the state, and what each line alone went through.

State is compared from `a` to `b`.  Messages and calls are those of each side since the two
parted.  The transcript follows first parents, so messages are counted along the line alone;
a call happened in the world, so calls count through merges too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from holdfast.errors import Invalid
from holdfast.history import ancestry, values
from holdfast.history.ancestry import Point, Stretch
from holdfast.history.space import Space
from holdfast.history.tree import Change, Entry, diff
from holdfast.model.canonical import Json, encode
from holdfast.model.digest import Digest
from holdfast.model.event import MessageAppended, ToolCallRequested
from holdfast.model.names import check_prefix, prefixes_of

__all__ = ["Called", "Difference", "Said", "Spot", "StateChange", "between", "changes", "spots"]


class StateChange(msgspec.Struct, frozen=True):
    """One path at which the state differs."""

    path: str
    before: Entry | None  # at a; None: there was nothing
    after: Entry | None  # at b; None: there is nothing any more

    @property
    def what(self) -> Literal["added", "changed", "removed"]:
        """What became of the path on the way from a to b."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


class Said(msgspec.Struct, frozen=True):
    """A message of one side, and the commit that appended it."""

    commit: Digest
    event: MessageAppended


class Called(msgspec.Struct, frozen=True):
    """A tool call of one side, and the commit that requested it."""

    commit: Digest
    event: ToolCallRequested


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two moments.  Messages and calls are in the order in which they happened."""

    a: Digest | None
    b: Digest | None
    base: Digest | None  # the best common ancestor; None: they have none
    state: tuple[StateChange, ...]  # in the order of the paths
    messages_a: tuple[Said, ...]
    messages_b: tuple[Said, ...]
    calls_a: tuple[Called, ...]
    calls_b: tuple[Called, ...]

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        return not (self.state or self.messages_a or self.messages_b or self.calls_a or self.calls_b)


class Spot(msgspec.Struct, frozen=True):
    """One place inside a JSON document at which two versions differ."""

    at: tuple[str | int, ...]
    what: Literal["added", "changed", "removed"]
    before: Json = None  # None also where there was nothing: `what` tells
    after: Json = None


def between(space: Space, a: Digest | None, b: Digest | None, *, prefix: str = "/") -> Difference:
    """What differs between two commits; None is the moment before the first.

    Costs what differs and what happened since the two parted, not what they share.
    `prefix` narrows the state that is compared.  Raises `NotFound` for a commit that is not here.
    """
    one = ancestry.point(space, a) if a else None
    other = ancestry.point(space, b) if b else None
    base = ancestry.common(space, one, other) if one and other else None
    return Difference(
        a=a,
        b=b,
        base=base.digest if base else None,
        state=tuple(changes(space, a, b, prefix=prefix)),
        messages_a=_messages(space, one, other),
        messages_b=_messages(space, other, one),
        calls_a=_calls(space, one, other),
        calls_b=_calls(space, other, one),
    )


def changes(space: Space, a: Digest | None, b: Digest | None, *, prefix: str = "/") -> Iterator[StateChange]:
    """The paths under `prefix` at which the states of two commits differ, in order, as they are asked for."""
    before, after = space.tree_at(a), space.tree_at(b)
    own, below = (None, "/") if check_prefix(prefix) == "/" else prefixes_of(prefix)
    if own is not None and (old := before.get(own)) != (new := after.get(own)):
        yield StateChange(own, old, new)
    for change in diff(before, after, below):
        yield _state_change(change)


def spots(space: Space, change: StateChange) -> Iterator[Spot]:
    """The places inside the JSON document at which `change` changed it, for people to read.

    Raises `Invalid` if either side is not JSON; then there is nothing inside to compare.
    """
    before, after = change.before, change.after
    if before is None or after is None or (before.form, after.form) != ("json", "json"):
        raise Invalid(f"{change.path} is not a JSON document on both sides; show it as a whole.")
    return _spots((), values.read_json(space, before.value), values.read_json(space, after.value))


def _state_change(change: Change) -> StateChange:
    return StateChange(change.path, change.before, change.after)


def _messages(space: Space, tip: Point | None, other: Point | None) -> tuple[Said, ...]:
    """The messages on the line of `tip` since it parted from the line of `other`."""
    if tip is None:
        return ()
    parted = ancestry.meet(space, tip, other)
    stretch = Stretch(tip, parted.depth if parted else -1)
    newest_first = [
        Said(step.digest, event)
        for step in ancestry.walk(space, stretch)
        for event in reversed(step.changeset.events)
        if isinstance(event, MessageAppended)
    ]
    return tuple(reversed(newest_first))


def _calls(space: Space, tip: Point | None, other: Point | None) -> tuple[Called, ...]:
    """The calls in the history of `tip` that are not in the history of `other`; merged lines first."""
    if tip is None:
        return ()
    newest_first = [
        Called(step.digest, event)
        for stretch in ancestry.ahead(space, tip, other)
        for step in ancestry.walk(space, stretch)
        for event in reversed(step.changeset.events)
        if isinstance(event, ToolCallRequested)
    ]
    return tuple(reversed(newest_first))


def _spots(at: tuple[str | int, ...], before: Json, after: Json) -> Iterator[Spot]:
    match before, after:
        case dict(), dict():
            for key in sorted(before.keys() | after.keys()):
                yield from _item_spots(
                    (*at, key), key in before, before.get(key), key in after, after.get(key)
                )
        case list(), list():
            yield from _list_spots(at, before, after)
        case _:
            # By canonical bytes: to Python 1, 1.0 and True are equal, and here they are three values.
            if encode(before) != encode(after):
                yield Spot(at, "changed", before, after)


def _list_spots(at: tuple[str | int, ...], before: list[Json], after: list[Json]) -> Iterator[Spot]:
    """Compare what is left of two lists without the items that they begin and end with alike."""
    olds, news = [encode(item) for item in before], [encode(item) for item in after]
    first = _alike(olds, news)
    last = _alike(olds[first:][::-1], news[first:][::-1])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    for index in range(max(len(old), len(new))):
        had, has = index < len(old), index < len(new)
        one, other = old[index] if had else None, new[index] if has else None
        yield from _item_spots((*at, first + index), had, one, has, other)


def _alike(a: Sequence[bytes], b: Sequence[bytes]) -> int:
    """How many items two sequences begin with alike."""
    apart = (index for index, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return next(apart, min(len(a), len(b)))


def _item_spots(at: tuple[str | int, ...], had: bool, before: Json, has: bool, after: Json) -> Iterator[Spot]:
    if had and has:
        yield from _spots(at, before, after)
    elif had:
        yield Spot(at, "removed", before)
    else:
        yield Spot(at, "added", None, after)
