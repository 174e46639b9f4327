"""Blame: who wrote the value that a path holds.

A value can change and change back, so the commits are looked at one by one, from the newest
back along first parents, until one is found whose patch wrote the path.  Where that is a
merge which took the value from the other line, the search goes on there.

Bisect: the first moment at which something is true, found by asking about few of them.

The question must be false at the old end of the line and true at the new end.  If it turns
true only once, the answer is where; if it turns several times, the answer is one of these
places: true there, and false just before.  A line of n commits takes about log2(n) questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Corrupt, Invalid, NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.model.digest import Digest
from perdure.model.event import Event, MessageAppended, RunStarted
from perdure.model.patch import Clear, Op, Replace

__all__ = ["Blame", "blame", "bisect"]


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that wrote a value, and what stood behind it."""

    path: str
    commit: Digest
    reason: str
    at: int  # µs since 1970, UTC
    run: str | None = None
    message: str | None = None  # the id of the last one appended in the same turn, up to that commit
    provider: str | None = None
    model: str | None = None
    backend: str | None = None  # provider:model, as the run was told
    author: str | None = None


def blame(space: Space, at: Digest | None, path: str) -> Blame:
    """Who wrote the value that `path` holds at a commit; raises `NotFound` if it holds none."""
    held = reader.entry_at(space, at, path)
    step = _writer(space, at, path)
    while (other := _origin(space, step, held)) is not None:
        step = _writer(space, other, path)
    return _blamed(path, step, list(_turn_so_far(space, step)))


def _writer(space: Space, at: Digest | None, path: str) -> Step:
    """The last commit on the line whose patch wrote `path`."""
    for step in reader.steps(space, at):
        if any(_writes(op, path) for op in step.changeset.patch.ops):
            return step
    raise Corrupt(f"{path} holds a value, but no commit of its line wrote it. Run `perdure verify`.")


def _writes(op: Op, path: str) -> bool:
    match op:
        case Clear():
            return False  # what it covers holds nothing, so it wrote no value that anybody could ask about
        case Replace(entries):
            return path in entries
        case _:
            return op.path == path


def _origin(space: Space, step: Step, held: Entry) -> Digest | None:
    """The merged line that `step` took the value from; None if it was written by `step` itself."""
    merged = step.commit.parents[1:]
    return next((line for line in merged if space.tree_at(line).get(held.path) == held), None)


def _turn_so_far(space: Space, step: Step) -> Iterator[Step]:
    """The commits of the same turn up to `step`, newest first."""
    for earlier in reader.steps(space, step.digest):
        if earlier.place.turn != step.place.turn:
            return
        yield earlier


def _blamed(path: str, step: Step, turn: Sequence[Step]) -> Blame:
    events = [event for earlier in turn for event in reversed(earlier.changeset.events)]
    message = next((event for event in events if isinstance(event, MessageAppended)), None)
    acting = next((event for event in (*step.changeset.events, *events) if event.provider), message)
    return Blame(
        path=path,
        commit=step.digest,
        reason=step.commit.reason,
        at=step.commit.at,
        run=step.commit.run,
        message=message.id if message else None,
        provider=acting.provider if acting else None,
        model=acting.model if acting else None,
        backend=_backend(turn, events, acting),
        author=step.commit.author,
    )


def _backend(turn: Sequence[Step], events: Sequence[Event], acting: Event | None) -> str | None:
    """What took the turn: as the run recorded it, else as its events tell."""
    metas = (earlier.changeset.run_meta for earlier in turn)
    told = [meta.backend for meta in metas if meta and meta.backend]
    told += [event.backend for event in events if isinstance(event, RunStarted) and event.backend]
    if acting and acting.provider and acting.model:
        told.append(f"{acting.provider}:{acting.model}")
    return told[0] if told else None


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
            f"{good[:12]} does not stand before {at[:12]} on its line, so nothing was searched.",
            code="not_an_ancestor",
            advice="Name a commit that log() shows after it.",
            good=good,
            at=at,
        )
    return space.step(good).place.depth
