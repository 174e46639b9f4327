"""Scanning: everything stored for a space, in storage order, damage included.

Nothing here raises for damaged data.  An object's full digest is not stored beside it,
only its key; where the bytes no longer fit, the scan looks for the digest they should have
in the row's own changeset and columns.

The scan also audits each row: what is not hashed must still follow from what is.  Keys, the places of
ancestors and the spans of words are there to find things fast.  If they were wrong, a read could miss what is
there, or walk to a foreign commit; so `verify` derives them again from the row's own content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.engines.contract import Fact
from perdure.engines.shared_rules import damaged, labels
from perdure.engines.sqlite.commit.apply import op_id_of
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import look_again
from perdure.engines.sqlite.format.index import (
    KEY_BYTES,
    label_keys,
    object_key,
    op_keys,
    run_key,
    split,
    version_key,
)
from perdure.engines.sqlite.format.pack import KINDS, PackForm, buried_of, timeline_of, why_of
from perdure.engines.sqlite.format.rows import (
    COLUMNS,
    FROM,
    FROM_FAR,
    JUMP,
    LogRow,
    Rows,
    changeset_of,
    hashed_step,
    is_placed,
    moves_of,
    row_of,
)
from perdure.engines.sqlite.maintenance.removal import spans_in
from perdure.errors import Corrupt, Forgotten, PerdureError
from perdure.model.commit import MoveRecord, encode_move
from perdure.model.digest import Digest, Kind, Object

__all__ = ["facts_of", "scan"]


_DERIVED = f"SELECT l.jump IS {JUMP}, CAST(l.spans AS BLOB), CAST(l.timeline AS BLOB) {FROM_FAR} WHERE l.id=?"
# All commits of a write are of one timeline; its last row, which has its moves, has the last of them.
_TIMELINE_AFTER = (
    "SELECT CAST(timeline AS BLOB) FROM log WHERE id>? AND digest IS NOT NULL ORDER BY id LIMIT 1"
)


def row_faults(db: Database, rows: Rows, row: LogRow, facts: Sequence[Fact]) -> Iterator[str]:
    """Return what is wrong with the unhashed columns of a row whose objects are `facts`, in the order of its keys."""
    if row.digest is None and not row.follows:
        yield f"row {row.id} of the log has no commit, and something in a column of commits"
    if len(row.bodies) != sum(item.size for item in row.pack.items if item.form == PackForm.BODIES):
        yield f"row {row.id} of the log has other words than those that it should hold"
    if row.pack.dropped is not None:
        return  # its keys are those of what it held
    try:
        if row.digest is not None:
            yield from _line_faults(db, row)
        yield from _found_faults(db, rows, row, facts)
    except PerdureError:
        return  # damage to what is hashed, which is reported as such


def _found_faults(db: Database, rows: Rows, row: LogRow, facts: Sequence[Fact]) -> Iterator[str]:
    items = [
        row.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES]
        if fact.digest is None or fact.fault
        else object_key(fact.digest)
        for at, fact in enumerate(facts)
    ]
    if sorted(split(row.keys)) != sorted([*items, *_names(db, row)]):
        yield f"row {row.id} of the log does not carry the keys of what it holds"
        return
    for key in dict.fromkeys(split(row.keys)):
        if row.id not in rows.index.known(db, row.space, key):
            yield f"row {row.id} of the log is not found by one of its keys"
            return


def _names(db: Database, row: LogRow) -> Iterator[bytes]:
    """Return the keys by which a row is found beside those of its objects."""
    if row.digest is not None:
        step = hashed_step(row)
        above = db.execute(
            "SELECT p.run FROM log l JOIN log p ON p.id=l.prev WHERE l.id=?", (row.id,)
        ).fetchone()
        run = step.commit.run
        same = run is not None and above is not None and above[0] == run_key(run)
        for name in labels(step.commit, step.changeset, run if same else None):
            yield from label_keys(name)
    if row.pack.op is not None:
        yield from op_keys(op_id_of(row) or "")
        yield from (version_key(move.timeline, move.version) for move in moves_of(row))


def _line_faults(db: Database, row: LogRow) -> Iterator[str]:
    columns = db.execute(_DERIVED, (row.id,)).fetchone()
    if columns is None:
        raise damaged(f"row {row.id} of the log is missing.", "row_lost", row=row.id)
    jumps, spans, timeline = columns
    if not jumps:
        yield f"row {row.id} of the log jumps to a row that is not the ancestor it should name"
    if not is_placed(row, hashed_step(row)):
        yield f"row {row.id} of the log miscounts its events, names another run, or is not where its parent puts it"
    if (spans.decode(errors="replace") if isinstance(spans, bytes) else None) != spans_in(
        row, list(row.pack.items)
    ):
        yield f"row {row.id} of the log says that its words stand where they do not"
    if timeline != _timeline(db, row):
        yield f"row {row.id} of the log names another timeline than the one that its commit was written to"


def _timeline(db: Database, row: LogRow) -> object:
    """Return what the row must say of the timeline of its commit."""
    if row.pack.op is None:
        return db.execute(_TIMELINE_AFTER, (row.id,)).get
    found = timeline_of(row.pack.op.moves)
    return None if found is None else found.encode()


_DIGEST = re.compile(rb"[0-9a-f]{64}")
_ROWS_AT_ONCE = 64
_FIRST = 1  # the space that was written first: what concerns all rows is reported with it
_STRETCHED = """
SELECT (SELECT value FROM meta WHERE name='indexed_upto'), coalesce(sum(last-first+1), 0), coalesce(max(last), 0),
    (SELECT count(*) FROM stretches s JOIN log l ON l.id BETWEEN s.first AND s.last AND l.space=s.space)
FROM stretches
"""


def scan(
    db: Database, rows: Rows, space: int | None, after: int, limit: int
) -> tuple[list[Fact], int | None]:
    """Return up to about `limit` facts from the rows after `after`, and where to go on; damage counts if it is found twice."""
    found = _scan(db, rows, space, after, limit)
    if not any(fact.fault is not None for fact in found[0]):
        return found
    look_again(db, rows.forget)
    return _scan(db, rows, space, after, limit)


def _scan(
    db: Database, rows: Rows, space: int | None, after: int, limit: int
) -> tuple[list[Fact], int | None]:
    facts: list[Fact] = _index_faults(db) if space == _FIRST and not after else []
    writes = _writes_before(db, rows, after)
    while space is not None and len(facts) < limit:
        numbers = rows.index.rows_of(db, space, after, _ROWS_AT_ONCE)
        if not numbers:
            return facts, None
        for number in numbers:
            facts += facts_of(db, rows, number)
            write = _write_of(db, rows, number)
            if write is not None:
                if writes is not None and write != writes + 1:
                    facts.append(Fact("row", None, None, fault=_out_of_order(number, write, writes)))
                writes = write
            after = number
            if len(facts) >= limit:
                break
    return facts, None if space is None else after


def _writes_before(db: Database, rows: Rows, row: int) -> int | None:
    """Return how many writes the space of a row had with it; None if the row does not say."""
    return _write_of(db, rows, row) if row else 0


def _write_of(db: Database, rows: Rows, row: int) -> int | None:
    """Return the number of the write that a row completes; None if it completes none, or cannot be read."""
    try:
        found = rows.row(db, row)
    except Corrupt:
        return None
    op = None if found is None else found.pack.op
    return None if op is None else op.number


def _out_of_order(row: int, write: int, before: int) -> str:
    return f"row {row} of the log completes write {write} of its space, after write {before}"


def _index_faults(db: Database) -> list[Fact]:
    """Return faults of the index: stretches must be all rows up to where it goes, each once and in its space."""
    values = db.execute(_STRETCHED).fetchone()
    if values is not None and len(set(values)) == 1:
        return []
    return [
        Fact(
            "row",
            None,
            None,
            fault="the index does not say truly which rows of the log belong to which space",
        )
    ]


def facts_of(db: Database, rows: Rows, number: int) -> list[Fact]:
    """Return everything that one row of the log holds."""
    values = db.execute(f"SELECT {COLUMNS} {FROM} WHERE l.id=?", (number,)).fetchone()
    if values is None:
        return [Fact("row", None, None, fault=f"row {number} of the log is missing")]
    try:
        row = row_of(values)
    except Corrupt as error:
        digest = Digest(values[7].hex()) if isinstance(values[7], bytes) else None
        return [Fact("row", digest, None, fault=f"row {number} of the log: {error}")]
    facts = [_fact(db, rows, row, at) for at in range(len(row.pack.items))]
    digest = None if row.digest is None else Digest(row.digest.hex())
    odd = [Fact("row", digest, None, fault=fault) for fault in row_faults(db, rows, row, facts)]
    return facts + [_moved(row, move) for move in _moves(row)] + odd


def _moves(row: LogRow) -> list[MoveRecord | Corrupt]:
    try:
        return list(moves_of(row))
    except Corrupt as error:
        return [error]


def _moved(row: LogRow, move: MoveRecord | Corrupt) -> Fact:
    if isinstance(move, Corrupt):
        return Fact(Kind.MOVE, None, None, fault=f"row {row.id} of the log: {move}")
    found = Object.of(Kind.MOVE, encode_move(move))
    return Fact(Kind.MOVE, found.digest, found)


def _fact(db: Database, rows: Rows, row: LogRow, at: int) -> Fact:
    item = row.pack.items[at]
    kind = KINDS[item.kind] if 0 <= item.kind < len(KINDS) else None
    prefix = row.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES].hex()
    if kind is None:
        return Fact("row", None, None, fault=f"row {row.id} of the log has an item of an unknown kind")
    if item.form == PackForm.FORGOTTEN:
        return Fact(kind, buried_of(item), None, forgotten=why_of(item))
    try:
        found = Object.of(kind, rows.body(db, row, at))
    except (Corrupt, Forgotten) as error:
        return Fact(kind, _wanted(row, prefix), None, fault=str(error))
    wanted = Digest(row.digest.hex()) if item.form == PackForm.COMMIT and row.digest is not None else None
    if found.digest.startswith(prefix) and (wanted is None or wanted == found.digest):
        return Fact(kind, found.digest, found)
    named = wanted or _wanted(row, prefix)
    return Fact(kind, named, None, fault=f"{kind} {named or prefix + '…'} does not match its digest")


def _wanted(row: LogRow, prefix: str) -> Digest | None:
    """Return the full digest that starts with `prefix`, if the row names it anywhere."""
    columns = (value.hex() for value in (row.root, row.digest) if value is not None)
    named = (match.decode() for match in _DIGEST.findall(_changeset(row)))
    return next((Digest(digest) for digest in (*columns, *named) if digest.startswith(prefix)), None)


def _changeset(row: LogRow) -> bytes:
    try:
        found = changeset_of(row)
    except Corrupt:
        return b""
    return b"" if found is None else found[1]
