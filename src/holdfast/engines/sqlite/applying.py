"""Applying one write inside a transaction: every check first, then every change.

Nothing is changed before the last check has passed, so a refused write leaves nothing
behind even when it shares its transaction with others.
"""

from __future__ import annotations

from typing import cast

import msgspec

from holdfast.engines.contract import Fence, Hold, Move, Receipt, Recorded, Write
from holdfast.engines.rules import chained, check_fence, check_hold, check_move, record_of, unmoved
from holdfast.engines.sqlite.adding import Adding, Group, Line
from holdfast.engines.sqlite.bases import Bases
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import object_key, op_key
from holdfast.engines.sqlite.pack import Op
from holdfast.engines.sqlite.records import long, short
from holdfast.engines.sqlite.rows import Row, Rows, moves_of
from holdfast.errors import Corrupt, Forgotten, NotFound, OpReused
from holdfast.model.changeset import Changeset, decode_changeset
from holdfast.model.commit import Commit, MoveRecord, decode_commit, decode_move, encode_commit
from holdfast.model.digest import Digest, Kind, Object, digest_of
from holdfast.model.head import Head

__all__ = ["Applied", "Applier", "hold_of", "op_id_of", "recorded_in"]

_OWN_ROW_FROM_BYTES = 32 * 1024  # so that reading a small object never unpacks a large one
_LINE = (
    "SELECT id, digest, jump, depth, turn, sequence, events, run FROM log WHERE id=? AND digest IS NOT NULL"
)


class Applied(msgspec.Struct):
    """Rows that a write added, to be noted once they are durable: number, space and keys."""

    receipt: Receipt
    rows: list[tuple[int, int, list[int]]]


class Applier:
    """Makes writes true on the connection that writes.  One user at a time."""

    def __init__(self, connection: Database, rows: Rows, bases: Bases, spaces: dict[str, int]) -> None:
        """Share what the process knows: rows, recent bases, numbers of spaces."""
        self._db = connection
        self._rows = rows
        self._bases = bases
        self._spaces = spaces
        self._lines: dict[Digest, Line | None] = {}  # looked up for the write at hand
        self.has_changed = False  # whether the write at hand has changed anything yet

    def apply(self, write: Write) -> Applied:
        """Check `write` against what is stored and make it true in the open transaction."""
        self._lines.clear()
        self.has_changed = False
        space = self.space(write.space)
        if space is not None:
            found = recorded_in(self._db, self._rows, space, write.op_id)
            if found is not None:
                return _again(write, found)
        revisions = self._check_cells(space, write)
        holds = self._check_moves(space, write)
        groups = self._check_commits(space, write)
        self.has_changed = True
        if space is None:
            space = self._begin_space(write.space)
        return self._change(space, write, revisions, holds, groups)

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
            check_fence(fence, self._revision(space, fence.cell))
        revisions: list[int] = []
        for cell in write.cells:
            revision = self._revision(space, cell.name)
            check_fence(Fence(cell.name, cell.expected), revision)
            revisions.append(revision + 1)
        return revisions

    def _revision(self, space: int | None, name: str) -> int:
        values = self._db.execute(
            "SELECT revision FROM cells WHERE space=? AND name=?", (space, name)
        ).fetchone()
        return 0 if values is None else int(values[0])

    def _check_moves(self, space: int | None, write: Write) -> list[tuple[Move, Hold | None]]:
        moves: list[tuple[Move, Hold | None]] = []
        for move in write.moves:
            hold, row = hold_of(self._db, space, move.timeline)
            check_move(move, hold)
            if row is not None and hold is not None and hold.head.commit is not None:
                self._lines[hold.head.commit] = self._line_at(row)
            moves.append((move, hold))
        return moves

    def _check_commits(self, space: int | None, write: Write) -> list[Group]:
        """The write's objects by the row that will hold them; everything that commits and moves name must exist."""
        groups: list[Group] = []
        group = Group()
        commits: set[Digest] = set()
        for found in write.objects:
            if len(found.body) >= _OWN_ROW_FROM_BYTES and found.kind not in (Kind.COMMIT, Kind.CHANGESET):
                groups.append(Group([found]))
                continue
            group.objects.append(found)
            if found.kind is Kind.COMMIT:
                self._complete(space, group, found, commits)
                commits.add(found.digest)
                groups.append(group)
                group = Group()
        if group.objects and groups and groups[-1].commit is not None:
            groups[-1].objects[:0] = group.objects
        elif group.objects or not groups:
            groups.append(group)
        for move in write.moves:
            if move.to is not None and move.to not in commits and self._line(space, move.to) is None:
                raise _no_commit(move.to)
        return groups

    def _complete(self, space: int | None, group: Group, found: Object, commits: set[Digest]) -> None:
        """Give a group its commit and changeset, and the place of the commit's first parent."""
        commit = _commit_of(found)
        group.digest, group.commit, group.is_exact = found.digest, commit, encode_commit(commit) == found.body
        for parent in commit.parents:
            if parent not in commits and self._line(space, parent) is None:
                raise _no_commit(parent)
        if commit.parents and commit.parents[0] not in commits:
            group.parent = self._line(space, commit.parents[0])
        for other in group.objects:
            if other.digest == commit.changeset:
                group.changeset, group.changeset_text = _changeset_of(other), other.body.decode()
                return
        raise NotFound(f"commit {found.digest} comes without its changeset; nothing was written.")

    def _line(self, space: int | None, commit: Digest) -> Line | None:
        if commit not in self._lines and space is not None:
            digest = bytes.fromhex(commit)
            found = map(self._line_at, self._rows.index.rows(self._db, space, object_key(commit)))
            self._lines[commit] = next(
                (line for line in found if line is not None and line.digest == digest), None
            )
        return self._lines.get(commit)

    def _line_at(self, row: int | None) -> Line | None:
        values = self._db.execute(_LINE, (row,)).fetchone()
        return None if values is None else Line(*values)

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
        groups: list[Group],
    ) -> Applied:
        position, chain = self._append_entries(space, write) if write.entries else (0, None)
        moved = [(move, *record_of(move, hold, write.op_id)) for move, hold in holds]
        receipt = Receipt(
            op_id=write.op_id,
            heads=tuple(after.head for _, after, _ in moved),
            revisions=tuple(revisions),
            position=position,
            chain=chain,
        )
        adding = Adding(self._db, self._rows, self._bases, space)
        *earlier, last = groups
        rows = [adding.row(group, None, ()) for group in earlier]
        rows.append(
            adding.row(
                last,
                _op_of(write, receipt),
                tuple(cast("MoveRecord", stored.record) for _, _, stored in moved),
            )
        )
        for move, _, stored in moved:
            self._put_head(space, move, stored, adding)
        if write.cells:
            self._put_cells(space, write, revisions)
        return Applied(receipt, rows)

    def _append_entries(self, space: int, write: Write) -> tuple[int, Digest | None]:
        sql = "SELECT position, chain FROM entries WHERE space=? ORDER BY position DESC LIMIT 1"
        values = self._db.execute(sql, (space,)).fetchone()
        position, chain = (0, None) if values is None else (int(values[0]), Digest(bytes(values[1]).hex()))
        for body in write.entries:
            position, chain = position + 1, chained(chain, body)
            bound = space, position, bytes.fromhex(chain), body.decode()
            self._db.execute("INSERT INTO entries VALUES (?,?,?,?)", bound)
        return position, chain

    def _put_head(self, space: int, move: Move, stored: Object, adding: Adding) -> None:
        row = adding.commits.get(move.to) if move.to is not None else None
        if row is None and move.to is not None:
            line = self._line(space, move.to)
            row = None if line is None else line.row
        bound = space, move.timeline, stored.body.decode(), bytes.fromhex(stored.digest), row
        self._db.execute("INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)", bound)

    def _put_cells(self, space: int, write: Write, revisions: list[int]) -> None:
        for cell, revision in zip(write.cells, revisions, strict=True):
            bound = (
                space,
                cell.name,
                revision,
                None if cell.value is None else cell.value.decode(),
                cell.listed,
            )
            self._db.execute("INSERT OR REPLACE INTO cells VALUES (?,?,?,?,?)", bound)


def hold_of(connection: Database, space: int | None, timeline: str) -> tuple[Hold | None, int | None]:
    """Where a timeline stands, checked against its last move, and the row of its commit."""
    sql = "SELECT CAST(move AS BLOB), digest, commit_row FROM heads WHERE space=? AND timeline=?"
    values = connection.execute(sql, (space, timeline)).fetchone()
    if values is None:
        return unmoved(timeline), None
    return _hold(timeline, values[0], values[1]), values[2]


def recorded_in(connection: Database, rows: Rows, space: int, op_id: str) -> Recorded | None:
    """The write of that op_id; raises `Forgotten` if its space was."""
    for number in rows.index.rows(connection, space, op_key(op_id)):
        row = rows.row(connection, number)
        if row is None or row.space != space or row.pack.op is None or op_id_of(row) != op_id:
            continue
        if row.pack.dropped is not None:
            raise Forgotten(f"the write '{op_id}'", row.pack.dropped)
        return Recorded(Digest(row.pack.op.intent.hex()), _receipt(row, row.pack.op))
    return None


def op_id_of(row: Row) -> str | None:
    """The op_id of the write that a row completes."""
    if row.pack.op is None:
        return None
    return long(row.pack.op.op_id) or next((move.op_id for move in moves_of(row)), "")


def _hold(timeline: str, move: object, digest: object) -> Hold:
    if not isinstance(move, bytes) or not isinstance(digest, bytes):
        raise Corrupt(
            f"the head of timeline '{timeline}' is damaged; it was not used. Run `holdfast verify`."
        )
    if digest_of(Kind.MOVE, move) != digest.hex():
        raise Corrupt(
            f"the head of timeline '{timeline}' does not match its last move; it was not used. Run `holdfast verify`."
        )
    record = decode_move(move)
    hold = Hold(Head(timeline, record.version, record.to), record.sealed, Digest(digest.hex()))
    check_hold(hold, record)
    return hold


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
    return Applied(found.receipt, [])


def _op_of(write: Write, receipt: Receipt) -> Op:
    chain = None if receipt.chain is None else bytes.fromhex(receipt.chain)
    return Op(short(write.op_id), bytes.fromhex(write.intent), (), receipt.revisions, receipt.position, chain)


def _commit_of(found: Object) -> Commit:
    return found.record if isinstance(found.record, Commit) else decode_commit(found.body)


def _changeset_of(found: Object) -> Changeset:
    return found.record if isinstance(found.record, Changeset) else decode_changeset(found.body)


def _no_commit(commit: Digest) -> NotFound:
    return NotFound(f"there is no commit {commit} in this space; nothing was written.")
