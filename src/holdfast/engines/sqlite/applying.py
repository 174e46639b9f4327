"""Applying one write inside a transaction: every check first, then every change.

Nothing is changed before the last check has passed, so a refused write leaves nothing
behind even when it shares its transaction with others.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from holdfast.engines.contract import Fence, Hold, Move, Receipt, Recorded, Write
from holdfast.engines.rules import chained, check_fence, check_move, record_of
from holdfast.engines.sqlite.adding import Adding, Batch, Committing, place_of
from holdfast.engines.sqlite.bases import Bases
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import op_key, version_key
from holdfast.engines.sqlite.known import Known, Line
from holdfast.engines.sqlite.pack import Op
from holdfast.engines.sqlite.records import long, pack_move, short
from holdfast.engines.sqlite.rows import Row, Rows, moves_of
from holdfast.errors import Forgotten, NotFound, OpReused
from holdfast.model.changeset import Changeset, decode_changeset, encode_changeset
from holdfast.model.commit import Commit, MoveRecord, decode_commit, encode_commit
from holdfast.model.digest import Digest, Kind, Object
from holdfast.model.head import Head

__all__ = ["Applied", "Applier", "op_id_of", "recorded_in"]

_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks a large one

_Moved: TypeAlias = tuple[
    Move, Hold, Object
]  # where the timeline stands after the move, and the move's record


class Applied(msgspec.Struct):
    """A write that is true in the open transaction."""

    receipt: Receipt
    space: int | None = None  # the number of its space; None: it was true before


class Applier:
    """Makes writes true on the connection that writes.  One user at a time."""

    def __init__(self, connection: Database, rows: Rows, bases: Bases, spaces: dict[str, int]) -> None:
        """Share what the process knows: rows, recent bases, numbers of spaces."""
        self._db = connection
        self._rows = rows
        self._spaces = spaces
        self.known = Known(connection, rows.index)
        self._adding = Adding(connection, rows, bases, self.known)
        self.has_changed = False  # whether the write at hand has changed anything yet

    def apply(self, write: Write) -> Applied:
        """Check `write` against what is stored and make it true in the open transaction."""
        self.has_changed = False
        self.known.look()
        space = self.space(write.space)
        if space is not None:
            rows = self.known.rows(space, op_key(write.op_id))
            found = _recorded(self._db, self._rows, rows, space, write.op_id)
            if found is not None:
                return _again(write, found)
        revisions = self._check_cells(space, write)
        holds = self._check_moves(space, write)
        batches = self._check_commits(space, write)
        self.has_changed = True
        if space is None:
            space = self._begin_space(write.space)
        return self._change(space, write, revisions, holds, batches)

    def space(self, name: str) -> int | None:
        """The number of a space, or None if nothing was ever written to it."""
        found = self._spaces.get(name)
        if found is None:
            values = self._db.execute("SELECT id FROM spaces WHERE name=?", (name,)).fetchone()
            found = None if values is None else int(values[0])
        return found

    # ---- checks

    def _check_cells(self, space: int | None, write: Write) -> list[int]:
        for fence in write.fences:
            check_fence(fence, self.known.revision(space, fence.cell))
        revisions: list[int] = []
        for cell in write.cells:
            revision = self.known.revision(space, cell.name)
            check_fence(Fence(cell.name, cell.expected), revision)
            revisions.append(revision + 1)
        return revisions

    def _check_moves(self, space: int | None, write: Write) -> list[tuple[Move, Hold | None]]:
        moves: list[tuple[Move, Hold | None]] = []
        for move in write.moves:
            hold = self.known.hold(space, move.timeline)
            check_move(move, hold)
            moves.append((move, hold))
        return moves

    def _check_commits(self, space: int | None, write: Write) -> list[Batch]:
        """The write's objects by the row that will hold them; everything that commits and moves name must exist."""
        batches: list[Batch] = []
        batch = Batch()
        commits: dict[Digest, Committing] = {}
        for found in write.objects:
            if len(found.body) >= _OWN_ROW_FROM_BYTES and found.kind not in (Kind.COMMIT, Kind.CHANGESET):
                batches.append(Batch([found]))
                continue
            batch.objects.append(found)
            if found.kind is Kind.COMMIT:
                commits[found.digest] = batch.committing = self._committing(space, batch, found, commits)
                batches.append(batch)
                batch = Batch()
        if batch.objects and batches and batches[-1].committing is not None:
            batches[-1].objects[:0] = batch.objects
        elif batch.objects or not batches:
            batches.append(batch)
        for move in write.moves:
            if move.to is not None and move.to not in commits and self.known.line(space, move.to) is None:
                raise _no_commit(move.to)
        return batches

    def _committing(
        self, space: int | None, batch: Batch, found: Object, commits: dict[Digest, Committing]
    ) -> Committing:
        """A commit with its changeset and its place; raises `NotFound` if something that it names is not there."""
        commit, is_exact = _commit_of(found)
        for parent in commit.parents:
            if parent not in commits and self.known.line(space, parent) is None:
                raise _no_commit(parent)
        stored = next((each for each in batch.objects if each.digest == commit.changeset), None)
        if stored is None:
            raise NotFound(f"commit {found.digest} comes without its changeset; nothing was written.")
        changeset, is_exact_changeset = _changeset_of(stored)
        place, is_same_run = place_of(commit, self._parent(space, commit, commits))
        return Committing(found, commit, is_exact, stored, changeset, is_exact_changeset, place, is_same_run)

    def _parent(self, space: int | None, commit: Commit, commits: dict[Digest, Committing]) -> Line | None:
        """Where the first parent stands, which may be a commit of the same write that has no row yet."""
        if not commit.parents:
            return None
        first = commits.get(commit.parents[0])
        return self.known.line(space, commit.parents[0]) if first is None else first.line(0)

    # ---- changes

    def _begin_space(self, name: str) -> int:
        self._db.execute("INSERT INTO spaces(name) VALUES (?)", (name,))
        return self._db.last_insert_rowid()  # noted in `_spaces` once it is durable

    def _change(
        self,
        space: int,
        write: Write,
        revisions: list[int],
        holds: list[tuple[Move, Hold | None]],
        batches: list[Batch],
    ) -> Applied:
        position, chain = self._append_entries(space, write) if write.entries else (0, None)
        moved: list[_Moved] = [(move, *record_of(move, hold, write.op_id)) for move, hold in holds]
        receipt = Receipt(
            op_id=write.op_id,
            heads=tuple([after.head for _, after, _ in moved]),
            revisions=tuple(revisions),
            position=position,
            chain=chain,
        )
        self._add_rows(space, write, receipt, moved, batches)
        for move, after, stored in moved:
            self._put_head(space, move, after, stored)
        for cell, revision in zip(write.cells, revisions, strict=True):
            value = None if cell.value is None else cell.value.decode()
            bound = space, cell.name, revision, value, cell.listed
            self._db.execute("INSERT OR REPLACE INTO cells VALUES (?,?,?,?,?)", bound)
            self.known.note_revision(space, cell.name, revision)
        return Applied(receipt, space)

    def _add_rows(
        self, space: int, write: Write, receipt: Receipt, moved: list[_Moved], batches: list[Batch]
    ) -> None:
        for batch in batches[:-1]:
            self._adding.row(space, batch, None, [])
        records = [cast("MoveRecord", stored.record) for _, _, stored in moved]
        keys = [op_key(write.op_id)] + [version_key(move.timeline, move.version) for move in records]
        self._adding.row(space, batches[-1], _op_of(write, receipt, records, batches[-1].committing), keys)

    def _append_entries(self, space: int, write: Write) -> tuple[int, Digest | None]:
        sql = "SELECT position, chain FROM entries WHERE space=? ORDER BY position DESC LIMIT 1"
        values = self._db.execute(sql, (space,)).fetchone()
        position, chain = (0, None) if values is None else (int(values[0]), Digest(bytes(values[1]).hex()))
        for body in write.entries:
            position, chain = position + 1, chained(chain, body)
            bound = space, position, bytes.fromhex(chain), body.decode()
            self._db.execute("INSERT INTO entries VALUES (?,?,?,?)", bound)
        return position, chain

    def _put_head(self, space: int, move: Move, after: Hold, stored: Object) -> None:
        line = None if move.to is None else self.known.line(space, move.to)
        row = None if line is None else line.row
        bound = space, move.timeline, stored.body.decode(), bytes.fromhex(stored.digest), row
        self._db.execute("INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)", bound)
        self.known.note_hold(space, move.timeline, after, row)


def recorded_in(connection: Database, rows: Rows, space: int, op_id: str) -> Recorded | None:
    """The write of that op_id; raises `Forgotten` if its space was."""
    return _recorded(connection, rows, rows.index.rows(connection, space, op_key(op_id)), space, op_id)


def op_id_of(row: Row) -> str | None:
    """The op_id of the write that a row completes."""
    if row.pack.op is None:
        return None
    return long(row.pack.op.op_id) or next((move.op_id for move in moves_of(row)), "")


def _recorded(
    connection: Database, rows: Rows, numbers: list[int], space: int, op_id: str
) -> Recorded | None:
    for number in numbers:
        row = rows.row(connection, number)
        if row is None or row.space != space or row.pack.op is None or op_id_of(row) != op_id:
            continue
        if row.pack.dropped is not None:
            raise Forgotten(f"the write '{op_id}'", row.pack.dropped)
        return Recorded(Digest(row.pack.op.intent.hex()), _receipt(row, row.pack.op))
    return None


def _receipt(row: Row, op: Op) -> Receipt:
    return Receipt(
        op_id=op_id_of(row) or "",
        heads=tuple(Head(move.timeline, move.version, move.to) for move in moves_of(row)),
        revisions=op.revisions,
        position=op.position,
        chain=None if op.chain is None else Digest(op.chain.hex()),
    )


def _again(write: Write, found: Recorded) -> Applied:
    if found.intent != write.intent:
        raise OpReused(write.op_id)
    return Applied(found.receipt)


def _op_of(write: Write, receipt: Receipt, moves: list[MoveRecord], committing: Committing | None) -> Op:
    parents = () if committing is None else committing.commit.parents
    digest = None if committing is None else bytes.fromhex(committing.stored.digest)
    above = bytes.fromhex(parents[0]) if parents else None
    return Op(
        b"" if moves else short(write.op_id),  # a move names the write itself
        bytes.fromhex(write.intent),
        tuple([pack_move(move, digest, above) for move in moves]),
        receipt.revisions,
        receipt.position,
        None if receipt.chain is None else bytes.fromhex(receipt.chain),
    )


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


def _no_commit(commit: Digest) -> NotFound:
    return NotFound(f"there is no commit {commit} in this space; nothing was written.")
