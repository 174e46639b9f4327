"""Lays writes out in rows of the log, before the lock is taken.

Compressing objects and laying out rows takes longer than inserting them.  Done before the lock is taken, this delays no
other writer, and the writers of a group do it while the leader waits for the disk.  Laying out reads nothing from the
database.  An error in a write is raised in its turn, after the errors that the contract puts first.

Nearly every write is *ordinary*: one commit on top of one timeline, in one row, with cells and ledger entries beside it.
`prepare_ordinary` lays out such a row in one pass, with its keys, its place on the line and the record of its move, as
far as the writer's caches know where the timeline is; whether it still is there is compared under the lock.  `prepare`
lays out any write.  Both make the same row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.engines.contract import Buried, Hold, Write
from perdure.engines.shared_rules import event_labels, sealed_head
from perdure.engines.sqlite.commit.caches import ConnectionCache, HeldTimeline
from perdure.engines.sqlite.format.index import (
    KEY_BYTES,
    label_keys,
    object_key,
    op_keys,
    run_key,
    version_key,
)
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Bases,
    PackForm,
    buried,
    pack_changeset,
    pack_commit,
    short,
)
from perdure.errors import NotFound
from perdure.model.commit import (
    Act,
    Changeset,
    Commit,
    MoveRecord,
    decode_changeset,
    decode_commit,
    encode_changeset,
    encode_commit,
    encode_move,
)
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import CheckpointCreated, MessageAppended, ToolCallRequested
from perdure.model.head import Head

__all__ = [
    "Batch",
    "Committing",
    "OrdinaryRow",
    "Prepared",
    "WITH_COMMIT",
    "lay",
    "prepare",
    "prepare_ordinary",
    "spans_of",
]

_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks much else
_NODE_ROW_BYTES = 7 * 1024  # of nodes, which are read one by one; such a row fits a page
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY, _COMMIT, _CHECKPOINT, _NODE = Kind.BODY, Kind.COMMIT, Kind.CHECKPOINT, Kind.NODE
# Words are in the commit's own row, where SQL finds them.
WITH_COMMIT = (_BODY, _CHECKPOINT, Kind.CHANGESET, _COMMIT)
_BODY_AT, _COMMIT_AT, _CHANGESET_AT = _KIND_AT[_BODY], _KIND_AT[_COMMIT], _KIND_AT[Kind.CHANGESET]
_NOWHERE: tuple[int, int] = (0, 0)
_KEY_DIGITS = 2 * KEY_BYTES
LOOK_FROM_BYTES = 4_096  # a smaller object is looked for among recent rows only
_encoder = msgspec.json.Encoder()
_raw = bytes.fromhex
# Read once: an attribute of a class costs as much as a call.
_WHOLE_FORM, _BODIES_FORM = PackForm.WHOLE, PackForm.BODIES
_CHANGESET_FORM, _COMMIT_FORM = PackForm.CHANGESET, PackForm.COMMIT
_COMMIT_ACT = Act.COMMIT
_COMMITS = list(Act).index(_COMMIT_ACT)  # as `StoredMove` has it


class Committing(msgspec.Struct, frozen=True, gc=False):
    """The commit of a row, with what belongs to it."""

    digest: Digest
    commit: Commit
    events: int
    text: str  # of the changeset, as the row has it
    spans: str | None  # where the words of its events are in the row's bodies


class Batch(msgspec.Struct, gc=False):
    """The objects of one row as they are stored, and the commit among them, if any."""

    objects: list[Object]
    items: list[tuple[object, ...]]
    keys: list[bytes]  # of the items, in their order, and then of what names the commit
    bodies: list[str]  # the content of the column of that name
    bases: list[
        tuple[Digest, bytes, int, int]
    ]  # what later objects may be stored against: its item, its depth
    committing: Committing | None = None


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A write, laid out in rows; good until the rows of its bases change."""

    batches: list[Batch]
    epoch: int  # of the bases


def prepare(objects: tuple[Object, ...], space: int | None, bases: Bases) -> Prepared:
    """Lay out the objects of a write; `space` is the number of their space, None if it is not known yet.

    Raises `NotFound` if a commit comes without its changeset, or what decoding raises.
    """
    epoch = bases.epoch  # first: a change after this makes the result out of date
    batches: list[Batch] = []
    for found in _rows(objects):
        batches.append(lay(found, space, bases))  # noqa: PERF401 (a comprehension is a call of its own)
    return Prepared(batches, epoch)


class OrdinaryRow(msgspec.Struct, frozen=True, gc=False):
    """The row of an ordinary write, with all that follows from the head, the parent and the bases that it was laid out on.

    It is good as long as the writer's caches have the same head, and the bases the same epoch.
    """

    space: int
    epoch: int  # of the bases
    held: HeldTimeline  # where the timeline was
    columns: tuple[Any, ...]  # of the row, from the space to the bodies
    items: list[tuple[object, ...]]
    whole: int  # bytes of those that are stored whole, nodes aside
    keys: list[bytes]  # all that name the row, those of its objects first
    objects: int  # how many those are
    op_key: bytes
    op: tuple[object, ...]  # the fields of an `Op` up to its moves
    bases: list[tuple[Digest, bytes, int, int]]
    hold: Hold  # the timeline after it
    moved: tuple[str, bytes, int]  # the record of the move, its digest, and what it adds to the seal


def prepare_ordinary(write: Write, space: int, bases: Bases, known: ConnectionCache) -> OrdinaryRow | None:
    """Return the row of an ordinary write; None if the write is not ordinary, or `known` lacks its head or its parent.

    A write is ordinary if it is one commit on top of the head of one timeline, made by our own types.  This is one
    pass with few calls between its parts, because each commit makes it.
    """
    epoch = bases.epoch  # first: a change after this makes the result out of date
    objects = write.objects
    if len(write.moves) != 1 or len(objects) < 2:
        return None
    move, stored, last = write.moves[0], objects[-2], objects[-1]
    commit, changeset, timeline, to = last.record, stored.record, move.timeline, last.digest
    holds = known.holds.get(space)
    held = None if holds is None else holds.get(timeline)
    before = None if held is None else held[0]
    if held is None or before is None or type(commit) is not Commit or type(changeset) is not Changeset:
        return None
    head, previous = before.head, before.move
    parent = None if head.commit is None else known.lines.get((space, head.commit))
    jump = None if parent is None else known.cached_jump(parent)
    if (
        parent is None
        or jump is None
        or before.sealed
        or move.seal
        or move.act is not _COMMIT_ACT
        or head != move.expected
        or commit.parents != (head.commit,)
        or commit.depth != parent.depth + 1
        or commit.changeset != stored.digest
        or move.to != to
        or (move.previous is not None and move.previous != previous)
    ):
        return None
    laid = _lay_ordinary(objects, space, bases)
    if laid is None:
        return None
    items, keys, bodies, stands, spans, whole = laid
    text, taken = pack_changeset(changeset, stored.body)
    items.append((_CHANGESET_AT, _CHANGESET_FORM, taken))
    items.append((_COMMIT_AT, _COMMIT_FORM, pack_commit(commit, changeset)))
    keys += _raw(stored.digest[:_KEY_DIGITS]), _raw(to[:_KEY_DIGITS])
    count = len(keys)
    where, run = _name_ordinary(keys, changeset, spans), None if commit.run is None else run_key(commit.run)
    is_same_run = run is not None and run == parent.run
    if not is_same_run and commit.run is not None:
        keys += label_keys(commit.run)
    op_key, other_key = op_keys(write.op_id)
    keys += op_key, other_key, version_key(timeline, head.version + 1)
    place = commit.depth, parent.turn + (not is_same_run), parent.sequence + parent.events
    line = space, parent.row, jump, *place, len(changeset.events), run
    content = _raw(to), _raw(commit.root), text, where, bodies
    columns = *line, b"".join(keys), commit.at, *content
    hold, op, moved = _move_ordinary(write, before)
    return OrdinaryRow(
        space, epoch, held, columns, items, whole, keys, count, op_key, op, stands, hold, moved
    )


def _lay_ordinary(
    objects: tuple[Object, ...], space: int, bases: Bases
) -> (
    tuple[
        list[tuple[object, ...]],
        list[bytes],
        str | None,
        list[tuple[Digest, bytes, int, int]],
        dict[Digest, tuple[int, int]],
        int,
    ]
    | None
):
    """Return what the row of an ordinary write holds of its objects, those of the commit aside; None if it is not ordinary.

    These are items, keys, bodies, what later objects may be stored against, the places of texts, and the bytes stored whole.
    """
    items: list[tuple[object, ...]] = []
    keys: list[bytes] = []
    bodies: str | None = None
    stands: list[tuple[Digest, bytes, int, int]] = []
    spans: dict[Digest, tuple[int, int]] = {}
    start, whole, size = 0, 0, len(objects[-2].body) + len(objects[-1].body)
    for found in objects[:-2]:
        kind, digest, body = found.kind, found.digest, found.body
        length = len(body)
        size += length
        keys.append(_raw(digest[:_KEY_DIGITS]))
        if kind is _BODY or kind is _CHECKPOINT:
            text = _plain_text(body)
            if text is None:
                return None
            items.append((_KIND_AT[kind], _BODIES_FORM, b"", length))
            bodies = text if bodies is None else bodies + text
            spans[digest] = start, length
            start += length
        elif length >= LOOK_FROM_BYTES or kind in WITH_COMMIT:
            return None
        else:
            fields, depth = bases.against(_KIND_AT[kind], space, found)
            stands.append((digest, body, len(items), depth))
            items.append(fields)
            if fields[1] == _WHOLE_FORM and kind is not _NODE:
                whole += length
    if size >= _OWN_ROW_FROM_BYTES:
        return None
    return items, keys, bodies or None, stands, spans, whole


def _name_ordinary(
    keys: list[bytes], changeset: Changeset, spans: dict[Digest, tuple[int, int]]
) -> str | None:
    """Add the keys of the labels that its events give a commit; return where their words are, as `spans_of` does."""
    events = changeset.events
    if len(events) == 1 and type(events[0]) is MessageAppended:  # as in most commits
        event = events[0]
        keys += label_keys(event.id)
        words = None if event.vendor is not None else spans.get(event.body)
        return spans_of(changeset, spans.get) if words is None else f"[[0,{words[0]},{words[1]},0,0]]"
    _label(keys, changeset)
    return spans_of(changeset, spans.get) if spans else None


def _move_ordinary(write: Write, before: Hold) -> tuple[Hold, tuple[object, ...], tuple[str, bytes, int]]:
    """Return the timeline after an ordinary write, the fields of its `Op` up to the move, and the record of the move."""
    head, previous, to, op_id = before.head, before.move, write.objects[-1].digest, write.op_id
    timeline, version = head.timeline, head.version + 1
    record = MoveRecord(
        timeline=timeline,
        version=version,
        act=_COMMIT_ACT,
        op_id=op_id,
        from_=head.commit,
        to=to,
        previous=previous,
    )
    body = encode_move(record)
    digest = digest_of(Kind.MOVE, body)
    raw_previous = None if previous is None else _raw(previous)
    # The fields of a `StoredMove`.
    stored = _COMMITS, timeline, version, short(op_id), True, True, raw_previous, False
    moved = body.decode(), _raw(digest), sealed_head(timeline, digest)
    return Hold(Head(timeline, version, to), False, digest), (b"", _raw(write.intent), (stored,)), moved


def lay(objects: list[Object], space: int | None, bases: Bases) -> Batch:
    """Return one row of these objects.  A commit among them is the last."""
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
    """Return where the words of a changeset's events are in the row's bodies: [event, start, size, vendor start, vendor size].

    These are the words of a message, the arguments of a call and a checkpoint, so that stock `sqlite3` can show them.
    """
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(() if changeset is None else changeset.events):
        if isinstance(event, MessageAppended) and (words := span(event.body)) is not None:
            vendor = span(event.vendor) if event.vendor is not None else None
            found.append((at, *words, *(vendor or _NOWHERE)))
        elif isinstance(event, ToolCallRequested) and (arguments := span(event.args)) is not None:
            found.append((at, *arguments, *_NOWHERE))
        elif isinstance(event, CheckpointCreated) and (checkpoint := span(event.checkpoint)) is not None:
            found.append((at, *checkpoint, *_NOWHERE))
    return _encoder.encode(found).decode() if found else None


def _lay_state(
    batch: Batch, objects: list[Object], space: int | None, bases: Bases
) -> dict[Digest, tuple[int, int]]:
    """Add objects to a row; return where those that are text are among its bodies."""
    items, keys = batch.items, batch.keys
    spans: dict[Digest, tuple[int, int]] = {}
    start = 0
    for found in objects:
        keys.append(object_key(found.digest))
        if isinstance(found, Buried):
            items.append(msgspec.structs.astuple(buried(_KIND_AT[found.kind], found.digest, found.why)))
            continue
        text = _plain_text(found.body) if found.kind is _BODY or found.kind is _CHECKPOINT else None
        if text is None:
            fields, depth = bases.against(_KIND_AT[found.kind], space, found)
            batch.bases.append((found.digest, found.body, len(items), depth))
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
    """Return the objects of each row.  A commit ends one; a large object, or much state at once, has rows of its own."""
    size = commits = 0
    for found in objects:
        size += len(found.body)
        commits += found.kind is _COMMIT
    is_much = size >= _OWN_ROW_FROM_BYTES
    if not is_much and (not commits or (commits == 1 and objects[-1].kind is _COMMIT)):
        return [list(objects)]
    return _several(objects, WITH_COMMIT if commits else (), is_much=is_much)


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
    """Return the objects without a commit, which is the last, and its changeset, which is mostly right before it."""
    if objects[-2] is stored:
        return objects[:-2]
    return [found for found in objects[:-1] if found is not stored]


def _label(keys: list[bytes], changeset: Changeset) -> None:
    """Add the keys of the labels that its events give a commit."""
    events = changeset.events
    if len(events) == 1 and type(events[0]) is MessageAppended:  # as in most commits
        keys += label_keys(events[0].id)
    elif events:
        for label in event_labels(events):
            keys += label_keys(label)


def _changeset_among(objects: list[Object], found: Object, commit: Commit) -> Object:
    """Return the changeset of a commit; it is mostly the last but one."""
    for each in reversed(objects):
        if each.digest == commit.changeset:
            return each
    raise NotFound(
        f"commit {found.digest} comes without its changeset; nothing was written.",
        code="changeset_missing",
        commit=found.digest,
    )


def _commit_of(found: Object) -> tuple[Commit, bool]:
    """Return the commit, and whether our types encode it to the same bytes; a writer that passes `record` guarantees that."""
    if isinstance(found.record, Commit):
        return found.record, True
    commit = decode_commit(found.body)
    return commit, encode_commit(commit) == found.body


def _changeset_of(found: Object) -> tuple[Changeset, bool]:
    """Return the same for a changeset."""
    if isinstance(found.record, Changeset):
        return found.record, True
    changeset = decode_changeset(found.body)
    return changeset, encode_changeset(changeset) == found.body


def _plain_text(body: bytes) -> str | None:
    """Return the text of a body that a text column can hold, so that stock `sqlite3` reads it; else None."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
