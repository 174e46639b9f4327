"""Preparing a write: everything that can be done for it before it is its turn.

Squeezing objects and laying out rows takes longer than inserting them.  Done before the
lock is taken it keeps nobody waiting, and the writers of a group do it while the one before
them waits for the disk.  Nothing here looks into the database.  What is wrong with a write
is raised, and told in its turn, after what the contract puts first.

Bases: recent objects that later ones resemble, so that only the difference is stored.

A rewritten leaf differs from the old one in some forty bytes, and a rewritten document is
mostly made of words that the old one had.  Stored whole, the nodes of the map would be the
larger part of a store; stored as differences they hardly count.
A chain of differences has a largest length, which bounds what a read costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from perdure.engines.sqlite.format.index import label_keys, object_key
from perdure.engines.sqlite.format.pack import KINDS, PackForm, deflated, difference
from perdure.engines.sqlite.format.records import pack_changeset, pack_commit
from perdure.errors import NotFound
from perdure.model.commit import (
    Changeset,
    Commit,
    decode_changeset,
    decode_commit,
    encode_changeset,
    encode_commit,
)
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import CheckpointCreated, MessageAppended, ToolCallRequested

__all__ = ["Batch", "Committing", "Prepared", "lay", "prepare", "spans_of", "Bases"]


_NODE_DEPTH_MAX = 16
_DEPTH_MAX = 4  # of documents: each step is another row to read
_BYTES_MAX = 8 * 1024 * 1024
_ENTRY_BYTES = 300
_FROM_BYTES = 128
_NODE_KIND = Kind.NODE

_Base: TypeAlias = tuple[int, int, int, bytes]  # row, index, differences below it, bytes


class Bases:
    """Objects written a short while ago, with the place where they stand.  Noted by who writes, read by all.

    Two generations: what was not asked for since the last change of generation goes.  Every
    change is one operation on a dictionary, so that readers need no lock.
    """

    def __init__(self) -> None:
        """Know none."""
        self._young: dict[tuple[int, Digest], _Base] = {}
        self._old: dict[tuple[int, Digest], _Base] = {}
        self._held = 0
        self.epoch = 0  # what was made of bases before it last changed is not to be used

    def against(self, kind: int, space: int | None, found: Object) -> tuple[tuple[object, ...], int]:
        """The fields of the item that stores `found`: a difference if that saves a lot, or whole; and its depth."""
        body = found.body
        if found.base is not None and space is not None and len(body) >= _FROM_BYTES:
            name = space, found.base
            base = self._young.get(name) or self._old.get(name)
            if base is not None:
                fields, depth = _against(base, kind, found)
                if fields is not None:
                    return fields, depth
        return (kind, PackForm.WHOLE, body), 0

    def note(self, space: int, found: Object, row: int, index: int, depth: int) -> None:
        """An object was written at that place."""
        body = found.body
        self._held += len(body) + _ENTRY_BYTES
        if self._held > _BYTES_MAX // 2:
            self._old, self._young, self._held = self._young, {}, 0
        self._young[space, found.digest] = row, index, depth, body

    def forget(self) -> None:
        """Forget all, because rows were rolled back or changed in place."""
        self.epoch += 1
        self._young, self._old, self._held = {}, {}, 0


def _against(base: _Base, kind: int, found: Object) -> tuple[tuple[object, ...] | None, int]:
    """The fields of `found` as a difference to `base`, None if that does not pay, and how many lie below it then."""
    row, index, depth, old = base
    body = found.body
    if found.kind is _NODE_KIND:
        if depth < _NODE_DEPTH_MAX:
            head, tail, middle = difference(old, body)
            if 2 * len(middle) + 40 < len(body):
                return (kind, PackForm.DIFFERENCE, middle, 0, row, index, head, tail), depth + 1
    elif depth < _DEPTH_MAX:
        data = deflated(old, body)
        if 4 * len(data) < 3 * len(body):
            return (kind, PackForm.DEFLATED, data, 0, row, index), depth + 1
    return None, 0


_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks much else
_NODE_ROW_BYTES = 7 * 1024  # of nodes, which are read one by one; such a row fits a page
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY, _COMMIT, _CHECKPOINT, _NODE = Kind.BODY, Kind.COMMIT, Kind.CHECKPOINT, Kind.NODE
_WITH_COMMIT = (
    _BODY,
    _CHECKPOINT,
    Kind.CHANGESET,
    _COMMIT,
)  # words stand in the commit's own row, where SQL finds them
_BODY_AT, _COMMIT_AT, _CHANGESET_AT = _KIND_AT[_BODY], _KIND_AT[_COMMIT], _KIND_AT[Kind.CHANGESET]
_NOWHERE: tuple[int, int] = (0, 0)
_encoder = msgspec.json.Encoder()


class Committing(msgspec.Struct, frozen=True, gc=False):
    """The commit of a row, with what belongs to it."""

    digest: Digest
    commit: Commit
    events: int
    text: str  # of the changeset, as the row has it
    spans: str | None  # where the words of its events stand in the row's bodies


class Batch(msgspec.Struct, gc=False):
    """The objects of one row as it holds them, and the commit among them, if any."""

    objects: list[Object]
    items: list[tuple[object, ...]]
    keys: list[bytes]  # of the items, in their order, and then of what names the commit
    bodies: list[str]  # what stands in the column of that name
    bases: list[tuple[Object, int, int]]  # what later objects may be stored against: its item, and its depth
    committing: Committing | None = None


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A write, laid out in rows; good as long as the bases that it builds on stand where they stood."""

    batches: list[Batch]
    epoch: int  # of the bases


def prepare(objects: tuple[Object, ...], space: int | None, bases: Bases) -> Prepared:
    """Lay out the objects of a write; `space` is the number of their space, None if it is not known yet.

    Raises `NotFound` if a commit comes without its changeset, or what decoding raises.
    """
    epoch = bases.epoch  # first: what changes meanwhile makes this one out of date
    batches: list[Batch] = []
    for found in _rows(objects):
        batches.append(lay(found, space, bases))  # noqa: PERF401 (a comprehension is a call of its own)
    return Prepared(batches, epoch)


def lay(objects: list[Object], space: int | None, bases: Bases) -> Batch:
    """One row of these objects.  A commit among them is the last."""
    batch = Batch(objects, [], [], [], [])
    last = objects[-1] if objects else None
    if last is None or last.kind is not _COMMIT:
        _lay_state(batch, objects, space, bases)
        return batch
    commit, is_exact = _commit_of(last)
    stored = _changeset_among(objects, last, commit)
    changeset, is_exact_changeset = _changeset_of(stored)
    rest = _rest(objects, stored)
    spans = spans_of(changeset, _lay_state(batch, rest, space, bases).get)
    text, taken = (
        pack_changeset(changeset, stored.body) if is_exact_changeset else (stored.body.decode(), b"")
    )
    packed = (PackForm.COMMIT, pack_commit(commit, changeset)) if is_exact else (PackForm.WHOLE, last.body)
    batch.items += (_CHANGESET_AT, PackForm.CHANGESET, taken), (_COMMIT_AT, *packed)
    batch.keys += object_key(stored.digest), object_key(last.digest)
    _label(batch.keys, changeset)
    batch.committing = Committing(last.digest, commit, len(changeset.events), text, spans)
    return batch


def spans_of(changeset: Changeset | None, span: Callable[[Digest], tuple[int, int] | None]) -> str | None:
    """Where words of a changeset's events stand in the row's bodies: [event, start, size, vendor start, vendor size].

    The words of a message, the arguments of a call and a checkpoint, so that stock `sqlite3` can show them.
    """
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(() if changeset is None else changeset.events):
        if isinstance(event, MessageAppended) and (said := span(event.body)) is not None:
            vendor = span(event.vendor) if event.vendor is not None else None
            found.append((at, *said, *(vendor or _NOWHERE)))
        elif isinstance(event, ToolCallRequested) and (asked := span(event.args)) is not None:
            found.append((at, *asked, *_NOWHERE))
        elif isinstance(event, CheckpointCreated) and (told := span(event.checkpoint)) is not None:
            found.append((at, *told, *_NOWHERE))
    return _encoder.encode(found).decode() if found else None


def _lay_state(
    batch: Batch, objects: list[Object], space: int | None, bases: Bases
) -> dict[Digest, tuple[int, int]]:
    """Add objects to a row; where those that are text stand among its bodies."""
    items, keys = batch.items, batch.keys
    spans: dict[Digest, tuple[int, int]] = {}
    start = 0
    for found in objects:
        keys.append(object_key(found.digest))
        text = _plain_text(found.body) if found.kind is _BODY or found.kind is _CHECKPOINT else None
        if text is None:
            fields, depth = bases.against(_KIND_AT[found.kind], space, found)
            batch.bases.append((found, len(items), depth))
            items.append(fields)
        else:
            size = len(found.body)
            at = _BODY_AT if found.kind is _BODY else _KIND_AT[found.kind]
            items.append((at, PackForm.BODIES, b"", size))
            batch.bodies.append(text)
            spans[found.digest] = start, size
            start += size
    return spans


def _rows(objects: tuple[Object, ...]) -> list[list[Object]]:
    """The objects of each row.  A commit ends one; a large object, or much state at once, has rows of its own."""
    size = commits = 0
    for found in objects:
        size += len(found.body)
        commits += found.kind is _COMMIT
    is_much = size >= _OWN_ROW_FROM_BYTES
    if not is_much and (not commits or (commits == 1 and objects[-1].kind is _COMMIT)):
        return [list(objects)]
    return _several(objects, _WITH_COMMIT if commits else (), is_much=is_much)


def _several(objects: tuple[Object, ...], kept: tuple[Kind, ...], *, is_much: bool) -> list[list[Object]]:
    rows: list[list[Object]] = []
    row: list[Object] = []
    state: list[Object] = []
    size = 0
    for found in objects:
        if is_much and found.kind not in kept:
            if found.kind is _NODE and state and state[-1].kind is not _NODE:
                rows.append(state)  # nodes are read without their values, and are not compressed
                state, size = [], 0
            state.append(found)
            size += len(found.body)
            if size >= (_NODE_ROW_BYTES if found.kind is _NODE else _OWN_ROW_FROM_BYTES):
                rows.append(state)
                state, size = [], 0
            continue
        row.append(found)
        if found.kind is _COMMIT:
            rows += (state, row) if state else (row,)
            row, state, size = [], [], 0
    row += state
    if row and rows and rows[-1][-1].kind is _COMMIT:
        rows[-1][:0] = row  # a commit is the last of its row
    elif row or not rows:
        rows.append(row)
    return rows


def _rest(objects: list[Object], stored: Object) -> list[Object]:
    """The objects beside a commit, which is the last, and its changeset, which tends to stand before it."""
    if objects[-2] is stored:
        return objects[:-2]
    return [found for found in objects[:-1] if found is not stored]


def _label(keys: list[bytes], changeset: Changeset) -> None:
    """Add the keys of the messages that a changeset appends, each once."""
    said = dict.fromkeys([event.id for event in changeset.events if isinstance(event, MessageAppended)])
    for name in said:
        keys += label_keys(name)


def _changeset_among(objects: list[Object], found: Object, commit: Commit) -> Object:
    """The changeset of a commit; it tends to be the last but one."""
    for each in reversed(objects):
        if each.digest == commit.changeset:
            return each
    raise NotFound(f"commit {found.digest} comes without its changeset; nothing was written.")


def _commit_of(found: Object) -> tuple[Commit, bool]:
    """The commit, and whether our types give its bytes back to the letter; who hands it along vouches for that."""
    if isinstance(found.record, Commit):
        return found.record, True
    commit = decode_commit(found.body)
    return commit, encode_commit(commit) == found.body


def _changeset_of(found: Object) -> tuple[Changeset, bool]:
    """The same for a changeset."""
    if isinstance(found.record, Changeset):
        return found.record, True
    changeset = decode_changeset(found.body)
    return changeset, encode_changeset(changeset) == found.body


def _plain_text(body: bytes) -> str | None:
    """The text of a body that can stand in a text column, so that stock `sqlite3` reads it."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
