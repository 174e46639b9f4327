"""Auditing a row: what is not hashed must still follow from what is.

Keys, the places of ancestors and the spans of words are there to find things fast.  Were
they wrong, a read could miss what is there, or walk to a stranger; so `verify` derives them
again from the row's own content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.engines.contract import Fact
from perdure.engines.rules import labels
from perdure.engines.sqlite.applying import op_id_of
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.forgetting import spans_in
from perdure.engines.sqlite.keys import (
    KEY_BYTES,
    label_keys,
    object_key,
    op_keys,
    run_key,
    split,
    version_key,
)
from perdure.engines.sqlite.pack import Form
from perdure.engines.sqlite.records import timeline_of
from perdure.engines.sqlite.rows import FROM_FAR, JUMP, Row, Rows, hashed_step, is_placed, moves_of
from perdure.errors import Corrupt, PerdureError

__all__ = ["row_faults"]

_DERIVED = f"SELECT l.jump IS {JUMP}, CAST(l.spans AS BLOB), CAST(l.timeline AS BLOB) {FROM_FAR} WHERE l.id=?"
# All commits of a write are of one timeline; its last row, which has its moves, has the last of them.
_TIMELINE_AFTER = (
    "SELECT CAST(timeline AS BLOB) FROM log WHERE id>? AND digest IS NOT NULL ORDER BY id LIMIT 1"
)


def row_faults(db: Database, rows: Rows, row: Row, facts: Sequence[Fact]) -> Iterator[str]:
    """What is wrong with the unhashed columns of a row whose objects are `facts`, in the order of its keys."""
    if row.digest is None and not row.follows:
        yield f"row {row.id} of the log has no commit, and something in a column of commits"
    if len(row.bodies) != sum(item.size for item in row.pack.items if item.form == Form.BODIES):
        yield f"row {row.id} of the log has other words than those that it should hold"
    if row.pack.dropped is not None:
        return  # its keys are those of what it held
    try:
        if row.digest is not None:
            yield from _line_faults(db, row)
        yield from _found_faults(db, rows, row, facts)
    except PerdureError:
        return  # damage to what is hashed, which is reported as such


def _found_faults(db: Database, rows: Rows, row: Row, facts: Sequence[Fact]) -> Iterator[str]:
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


def _names(db: Database, row: Row) -> Iterator[bytes]:
    """The keys by which a row is found beside those of its objects."""
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


def _line_faults(db: Database, row: Row) -> Iterator[str]:
    columns = db.execute(_DERIVED, (row.id,)).fetchone()
    if columns is None:
        raise Corrupt(f"row {row.id} of the log is gone")
    jumps, spans, timeline = columns
    if not jumps:
        yield f"row {row.id} of the log jumps to a row that is not the ancestor it should name"
    if not is_placed(row, hashed_step(row)):
        yield f"row {row.id} of the log miscounts its events, names another run, or stands where its parent does not put it"
    if (spans.decode(errors="replace") if isinstance(spans, bytes) else None) != spans_in(
        row, list(row.pack.items)
    ):
        yield f"row {row.id} of the log says that its words stand where they do not"
    if timeline != _timeline(db, row):
        yield f"row {row.id} of the log names another timeline than the one that its commit was written to"


def _timeline(db: Database, row: Row) -> object:
    """What the row must say of the timeline of its commit."""
    if row.pack.op is None:
        return db.execute(_TIMELINE_AFTER, (row.id,)).get
    found = timeline_of(row.pack.op.moves)
    return None if found is None else found.encode()
