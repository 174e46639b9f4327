"""Forgetting: replaces bytes by tombstones, in place, so that row numbers never change.

An object that is forgotten may be the base of others that stay.  Those are stored whole
first.  Old bytes are overwritten, not only unlinked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.engines.contract import GC, Rebuilt
from perdure.engines.shared_rules import check_forgettable, check_ledger_end
from perdure.engines.sqlite.commit.apply import op_id_of
from perdure.engines.sqlite.commit.layout import spans_of
from perdure.engines.sqlite.commit.seals import ledger_end, linked, reseal
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.index import KEY_BYTES, object_key
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Op,
    PackForm,
    PackItem,
    buried,
    encode_pack,
    is_against,
    short,
)
from perdure.engines.sqlite.format.rows import LogRow, Rows, changeset_of
from perdure.errors import Corrupt, Forgotten
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, digest_of

__all__ = ["drop", "forget", "seal_again", "spans_in"]

_ROWS_AT_ONCE = 256
_REBUILT = (
    "INSERT INTO cells VALUES (?1, ?2, coalesce(?6, 1), ?3, ?4, ?5, x'') ON CONFLICT(space, name) DO UPDATE "
    "SET revision=coalesce(?6, revision+1), value=?3, listed=?4, position=?5, digest=x''"
)
_GENERATION = (
    "INSERT INTO cells VALUES (?, ?, 1, NULL, 0, 0, x'') "
    "ON CONFLICT(space, name) DO UPDATE SET revision=revision+1"
)


def forget(
    db: Database, rows: Rows, space: int | None, name: str, digests: Sequence[Digest], why: str
) -> int:
    """Replace these objects of the space, whose name is `name`, by tombstones; return the number of bytes set free."""
    if space is None:
        return 0
    _count_up(db)
    gone = {place: digest for digest in digests for place in _places(db, rows, space, digest)}
    for row in _every(db, rows, space):
        _make_whole(db, rows, row, gone)
    rows.forget()
    if gone:
        db.execute(_GENERATION, (space, GC))
    freed = 0
    for number in sorted({number for number, _ in gone}):
        row = rows.row(db, number)
        assert row is not None
        freed += _bury(
            db, rows, row, {at: digest for (place, at), digest in gone.items() if place == number}, why
        )
    rows.forget()
    if gone:
        reseal(db, rows, space, name)
        rows.forget()
    return freed


def drop(db: Database, rows: Rows, space: int | None, name: str, why: str) -> int:
    """Forget a whole space, whose name is `name`; op_ids stay as tombstones and cells keep counting."""
    if space is None:
        return 0
    _count_up(db)
    freed, link = 0, b""
    for row in _every(db, rows, space):
        op = row.pack.op
        if row.pack.dropped is not None:
            link = link if op is None else op.link
            continue
        tombstone = None
        if op is not None:
            op_id = short(op_id_of(row) or "")
            link = linked(link, op_id, op.intent, (), 0, None, op.number)
            tombstone = Op(op_id, op.intent, number=op.number, link=link)
        db.execute(
            "UPDATE log SET prev=NULL, jump=NULL, depth=NULL, turn=NULL, sequence=NULL, events=NULL, run=NULL, at=NULL, "
            "digest=NULL, root=NULL, fields=NULL, changeset=NULL, digests=NULL, spans=NULL, bodies=NULL, timeline=NULL, "
            "pack=? WHERE id=?",
            (encode_pack([], tombstone, why), row.id),
        )
        freed += row.size + len(row.changeset or b"")
    db.execute("DELETE FROM heads WHERE space=?", (space,))
    db.execute("DELETE FROM entries WHERE space=?", (space,))
    db.execute(
        "UPDATE cells SET value=NULL, revision=revision+1, position=0, listed=0 "
        "WHERE space=? AND value IS NOT NULL",
        (space,),
    )
    rows.forget()
    reseal(db, rows, space, name)
    rows.forget()
    return freed


def seal_again(db: Database, rows: Rows, space: int | None, name: str, cells: Sequence[Rebuilt]) -> int:
    """Write `cells`, and accept the rest of the space, whose name is `name`, as it is stored now."""
    if space is None:
        return 0
    left = LedgerRead()
    for row in _every(db, rows, space):
        if row.pack.op is not None and row.pack.op.chain is not None:
            left = LedgerRead(row.pack.op.position, Digest(row.pack.op.chain.hex()))
    check_ledger_end(name, left, ledger_end(db, space))
    _count_up(db)
    for cell in cells:
        text = None if cell.value is None else cell.value.decode()
        values = text, int(cell.listed), cell.position, cell.revision or None
        db.execute(_REBUILT, (space, cell.name, *values))
    reseal(db, rows, space, name)
    rows.forget()
    return 0


# If an edit of the file has removed the row, the count begins where no process has seen it: an old value would hide the change.
_NEXT_GENERATION = """
INSERT INTO meta VALUES ('generation', abs(random() % 72057594037927935) + 1)
ON CONFLICT DO UPDATE SET value = value + 1
"""


def _count_up(db: Database) -> None:
    """Announce to every process that rows change in place, and leave nothing of the old bytes on the disk."""
    db.pragma("secure_delete", 1)
    db.execute(_NEXT_GENERATION)


def _places(db: Database, rows: Rows, space: int, digest: Digest) -> Iterator[tuple[int, int]]:
    key = object_key(digest)
    for number in rows.index.rows(db, space, key):
        row = rows.row(db, number)
        for at in row.index_of(key) if row is not None and row.space == space else ():
            assert row is not None
            if _is(db, rows, row, at, digest):
                yield number, at


def _is(db: Database, rows: Rows, row: LogRow, at: int, digest: Digest) -> bool:
    kind = KINDS[row.pack.items[at].kind]
    try:
        if digest_of(kind, rows.body(db, row, at)) != digest:
            return False
    except Forgotten:
        return False
    except Corrupt:
        return True  # damaged bytes may be forgotten too
    check_forgettable(kind, digest)
    return True


def _every(db: Database, rows: Rows, space: int) -> Iterator[LogRow]:
    after = 0
    while numbers := rows.index.rows_of(db, space, after, _ROWS_AT_ONCE):
        for number in numbers:
            row = rows.row(db, number)
            if row is not None:
                yield row
        after = numbers[-1]


def _make_whole(db: Database, rows: Rows, row: LogRow, gone: dict[tuple[int, int], Digest]) -> None:
    """Store whole what is stored as a difference to an object that is forgotten."""
    items = list(row.pack.items)
    for at, item in enumerate(items):
        if is_against(item) and (item.row, item.index) in gone and (row.id, at) not in gone:
            items[at] = PackItem(item.kind, PackForm.WHOLE, rows.body(db, row, at))
    if items != list(row.pack.items):
        db.execute("UPDATE log SET pack=? WHERE id=?", (_packed(items, row), row.id))


def _bury(db: Database, rows: Rows, row: LogRow, gone: dict[int, Digest], why: str) -> int:
    items = list(row.pack.items)
    bodies: list[bytes] = []
    freed = 0
    for at, item in enumerate(items):
        if at in gone:
            freed += item.size or len(item.data)
            items[at] = buried(item.kind, gone[at], why)
        elif item.form == PackForm.BODIES:
            bodies.append(rows.body(db, row, at))
    text = b"".join(bodies).decode()
    db.execute(
        "UPDATE log SET pack=?, bodies=?, spans=? WHERE id=?",
        (_packed(items, row), text or None, spans_in(row, items), row.id),
    )
    return freed


def spans_in(row: LogRow, items: list[PackItem]) -> str | None:
    """Return where the words of a row's events are in its bodies, if it holds these items."""
    found = changeset_of(row)
    if found is None:
        return None
    spans: dict[str, tuple[int, int]] = {}
    offset = 0
    for at, item in enumerate(items):
        if item.form == PackForm.BODIES:
            spans[row.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES].hex()] = offset, item.size
            offset += item.size
    return spans_of(found[0], lambda digest: spans.get(digest[: 2 * KEY_BYTES]))


def _packed(items: list[PackItem], row: LogRow) -> bytes:
    return encode_pack([msgspec.structs.astuple(item) for item in items], row.pack.op, row.pack.dropped)
