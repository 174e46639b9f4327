"""Answers three questions about a history: what differs between two commits, which commit wrote a value, since when.

`between` compares the state from `a` to `b`.  Messages and calls are those of each side since the two lines parted.
The transcript follows first parents, so messages are counted along the line alone; a call happened in the world, so
calls count through merges too.

`blame` finds the commit that wrote the value of a path.  A value can change and change back, so it reads the commits
one by one, from the newest back along first parents, until the patch of one writes the path.  Where that commit is a
merge that took the value from the other line, the search continues there.  With a place inside the document it goes
on until a commit left another value there than it found: only documents that commits on the way wrote are read.

`bisect` finds the first commit at which a predicate is true with about log2(n) questions on a line of n commits.  The
predicate must be false at the old end and true at the new end.  If it changes several times, the answer is one of
the commits where it is true and was false just before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines.contract import Step
from perdure.errors import Corrupt, Forgotten, Invalid, NotFound
from perdure.history import ancestry, reader
from perdure.history.ancestry import Point, Stretch
from perdure.history.changes.json_edits import Place, nested_place, read, spell_place
from perdure.history.changes.values import read_json
from perdure.history.space import Space
from perdure.history.tree import Entry, diff
from perdure.model import canonical
from perdure.model.digest import Digest
from perdure.model.event import Event, Merged, MessageAppended, RunStarted, ToolCallRequested
from perdure.model.names import COMPARED_MAX, check_prefix, near, prefixes_of
from perdure.model.patch import Clear, Op, Replace
from perdure.model.run import REASONS

__all__ = [
    "Blame",
    "Called",
    "Difference",
    "Said",
    "StateChange",
    "between",
    "bisect",
    "blame",
    "changes",
    "is_beside_run",
]


class StateChange(msgspec.Struct, frozen=True):
    """One path at which the state differs."""

    path: str
    before: Entry | None  # at a; None: there was nothing
    after: Entry | None  # at b; None: there is nothing any more

    @property
    def what(self) -> Literal["added", "changed", "removed"]:
        """How the path changed from a to b."""
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
        """True if there is no difference at all."""
        return not (self.state or self.messages_a or self.messages_b or self.calls_a or self.calls_b)


def between(space: Space, a: Digest | None, b: Digest | None, *, prefix: str = "/") -> Difference:
    """Return what differs between two commits; None is the moment before the first.

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
    """Yield the paths under `prefix` at which the states of two commits differ, in order, reading lazily."""
    before, after = space.tree_at(a), space.tree_at(b)
    own, below = prefixes_of(check_prefix(prefix))
    if own is not None and (old := before.get(own)) != (new := after.get(own)):
        yield StateChange(own, old, new)
    for change in diff(before, after, below):
        yield StateChange(change.path, change.before, change.after)


def _messages(space: Space, tip: Point | None, other: Point | None) -> tuple[Said, ...]:
    """Return the messages on the line of `tip` since it parted from the line of `other`."""
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
    """Return the calls in the history of `tip` that are not in the history of `other`; merged lines first."""
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


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that wrote a value, with its run, message, backend and author."""

    path: str
    place: Place = ()  # inside the document; empty: the document as a whole
    commit: Digest
    reason: str
    at: int  # µs since 1970, UTC
    run: str | None = None
    message: str | None = None  # the id of the last one appended in the same turn, up to that commit
    provider: str | None = None
    model: str | None = None
    backend: str | None = None  # provider:model, as the run recorded it
    author: str | None = None
    # The timeline that wrote it, where a merge brought it; None: the one that was asked.
    merged_from: str | None = None
    # The run that held the timeline while a program wrote it, which is not the run's.
    beside_run: str | None = None


def blame(space: Space, at: Digest | None, path: str, place: Place = ()) -> Blame:
    """Return the commit that wrote the value of `path` at a commit; raises `NotFound` if it has none.

    A commit that writes the value that is there already is passed over.  With a `place` it is the commit that last changed what is there in the document.  Raises `Forgotten` if a policy
    removed the document that it is compared with.
    """
    entry = reader.entry_at(space, at, path)
    steps = [_writer(space, at, path)]
    if place:
        value = _read_at(space, at, path, place)
        if value is None:
            raise _nothing_there(space, entry, place)
        had = partial(_had_at, space, path=path, place=place, value=value)
    else:
        had = partial(_origin, space, entry=entry)
    while (line := had(steps[-1])) is not None:
        steps.append(_writer(space, line, path))
    found = _blamed(path, place, steps[-1], list(_turn_so_far(space, steps[-1])))
    return msgspec.structs.replace(found, merged_from=_merged_from(space, at, steps))


def _merged_from(space: Space, at: Digest | None, steps: Sequence[Step]) -> str | None:
    """Return the timeline of the last of these writers, as the merge that brought its value names it; None: that of `at`."""
    assert at is not None
    tip, writer = ancestry.point(space, at), Point(steps[-1].digest, steps[-1].place.depth)
    if writer.depth <= tip.depth and ancestry.ancestor(space, tip, writer.depth) == writer:
        return None
    merges = (
        event for each in reversed(steps) for event in each.changeset.events if isinstance(event, Merged)
    )
    return next((event.timeline for event in merges), None)


def _had_at(space: Space, step: Step, *, path: str, place: Place, value: bytes) -> Digest | None:
    """Return the line that had `value` at the place before `step`, the first parent before merged ones; None: none had."""
    try:
        same = (line for line in step.commit.parents if _read_at(space, line, path, place) == value)
        return next(same, None)
    except Forgotten as gone:
        what = f"what {path} held before commit {step.digest[:12]}, which wrote it,"
        raise Forgotten(what, gone.why, advice="Ask for the whole document.") from gone


def _nothing_there(space: Space, entry: Entry, place: Place) -> NotFound:
    """Return the error for a place that a document does not have, with keys that may have been meant."""
    above = UNSET if entry.form != "json" else read(read_json(space, entry.value), place[:-1])
    keys = list(above)[:COMPARED_MAX] if isinstance(above, dict) else []
    step = str(place[-1]).strip("/.")  # as a pointer of another notation has it
    close = [step] if step in keys else near(step, keys)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    nested = nested_place(place) or ("jam", 0)
    return NotFound(
        f"the document {entry.path} has nothing at {spell_place(place)}.{hint}",
        code="place_not_found",
        advice=f"A place is a list of the keys and indexes that lead to it: '{spell_place(nested)}'.",
        path=entry.path,
        place=place,
        near=close,
    )


def _read_at(space: Space, at: Digest | None, path: str, place: Place) -> bytes | None:
    """Return what is at the place, in canonical bytes; None: there is no such document, or no such place in it."""
    entry = space.tree_at(at).get(path)
    found = UNSET if entry is None or entry.form != "json" else read(read_json(space, entry.value), place)
    return None if isinstance(found, UnsetType) else canonical.encode(found)


def _writer(space: Space, at: Digest | None, path: str) -> Step:
    """Return the last commit on the line whose patch wrote `path`."""
    for step in reader.steps(space, at):
        if any(_writes(op, path) for op in step.changeset.patch.ops):
            return step
    raise Corrupt(
        f"{path} holds a value, but no commit of its timeline wrote it.",
        code="value_without_writer",
        advice="Run `perdure verify`.",
        path=path,
    )


def _writes(op: Op, path: str) -> bool:
    match op:
        case Clear():
            return False  # it removes values and writes none
        case Replace(entries):
            return path in entries
        case _:
            return op.path == path


def _origin(space: Space, step: Step, *, entry: Entry) -> Digest | None:
    """Return the line that had the value before `step` wrote it again or merged it; None: none had, or it is forgotten."""
    with suppress(Forgotten):
        had = (line for line in step.commit.parents if space.tree_at(line).get(entry.path) == entry)
        return next(had, None)
    return None


def is_beside_run(run: str | None, reason: str, turn: Iterable[Event]) -> bool:
    """True if a program wrote a commit while a run held the timeline: it belongs to the run's turn, and is not the run's.

    `turn` has the events of its turn, up to it.  The runs of other frameworks write commits with reasons of their own.
    """
    if run is None or reason in REASONS:
        return False
    return any(isinstance(event, RunStarted) for event in turn)


def _turn_so_far(space: Space, step: Step) -> Iterator[Step]:
    """Yield the commits of the same turn up to `step`, newest first."""
    for earlier in reader.steps(space, step.digest):
        if earlier.place.turn != step.place.turn:
            return
        yield earlier


def _blamed(path: str, place: Place, step: Step, turn: Sequence[Step]) -> Blame:
    events = [event for earlier in turn for event in reversed(earlier.changeset.events)]
    if is_beside_run(step.commit.run, step.commit.reason, events):
        return Blame(
            path=path,
            place=place,
            commit=step.digest,
            reason=step.commit.reason,
            at=step.commit.at,
            author=step.commit.author,
            beside_run=step.commit.run,
        )
    message = next((event for event in events if isinstance(event, MessageAppended)), None)
    acting = next((event for event in (*step.changeset.events, *events) if event.provider), message)
    return Blame(
        path=path,
        place=place,
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
    """Return the backend of the turn: as the run recorded it, else from its events."""
    metas = (earlier.changeset.run_meta for earlier in turn)
    known = [meta.backend for meta in metas if meta and meta.backend]
    known += [event.backend for event in events if isinstance(event, RunStarted) and event.backend]
    if acting and acting.provider and acting.model:
        known.append(f"{acting.provider}:{acting.model}")
    return known[0] if known else None


def bisect(
    space: Space, at: Digest | None, predicate: Callable[[Step], bool], *, good: Digest | None = None
) -> Step:
    """Return the first commit after `good` and up to `at` where `predicate` is true.

    `good` is on the same line of first parents; None is the moment before the first
    commit, when nothing is true yet.  A predicate that raises `NotFound` counts as false: what it
    reads does not exist yet.  Raises `Invalid` unless it is false at `good` and true at `at`, and `Forgotten` if
    retention has removed the state just before the one that is found: it may have been true there.
    """
    if at is None:
        raise Invalid(
            "nothing is committed on this timeline, so nothing was searched.",
            code="nothing_committed",
            advice="Name another timeline.",
        )
    newest = space.step(at)
    low, high = _depth_of(space, good, at), newest.place.depth
    if not _true_at(predicate, newest):
        raise Invalid(
            f"the condition is not true at the newest commit ({at[:12]}), so nothing was searched.",
            code="predicate_false_at_end",
            advice="Ask the opposite, or begin at a moment where it is true.",
            commit=at,
        )
    if good is not None and _true_at(predicate, space.step(good)):
        raise Invalid(
            f"the condition is true at the commit to begin with ({good[:12]}) already, so nothing was searched.",
            code="predicate_true_at_start",
            advice="Name an older one.",
            commit=good,
        )
    found, unread = newest, None
    while high - low > 1:
        middle = (low + high) // 2
        step = space.back(at, skip=newest.place.depth - middle, limit=1)[0]
        try:
            is_true = _true_at(predicate, step)
        except Forgotten as gone:  # older states are gone too, so search what is newer
            low, unread = middle, gone
            continue
        if is_true:
            high, found = middle, step
        else:
            low, unread = middle, None
    if unread is not None:
        raise unread
    return found


def _true_at(predicate: Callable[[Step], bool], step: Step) -> bool:
    try:
        return bool(predicate(step))
    except Forgotten:
        raise
    except NotFound:
        return False


def _depth_of(space: Space, good: Digest | None, at: Digest) -> int:
    """Return the depth of the old end."""
    if good is None:
        return -1
    if good == at or not reader.is_ancestor(space, good, at):
        raise Invalid(
            f"{good[:12]} is not before {at[:12]} on its timeline, so nothing was searched.",
            code="not_an_ancestor",
            advice="Name a commit that log() shows after it.",
            commit=good,
        )
    return space.step(good).place.depth
