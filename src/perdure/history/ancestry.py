"""Finds common ancestors of commits, what only one of them has in its history, and whether a call is in a history.

A commit's *line* is its chain of first parents; its *history* is every commit before it,
through merges too.  Lines are compared by depth, in logarithmic time.  Histories are represented
as stretches of lines, so that memory grows with the number of merges since two lines
parted and never with the number of commits.

A call is found by its label: the message that requested it, or its run.  A direct call is not in
the conversation: its commit is found in the turn that it belongs to, its own or that of the run
it was made beside.

A run that waits continues after commits that other writers made in between, so its commits are one
or more *stretches* of its line.  The first commit of each is found by the run's id and the last by
its turn: reading the commits of a run costs their number, however long the line is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from perdure.engines.contract import Step
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import ToolCallCompleted

__all__ = [
    "Point",
    "Stretch",
    "ahead",
    "ancestor",
    "best",
    "common",
    "commons",
    "contains",
    "meet",
    "point",
    "walk",
    "commits_of",
    "of_run",
    "present",
    "stands_on",
    "told_in",
    "visible",
]


_BATCH = 128


class Point(msgspec.Struct, frozen=True):
    """A commit, and its depth on its line."""

    digest: Digest
    depth: int


class Stretch(msgspec.Struct, frozen=True):
    """A part of a line: `tip` and the commits before it, down to but without the depth `floor`."""

    tip: Point
    floor: int


def point(space: Space, commit: Digest) -> Point:
    """Return the commit with its depth; raises as `Space.step` does."""
    return Point(commit, space.step(commit).place.depth)


def ancestor(space: Space, tip: Point, depth: int) -> Point | None:
    """Return the commit of that depth on the line of `tip`; None before the first."""
    if depth < 0:
        return None
    if depth == tip.depth:
        return tip
    return Point(space.before(tip.digest, tip.depth - depth).digest, depth)


def meet(space: Space, a: Point | None, b: Point | None) -> Point | None:
    """Return the last commit that is on both lines; None if they share none.

    Costs a logarithm of how far back it is.
    """
    if a is None or b is None:
        return None
    top = min(a.depth, b.depth)
    one, other = ancestor(space, a, top), ancestor(space, b, top)
    gap = 1
    while one != other:
        a, b = one or a, other or b
        one, other = ancestor(space, a, top - gap), ancestor(space, b, top - gap)
        gap *= 2
    shared, floor = one, one.depth if one else -1
    while min(a.depth, top) - floor > 1:
        middle = (min(a.depth, top) + floor) // 2
        one, other = ancestor(space, a, middle), ancestor(space, b, middle)
        if one == other:
            shared, floor = one, middle
        else:
            a, b = one or a, other or b
    return shared


def walk(space: Space, stretch: Stretch) -> Iterator[Step]:
    """Yield the commits of a stretch, newest first, from the cache or read a batch at a time."""
    at, left = stretch.tip.digest, stretch.tip.depth - stretch.floor
    while left > 0 and at is not None:
        known = space.steps.get(at)
        batch = space.back(at, limit=min(left, _BATCH)) if known is None else (known,)
        yield from batch
        at, left = batch[-1].commit.first_parent, left - len(batch)


def ahead(space: Space, tip: Point, of: Point | None) -> Sequence[Stretch]:
    """Return what is in the history of `tip` and not in that of `of` (None: an empty one)."""
    return [stretch for stretch, _ in _parted(space, tip, of) if stretch.tip.depth > stretch.floor]


def contains(space: Space, tip: Point, commit: Point) -> bool:
    """True if `commit` is in the history of `tip`; every commit is in its own."""
    return not ahead(space, commit, tip)


def common(space: Space, a: Point, b: Point) -> Point | None:
    """Return the first of the best common ancestors of two commits; None if they have none."""
    return next(iter(commons(space, a, b)), None)


def commons(space: Space, a: Point, b: Point) -> list[Point]:
    """Return all best common ancestors of two commits, through merges too: those that are ancestors of no other one.

    There are several after a criss-cross merge, or if both lines merged the same other
    lines.  The deepest comes first, and of these the one with the greatest digest.
    """
    trunk = meet(space, a, b)
    if trunk is not None and trunk in (a, b):
        return [trunk]
    met = [trunk, *(top for _, top in _parted(space, a, b))]
    return best(space, [each for each in met if each is not None])


def best(space: Space, points: Iterable[Point]) -> list[Point]:
    """Return those of `points` that are in the history of no other one, each once, the deepest first."""
    distinct = set(points)
    best = [
        one for one in distinct if not any(one != other and contains(space, other, one) for other in distinct)
    ]
    return sorted(best, key=lambda one: (one.depth, one.digest), reverse=True)


def _parted(space: Space, tip: Point, of: Point | None) -> Sequence[tuple[Stretch, Point | None]]:
    """Return the history of `tip` back to where each line enters the history of `of`, and the commit where it does."""
    trunk = meet(space, tip, of)
    mine = _history(space, tip, trunk)
    if not mine:
        return []  # `tip` is in the history of `of`: what is below it need not be read
    theirs = _history(space, of, trunk) if of else []
    lowest = min(stretch.floor for stretch in mine)
    if trunk and lowest < trunk.depth:
        # A line that left below the trunk may have been merged into the trunk since.
        theirs = [*theirs, *_history(space, trunk, ancestor(space, trunk, lowest))]
    return [_stopped(space, stretch, [trunk, *(other.tip for other in theirs)]) for stretch in mine]


def _stopped(space: Space, stretch: Stretch, by: Sequence[Point | None]) -> tuple[Stretch, Point | None]:
    """Return what of `stretch` is on none of these lines, and the commit where it first meets one of them."""
    met = [found for line in by if (found := meet(space, stretch.tip, line))]
    first = max(met, key=lambda found: found.depth, default=None)
    if first is None or first.depth < stretch.floor:
        return stretch, None
    return Stretch(stretch.tip, first.depth), first


def _history(space: Space, tip: Point, trunk: Point | None) -> list[Stretch]:
    """Return the history of `tip` without the line of `trunk`, as stretches that do not overlap."""
    found: list[Stretch] = []
    pending = [tip]
    while pending:
        line = pending.pop()
        known = [trunk, *(stretch.tip for stretch in found)]
        floor = max((shared.depth for other in known if (shared := meet(space, line, other))), default=-1)
        if line.depth <= floor:
            continue
        found.append(Stretch(line, floor))
        merged = (parent for step in walk(space, found[-1]) for parent in step.commit.parents[1:])
        # The newest first: it covers the rest.
        pending += reversed([point(space, parent) for parent in merged])
    return found


def commits_of(space: Space, label: str | None) -> Sequence[Digest]:
    """Return the commits that `label` names; none if it is None or was never committed."""
    return space.engine.labelled(space.name, label) if label else ()


def present(space: Space, label: str | None, head: Digest | None) -> bool:
    """True if a commit that `label` names is in the history of `head`."""
    return head is not None and any(behind(space, commit, head) for commit in commits_of(space, label))


def stands_on(space: Space, label: str | None, head: Digest | None) -> bool:
    """True if a commit that `label` names is on the line of `head`, so that it is in the conversation."""
    return any(reader.is_ancestor(space, commit, head) for commit in commits_of(space, label))


def visible(space: Space, label: str | None, head: Digest | None) -> bool:
    """True if the message of that label is in the conversation of `head`: on its line, and not taken back there."""
    said = [commit for commit in commits_of(space, label) if reader.is_ancestor(space, commit, head)]
    return label is not None and any(not reader.is_retracted(space, label, each, head) for each in said)


def of_run(space: Space, run: str, at: Digest | None) -> list[Step]:
    """Return the commits of a run on the line that ends at `at`, oldest first; other commits may be between them."""
    named = [commit for commit in commits_of(space, run) if reader.is_ancestor(space, commit, at)]
    firsts: dict[int, Step] = {}  # by turn
    for step in map(space.step, named):
        if step.commit.run == run:  # else a message has the same id
            firsts.setdefault(step.place.turn, step)
    return [step for first in firsts.values() for step in _stretch(space, first, at)]


def _stretch(space: Space, first: Step, at: Digest | None) -> list[Step]:
    """Return the commits of one turn from its `first` on, oldest first, on the line that ends at `at`."""
    assert at is not None, "a commit is on the line"
    end = space.step(at)
    if end.place.turn != first.place.turn:
        last = space.turn(at, first.place.turn)
        assert last is not None, "a turn that has begun has a last commit"
        end = last
    count = end.place.depth - first.place.depth + 1
    remembered = space.steps.get(end.digest) is not None
    found = reader.recent(space, end.digest) if remembered else reader.steps(space, end.digest, limit=count)
    return list(islice(found, count))[::-1]


def behind(space: Space, commit: Digest, head: Digest | None) -> bool:
    """True if `commit` is in the history of `head`; None is before the first commit."""
    if head is None:
        return False
    if reader.is_ancestor(space, commit, head):
        return True
    return contains(space, point(space, head), point(space, commit))


def told_in(space: Space, call: str, label: str, head: Digest | None) -> bool:
    """True if the line of `head` has the result of a direct call, in the turn of the run `label`."""
    return head is not None and any(_told(space, call, commit, head) for commit in commits_of(space, label))


def _told(space: Space, call: str, first: Digest, head: Digest) -> bool:
    """True if the turn that begins with `first` is on the line of `head` and has the result there."""
    if not reader.is_ancestor(space, first, head):
        return False
    last = space.turn(head, space.step(first).place.turn)
    for step in reader.steps(space, last.digest) if last else ():
        if any(
            isinstance(event, ToolCallCompleted) and event.call == call for event in step.changeset.events
        ):
            return True
        if step.digest == first:
            return False
    return False
