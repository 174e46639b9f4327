"""Which paths a step wrote or read: what decides whether two steps can stand in either order.

The transcript counts as a path: whoever adds messages has read it.  `clear` and a listing
touch everything under their prefix, `replace` touches everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from perdure.model import names
from perdure.model.changeset import Changeset
from perdure.model.event import Event, MessageAppended
from perdure.model.patch import Clear, Op, Replace

__all__ = ["Touched"]


class Touched:
    """A growing set of paths and prefixes, and whether the transcript is in it."""

    __slots__ = ("paths", "prefixes", "transcript")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.paths: set[str] = set()
        self.prefixes: set[str] = set()
        self.transcript = False

    @classmethod
    def by(cls, changesets: Iterable[Changeset]) -> Self:
        """What these changesets wrote."""
        touched = cls()
        for changeset in changesets:
            touched.add_ops(changeset.patch.ops)
            touched.add_events(changeset.events)
        return touched

    def add_ops(self, ops: Iterable[Op]) -> None:
        """Add what `ops` write."""
        for op in ops:
            match op:
                case Clear(prefix):
                    self.prefixes.add(prefix)
                case Replace():
                    self.prefixes.add("/")
                case _:
                    self.paths.add(op.path)

    def add_events(self, events: Iterable[Event]) -> None:
        """Add the transcript if there is a message among `events`."""
        self.transcript = self.transcript or any(isinstance(event, MessageAppended) for event in events)

    def meets(self, other: Touched) -> bool:
        """Whether anything is in both."""
        return (
            (self.transcript and other.transcript)
            or not self.paths.isdisjoint(other.paths)
            or _covers(self.prefixes, other.paths)
            or _covers(other.prefixes, self.paths)
            or _overlap(self.prefixes, other.prefixes)
        )

    def covers(self, path: str) -> bool:
        """Whether `path` is in it, by itself or under a prefix."""
        return path in self.paths or _covers(self.prefixes, (path,))


def _covers(prefixes: Iterable[str], paths: Iterable[str]) -> bool:
    return any(names.under(path, prefix) for prefix in prefixes for path in paths)


def _overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(
        one.startswith(below) or below.startswith(one)
        for one in (names.prefixes_of(prefix)[1] for prefix in some)
        for below in (names.prefixes_of(prefix)[1] for prefix in others)
    )
