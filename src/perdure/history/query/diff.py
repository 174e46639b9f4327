"""Comparing two moments: what differs in the state, and what each line alone went through.

State is compared from `a` to `b`.  Messages and calls are those of each side since the two
parted.  The transcript follows first parents, so messages are counted along the line alone;
a call happened in the world, so calls count through merges too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from perdure.history import ancestry
from perdure.history.ancestry import Point, Stretch
from perdure.history.space import Space
from perdure.history.tree import Entry, PathChange, diff
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended, ToolCallRequested
from perdure.model.names import check_prefix, prefixes_of

__all__ = ["Called", "Difference", "Said", "StateChange", "between", "changes"]


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


def between(space: Space, a: Digest | None, b: Digest | None, *, prefix: str = "/") -> Difference:
    """What differs between two commits; None is the moment before the first.

    Costs what differs and what happened since the two parted, not what they share.
    `prefix` narrows the state that is compared.  Raises `NotFound` for a commit that is not here.
    """
    one, other = (Point(each, space.given(each).place.depth) if each else None for each in (a, b))
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
    own, below = prefixes_of(check_prefix(prefix))
    if own is not None and (old := before.get(own)) != (new := after.get(own)):
        yield StateChange(own, old, new)
    for change in diff(before, after, below):
        yield _state_change(change)


def _state_change(change: PathChange) -> StateChange:
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
