"""Lays writes out in rows of the log, before the lock is taken.

Compressing objects and laying out rows takes longer than inserting them.  Done before the lock is taken, this delays no
other writer, and the writers of a group do it while the leader waits for the disk.  Laying out reads nothing from the
database.  An error in a write is raised in its turn, after the errors that the contract puts first.

Nearly every write is *ordinary*: one commit on top of one timeline, or the two that end a run, with cells and ledger
entries beside them.  `prepare_ordinary` lays out their rows in one pass, with their keys, their places on the line and the
record of the move, as far as the writer's caches know where the timeline is; whether it still is there is compared under
the lock.  `prepare` lays out any write.  Both make the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from perdure.engines.contract import Buried, Hold, Write
from perdure.engines.shared_rules import event_labels, sealed_head
from perdure.engines.sqlite.commit.caches import ConnectionCache, FirstParentPlace, HeldTimeline
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
    Base,
    Bases,
    PackForm,
    RowNumber,
    buried,
    cut_digests,
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
    "OrdinaryWrite",
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
_MOVE = Kind.MOVE
# Words are in the commit's own row, where SQL finds them.
WITH_COMMIT = (_BODY, _CHECKPOINT, Kind.CHANGESET, _COMMIT)
_BODY_AT = _KIND_AT[_BODY]
_NOWHERE: tuple[int, int] = (0, 0)
_KEY_DIGITS = 2 * KEY_BYTES
LOOK_FROM_BYTES = 4_096  # a smaller object is looked for among recent rows only
_encoder = msgspec.json.Encoder()
_raw = bytes.fromhex
_body_of = attrgetter("body")
# Read once: an attribute of a class costs as much as a call.
_WHOLE_FORM, _BODIES_FORM = PackForm.WHOLE, PackForm.BODIES
# What a pack says of a changeset and its commit: their bytes are in columns.
_COMMIT_ITEMS = (_KIND_AT[Kind.CHANGESET], PackForm.CHANGESET), (_KIND_AT[_COMMIT], PackForm.COMMIT)
_COMMIT_ACT = Act.COMMIT
_COMMITS = list(Act).index(_COMMIT_ACT)  # as `StoredMove` has it


class Committing(msgspec.Struct, frozen=True, gc=False):
    """The commit of a row, with what belongs to it."""

    digest: Digest
    commit: Commit
    events: int
    fields: bytes  # of the commit, as the row has them
    text: str  # of the changeset, as the row has it
    digests: bytes | None  # that were cut out of the text
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
    """One commit of an ordinary write, as its row has it."""

    digest: Digest
    columns: tuple[Any, ...]  # from the space to the bodies; a parent or a jump of 0 is the row before
    items: list[tuple[object, ...]]
    whole: int  # bytes of those that are stored whole, nodes aside
    number: RowNumber  # as its bases have it; it is set when the row is written


class OrdinaryWrite(msgspec.Struct, frozen=True, gc=False):
    """An ordinary write, with all that follows from the head, the parent and the bases that it was laid out on.

    It is good as long as the writer's caches have the same head, and the bases the same epoch.
    """

    space: int
    epoch: int  # of the bases
    held: HeldTimeline  # where the timeline was
    first: OrdinaryRow | None  # of the first of two commits
    last: OrdinaryRow
    op: tuple[bytes, bytes, tuple[object, ...]]  # the fields of an `Op` up to its moves
    bases: dict[tuple[int, Digest], Base]  # its values and nodes
    hold: Hold  # the timeline after it
    moved: tuple[str, bytes, int]  # the record of the move, its digest, and what it adds to the seal


def prepare_ordinary(write: Write, space: int, bases: Bases, known: ConnectionCache) -> OrdinaryWrite | None:
    """Lay out an ordinary write; None if the write is not ordinary, or `known` lacks its head or its parent.

    A write is ordinary if it is one commit, or two as at the end of a run, on top of the head of one timeline, made by
    our own types.  There are few calls between its parts, because each commit makes them.  Raises `ValueError` if a
    body is not text.
    """
    epoch = bases.epoch  # first: a change after this makes the result out of date
    objects, moves = write.objects, write.moves
    if len(moves) != 1 or len(objects) < 2:
        return None
    move, timeline = moves[0], moves[0].timeline
    held = known.holds[space].get(timeline) if space in known.holds else None
    before = None if held is None else held[0]
    if held is None or before is None:
        return None
    head = before.head
    parent = known.lines.get((space, head.commit)) if head.commit else None
    if (
        parent is None
        or before.sealed
        or move.seal
        or move.act is not _COMMIT_ACT
        or move.at is not None
        or move.author is not None
        or head != move.expected
        or move.to != objects[-1].digest
        or (move.previous is not None and move.previous != before.move)
        or sum(map(len, map(_body_of, objects))) >= _OWN_ROW_FROM_BYTES
    ):
        return None
    added: dict[tuple[int, Digest], Base] = {}
    above, first = head.commit, None
    for at in range(1, len(objects) - 2):
        if objects[at].kind is _COMMIT:
            first = _lay_ordinary(objects[: at + 1], above, parent, space, bases, known, added, ())
            if first is None:
                return None
            above, parent = first.digest, FirstParentPlace(0, first.columns[10], *first.columns[2:8])
            objects = objects[at + 1 :]
            break
    named = *op_keys(write.op_id), version_key(timeline, head.version + 1)
    last = _lay_ordinary(objects, above, parent, space, bases, known, added, named)
    if last is None:
        return None
    hold, op, moved = _move_ordinary(write, before, is_one=first is None)
    return OrdinaryWrite(space, epoch, held, first, last, op, added, hold, moved)


def _lay_ordinary(
    objects: tuple[Object, ...],
    above: Digest | None,
    parent: FirstParentPlace,
    space: int,
    bases: Bases,
    known: ConnectionCache,
    added: dict[tuple[int, Digest], Base],
    named: tuple[bytes, ...],
) -> OrdinaryRow | None:
    """Return the row of these objects, of which the last is a commit on top of the commit `above`; None if they are not ordinary.

    Its values and nodes are added to `added`; `named` are the keys of the write, if the row completes it.
    """
    items: list[tuple[object, ...]] = []
    keys: list[bytes] = []
    number = RowNumber()
    spans: dict[Digest, tuple[int, int]] = {}
    bodies: str | None = None
    start = whole = 0
    for found in objects[:-2]:
        kind, digest, body = found.kind, found.digest, found.body
        key, length = _raw(digest[:_KEY_DIGITS]), len(body)
        keys.append(key)
        if kind is _BODY or kind is _CHECKPOINT:
            if b"\0" in body:
                return None
            items.append((_KIND_AT[kind], _BODIES_FORM, b"", length))
            bodies = body.decode() if bodies is None else bodies + body.decode()
            spans[digest] = start, length
            start += length
        elif length >= LOOK_FROM_BYTES or kind in WITH_COMMIT or (space, digest) in added:
            return None
        else:
            fields, depth = bases.against(_KIND_AT[kind], space, found)
            added[space, digest] = number, len(items), depth, body
            items.append(fields)
            if fields[1] == _WHOLE_FORM and kind is not _NODE:
                whole += length
    columns = _commit_columns(objects, above, parent, space, known, items, keys, spans, bodies, named)
    return None if columns is None else OrdinaryRow(objects[-1].digest, columns, items, whole, number)


def _commit_columns(
    objects: tuple[Object, ...],
    above: Digest | None,
    parent: FirstParentPlace,
    space: int,
    known: ConnectionCache,
    items: list[tuple[object, ...]],
    keys: list[bytes],
    spans: dict[Digest, tuple[int, int]],
    bodies: str | None,
    named: tuple[bytes, ...],
) -> tuple[Any, ...] | None:
    """Return the columns of a row, and add its changeset and its commit to its items and keys; None if it is not ordinary."""
    stored, found = objects[-2], objects[-1]
    commit, changeset, jump = found.record, stored.record, known.cached_jump(parent)
    if (
        type(commit) is not Commit
        or type(changeset) is not Changeset
        or jump is None
        or commit.parents != (above,)
        or commit.depth != parent.depth + 1
        or commit.changeset != stored.digest
    ):
        return None
    text, digests = cut_digests(stored.body.decode())
    items += _COMMIT_ITEMS
    keys += _raw(stored.digest[:_KEY_DIGITS]), _raw(found.digest[:_KEY_DIGITS])
    _label(keys, changeset)
    run = None if commit.run is None else run_key(commit.run)
    is_same_run = run is not None and run == parent.run
    if not is_same_run and commit.run is not None:
        keys += label_keys(commit.run)
    keys += named
    turn, sequence = parent.turn + (not is_same_run), parent.sequence + parent.events
    place = space, parent.row, jump, commit.depth, turn, sequence, len(changeset.events), run
    words = spans_of(changeset, spans.get) if spans else None
    raw, root = _raw(found.digest), _raw(commit.root)
    fields = pack_commit(commit, changeset)
    return (*place, b"".join(keys), commit.at, raw, root, fields, text, digests, words, bodies or None)


def _move_ordinary(
    write: Write, before: Hold, *, is_one: bool
) -> tuple[Hold, tuple[bytes, bytes, tuple[object, ...]], tuple[str, bytes, int]]:
    """Return the timeline after an ordinary write, the fields of its `Op` up to the move, and the record of the move.

    `is_one`: the write has one commit, whose parent is where the timeline was.
    """
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
    digest = digest_of(_MOVE, body)
    from_ = True if is_one or head.commit is None else _raw(head.commit)
    raw_previous = None if previous is None else _raw(previous)
    # The fields of a `StoredMove`.
    stored = _COMMITS, timeline, version, short(op_id), from_, True, raw_previous, False
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
    changeset = stored.record if isinstance(stored.record, Changeset) else decode_changeset(stored.body)
    rest = _rest(objects, stored)
    spans = spans_of(changeset, _lay_state(batch, rest, space, bases).get)
    text, digests = cut_digests(stored.body.decode())
    fields = pack_commit(commit, changeset) if is_exact else last.body
    batch.items += _COMMIT_ITEMS
    batch.keys += object_key(stored.digest), object_key(last.digest)
    _label(batch.keys, changeset)
    batch.committing = Committing(last.digest, commit, len(changeset.events), fields, text, digests, spans)
    return batch


def spans_of(changeset: Changeset | None, span: Callable[[Digest], tuple[int, int] | None]) -> str | None:
    """Return where the words of a changeset's events are in the row's bodies: [event, start, size, vendor start, vendor size].

    These are the words of a message, the arguments of a call and a checkpoint, so that stock `sqlite3` can show them.
    """
    events = () if changeset is None else changeset.events
    if (
        len(events) == 1 and type(event := events[0]) is MessageAppended and event.vendor is None
    ):  # as in most
        words = span(event.body)
        return None if words is None else f"[[0,{words[0]},{words[1]},0,0]]"
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(events):
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


def _plain_text(body: bytes) -> str | None:
    """Return the text of a body that a text column can hold, so that stock `sqlite3` reads it; else None."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
