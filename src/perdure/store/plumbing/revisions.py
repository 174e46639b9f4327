"""Moments: the values that a program may pass to name a moment, and commits as a program sees them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines.contract import Step
from perdure.errors import Invalid, NotFound
from perdure.history import reader, revisions
from perdure.history.revisions import Exactly, Name
from perdure.history.space import Space
from perdure.model.commit import RunMeta, is_numbered
from perdure.model.digest import Digest
from perdure.model.event import Event, MomentNamed
from perdure.model.head import Head
from perdure.model.names import ID_BYTES_MAX
from perdure.model.patch import Patch
from perdure.projections.transcript import TranscriptEntry, Turn, kind_of
from perdure.store.plumbing.handles import deferred

if TYPE_CHECKING:
    from perdure.history import merge
    from perdure.history.merge import Pick
else:
    merge = deferred("perdure.history.merge")

__all__ = ["LogEntry", "Moment", "Wanted", "name_of", "picks", "resolve"]


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


_RANGE = re.compile(r"(?P<first>.+?)\.\.(?P<last>.+)\Z")
_TURN = re.compile(r"(?:turn:)?([0-9]{1,9})\Z")


def picks(
    space: Space, head: Head, moments: Moment | Iterable[Moment], resolve: Callable[[Moment], Digest]
) -> list[Pick]:
    """Return what is picked from the line of `head`, in order: turns and commits, and the turns of ranges.

    A range such as 4..6 has what lies between its ends, too, and so a turn that is named by its number has the rest of
    its run.  `resolve` returns the commit that a moment means.  Raises `NotFound` or `Invalid` for what is not there.
    """
    found: list[Pick] = []
    for each in (moments,) if isinstance(moments, str) or not isinstance(moments, Iterable) else moments:
        match = _RANGE.match(each) if isinstance(each, str) else None
        if match is not None:
            found += _turns_from(space, head, (match["first"], match["last"]), resolve)
        elif isinstance(each, str) and each.startswith("turn:") and _TURN.match(each):
            found += _turns_from(space, head, (each, each), resolve)
        else:
            found.append(_pick(resolve(each), _name_of_pick(each), is_turn=isinstance(each, Turn)))
    if not found:
        raise Invalid("no turn and no commit was named; nothing was picked.", code="nothing_to_pick")
    return found


def _turns_from(
    space: Space, head: Head, ends: tuple[str, str], resolve: Callable[[Moment], Digest]
) -> list[Pick]:
    """Return the turns of a line between two, and those after them in which a run of theirs went on."""
    first, last = (_position(space, head, end, ends, resolve) for end in ends)
    if first > last:
        raise Invalid(
            f"{'..'.join(ends)} is backwards: a range begins with its older end; nothing was picked.",
            code="range_backwards",
            advice=f"Write {ends[1]}..{ends[0]}.",
            range="..".join(ends),
        )
    since = takewhile(lambda step: step.place.turn >= first, reader.steps(space, head.commit))
    turns = [list(group) for _, group in groupby(reversed(list(since)), lambda step: step.place.turn)]
    found: list[Pick] = []
    runs: set[str | None] = set()
    for steps in turns:
        begun, ended = steps[0], steps[-1]
        kind = kind_of(begun.commit, begun.changeset)
        if begun.place.turn > last and not (kind == "resumed" and ended.commit.run in runs):
            continue
        runs |= {ended.commit.run} if kind == "message" else set()
        name = f"turn {begun.turn_number}" if kind == "message" else begun.commit.reason
        found.append(_pick(ended.digest, name, is_turn=True))
    return found


def _position(
    space: Space, head: Head, end: str, ends: tuple[str, str], resolve: Callable[[Moment], Digest]
) -> int:
    """Return which turn of its line, of any kind, one end of a range is."""
    match = _TURN.match(end)
    if match is not None:
        step = space.message(head.commit, int(match[1])) if head.commit else None
        turns = space.step(head.commit).turn_number if head.commit else 0
    else:
        step, turns = space.step(resolve(end)), 0
    if step is None or not reader.is_ancestor(space, step.digest, head.commit):
        named, has = ends[0] if ends[0] == ends[1] else "..".join(ends), f"turns: {turns}"
        raise NotFound(
            f"timeline '{head.timeline}' of '{space.label}' does not have all of {named} "
            f"({has if match else f'{end} is not on it'}); nothing was picked.",
            code="range_not_found",
            advice="See what there is with turns().",
            range=named,
            timeline=head.timeline,
            thread=space.label,
        )
    return step.place.turn


def _name_of_pick(moment: Moment) -> str:
    match moment:
        case str():
            return moment
        case Turn(kind="message", number=number):
            return f"turn {number}"
        case Turn(reason=reason):
            return reason
        case Head(commit=commit) | TranscriptEntry(commit=commit) | LogEntry(digest=commit):
            return commit[:12] if commit else ""
        case _:
            return ""


def _pick(commit: Digest, name: str, *, is_turn: bool) -> Pick:
    said = f"cherry-pick {name.removeprefix('cherry-pick ')}"  # a pick may be picked again
    reason = said if len(said.encode()) <= ID_BYTES_MAX else "cherry-pick"
    return merge.Pick(commit=commit, is_turn=is_turn, name=name, reason=reason)


def resolve(space: Space, head: Head, moment: Wanted) -> Digest | None:
    """Return the commit that `moment` means, seen from `head`; raises `NotFound` or `Invalid`."""
    if moment is UNSET:
        return head.commit
    name = name_of(moment)
    return None if name is None else revisions.resolve(space, head, name)
