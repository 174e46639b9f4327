"""Seals: what a space must add up to, as its newest write left it.

Everything in a space that is overwritten in place has a digest: a cell its own, a head that of its
last move, the end of the ledger its chain.  The row of the log that completes a write holds their
sum.  A writer adds what it writes and takes away what it replaces, so a seal costs the same
however large the space is.  Adding everything up again is done once for each opening of the store:
a row that was deleted, or put back to an older version, is missing from the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.engines import rules
from holdfast.engines.contract import Cell
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.pack import encode_pack
from holdfast.engines.sqlite.rows import Row, Rows
from holdfast.errors import Corrupt
from holdfast.model.commit import LedgerRead
from holdfast.model.digest import Digest

__all__ = ["Seals", "ledger_end", "newest_row", "reseal", "seal_of"]

_LAST = (
    "SELECT coalesce((SELECT id FROM log WHERE space=?1 AND id>(SELECT value FROM meta WHERE name='indexed_upto') "
    "ORDER BY id DESC LIMIT 1), (SELECT last FROM stretches WHERE space=?1 ORDER BY first DESC LIMIT 1), 0)"
)
_LEDGER = "SELECT position, chain FROM entries WHERE space=? ORDER BY position DESC LIMIT 1"
_CELLS = "SELECT name, revision, CAST(value AS BLOB), listed, position FROM cells WHERE space=?"


class Seals:
    """The spaces that one opening of a store has found to be as their newest writes left them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sound: set[int] = set()

    def __contains__(self, space: int | None) -> bool:
        """Whether the space was found to be sound."""
        return space in self._sound

    def check(self, db: Database, rows: Rows, space: int | None, name: str, *, again: bool = False) -> None:
        """Raise `Corrupt` unless the space, which is called `name`, adds up to its seal.

        One that did is added up once more only to do so `again`, and then from the bytes of its cells.
        """
        if space is None or (space in self._sound and not again):
            return
        self._sound.discard(space)
        is_writing = db.in_transaction
        if not is_writing:
            db.execute("BEGIN")  # a write that others make meanwhile would change one side alone
        try:
            rows.look(db)
            computed = [digest for _, digest in _cell_digests(db, space, name)] if again else None
            found = _sum(db, space, _stored_digests(db, space) if computed is None else computed)
            rules.check_seal(name, found, seal_of(db, rows, space))
        finally:
            if not is_writing:
                db.execute("COMMIT")
        self._sound.add(space)


def newest_row(db: Database, space: int | None) -> int:
    """The last row of the space; 0 if it has none.

    Read from the database alone: what this process knows of rows may be of a write that fails yet.
    """
    return 0 if space is None else int(str(db.execute(_LAST, (space,)).get))


def seal_of(db: Database, rows: Rows, space: int) -> int | None:
    """The seal that the newest write of the space left; None if there is none, which is damage."""
    row = _sealing(db, rows, space)
    op = None if row is None else row.pack.op
    return None if op is None or op.seal is None else int.from_bytes(op.seal)


def ledger_end(db: Database, space: int | None) -> LedgerRead:
    """The position and the chain of the newest ledger entry; position 0 if there is none."""
    values = db.execute(_LEDGER, (space,)).fetchone()
    if values is None:
        return LedgerRead()
    position, chain = values
    if not isinstance(position, int) or not isinstance(chain, bytes):
        raise Corrupt("the last entry of a ledger is damaged; it was not used. Run `holdfast verify`.")
    return LedgerRead(position, Digest(chain.hex()))


def reseal(db: Database, rows: Rows, space: int, name: str) -> None:
    """Give every cell the digest of what it holds, and the space the seal of all that it holds."""
    digests = list(_cell_digests(db, space, name))
    for cell, digest in digests:
        db.execute(
            "UPDATE cells SET digest=? WHERE space=? AND name=? AND digest<>?", (digest, space, cell, digest)
        )
    row = _sealing(db, rows, space)
    if row is None or row.pack.op is None:
        raise Corrupt(f"'{name}' has lost its newest write, so it cannot be sealed. Restore a backup.")
    seal = (_sum(db, space, [digest for _, digest in digests]) & rules.SEAL_MASK).to_bytes(rules.SEAL_BYTES)
    op = msgspec.structs.replace(row.pack.op, seal=seal)
    items = [msgspec.structs.astuple(item) for item in row.pack.items]
    db.execute("UPDATE log SET pack=? WHERE id=?", (encode_pack(items, op, row.pack.dropped), row.id))


def _sealing(db: Database, rows: Rows, space: int) -> Row | None:
    row = rows.row(db, newest_row(db, space))
    return row if row is not None and row.space == space else None


def _sum(db: Database, space: int, cells: Iterable[bytes]) -> int:
    """The sum over everything in the space that can change, given the digests of its cells."""
    heads = (digest for (digest,) in db.execute("SELECT digest FROM heads WHERE space=?", (space,)))
    parts = [
        rules.sealed_cell(digest) for some in (cells, heads) for digest in some if isinstance(digest, bytes)
    ]
    end = ledger_end(db, space)
    return sum(parts) + rules.sealed_ledger(end.position, end.chain)


def _stored_digests(db: Database, space: int) -> list[bytes]:
    return [digest for (digest,) in db.execute("SELECT digest FROM cells WHERE space=?", (space,))]


def _cell_digests(db: Database, space: int, name: str) -> Iterator[tuple[str, bytes]]:
    """The name of each cell, and the digest of what it holds."""
    for cell, revision, value, listed, position in db.execute(_CELLS, (space,)):
        yield cell, rules.cell_digest(Cell(name, cell, revision, value, position), listed=bool(listed))
