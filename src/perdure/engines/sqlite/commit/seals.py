"""Seals: the sum that everything in a space must have, as its newest write left it.

Everything in a space that is overwritten in place has a digest: a cell its own, a head that of its
last move, the end of the ledger its chain.  The row of the log that completes a write holds their
sum.  A writer adds what it writes and subtracts what it replaces, so a seal costs the same
however large the space is.  The engine adds everything up again once for each opening of the store:
a row that was deleted, or put back to an older version, is missing from the sum.

A seal speaks of what a space holds, not of how it came about.  So each write also has a link, a digest over what its row
says of the write and the link of the write before: a row that was exchanged for that of another store breaks the chain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock

import msgspec

from perdure.engines import shared_rules
from perdure.engines.contract import Cell
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.database import Database, RowCursor
from perdure.engines.sqlite.format.pack import Op, encode_pack
from perdure.engines.sqlite.format.rows import LogRow, Rows
from perdure.errors import Corrupt
from perdure.model.commit import LedgerRead, decode_move
from perdure.model.digest import Digest

__all__ = [
    "Seals",
    "add_up",
    "check_listed",
    "check_spaces",
    "ledger_end",
    "linked",
    "newest_op",
    "newest_row",
    "note_listed",
    "note_space",
    "reseal",
    "sealed_rows",
    "snapshot",
]

_LAST = (
    "SELECT coalesce((SELECT id FROM log WHERE space=?1 AND id>(SELECT value FROM meta WHERE name='indexed_upto') "
    "ORDER BY id DESC LIMIT 1), (SELECT last FROM stretches WHERE space=?1 ORDER BY first DESC LIMIT 1), 0)"
)
_LEDGER = "SELECT position, chain FROM entries WHERE space=? ORDER BY position DESC LIMIT 1"
_SPACES = "SELECT m.value, s.id, s.name FROM meta m LEFT JOIN spaces s WHERE m.name='spaces'"
_OF_SPACES = ("cells", "heads", "entries", "stretches")  # tables whose keys begin with a space's number
_ROW_FACTOR = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that no two numbers of rows add the same
_LINK_BYTES = 8
_encode = msgspec.msgpack.Encoder().encode
_META_MASK = (1 << 61) - 1  # SQLite can store the sum of two such numbers
_HEAD_ROWS = "SELECT h.timeline, CAST(h.move AS BLOB), l.digest FROM heads h LEFT JOIN log l ON l.id=h.commit_row WHERE h.space=?"
# What `sealed_cell` hashes, joined here because a space may have many cells; the name of an emptied one; NULL for damage,
# a name or a digest of another type.
_PARTS = (
    "SELECT iif(typeof(name)='text' AND typeof(digest)='blob', "
    "iif(value IS NULL, name, CAST('cell' || x'00' || name || x'00' || digest AS BLOB)), NULL) FROM cells WHERE space=?"
)
_TYPED = {
    "cells": "typeof(revision)='integer' AND typeof(position)='integer' AND typeof(listed)='integer' "
    "AND typeof(value) IN ('text', 'null') AND typeof(digest)='blob'",
    "heads": "typeof(move)='text'",
    "entries": "typeof(body)='text'",
}
_EMPTY = "SELECT name, digest, revision, position, listed FROM cells WHERE space=? AND value IS NULL AND name BETWEEN ? AND ?"
_CELLS = "SELECT name, revision, CAST(value AS BLOB), listed, position FROM cells WHERE space=?"


class Seals:
    """The spaces that one opening of a store has found to be as their newest writes left them."""

    def __init__(self, *, read_only: bool) -> None:
        """Begin with none; a reader answers from what is left of a log, a writer needs all of it."""
        self._sound: set[int] = set()
        self._log = LogRows()
        self._reaches_heads = (
            read_only  # whether the log was found to have the rows that heads name, or is not asked
        )
        self._is_listed = False  # whether the listed cells were found to be sound
        self._is_complete = False  # whether the names of all spaces were found to be sound

    def __contains__(self, space: int | None) -> bool:
        """True if the space was found to be sound."""
        return space in self._sound

    def space(self, db: Database, name: str) -> int | None:
        """Return the number of a space; None if it was never written, which only a sound list of names can show."""
        number = db.execute("SELECT id FROM spaces WHERE name=?", (name,)).get
        if isinstance(number, int):
            return number
        if not self._is_complete:
            check_spaces(db)
            self._is_complete = True
        return None

    def check(self, db: Database, rows: Rows, space: int | None, name: str, *, again: bool = False) -> None:
        """Raise `Corrupt` unless the space, which is called `name`, adds up to its seal.

        A space that did so before is not computed again, except with `again`, and then from the bytes of its cells.
        """
        if space is None or (space in self._sound and not again):
            return
        self._sound.discard(space)
        is_writing = db.in_transaction
        with snapshot(db):
            rows.look(db)
            if not self._reaches_heads:
                _check_end_of_log(db)
                self._reaches_heads = True
            try:
                cells = _stored_cells(db, space, name)
                if again:
                    cells = shared_rules.sealed_cells(_cell_digests(db, space, name))
                numbers = LogRows().of(db, space) if is_writing else self._log.of(db, space)
                op = _op_in(rows.row(db, numbers.newest), space)
                seal = None if op is None or op.seal is None else int.from_bytes(op.seal)
                shared_rules.check_seal(name, _sum(db, space, cells) + sealed_rows(numbers.total), seal)
            except (AttributeError, TypeError, ValueError) as error:  # a column holds a value of another type
                raise damaged(
                    f"a cell or a head of '{name}' is damaged; nothing was used.", "space_damaged", space=name
                ) from error
            if again:
                _check_types(db, space, name)
                _check_rows_of_heads(db, space)
        self._sound.add(space)

    def check_listed(self, db: Database) -> None:
        """Raise `Corrupt` unless the listed cells of all spaces are as their newest writes left them."""
        if not self._is_listed:
            with snapshot(db):
                check_spaces(db)
                check_listed(db)
            self._is_listed = self._is_complete = True


class RowNumbers(msgspec.Struct, frozen=True, gc=False):
    """The rows of the log that belong to a space."""

    total: int = 0  # the sum of their numbers
    newest: int = 0


class LogRows:
    """The rows of each space, as the database has them: from its index, and from rows that are not in the index yet.

    Those are read once, and later only what is new, however many spaces a caller asks for.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = Lock()
        self._upto = self._seen = -1
        self._recent: dict[int, RowNumbers] = {}

    def of(self, db: Database, space: int) -> RowNumbers:
        """Return the rows of a space, in the state that the open transaction sees."""
        with self._lock:
            self._look(db)
            total, newest = 0, 0
            for first, last in db.execute("SELECT first, last FROM stretches WHERE space=?", (space,)):
                total += (first + last) * (last - first + 1) // 2
                newest = max(newest, last)
            recent = self._recent.get(space, RowNumbers())
        return RowNumbers(total + recent.total, max(newest, recent.newest))

    def _look(self, db: Database) -> None:
        upto = int(str(db.execute("SELECT value FROM meta WHERE name='indexed_upto'").get))
        if upto != self._upto:
            self._upto = self._seen = upto
            self._recent = {}
        for row, space in db.execute("SELECT id, space FROM log WHERE id>?", (self._seen,)):
            before = self._recent.get(space, RowNumbers())
            self._recent[space] = RowNumbers(before.total + row, row)
            self._seen = row


def linked(
    before: bytes,
    op_id: bytes,
    intent: bytes,
    revisions: tuple[int, ...],
    position: int,
    chain: bytes | None,
    number: int,
) -> bytes:
    """Return the link of a write with these fields of its `Op`; `before` is the link of the write before it.

    The moves have a chain of their own, which has the op_id of a write that moves something.
    """
    fields = _encode((op_id, intent, revisions, position, chain, number))
    return sha256(before + fields).digest()[:_LINK_BYTES]


def sealed_rows(total: int) -> int:
    """Return what rows of the log whose numbers have this sum add to the seal of their space."""
    return total * _ROW_FACTOR


@contextmanager
def snapshot(db: Database) -> Generator[None]:
    """Read one state of the database: a write by others in between would change only one side of a comparison."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def _check_types(db: Database, space: int, name: str) -> None:
    """Raise `Corrupt` if a column that is converted where it is read has a value of another type."""
    for table, is_typed in _TYPED.items():
        if db.execute(f"SELECT 1 FROM {table} WHERE space=? AND NOT ({is_typed}) LIMIT 1", (space,)).get:
            raise damaged(
                f"a row of '{name}' in table {table} has a value of another type than its writer gave it; it was not used.",
                "space_damaged",
                space=name,
            )


def _check_rows_of_heads(db: Database, space: int) -> None:
    """Raise `Corrupt` if a head names another row than that of its commit."""
    for timeline, move, digest in db.execute(_HEAD_ROWS, (space,)).fetchall():
        to = decode_move(move).to
        if (None if to is None else bytes.fromhex(to)) != digest:
            raise damaged(
                f"the head of timeline '{timeline}' names a row that does not hold its commit.",
                "head_damaged",
                timeline=timeline,
            )


def _check_end_of_log(db: Database) -> None:
    """Raise `Corrupt` if a head names a row after the last one: the log was put back, and with it what its spaces hold."""
    if db.execute("SELECT max(commit_row) > (SELECT coalesce(max(id), 0) FROM log) FROM heads").get:
        raise damaged(
            "the log ends before a commit that a head names: rows were removed, or put back to an older version; nothing was used.",
            "log_cut_off",
        )


def note_space(db: Database, number: int, name: str) -> None:
    """Add a new space to the sum of their names."""
    total = (_named(db) + _space_part(number, name)) & _META_MASK
    db.execute("UPDATE meta SET value=? WHERE name='spaces'", (total,))


def check_spaces(db: Database) -> None:
    """Raise `Corrupt` unless the names of spaces, in one statement, add up to what their writers noted."""
    found = db.execute(_SPACES).fetchall()
    total = sum([_space_part(number, name) for _, number, name in found if number is not None])
    last = max([number for _, number, _ in found if number is not None], default=0)
    beyond = max([db.execute(f"SELECT coalesce(max(space), 0) FROM {table}").get for table in _OF_SPACES])
    is_cut = beyond > last or (last > 0 and not newest_row(db, last))
    if not found or total & _META_MASK != found[0][0] or is_cut:
        raise damaged(
            "the names of spaces are not as the newest write left them: one was edited or removed; nothing was used or written.",
            "spaces_damaged",
        )


def _named(db: Database) -> int:
    noted = db.execute("SELECT value FROM meta WHERE name='spaces'").get
    return noted if isinstance(noted, int) else 0


def _space_part(number: object, name: object) -> int:
    text = f"{number} {name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(b"perdure/1\0space\0" + text).digest()[:8])


def note_listed(db: Database | RowCursor, change: int) -> None:
    """Change the sum of the listed cells of all spaces."""
    db.execute("UPDATE meta SET value=(value+?)&? WHERE name='listed'", (change & _META_MASK, _META_MASK))


def add_up(db: Database) -> None:
    """Write the sums over all spaces as they follow from what is there."""
    names = sum([_space_part(number, name) for number, name in db.execute("SELECT id, name FROM spaces")])
    for counter, total in (("spaces", names & _META_MASK), ("listed", _listed(db))):
        db.execute("UPDATE meta SET value=? WHERE name=?", (total, counter))


def check_listed(db: Database) -> None:
    """Raise `Corrupt` unless the listed cells of all spaces add up to what their writers noted.

    Call it in a transaction: a write by others in between would change only one side.
    """
    noted = db.execute("SELECT value FROM meta WHERE name='listed'").get
    if _listed(db) != noted:
        raise damaged(
            "the listed cells are not as the newest writes left them: one was edited, removed or put back to an older version; nothing was used.",
            "listed_cells_damaged",
        )


def _listed(db: Database) -> int:
    found = db.execute("SELECT name, digest FROM cells WHERE listed AND value IS NOT NULL")
    return sum([shared_rules.sealed_cell(name, digest) for name, digest in found]) & _META_MASK


def newest_row(db: Database, space: int | None) -> int:
    """Return the last row of the space; 0 if it has none.

    It is read from the database alone: the rows that this process knows may belong to a write that still fails.
    """
    if space is None:
        return 0
    found = db.execute(_LAST, (space,)).get
    if type(found) is not int:
        raise damaged("the index names no number of a row; nothing was used.", "index_damaged")
    return found


def newest_op(db: Database, rows: Rows, space: int) -> Op | None:
    """Return the newest write of the space; None if there is none, which is damage."""
    return _op_in(rows.row(db, newest_row(db, space)), space)


def ledger_end(db: Database, space: int | None) -> LedgerRead:
    """Return the position and the chain of the newest ledger entry; position 0 if there is none."""
    values = db.execute(_LEDGER, (space,)).fetchone()
    if values is None:
        return LedgerRead()
    position, chain = values
    if not isinstance(position, int) or not isinstance(chain, bytes):
        raise damaged("the last entry of a ledger is damaged; it was not used.", "ledger_damaged")
    return LedgerRead(position, Digest(chain.hex()))


def reseal(db: Database, rows: Rows, space: int, name: str) -> None:
    """Give every cell the digest of what it holds, and the space the seal of all that it holds."""
    digests = list(_cell_digests(db, space, name))
    for cell, digest in digests:
        db.execute(
            "UPDATE cells SET digest=? WHERE space=? AND name=? AND digest<>?", (digest, space, cell, digest)
        )
    numbers = LogRows().of(db, space)
    row = rows.row(db, numbers.newest)
    if row is None or row.pack.op is None or row.space != space:
        raise Corrupt(
            f"the newest write of '{name}' is missing, so the space cannot be sealed.",
            code="newest_write_lost",
            advice="Restore a backup.",
            space=name,
        )
    cells = shared_rules.sealed_cells(digests)
    seal = ((_sum(db, space, cells) + sealed_rows(numbers.total)) & shared_rules.SEAL_MASK).to_bytes(
        shared_rules.SEAL_BYTES
    )
    op = msgspec.structs.replace(row.pack.op, seal=seal)
    db.execute("UPDATE meta SET value=? WHERE name='listed'", (_listed(db),))
    items = [msgspec.structs.astuple(item) for item in row.pack.items]
    db.execute("UPDATE log SET pack=? WHERE id=?", (encode_pack(items, op, row.pack.dropped), row.id))


def _op_in(row: LogRow | None, space: int) -> Op | None:
    return row.pack.op if row is not None and row.space == space else None


def _sum(db: Database, space: int, cells: int) -> int:
    """Return the sum over everything in the space that can change, given what its cells add."""
    heads = db.execute("SELECT timeline, digest FROM heads WHERE space=?", (space,)).fetchall()
    end = ledger_end(db, space)
    return (
        cells
        + sum([shared_rules.sealed_head(timeline, Digest(digest.hex())) for timeline, digest in heads])
        + shared_rules.sealed_ledger(end.position, end.chain)
    )


def _stored_cells(db: Database, space: int, name: str) -> int:
    """Return what the cells add with the digests that they are stored with; raise `Corrupt` if an empty one has another.

    A listing of cells skips empty ones, so a cell that an edit emptied would be missed there.
    """
    # Each row is dropped at once: a list of so many would start Python's collector again and again.
    stored = [part for (part,) in db.execute(_PARTS, (space,))]
    parts = [part for part in stored if type(part) is bytes]
    total = shared_rules.sealed_parts(parts)
    if len(parts) < len(stored):
        names = sorted([part for part in stored if type(part) is not bytes])
        for cell, digest, revision, position, listed in db.execute(
            _EMPTY, (space, names[0], names[-1])
        ).fetchall():
            shared_rules.check_cell(Cell(name, cell, revision, None, position), digest, listed=listed)
            total += shared_rules.sealed_cell(cell, digest)
    return total


def _cell_digests(db: Database, space: int, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each cell, and the digest of what it holds."""
    for cell, revision, value, listed, position in db.execute(_CELLS, (space,)):
        yield cell, shared_rules.cell_digest(Cell(name, cell, revision, value, position), listed=listed)
