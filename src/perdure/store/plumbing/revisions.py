"""Moments: the values that a program may pass to name a moment, and commits as a program sees them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines.contract import Step
from perdure.errors import Invalid
from perdure.history import revisions
from perdure.history.revisions import Exactly, Name
from perdure.history.space import Space
from perdure.model.commit import RunMeta, is_numbered
from perdure.model.digest import Digest
from perdure.model.event import Event, MomentNamed
from perdure.model.head import Head
from perdure.model.names import ID_BYTES_MAX
from perdure.model.patch import Patch
from perdure.projections.transcript import TranscriptEntry, Turn

__all__ = ["LogEntry", "Moment", "Wanted", "name_of", "picking", "resolve"]


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of a history."""

    digest: Digest
    parents: tuple[Digest, ...]
    root: Digest
    reason: str
    at: int  # µs since 1970, UTC; data, never an order
    depth: int  # commits before it on its timeline
    turn: int  # the number of its message, or of the message before it; 0 before the first
    run: str | None = None
    parent_run: str | None = None  # the run whose tool, or whose open calls, began this one
    run_meta: RunMeta | None = None  # on a run's first and last commit: how it began, how it ended
    author: str | None = None
    events: tuple[Event, ...] = ()
    patch: Patch = Patch()

    def __repr__(self) -> str:
        """Name the commit, its turn and its reason, in one line."""
        return f"<commit {self.digest[:12]}, turn {self.turn}: {self.reason}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names that other frameworks have for it."""
        return tuple(event.name for event in self.events if isinstance(event, MomentNamed))

    @property
    def is_apart(self) -> bool:
        """True if it belongs to no message: an edit, a switch, a merge or a cherry-pick, by itself."""
        return self.run is None and not is_numbered(None, self.events)

    @classmethod
    def of(cls, step: Step) -> LogEntry:
        """Return the commit as a program sees it."""
        return cls(
            digest=step.digest,
            parents=step.commit.parents,
            root=step.commit.root,
            reason=step.commit.reason,
            at=step.commit.at,
            depth=step.commit.depth,
            turn=step.turn_number,
            run=step.commit.run,
            parent_run=step.changeset.parent_run_id,
            run_meta=step.changeset.run_meta,
            author=step.commit.author,
            events=step.changeset.events,
            patch=step.changeset.patch,
        )


Moment: TypeAlias = str | Head | Turn | LogEntry | TranscriptEntry | None
"""A name, or a value that has a commit; a turn means the moment after it, None the moment before the first commit."""

Wanted: TypeAlias = Moment | UnsetType
"""A moment, or unset for now."""


def name_of(moment: Moment) -> Name | None:
    """Return the name of a moment for `history.revisions`; None is before the first commit."""
    match moment:
        case None | str():
            return moment
        case Head(commit=commit) | TranscriptEntry(commit=commit):
            return None if commit is None else Exactly(commit)
        case Turn(after=commit) | LogEntry(digest=commit):
            return Exactly(commit)
        case _:  # pyright: ignore[reportUnnecessaryComparison]  # programs without a type checker
            raise Invalid(
                f"a moment is a name, a head, a turn, a commit or a transcript entry, not {moment!r}; nothing was "
                "done.",
                code="not_a_moment",
            )


def picking(moment: Moment) -> str:
    """Return the reason of a commit that applies the changes of this moment to another timeline."""
    match moment:
        case str():
            picked = moment
        case Turn(kind="message", number=number):
            picked = f"turn {number}"
        case Turn(reason=reason):
            picked = reason
        case _:
            return "cherry-pick"
    said = f"cherry-pick {picked.removeprefix('cherry-pick ')}"  # a pick may be picked again
    return said if len(said.encode()) <= ID_BYTES_MAX else "cherry-pick"


def resolve(space: Space, head: Head, moment: Wanted) -> Digest | None:
    """Return the commit that `moment` means, seen from `head`; raises `NotFound` or `Invalid`."""
    if moment is UNSET:
        return head.commit
    name = name_of(moment)
    return None if name is None else revisions.resolve(space, head, name)
