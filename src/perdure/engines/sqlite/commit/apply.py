"""Applies one write inside a transaction: every check first, then every change.

Nothing is changed before the last check has passed, so a refused write leaves nothing behind even if it shares its
transaction with others.

A write is prepared before its turn: compressing objects and laying out rows takes longer than inserting them.  Done
before the lock is taken, this delays no other writer, and the writers of a group do it while the leader waits for the
disk.  Preparing reads nothing from the database.  An error in a write is raised in its turn, after the errors that the
contract puts first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from perdure.engines.contract import Cell, CellWrite, Fence, Hold, Move, Place, Receipt, Recorded, Write
from perdure.engines.shared_rules import (
    SEAL_BYTES,
    SEAL_MASK,
    cell_digest,
    chained,
    check_fence,
    check_move,
    placed,
    record_of,
    sealed_head,
    sealed_ledger,
)
from perdure.engines.sqlite.commit.caches import ConnectionCache, FirstParentPlace, SealedCell, SpaceEnd
from perdure.engines.sqlite.commit.seals import Seals, note_listed, note_space, sealed_rows
from perdure.engines.sqlite.database import Database, RowCursor
from perdure.engines.sqlite.format.index import label_keys, object_key, op_keys, run_key, version_key
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Bases,
    Op,
    PackForm,
    StoredMove,
    encode_pack,
    long,
    pack_changeset,
    pack_commit,
    pack_move,
    short,
    timeline_of,
)
from perdure.engines.sqlite.format.rows import LogRow, Rows, moves_of
from perdure.errors import Corrupt, Forgotten, NotFound, OpReused, PerdureError
from perdure.model.commit import (
    Changeset,
    Commit,
    LedgerRead,
    decode_changeset,
    decode_commit,
    encode_changeset,
    encode_commit,
)
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import CheckpointCreated, MessageAppended, ToolCallRequested
from perdure.model.head import Head

__all__ = [
    "AppliedWrite",
    "Applier",
    "op_id_of",
    "recorded_in",
    "Adding",
    "Committing",
    "Prepared",
    "lay",
    "prepare",
    "spans_of",
]

# ---- preparing

_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks much else
_NODE_ROW_BYTES = 7 * 1024  # of nodes, which are read one by one; such a row fits a page
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY, _COMMIT, _CHECKPOINT, _NODE = Kind.BODY, Kind.COMMIT, Kind.CHECKPOINT, Kind.NODE
# Words are in the commit's own row, where SQL finds them.
_WITH_COMMIT = (_BODY, _CHECKPOINT, Kind.CHANGESET, _COMMIT)
_BODY_AT, _COMMIT_AT, _CHANGESET_AT = _KIND_AT[_BODY], _KIND_AT[_COMMIT], _KIND_AT[Kind.CHANGESET]
_NOWHERE: tuple[int, int] = (0, 0)
_encoder = msgspec.json.Encoder()


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
    bases: list[tuple[Object, int, int]]  # what later objects may be stored against: its item, and its depth
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
    """Return the objects of each row.  A commit ends one; a large object, or much state at once, has rows of its own."""
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
    """Return the objects without a commit, which is the last, and its changeset, which is mostly right before it."""
    if objects[-2] is stored:
        return objects[:-2]
    return [found for found in objects[:-1] if found is not stored]


def _label(keys: list[bytes], changeset: Changeset) -> None:
    """Add the keys of the messages that a changeset appends, each once."""
    messages = dict.fromkeys([event.id for event in changeset.events if isinstance(event, MessageAppended)])
    for name in messages:
        keys += label_keys(name)


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


# ---- applying

_LOOK_FROM_BYTES = 4_096  # a smaller object is looked for among recent rows only
_ROW = "INSERT INTO log(id, space, keys, bodies, pack) VALUES (?,?,?,?,?)"
_COMMIT_ROW = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


class CommitPlace(msgspec.Struct, frozen=True, gc=False):
    """The place that the commit of a row will have."""

    line: FirstParentPlace
    parent: int | None  # the row of its first parent
    is_same_run: bool  # as its first parent


class Adding:
    """Adds the rows of one write to one space."""

    def __init__(
        self, connection: Database, cursor: RowCursor, rows: Rows, bases: Bases, known: ConnectionCache
    ) -> None:
        """Add after the last row."""
        self._db = connection
        self._cursor = cursor
        self._rows = rows
        self._bases = bases
        self._known = known

    def row(
        self,
        number: int,
        space: int,
        batch: Batch,
        place: CommitPlace | None,
        timeline: str | None,
        op: Op | None,
        op_keys: list[bytes],
    ) -> None:
        """Insert one row; one with a commit has its `place`, and its `timeline` unless that is `main`.

        The row that completes a write has its `op`.
        """
        batch = self._without_known(space, batch)
        for found, index, depth in batch.bases:
            self._bases.note(space, found, number, index, depth)
        committing, keys = batch.committing, batch.keys
        if committing is not None and place is not None and not place.is_same_run:
            run = committing.commit.run
            keys = keys if run is None else [*keys, *label_keys(run)]
        keys = keys + op_keys
        values = b"".join(keys), "".join(batch.bodies) or None, encode_pack(batch.items, op)
        if committing is None or place is None:
            self._cursor.execute(_ROW, (number, space, *values))
        else:
            self._insert(space, committing, place, values, timeline)
        self._rows.index.add(space, number, keys)

    def _without_known(self, space: int, batch: Batch) -> Batch:
        """Return the row without objects that the space already has, which is rare."""
        recent = self._rows.index.keys_of(space)
        found = [each for each in batch.objects if len(each.body) >= _LOOK_FROM_BYTES]
        if not found and recent.keys().isdisjoint(batch.keys):
            return batch
        # The words of a commit are in its own row, also if an earlier row has them: SQL looks for them there.
        stays = () if batch.committing is None else _WITH_COMMIT
        left = [each for each in batch.objects if each.kind in stays or not self._is_there(space, each)]
        return batch if len(left) == len(batch.objects) else lay(left, space, self._bases)

    def _is_there(self, space: int, found: Object) -> bool:
        """True if the space already has these bytes; raise `Corrupt` if it has others under the same digest."""
        if len(found.body) < _LOOK_FROM_BYTES and not self._rows.index.recent(
            space, object_key(found.digest)
        ):
            return False
        there = self._rows.find(self._db, space, found.digest)
        if there is None:
            return False
        row, at = there
        try:
            body = self._rows.body(self._db, row, at)
        except (Corrupt, Forgotten):
            return False  # a damaged or forgotten object is written again
        if digest_of(KINDS[row.pack.items[at].kind], body) != found.digest:
            return False  # only the key was equal, or the bytes are damaged
        if body != found.body:
            raise Corrupt(
                f"two different objects have the digest {found.digest}; nothing was written.",
                code="digest_collision",
                digest=found.digest,
            )
        return True

    def _insert(
        self,
        space: int,
        committing: Committing,
        place: CommitPlace,
        values: tuple[bytes, str | None, bytes],
        timeline: str | None,
    ) -> None:
        commit, line = committing.commit, place.line
        keys, bodies, pack = values
        self._known.note_line(space, committing.digest, line)
        self._cursor.execute(
            _COMMIT_ROW,
            (
                line.row,
                space,
                place.parent,
                line.jump,
                line.depth,
                line.turn,
                line.sequence,
                line.events,
                line.run,
                keys,
                commit.at,
                line.digest,
                bytes.fromhex(commit.root),
                committing.text,
                committing.spans,
                bodies,
                pack,
                timeline,
            ),
        )


_NO_KEYS: list[bytes] = []


class AppliedWrite(msgspec.Struct, gc=False):
    """A write that is true in the open transaction."""

    receipt: Receipt
    space: int | None = None  # the number of its space; None: it was true before
    holds: list[Hold] = []  # its timelines after it


class Applier:
    """Applies writes on the connection that writes.  One user at a time."""

    def __init__(
        self, connection: Database, rows: Rows, bases: Bases, spaces: dict[str, int], seals: Seals
    ) -> None:
        """Share the caches of the process: rows, recent bases, numbers of spaces, spaces that are sound."""
        self._db = connection
        self._cursor = connection.cursor()  # one for all: a statement costs half as much as on one of its own
        self._rows = rows
        self._bases = bases
        self._spaces = spaces
        self._seals = seals
        self.known = ConnectionCache(connection, rows, seals)
        self._adding = Adding(connection, self._cursor, rows, bases, self.known)
        # Commits of the current write, by the rows that they will have.
        self._ahead: dict[int, FirstParentPlace] = {}
        self.has_changed = False  # whether the current write has changed anything yet

    def prepare(self, write: Write) -> Prepared | None:
        """Lay `write` out before its turn, on any thread; None if something is wrong with it, which `apply` then raises."""
        try:
            return prepare(write.objects, self._spaces.get(write.space), self._bases)
        except (PerdureError, ValueError):
            return None

    def apply(self, write: Write, prepared: Prepared | None) -> AppliedWrite:
        """Check `write` against what is stored and make it true in the open transaction."""
        self.has_changed = False
        self.known.look()
        space, named = self.space(write.space), op_keys(write.op_id)
        found = None if space is None else self._earlier(space, write, named)
        if found is not None:
            if found.intent != write.intent:
                raise OpReused(write.op_id)
            return AppliedWrite(found.receipt)
        if space is not None:
            self.known.end(space, write.space)
        cells = self._check_cells(space, write) if write.fences or write.cells else []
        holds = self._check_moves(space, write)
        if prepared is None or prepared.epoch != self._bases.epoch:
            prepared = prepare(write.objects, space, self._bases)
        places = self._check_commits(space, write, prepared.batches)
        self.has_changed = True
        if space is None:
            space = self._begin_space(write.space)
        return self._change(space, write, named, cells, holds, prepared.batches, places)

    def space(self, name: str) -> int | None:
        """Return the number of a space, or None if nothing was ever written to it."""
        found = self._spaces.get(name)
        if found is None:
            found = self._seals.space(self._db, name)
        return found

    # ---- checks

    def _earlier(self, space: int, write: Write, named: tuple[bytes, bytes]) -> Recorded | None:
        """Return the earlier write with the same op_id.  A new op_id cannot be among old rows."""
        index = self._rows.index
        if write.is_new:
            rows = index.recent(space, named[0])
        else:
            rows = [row for key in named for row in index.known(self._db, space, key)]
        return _recorded(self._rows.named(self._db, space, named), write.op_id) if rows else None

    def _check_cells(self, space: int | None, write: Write) -> list[SealedCell]:
        """Return what each cell that is written has added to the sums so far."""
        for fence in write.fences:
            check_fence(fence, self.known.cell(space, write.space, fence.cell).revision)
        found: list[SealedCell] = []
        for cell in write.cells:
            before = self.known.cell(space, write.space, cell.name)
            check_fence(Fence(cell.name, cell.expected), before.revision)
            found.append(before)
        return found

    def _check_moves(self, space: int | None, write: Write) -> list[tuple[Move, Hold | None]]:
        moves: list[tuple[Move, Hold | None]] = []
        for move in write.moves:
            hold = self.known.hold(space, move.timeline)
            check_move(move, hold)
            moves.append((move, hold))
        return moves

    def _check_commits(
        self, space: int | None, write: Write, batches: list[Batch]
    ) -> list[CommitPlace | None]:
        """Return the place that the commit of each row will have; everything that commits and moves name must exist."""
        commits: dict[Digest, FirstParentPlace] = {}
        places: list[CommitPlace | None] = []
        self._ahead.clear()
        row = self.known.next_row(0)
        for batch in batches:
            place = None
            if batch.committing is not None:
                place = self._place_of(space, batch.committing, row, commits)
                commits[batch.committing.digest] = self._ahead[row] = place.line
            places.append(place)
            row += 1
        for move in write.moves:
            if move.to is not None and move.to not in commits and self.known.line(space, move.to) is None:
                raise _no_commit(move.to)
        return places

    def _place_of(
        self, space: int | None, committing: Committing, row: int, commits: dict[Digest, FirstParentPlace]
    ) -> CommitPlace:
        """Return the place that a commit will have; raise `NotFound` if a parent that it names is not there."""
        commit = committing.commit
        lines: list[FirstParentPlace] = []
        for name in commit.parents:
            line = commits.get(name) or self.known.line(space, name)
            if line is None:
                raise _no_commit(name)
            lines.append(line)
        run = None if commit.run is None else run_key(commit.run)
        digest, events = bytes.fromhex(committing.digest), committing.events
        if not lines:
            place = placed(commit, None, 0)
            line = FirstParentPlace(row, digest, None, place.depth, place.turn, place.sequence, events, run)
            return CommitPlace(line, None, is_same_run=False)
        parent = lines[0]
        is_same_run = run is not None and run == parent.run
        before = Place(parent.depth, parent.turn, parent.sequence), commit.run if is_same_run else None
        place, jump = placed(commit, before, parent.events), self.known.jump_from(parent, self._ahead)
        line = FirstParentPlace(row, digest, jump, place.depth, place.turn, place.sequence, events, run)
        return CommitPlace(line, parent.row, is_same_run)

    # ---- changes

    def _begin_space(self, name: str) -> int:
        self._db.execute("INSERT INTO spaces(name) VALUES (?)", (name,))
        space = self._db.last_insert_rowid()  # noted in `_spaces` once it is durable
        note_space(self._db, space, name)
        self.known.note_end(space, SpaceEnd(0, 0, LedgerRead()))
        return space

    def _change(
        self,
        space: int,
        write: Write,
        named: tuple[bytes, bytes],
        cells: list[SealedCell],
        holds: list[tuple[Move, Hold | None]],
        batches: list[Batch],
        places: list[CommitPlace | None],
    ) -> AppliedWrite:
        left = self.known.end(space, write.space)
        seal, end = left.seal, left.ledger
        position, chain = 0, None
        if write.entries:
            seal -= sealed_ledger(end.position, end.chain)
            end = self._append_entries(space, write, end)
            position, chain = end.position, end.chain
            seal += sealed_ledger(position, chain)
        seal += self._put_cells(space, write, cells, position)
        committing = batches[-1].committing
        parent = None if committing is None else committing.commit.first_parent
        digest = None if committing is None else committing.digest
        keys = [*named]
        moved: list[tuple[Hold, Object]] = []
        packed: list[StoredMove] = []
        for move, before in holds:
            hold, stored, record = record_of(move, before, write.op_id)
            seal += sealed_head(move.timeline, hold.move)
            seal -= 0 if before is None else sealed_head(move.timeline, before.move)
            keys.append(version_key(record.timeline, record.version))
            moved.append((hold, stored))
            packed.append(pack_move(record, digest, parent))
        timeline = timeline_of(packed)
        row, last = self.known.next_row(len(batches)), len(batches) - 1
        seal += sealed_rows(sum(range(row, row + len(batches))))
        op = Op(
            b"" if moved else short(write.op_id),  # a move names the write itself
            bytes.fromhex(write.intent),
            tuple(packed),
            tuple([cell.expected + 1 for cell in write.cells]),
            position,
            None if chain is None else bytes.fromhex(chain),
            (seal & SEAL_MASK).to_bytes(SEAL_BYTES),
            left.writes + 1,
        )
        self.known.note_end(space, SpaceEnd(seal, left.writes + 1, end))
        for at, batch in enumerate(batches):
            completing = (op, keys) if at == last else (None, _NO_KEYS)
            self._adding.row(row + at, space, batch, places[at], timeline, *completing)
        after: list[Hold] = []
        heads: list[Head] = []
        for hold, stored in moved:
            self._put_head(space, hold, stored)
            after.append(hold)
            heads.append(hold.head)
        receipt = Receipt(
            op_id=write.op_id, heads=tuple(heads), revisions=op.revisions, position=position, chain=chain
        )
        return AppliedWrite(receipt, space, after)

    def _append_entries(self, space: int, write: Write, end: LedgerRead) -> LedgerRead:
        position, chain = end.position, end.chain
        for body in write.entries:
            position, chain = position + 1, chained(chain, body)
            bound = space, position, bytes.fromhex(chain), body.decode()
            self._cursor.execute("INSERT INTO entries VALUES (?,?,?,?)", bound)
        return LedgerRead(position, chain)

    def _put_cells(self, space: int, write: Write, cells: list[SealedCell], position: int) -> int:
        """Store the cells of a write; return how the seal of the space changes, given what they added to it before."""
        change = listed = 0
        for cell, old in zip(write.cells, cells, strict=True):
            new = self._put_cell(space, write.space, cell, position)
            change += new.part - old.part
            listed += new.listed - old.listed
        if listed:
            note_listed(self._db, listed)
        return change

    def _put_cell(self, space: int, name: str, wanted: CellWrite, position: int) -> SealedCell:
        """Store a cell of the space that is called `name`; return what it adds to the sums."""
        cell = Cell(name, wanted.name, wanted.expected + 1, wanted.value, position)
        digest = cell_digest(cell, listed=wanted.listed)
        text = None if wanted.value is None else wanted.value.decode()
        bound = space, wanted.name, cell.revision, text, wanted.listed, position, digest
        self._cursor.execute("INSERT OR REPLACE INTO cells VALUES (?,?,?,?,?,?,?)", bound)
        found = SealedCell.of(cell, digest, listed=wanted.listed)
        self.known.note_cell(space, wanted.name, found)
        return found

    def _put_head(self, space: int, after: Hold, stored: Object) -> None:
        timeline, commit = after.head.timeline, after.head.commit
        line = None if commit is None else self.known.line(space, commit)
        row = None if line is None else line.row
        bound = space, timeline, stored.body.decode(), bytes.fromhex(stored.digest), row
        self._cursor.execute("INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)", bound)
        self.known.note_hold(space, timeline, after, row)


def recorded_in(connection: Database, rows: Rows, space: int, op_id: str) -> Recorded | None:
    """Return the write of that op_id; raise `Forgotten` if its space was forgotten."""
    rows.index.catch_up(connection)
    return _recorded(rows.named(connection, space, op_keys(op_id)), op_id)


def op_id_of(row: LogRow) -> str | None:
    """Return the op_id of the write that a row completes."""
    op = row.pack.op
    return None if op is None else long(op.op_id or (op.moves[0].op_id if op.moves else b""))


def _recorded(rows: Iterable[LogRow], op_id: str) -> Recorded | None:
    for row in rows:
        if row.pack.op is None or op_id_of(row) != op_id:
            continue
        if row.pack.dropped is not None:
            raise Forgotten(f"the write '{op_id}'", row.pack.dropped)
        return Recorded(Digest(row.pack.op.intent.hex()), _receipt(row, row.pack.op))
    return None


def _receipt(row: LogRow, op: Op) -> Receipt:
    return Receipt(
        op_id=op_id_of(row) or "",
        heads=tuple(Head(move.timeline, move.version, move.to) for move in moves_of(row)),
        revisions=op.revisions,
        position=op.position,
        chain=None if op.chain is None else Digest(op.chain.hex()),
    )


def _no_commit(commit: Digest) -> NotFound:
    return NotFound(
        f"there is no commit {commit} in this space; nothing was written.",
        code="commit_not_found",
        commit=commit,
    )
