"""Defines retention policies (what a user allows to be removed) and plans (what a policy would remove)."""

from __future__ import annotations

import msgspec

from perdure.errors import Invalid

__all__ = ["SpaceRemoval", "Lot", "RetentionPlan", "RetentionPolicy", "SpacePlan"]

_DAY = 24 * 60 * 60 * 1_000_000  # µs


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may be removed.  The default allows nothing."""

    undone_after_days: float | None = None  # the content of undone commits; None: never
    staged_after_days: float | None = None  # the chunks of uploads that were never finished; None: never
    removed_threads: bool = (
        False  # the whole of every thread that was removed, and content that only dropped timelines use
    )
    timelines_after_days: float | None = (
        None  # content that only timelines use that nothing was committed to since; None: never
    )
    superseded_after_days: float | None = (
        None  # values that no state of a thread or a memory since then has; messages, calls and commits stay; None: never
    )
    threads_after_days: float | None = None  # whole threads that nothing was written to since; None: never
    agents: tuple[str, ...] = ()  # only threads of these agents; empty: of every agent
    owners: tuple[
        str, ...
    ] = ()  # only threads and memories of these owners; empty: of every owner, and of none
    items: tuple[str, ...] = ()  # every value of these items in their memories, and nothing else

    def __post_init__(self) -> None:
        """Raise `Invalid` for what cannot be chosen so: removed threads by whose they were, items of no owner's memory."""
        if self.removed_threads and self.is_limited:
            raise Invalid(
                "whose a removed thread was is no longer known, so a policy cannot choose them by agent or owner; "
                "nothing was planned.",
                code="policy_conflict",
                advice="Let removed threads go by a policy of their own.",
            )
        others = (
            self.undone_after_days,
            self.staged_after_days,
            self.timelines_after_days,
            self.superseded_after_days,
            self.threads_after_days,
        )
        if self.items and (not self.owners or self.agents or any(each is not None for each in others)):
            raise Invalid(
                "items are chosen in the memories of named owners, by a policy that is about nothing else; "
                "nothing was planned.",
                code="policy_conflict",
                advice="Erase the item in its memory.",
            )

    @property
    def is_limited(self) -> bool:
        """True if it is about the threads of some agents or owners only, or about some items."""
        return bool(self.agents or self.owners or self.items)

    def is_about(self, agent: str, owner: str | None) -> bool:
        """True if it is about the threads of that agent and that owner; None: a thread without an owner."""
        return (not self.agents or agent in self.agents) and (not self.owners or owner in self.owners)

    def undone_since(self, now: int) -> int | None:
        """Return the time before which undone content may be removed; None: nothing may."""
        return None if self.undone_after_days is None else now - round(self.undone_after_days * _DAY)

    def staged_since(self, now: int) -> int | None:
        """Return the time before which staged chunks may be removed; None: nothing may."""
        return None if self.staged_after_days is None else now - round(self.staged_after_days * _DAY)

    def timelines_since(self, now: int) -> int | None:
        """Return the time before which the content of a timeline without commits since may be removed; None: none may."""
        return None if self.timelines_after_days is None else now - round(self.timelines_after_days * _DAY)

    def superseded_since(self, now: int) -> int | None:
        """Return the time since when every state stays; None: every state stays."""
        return None if self.superseded_after_days is None else now - round(self.superseded_after_days * _DAY)

    def threads_since(self, now: int) -> int | None:
        """Return the time before which a thread without writes since may be removed; None: none may."""
        return None if self.threads_after_days is None else now - round(self.threads_after_days * _DAY)


class Lot(msgspec.Struct, frozen=True):
    """Objects of one kind that would be removed for one reason."""

    why: str  # undone, staged, timeline, superseded, erased; removed or idle: of a whole space
    kind: str
    count: int
    bytes: int


class SpacePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be removed of one space."""

    space: str
    lots: tuple[Lot, ...] = ()
    dropped: bool = False  # all of it
    thread: str | None = (
        None  # the id of a thread that goes because nothing was written to it; None: not for that
    )
    timelines: tuple[str, ...] = ()  # whose content goes, or what of it only they need
    left_alone: str | None = None  # why nothing is removed although the policy may allow it

    @property
    def count(self) -> int:
        """How many objects would be removed."""
        return sum(lot.count for lot in self.lots)

    @property
    def bytes(self) -> int:
        """How many bytes they hold, before compression; what that frees at rest depends on the engine."""
        return sum(lot.bytes for lot in self.lots)


class RetentionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy would remove at a given time.  Spaces that lose nothing are not listed."""

    policy: RetentionPolicy
    now: int  # µs since 1970, UTC
    spaces: tuple[SpacePlan, ...] = ()

    @property
    def count(self) -> int:
        """How many objects would be removed."""
        return sum(space.count for space in self.spaces)

    @property
    def bytes(self) -> int:
        """How many bytes they hold, before compression."""
        return sum(space.bytes for space in self.spaces)


class SpaceRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of one space."""

    space: str
    count: int = 0  # objects forgotten
    bytes: int = 0  # that they held, as a plan counts them: before compression
    freed: int = (
        0  # bytes set free at rest, which is less where objects are stored compressed or as differences
    )
    dropped: bool = False
    left_alone: str | None = None  # why less was removed than planned
