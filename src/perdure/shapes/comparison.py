"""The shapes of what compares moments: a difference, and what a merge or a cherry-pick did or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET

from perdure.errors import Forgotten, NotFound
from perdure.history.changes.json_edits import read
from perdure.model import canonical
from perdure.model.run import Cost
from perdure.shapes.conversation import MessageShape, PathShape, transcript_of
from perdure.shapes.ledger import CostShape
from perdure.shapes.threads import HeadShape

if TYPE_CHECKING:  # what answers a question need not load what asks it
    from perdure.errors import PathConflict
    from perdure.history.merge import Taken
    from perdure.history.query import Called, Difference, Said, StateChange
    from perdure.history.tree import Entry
    from perdure.model.digest import Digest
    from perdure.projections.transcript import TranscriptEntry
    from perdure.store.thread import Thread

__all__ = [
    "ComparedState",
    "ComparedValue",
    "Comparison",
    "ConflictShape",
    "ConflictedKey",
    "KeyValue",
    "MergeShape",
    "PickShape",
    "PicksShape",
    "Side",
]

_VALUE_BYTES_MAX = 64 * 1024
_NOT_SHOWN = "(not shown)"


class ComparedValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a path held; `value` is left out for bytes and for documents over 64 KiB."""

    form: str
    media_type: str
    size: int
    digest: str
    value: Any = UNSET


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    """What an object held at one of its keys."""

    value: Any


class ConflictedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One place in an object that both timelines changed, and its values; null: the object had no such key there.

    Words stand for a value that cannot be read, or is over 64 KiB.
    """

    place: list[str]
    base: KeyValue | str | None
    ours: KeyValue | str | None
    theirs: KeyValue | str | None


class ConflictShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path that both timelines changed, how, and its values; null: the path had none there.

    Words stand for a value that cannot be read: it is forgotten, not seen, or made by an earlier pick of this dry run.
    """

    path: str
    why: str
    base: ComparedValue | str | None  # at the last commit that both have
    ours: ComparedValue | str | None
    theirs: ComparedValue | str | None
    # Of an object that is joined key by key: only these are in conflict, and what else either side changed is taken.
    keys: list[ConflictedKey]

    @classmethod
    def every(cls, thread: Thread, taken: Taken) -> list[Self]:
        """Return the conflicts of a dry run, with the values as they are at the moments that it compared."""
        return [cls._of(thread, part, each) for part in taken.picks or (taken,) for each in part.conflicts]

    @classmethod
    def _of(cls, thread: Thread, part: Taken, each: PathConflict) -> Self:
        moments = (part.base, part.head.commit, part.theirs)
        there = list(zip(moments, (each.base, each.ours, each.theirs), strict=True))
        base, ours, theirs = (_value_there(thread, at, each.path, digest) for at, digest in there)
        whole = [_document_there(thread, at, each.path, digest) for at, digest in there] if each.keys else []
        keys = [
            ConflictedKey(place=list(place), base=values[0], ours=values[1], theirs=values[2])
            for place in each.keys
            for values in [[_key_there(document, place) for document in whole]]
        ]
        return cls(path=each.path, why=each.why, base=base, ours=ours, theirs=theirs, keys=keys)


def _key_there(document: Any, place: Sequence[str]) -> KeyValue | str | None:
    """Return what an object has at a place; unset: the object cannot be read."""
    if document is UNSET:
        return _NOT_SHOWN
    value = read({} if document is None else document, tuple(place))
    if value is UNSET:
        return None
    return KeyValue(value=value) if len(canonical.encode(value)) <= _VALUE_BYTES_MAX else _NOT_SHOWN


def _document_there(thread: Thread, at: Digest | None, path: str, digest: str | None) -> Any:
    """Return the document of that digest, which a path had at a moment; None: it had none; unset: it cannot be read."""
    if digest is None:
        return None
    with suppress(Forgotten, NotFound):
        seen = thread.at(at)
        if seen.entry(path).value == digest:
            return seen.get(path)
    return UNSET


def _value_there(
    thread: Thread, at: Digest | None, path: str, digest: str | None
) -> ComparedValue | str | None:
    """Return the value of that digest, which a path had at a moment; None: it had none."""
    if digest is None:
        return None
    with suppress(Forgotten, NotFound):
        entry = thread.at(at).entry(path)
        if entry.value == digest:
            return _value(thread, at, entry)
    return _NOT_SHOWN


class MergeShape(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge, or with `dry_run` what it would be."""

    thread: str
    source: str
    head: HeadShape
    commit: str | None  # null: there was nothing to take in, and nothing was written
    base: str | None  # where the lines parted
    paths: int  # how many changed
    dry_run: bool
    changed: list[PathShape]  # of a dry run
    conflicts: list[ConflictShape]  # of a dry run: those for which no side is preferred

    @classmethod
    def of(cls, thread: Thread, source: str, taken: Taken, *, dry_run: bool = False) -> Self:
        """Return the merge as programs read it."""
        return cls(
            thread=thread.id,
            source=source,
            head=HeadShape.of(taken.head),
            commit=taken.commit,
            base=taken.base,
            paths=taken.paths,
            dry_run=dry_run,
            changed=_would_change(taken),
            conflicts=ConflictShape.every(thread, taken),
        )


class PickShape(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, or one commit, whose changes were applied, or with `dry_run` would be."""

    thread: str
    picked: str
    head: HeadShape
    commit: str | None  # null: there was nothing to take in, and nothing was written
    paths: int
    dry_run: bool
    changed: list[PathShape]  # of a dry run
    conflicts: list[ConflictShape]  # of a dry run: those for which no side is preferred

    @classmethod
    def of(cls, thread: Thread, taken: Taken, *, dry_run: bool = False) -> Self:
        """Return the change that was picked as programs read it."""
        return cls(
            thread=thread.id,
            picked=taken.picked,
            head=HeadShape.of(taken.head),
            commit=taken.commit,
            paths=taken.paths,
            dry_run=dry_run,
            changed=_would_change(taken),
            conflicts=ConflictShape.every(thread, taken),
        )


class PicksShape(PickShape, frozen=True, kw_only=True):
    """What a cherry-pick did, or with `dry_run` would do, together and for each turn or commit that was picked."""

    picks: list[PickShape]

    @classmethod
    def of(cls, thread: Thread, taken: Taken, *, dry_run: bool = False) -> Self:
        """Return the changes that were picked as programs read them."""
        whole, *picks = (PickShape.of(thread, each, dry_run=dry_run) for each in (taken, *taken.picks))
        return cls(**msgspec.structs.asdict(whole), picks=picks)


def _would_change(taken: Taken) -> list[PathShape]:
    return [PathShape(path=each.path, what=each.what) for each in taken.changes]


class ComparedState(msgspec.Struct, frozen=True, kw_only=True):
    """One path at which the two moments differ: added, changed or removed."""

    path: str
    what: str
    before: ComparedValue | None
    after: ComparedValue | None


class ComparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call that only one of the sides has."""

    commit: str
    call: str
    tool: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two moments, and what happened only on its side since the two parted."""

    name: str
    commit: str | None
    messages: list[MessageShape]
    calls: list[ComparedCall]
    cost: CostShape  # of the steps of runs whose messages these are


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two moments."""

    thread: str
    same: bool
    base: str | None  # the last commit that both have in their history
    a: Side
    b: Side
    state: list[ComparedState]

    @classmethod
    def of(cls, thread: Thread, a: str, b: str, differing: Difference) -> Self:
        """Return the difference of two moments, which were named `a` and `b`."""
        return cls(
            thread=thread.id,
            same=differing.same,
            base=differing.base,
            a=_side(thread, a, differing.a, differing.messages_a, differing.calls_a),
            b=_side(thread, b, differing.b, differing.messages_b, differing.calls_b),
            state=[_state(thread, differing, change) for change in differing.state],
        )


def _state(thread: Thread, differing: Difference, change: StateChange) -> ComparedState:
    return ComparedState(
        path=change.path,
        what=change.what,
        before=_value(thread, differing.a, change.before),
        after=_value(thread, differing.b, change.after),
    )


def _value(thread: Thread, at: Digest | None, entry: Entry | None) -> ComparedValue | None:
    if entry is None:
        return None
    small = entry.form == "json" and entry.size <= _VALUE_BYTES_MAX
    return ComparedValue(
        form=entry.form,
        media_type=entry.media_type,
        size=entry.size,
        digest=entry.value,
        value=thread.at(at).get(entry.path) if small else UNSET,
    )


def _side(
    thread: Thread, name: str, commit: Digest | None, said: Sequence[Said], called: Sequence[Called]
) -> Side:
    calls = [ComparedCall(commit=each.commit, call=each.event.call, tool=each.event.tool) for each in called]
    entries = list(_entries(thread, said))
    steps = (each for each in entries if each.role == "assistant" and each.run is not None)
    spent = sum((Cost.of(each.cost) for each in steps), Cost())
    return Side(
        name=name,
        commit=commit,
        messages=[MessageShape.of(each) for each in entries],
        calls=calls,
        cost=CostShape.of(spent),
    )


def _entries(thread: Thread, said: Sequence[Said]) -> Iterator[TranscriptEntry]:
    """Return the messages in order: those of one commit are the last of its transcript."""
    for commit, number in Counter(each.commit for each in said).items():
        yield from transcript_of(thread.at(commit), limit=number)
