"""Applying one write inside a transaction: every check first, then every change.

Nothing is changed before the last check has passed, so a refused write leaves nothing
behind even when it shares its transaction with others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

import msgspec

from holdfast.engines.contract import Fence, Hold, Move, Place, Receipt, Recorded, Write
from holdfast.engines.rules import chained, check_fence, check_move, placed, record_of
from holdfast.engines.sqlite.adding import Adding, Batch, Committing
from holdfast.engines.sqlite.bases import Bases
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import op_key, run_key, version_key
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

_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks much else

_COMMIT = Kind.COMMIT
_WITH_COMMIT = (
    Kind.BODY,
    Kind.CHANGESET,
    _COMMIT,
)  # words stand in the commit's own row, where SQL finds them

_Moved: TypeAlias = tuple[
    Move, Hold, Object
]  # where the timeline stands after the move, and the move's record


class Applied(msgspec.Struct, gc=False):
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
        self._ahead: dict[int, Line] = {}  # commits of the write at hand, by the rows that they will have
        self.has_changed = False  # whether the write at hand has changed anything yet

    def apply(self, write: Write) -> Applied:
        """Check `write` against what is stored and make it true in the open transaction."""
        self.has_changed = False
        self.known.look()
        space, key = self.space(write.space), op_key(write.op_id)
        if space is not None:
            found = _recorded(self._db, self._rows, self.known.rows(space, key), space, write.op_id)
            if found is not None:
                return _again(write, found)
        revisions = self._check_cells(space, write)
        holds = self._check_moves(space, write)
        batches = self._check_commits(space, write)
        self.has_changed = True
        if space is None:
            space = self._begin_space(write.space)
        return self._change(space, write, key, revisions, holds, batches)

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
        batches = _batches(write.objects)
        commits: dict[Digest, Line] = {}
        self._ahead.clear()
        for at, batch in enumerate(batches):
            found = batch.objects[-1] if batch.objects else None
            if found is not None and found.kind is _COMMIT:
                row = self.known.next_row(0) + at
                batch.committing = self._committing(space, batch, found, row, commits)
                commits[found.digest] = self._ahead[row] = batch.committing.line
        for move in write.moves:
            if move.to is not None and move.to not in commits and self.known.line(space, move.to) is None:
                raise _no_commit(move.to)
        return batches

    def _committing(
        self, space: int | None, batch: Batch, found: Object, row: int, commits: dict[Digest, Line]
    ) -> Committing:
        """A commit with its changeset and its place; raises `NotFound` if something that it names is not there."""
        commit, is_exact = _commit_of(found)
        lines = [commits.get(parent) or self.known.line(space, parent) for parent in commit.parents]
        if None in lines:
            raise _no_commit(commit.parents[lines.index(None)])
        stored = next((each for each in reversed(batch.objects) if each.digest == commit.changeset), None)
        if stored is None:
            raise NotFound(f"commit {found.digest} comes without its changeset; nothing was written.")
        changeset, is_exact_changeset = _changeset_of(stored)
        parent = lines[0] if lines else None
        line, is_same_run = self._line(found, commit, changeset, row, parent)
        return Committing(
            found, commit, is_exact, stored, changeset, is_exact_changeset, parent, line, is_same_run
        )

    def _line(
        self, found: Object, commit: Commit, changeset: Changeset, row: int, parent: Line | None
    ) -> tuple[Line, bool]:
        """Where a commit will stand, and whether it belongs to the run of its first parent."""
        run = None if commit.run is None else run_key(commit.run)
        is_same_run = parent is not None and run is not None and run == parent.run
        if parent is None:
            place, jump = placed(commit, None, 0), None
        else:
            before = Place(parent.depth, parent.turn, parent.sequence), commit.run if is_same_run else None
            place, jump = placed(commit, before, parent.events), self.known.jump_from(parent, self._ahead)
        digest = bytes.fromhex(found.digest)
        events = len(changeset.events)
        return Line(row, digest, jump, place.depth, place.turn, place.sequence, events, run), is_same_run

    # ---- changes

    def _begin_space(self, name: str) -> int:
        self._db.execute("INSERT INTO spaces(name) VALUES (?)", (name,))
        return self._db.last_insert_rowid()  # noted in `_spaces` once it is durable

    def _change(
        self,
        space: int,
        write: Write,
        key: bytes,
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
        self._add_rows(space, write, key, receipt, moved, batches)
        for move, after, stored in moved:
            self._put_head(space, move, after, stored)
        for cell, revision in zip(write.cells, revisions, strict=True):
            value = None if cell.value is None else cell.value.decode()
            bound = space, cell.name, revision, value, cell.listed
            self._db.execute("INSERT OR REPLACE INTO cells VALUES (?,?,?,?,?)", bound)
            self.known.note_revision(space, cell.name, revision)
        return Applied(receipt, space)

    def _add_rows(
        self,
        space: int,
        write: Write,
        key: bytes,
        receipt: Receipt,
        moved: list[_Moved],
        batches: list[Batch],
    ) -> None:
        row = self.known.next_row(len(batches))
        for at, batch in enumerate(batches[:-1]):
            self._adding.row(row + at, space, batch, None, [])
        last = batches[-1]
        records = [cast("MoveRecord", stored.record) for _, _, stored in moved]
        keys = [key, *[version_key(move.timeline, move.version) for move in records]]
        op = _op_of(write, receipt, records, last.committing)
        self._adding.row(row + len(batches) - 1, space, last, op, keys)

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
    numbers = rows.index.candidates(connection, space, op_key(op_id))
    return _recorded(connection, rows, numbers, space, op_id)


def op_id_of(row: Row) -> str | None:
    """The op_id of the write that a row completes."""
    if row.pack.op is None:
        return None
    return long(row.pack.op.op_id) or next((move.op_id for move in moves_of(row)), "")


def _recorded(
    connection: Database, rows: Rows, numbers: Iterable[int], space: int, op_id: str
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


def _batches(objects: tuple[Object, ...]) -> list[Batch]:
    """The objects of each row.  A commit ends one; a large object, or much state at once, has rows of its own."""
    batches: list[Batch] = []
    batch, state, size = Batch(), Batch(), 0
    is_much = sum([len(found.body) for found in objects]) >= _OWN_ROW_FROM_BYTES
    kept = _WITH_COMMIT if is_much and any(found.kind is _COMMIT for found in objects) else ()
    for found in objects:
        if is_much and found.kind not in kept:
            state.objects.append(found)
            size += len(found.body)
            if size >= _OWN_ROW_FROM_BYTES:
                batches.append(state)
                state, size = Batch(), 0
            continue
        batch.objects.append(found)
        if found.kind is _COMMIT:
            batches += (state, batch) if state.objects else (batch,)
            batch, state, size = Batch(), Batch(), 0
    batch.objects += state.objects
    if batch.objects and batches and batches[-1].objects[-1].kind is _COMMIT:
        batches[-1].objects[:0] = batch.objects
    elif batch.objects or not batches:
        batches.append(batch)
    return batches


def _op_of(write: Write, receipt: Receipt, moves: list[MoveRecord], committing: Committing | None) -> Op:
    digest = above = None
    if committing is not None:
        digest, parents = committing.stored.digest, committing.commit.parents
        above = parents[0] if parents else None
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
