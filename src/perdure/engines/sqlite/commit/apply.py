"""Applies one write inside a transaction: every check first, then every change.

Nothing is changed before the last check has passed, so a refused write leaves nothing behind even if it shares its
transaction with others.

An ordinary write, which was laid out beforehand (see `layout`), is compared and inserted by one straight method.  It
gives up, having changed nothing, where anything is out of the ordinary, an error included: then the general methods
take over, which can apply any write and raise what the contract says.  A test gives both the same writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.engines.contract import (
    Buried,
    Cell,
    Fence,
    Hold,
    Move,
    Place,
    Receipt,
    Recorded,
    Replay,
    Write,
)
from perdure.engines.shared_rules import (
    SEAL_BYTES,
    SEAL_MASK,
    cell_digest,
    chained,
    check_fence,
    check_move,
    placed,
    record_of,
    sealed_cell,
    sealed_head,
    sealed_ledger,
)
from perdure.engines.sqlite.commit.caches import (
    UNWRITTEN,
    ConnectionCache,
    FirstParentPlace,
    SealedCell,
    SpaceEnd,
)
from perdure.engines.sqlite.commit.layout import (
    LOOK_FROM_BYTES,
    WITH_COMMIT,
    Batch,
    Committing,
    OrdinaryRow,
    OrdinaryWrite,
    Prepared,
    lay,
    prepare,
    prepare_ordinary,
)
from perdure.engines.sqlite.commit.seals import Seals, linked, note_listed, note_space, sealed_rows
from perdure.engines.sqlite.database import Database, RowCursor
from perdure.engines.sqlite.format.index import label_keys, object_key, op_keys, run_key, version_key
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Bases,
    Op,
    StoredMove,
    encode_pack,
    long,
    pack_move,
    short,
    timeline_of,
)
from perdure.engines.sqlite.format.rows import LogRow, Rows
from perdure.engines.sqlite.reads import moves_of
from perdure.errors import Corrupt, Forgotten, NotFound, OpReused, PerdureError
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, Object, digest_of
from perdure.model.head import MAIN, Head

__all__ = [
    "AppliedWrite",
    "Applier",
    "CellsDiffer",
    "op_id_of",
    "recorded_in",
    "Adding",
]

_ROW = "INSERT INTO log(id, space, keys, bodies, pack) VALUES (?,?,?,?,?)"
_COMMIT_ROW = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


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
        self._bases.note(space, number, batch.bases)
        committing, keys = batch.committing, batch.keys
        if committing is not None and place is not None and not place.is_same_run:
            run = committing.commit.run
            keys = keys if run is None else [*keys, *label_keys(run)]
        keys = keys + op_keys
        joined = b"".join(keys)
        values = joined, "".join(batch.bodies) or None, encode_pack(batch.items, op)
        if committing is None or place is None:
            self._cursor.execute(_ROW, (number, space, *values))
        else:
            self._insert(space, committing, place, values, timeline)
        self._rows.index.add(space, number, joined)

    def _without_known(self, space: int, batch: Batch) -> Batch:
        """Return the row without objects that the space already has, which is rare."""
        recent = self._rows.index.keys_of(space)
        found = [each for each in batch.objects if len(each.body) >= LOOK_FROM_BYTES]
        if not found and recent.keys().isdisjoint(batch.keys):
            return batch
        # The words of a commit are in its own row, also if an earlier row has them: SQL looks for them there.
        stays = () if batch.committing is None else WITH_COMMIT
        left = [each for each in batch.objects if each.kind in stays or not self._is_there(space, each)]
        return batch if len(left) == len(batch.objects) else lay(left, space, self._bases)

    def _is_there(self, space: int, found: Object) -> bool:
        """True if the space already has these bytes; raise `Corrupt` if it has others under the same digest."""
        if isinstance(found, Buried):
            return False
        if len(found.body) < LOOK_FROM_BYTES and not self._rows.index.recent(space, object_key(found.digest)):
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
                committing.fields,
                committing.text,
                committing.digests,
                committing.spans,
                bodies,
                pack,
                timeline,
            ),
        )


_NO_CELLS: dict[str, SealedCell] = {}
_NO_KEYS: list[bytes] = []
_HEAD = "INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)"
_CELLS, _CELL = "INSERT INTO cells VALUES ", "(?,?,?,?,?,?,?),"
# A cell that has another revision than its writer expects stays as it is, and is not counted as changed.
_CHANGED = """ ON CONFLICT DO UPDATE SET revision=excluded.revision, value=excluded.value, listed=excluded.listed,
position=excluded.position, digest=excluded.digest WHERE revision=excluded.revision-1"""
_CELLS_AT_ONCE = 16  # by one statement
_ROW_AND_HEAD = f"{_COMMIT_ROW};{_HEAD}"  # by one call, which lets go of the interpreter's lock once


class CellsDiffer(Exception):
    """A cell is there that was taken to be new; the transaction has to be rolled back, and the cell to be read."""


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
        self._execute = self._cursor.execute
        self._rows = rows
        self._bases = bases
        self._spaces = spaces
        self._seals = seals
        self.known = ConnectionCache(connection, rows, seals)
        self._adding = Adding(connection, self._cursor, rows, bases, self.known)
        # Commits of the current write, by the rows that they will have.
        self._ahead: dict[int, FirstParentPlace] = {}
        self.has_changed = False  # whether the current write has changed anything yet

    def prepare(self, write: Write) -> Prepared | OrdinaryWrite | None:
        """Lay `write` out before its turn, on any thread; None if something is wrong with it, which `apply` then raises."""
        space = self._spaces.get(write.space)
        try:
            row = None
            if space is not None and type(write) is Write:
                row = prepare_ordinary(write, space, self._bases, self.known)
            return prepare(write.objects, space, self._bases) if row is None else row
        except (PerdureError, ValueError):
            return None

    def apply(self, write: Write, prepared: Prepared | OrdinaryWrite | None) -> AppliedWrite:
        """Check `write` against what is stored and make it true in the open transaction."""
        self.has_changed = False
        if isinstance(prepared, OrdinaryWrite):
            applied = self.apply_ordinary(write, prepared)
            if applied is not None:
                return applied
            prepared = None
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

    # ---- ordinary writes

    def apply_ordinary(self, write: Write, laid: OrdinaryWrite) -> AppliedWrite | None:
        """Apply a write that was laid out; None, having changed nothing, if the general path has to decide.

        Everything that it was laid out on must still be so: then only what depends on the writes before it in
        this file is added here, which are the numbers of its rows and its seal.
        """
        known, bases, space, held = self.known, self._bases, laid.space, laid.held
        self.has_changed = False
        if known.next_number is None:
            known.look()
        hold, timeline, row, first = laid.hold, laid.hold.head.timeline, laid.last, laid.first
        holds, end, number = known.holds.get(space), known.ends.get(space), known.next_number
        if (
            end is None
            or number is None
            or holds is None
            or holds.get(timeline) is not held
            or laid.epoch != bases.epoch
            or bases.has_any(laid.bases)
            or (not write.is_new and self._rows_named(space, write.op_id))
        ):
            return None
        cells = self._cells_of(space, write) if write.fences or write.cells else []
        if cells is None:
            return None
        self.has_changed = True
        ledger, other = end.ledger, None if timeline == MAIN else timeline
        moved, moved_digest, part = laid.moved
        seal = end.seal + part - held[2] + sealed_rows(number)
        columns: tuple[Any, ...] = row.columns
        if first is not None:
            self._add_first(first, number, other)
            number += 1
            seal += sealed_rows(number)
            columns = (space, number - 1, columns[2] or number - 1, *columns[3:])
        known.next_number = number + 1
        position, chain, revisions = 0, None, ()
        if write.entries:
            seal -= sealed_ledger(ledger.position, ledger.chain)
            ledger = self._append_entries(space, write, ledger)
            position, chain = ledger.position, ledger.chain
            seal += sealed_ledger(position, chain)
        if cells:
            seal += self._put_cells(space, write, cells, position)
            revisions = tuple([cell.expected + 1 for cell in write.cells])
        raw_chain, writes = None if chain is None else bytes.fromhex(chain), end.writes + 1
        link = linked(end.link, laid.op[0], laid.op[1], revisions, position, raw_chain, writes)
        op = (*laid.op, revisions, position, raw_chain, (seal & SEAL_MASK).to_bytes(SEAL_BYTES), writes, link)
        pack = encode_pack(row.items, op, whole=row.whole)
        head = space, timeline, moved, moved_digest, number
        self._execute(_ROW_AND_HEAD, (number, *columns, pack, other, *head))
        self._note_row(row, number, columns)
        bases.take(laid.bases)
        holds[timeline] = hold, number, part
        known.ends[space] = SpaceEnd(seal, writes, ledger, link)
        receipt = Receipt(
            op_id=write.op_id, heads=(hold.head,), revisions=revisions, position=position, chain=chain
        )
        return AppliedWrite(receipt, space, [hold])

    def _add_first(self, row: OrdinaryRow, number: int, timeline: str | None) -> None:
        """Insert the first of two rows."""
        pack = encode_pack(row.items, None, whole=row.whole)
        self._execute(_COMMIT_ROW, (number, *row.columns, pack, timeline))
        self._note_row(row, number, row.columns)

    def _note_row(self, row: OrdinaryRow, number: int, columns: tuple[Any, ...]) -> None:
        """Note a row that was inserted, and where its commit is."""
        row.number.row = number  # before others can read its bases
        self._rows.index.add(columns[0], number, columns[8])
        line = FirstParentPlace(number, columns[10], *columns[2:8])
        self.known.note_line(columns[0], row.digest, line)

    def _cells_of(self, space: int, write: Write) -> list[SealedCell] | None:
        """Return the cells that an ordinary write changes, as they are; None if one has another revision, or a fence.

        A new one is not read: to insert it tells whether it is there.
        """
        held = self.known.cells.get(space) or _NO_CELLS
        for fence in write.fences:
            cell = held.get(fence.cell) or self.known.cell(space, write.space, fence.cell)
            if cell.revision != fence.revision:
                return None
        cells: list[SealedCell] = []
        for wanted in write.cells:
            cell = held.get(wanted.name)
            if cell is None:
                is_new = not wanted.expected
                cell = UNWRITTEN if is_new else self.known.cell(space, write.space, wanted.name)
            if cell.revision != wanted.expected:
                return None
            cells.append(cell)
        return cells

    def _rows_named(self, space: int, op_id: str) -> bool:
        """True if a row may hold an earlier write with this op_id."""
        known = self._rows.index.known
        return any(known(self._db, space, key) for key in op_keys(op_id))

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
        op_id = b"" if moved else short(write.op_id)  # a move names the write itself
        intent, raw_chain = bytes.fromhex(write.intent), None if chain is None else bytes.fromhex(chain)
        receipt_fields = _revisions(write), position, raw_chain
        link = linked(left.link, op_id, intent, *receipt_fields, left.writes + 1)
        sealed = (seal & SEAL_MASK).to_bytes(SEAL_BYTES)
        op = Op(op_id, intent, tuple(packed), *receipt_fields, sealed, left.writes + 1, link)
        self.known.note_end(space, SpaceEnd(seal, left.writes + 1, end, link))
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
        """Store the cells of a write; return how the seal of the space changes, given what they added to it before.

        Raises `CellsDiffer` if one has another revision.
        """
        change = listed = 0
        bound: list[object] = []
        for wanted, old in zip(write.cells, cells, strict=True):
            name, revision, value, is_listed = wanted.name, wanted.expected + 1, wanted.value, wanted.listed
            digest = cell_digest(Cell(write.space, name, revision, value, position), listed=is_listed)
            part = sealed_cell(name, digest)
            new = SealedCell(revision, part, part if is_listed and value is not None else 0)
            self.known.note_cell(space, name, new)
            change += part - old.part
            listed += new.listed - old.listed
            bound += (
                space,
                name,
                revision,
                None if value is None else value.decode(),
                is_listed,
                position,
                digest,
            )
        count = len(cells)
        for at in range(0, count, _CELLS_AT_ONCE):
            many = min(count - at, _CELLS_AT_ONCE)
            self._execute(_CELLS + (_CELL * many)[:-1] + _CHANGED, bound[7 * at : 7 * (at + many)])
            if self._db.changes() != many:
                raise CellsDiffer
        if listed:
            note_listed(self._cursor, listed)
        return change

    def _put_head(self, space: int, after: Hold, stored: Object) -> None:
        timeline, commit = after.head.timeline, after.head.commit
        line = None if commit is None else self.known.line(space, commit)
        row = None if line is None else line.row
        bound = space, timeline, stored.body.decode(), bytes.fromhex(stored.digest), row
        self._cursor.execute(_HEAD, bound)
        self.known.note_hold(space, timeline, after, row, sealed_head(timeline, after.move))


def _revisions(write: Write) -> tuple[int, ...]:
    return (
        write.revisions if isinstance(write, Replay) else tuple([cell.expected + 1 for cell in write.cells])
    )


def recorded_of(row: LogRow, op: Op) -> Recorded:
    """Return the write that a row completes."""
    return Recorded(Digest(op.intent.hex()), _receipt(row, op))


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
        return recorded_of(row, row.pack.op)
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
