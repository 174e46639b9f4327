"""Scanning: everything stored for a space, in storage order, row by row or write by write; and the check of a space.

Damage is a fact, not an error: `verify` reports it, and a copy stops there.  A row that completes a write has its op_id,
so the rows of one write are those after the write before it, up to that row.

What is not hashed follows from what is: the keys of a row and the place of its commit are derived from its objects again
and compared.  The row of a space has a key of its own, and every row of the log belongs to a space.  Each write follows
from the write before it: its link is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec

from perdure.engines.contract import Cell, Fact, Rebuilt, Recorded, Written
from perdure.engines.postgres.commit.write import lost_space, receipt_of
from perdure.engines.postgres.connections import Connection, Row, bytea_array, integer_array
from perdure.engines.postgres.pack import (
    PackedItem,
    RowPack,
    StateReader,
    bytes_of,
    check_intent,
    commit_in,
    decode_pack,
    digest_of_item,
    is_buried,
    key_of,
    kind_of,
    label_key,
    linked_revisions,
    move_key,
    moves_of,
    name_of,
    op_key,
    op_name,
)
from perdure.engines.postgres.reads import CELL, OF, SPACE, StoreQuestion, cell_of, hold_of, lateral_row
from perdure.engines.shared_rules import check_cell, check_seal, damaged, event_labels, rebuilt
from perdure.errors import Corrupt
from perdure.model.commit import decode_changeset, encode_move
from perdure.model.digest import Digest, Kind, Object

__all__ = ["check_space", "faults_of", "scan", "stored_cells", "writes"]

_FACTS_OF_A_ROW = 4  # a commit, its changeset, its move, and at least one object

# The rows of a page, up to the end of a write, and those that are needed to read them, without their packs.
_PAGE = f"""
WITH hit AS MATERIALIZED (
    SELECT * FROM perdure.log WHERE {OF} AND row_id > $3 AND row_id <= coalesce((
        SELECT row_id FROM perdure.log WHERE {OF} AND op_id IS NOT NULL AND row_id >= (
            SELECT row_id FROM perdure.log WHERE {OF} AND row_id > $3 ORDER BY row_id OFFSET $4 LIMIT 1
        ) ORDER BY row_id LIMIT 1), 2147483647)
)
SELECT row_id, op_id, intent, position, chain, previous, dropped, pack, state, true, digest, depth, events, run, needs, unnumbered FROM hit
UNION ALL
SELECT n.row_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, l.state, false, NULL, NULL, NULL, NULL, NULL, NULL FROM (
    SELECT perdure.numbers_in(needs) AS row_id FROM hit EXCEPT SELECT row_id FROM hit
) n CROSS JOIN {lateral_row("n.row_id")} l
ORDER BY row_id
"""


class _StoredRow(NamedTuple):
    """One row of the log, as it is stored."""

    number: int
    op_id: bytes | None  # None: a later row completes the write
    intent: bytes | None
    position: int | None
    chain: bytes | None
    previous: bytes | None
    dropped: bytes | None  # why the space was forgotten
    pack: bytes | None
    state: bytes | None
    is_wanted: bool  # False: it is only needed to read others
    digest: bytes | None  # of its commit, or of its one large object
    depth: int | None  # of its commit; None: it has none, or an earlier row has the same
    events: int | None
    run: int | None  # the key of the run
    needs: bytes | None  # the rows without which its state cannot be read
    unnumbered: int | None  # turns up to its commit that have no number; None: none


class ScannedRow(NamedTuple):
    """What a row of the log holds, and what must lead to it."""

    number: int
    facts: list[Fact]
    keys: set[int]
    commit: bytes | None  # the digest of the commit that is in its place in this row
    parent: bytes | None  # of that commit
    repeated: bytes | None  # the digest of a commit that an earlier row has in its place
    revisions: bytes | None  # of the write that it completes, as its link has them; None: it completes none


class ScannedPage(NamedTuple):
    """Some rows of a space, and the cursor to go on with."""

    rows: list[ScannedRow]
    cursor: int | None


def scan(tenant: str, space: str, after: int, limit: int) -> StoreQuestion[ScannedPage]:
    """Ask for everything in a space after a row, in storage order; a page ends with a write."""
    count = max(1, limit // _FACTS_OF_A_ROW)

    def read(answer: list[Row]) -> ScannedPage:
        rows, states = _stored_rows(answer)
        found: list[ScannedRow] = []
        size, last, position = 0, after, None
        for row in rows:
            facts = _lost_before(row, last)
            scanned = ScannedRow(row.number, facts, set(), None, None, None, None)
            try:
                scanned, position = _scanned_row(row, states, facts, position)
            except (Corrupt, msgspec.DecodeError) as fault:
                facts.append(Fact("row", None, None, fault=getattr(fault, "message", str(fault))))
            found.append(scanned)
            size, last = size + len(facts), row.number
            if size >= limit and row.op_id is not None and row is not rows[-1]:
                return ScannedPage(found, last)
        return ScannedPage(found, last if len(rows) > count else None)

    return StoreQuestion(_PAGE, (tenant, bytes_of(space), after, count), read)


def _stored_rows(answer: list[Row]) -> tuple[list[_StoredRow], StateReader]:
    """Return the rows of a page, and the states of those that they need."""
    rows = [_StoredRow(*cast("tuple[int, ...]", row)) for row in answer]  # pyright: ignore[reportArgumentType, reportCallIssue]
    states = StateReader()
    for row in rows:
        states.add(row.number, row.state)
    return [row for row in rows if row.is_wanted], states


def _lost_before(row: _StoredRow, last: int) -> list[Fact]:
    """Return the fault of rows that are missing; only those that did not complete a dropped write may be."""
    if row.number == last + 1 or row.dropped is not None:
        return []
    return [Fact("row", None, None, fault=f"rows {last + 1} to {row.number - 1} of the log are missing")]


def _scanned_row(
    row: _StoredRow, states: StateReader, facts: list[Fact], position: int | None
) -> tuple[ScannedRow, int | None]:
    """Return what a row holds, and the end of the ledger after its write; `position` is that before, if it is known."""
    keys: set[int] = set() if row.op_id is None else {op_key(row.op_id)}
    if row.dropped is not None:
        if row.pack is not None or row.digest is not None:
            raise damaged(f"row {row.number} of the log is marked as forgotten.", "row_damaged")
        return ScannedRow(row.number, facts, keys, None, None, None, b""), None
    pack = decode_pack(row.pack)
    position = _position_after(row, pack, position)
    revisions = None if pack.op is None else linked_revisions(pack.op.revisions)
    stored = _facts(row, pack, states)
    facts += stored
    if states.needed(row.number) != row.needs:
        raise damaged(f"row {row.number} of the log does not name the rows that it needs.", "row_damaged")
    for fact in facts:
        if fact.digest is not None and fact.kind != Kind.MOVE:
            keys.add(key_of(fact.digest))
    for move in pack.op.moves if pack.op is not None else ():
        keys.add(move_key(move.timeline, move.version))
    commit = commit_in(pack)
    if commit is None:
        is_large = row.op_id is None and len(stored) == 1  # only a large object has a row of its own
        # What was forgotten is not found by its digest any more, so that a writer stores it again.
        is_found = is_large and stored[0].forgotten is None
        named = bytes.fromhex(stored[0].digest or "") if is_found else None
        if row.depth is not None or row.digest != named:
            raise damaged(f"row {row.number} of the log has the place of a commit.", "row_damaged")
        return ScannedRow(row.number, facts, keys, None, None, None, revisions), position
    own = bytes.fromhex(digest_of_item(pack.items[-1]))
    events = decode_changeset(pack.items[-2][1]).events
    keys.update([label_key(label) for label in event_labels(events)])
    if row.depth is None and row.digest is None:
        return ScannedRow(row.number, facts, keys, None, None, own, revisions), position
    run = None if commit.run is None else label_key(commit.run)
    place = own, commit.depth, len(events), run, commit.unnumbered or None
    if (row.digest, row.depth, row.events, row.run, row.unnumbered) != place:
        raise damaged(f"row {row.number} of the log does not match its commit.", "row_damaged")
    parent = b"" if commit.first_parent is None else bytes.fromhex(commit.first_parent)
    return ScannedRow(row.number, facts, keys, own, parent, None, revisions), position


def _position_after(row: _StoredRow, pack: RowPack, before: int | None) -> int | None:
    """Return the end of the ledger after a row; raise `Corrupt` if its write cannot have left it there."""
    if (row.op_id is None) != (pack.op is None):
        raise damaged(f"row {row.number} of the log has lost, or found, its op_id.", "row_damaged")
    if row.op_id is None or pack.op is None:
        if (row.intent, row.position, row.chain, row.previous) != (None, None, None, None):
            raise damaged(
                f"row {row.number} of the log completes no write, but has an end of one.", "row_damaged"
            )
        return before
    check_intent(pack, row.op_id, row.intent)
    after = before if before is None else before + pack.op.entries
    if pack.op.entries:
        after = row.position if after is None else after
    if row.position != (after if pack.op.entries else None):
        raise damaged(f"row {row.number} of the log names another end of the ledger.", "row_damaged")
    return after


_KEY_OF = f"k.tenant = $1 AND k.space = {SPACE}"
# Of a page: keys that do not lead to their rows, commits out of their place, receipts that the ledger contradicts, writes
# that do not follow from the write before.
_FAULTS = f"""
SELECT w.row_id, 'a key that leads to it is missing' FROM unnest($3::bigint[], $4::int[]) w(key, row_id)
WHERE NOT EXISTS (SELECT FROM perdure.keys k WHERE {_KEY_OF} AND k.key = w.key AND k.row_id = w.row_id)
UNION ALL
SELECT w.row_id, 'its commit is not in its place' FROM unnest($5::int[], $6::bytea[], $7::bytea[]) w(row_id, digest, parent)
LEFT JOIN {lateral_row("w.row_id")} l ON true LEFT JOIN {lateral_row("l.prev")} p ON true
LEFT JOIN {lateral_row("p.jump")} d ON true LEFT JOIN {lateral_row("d.jump")} g ON true
WHERE coalesce(p.digest, '') <> w.parent OR l.prev IS DISTINCT FROM p.row_id OR l.depth <> coalesce(p.depth + 1, 0)
   OR l.sequence IS DISTINCT FROM coalesce(p.sequence + p.events, 0)
   OR l.turn IS DISTINCT FROM coalesce(p.turn, 0) + 1 - coalesce(l.run = p.run, false)::int
   OR l.jump IS DISTINCT FROM CASE WHEN l.prev IS NULL THEN l.row_id
                              WHEN p.depth - d.depth = d.depth - g.depth THEN d.jump ELSE p.row_id END
   OR (l.run <> coalesce(p.run, 0) AND NOT EXISTS (
       SELECT FROM perdure.keys k WHERE {_KEY_OF} AND k.key = l.run AND k.row_id = l.row_id))
UNION ALL
SELECT l.row_id, 'it has the place of a commit' FROM perdure.log l
WHERE l.tenant = $1 AND l.space = {SPACE} AND l.row_id >= $10 AND l.row_id <= $11 AND l.depth IS NULL
  AND num_nonnulls(l.prev, l.jump, l.turn, l.sequence, l.events, l.run, l.unnumbered) > 0
UNION ALL
SELECT w.row_id, 'no row has its commit in its place' FROM unnest($8::int[], $9::bytea[]) w(row_id, digest)
WHERE NOT EXISTS (SELECT FROM perdure.keys k CROSS JOIN {lateral_row("k.row_id")} l
                  WHERE {_KEY_OF} AND k.key = perdure.key_of(w.digest) AND l.digest = w.digest AND l.depth IS NOT NULL)
UNION ALL
SELECT l.row_id, 'the ledger has another chain than it was answered with' FROM perdure.log l
LEFT JOIN perdure.entries e ON e.tenant = l.tenant AND e.space = l.space AND e.position = l.position
WHERE l.tenant = $1 AND l.space = {SPACE} AND l.row_id >= $10 AND l.row_id <= $11 AND l.chain IS DISTINCT FROM e.chain
UNION ALL
SELECT l.row_id, 'it completes no write, but has a link' FROM perdure.log l
WHERE l.tenant = $1 AND l.space = {SPACE} AND l.row_id >= $10 AND l.row_id <= $11 AND l.op_id IS NULL AND l.link IS NOT NULL
UNION ALL
SELECT w.row_id, 'it does not follow from the write before: one of the two was exchanged or edited'
FROM unnest($12::int[], $13::bytea[]) w(row_id, revisions) CROSS JOIN {lateral_row("w.row_id")} l
LEFT JOIN LATERAL (SELECT x.row_id, x.link FROM perdure.log x WHERE x.tenant = $1 AND x.space = {SPACE} AND x.op_id IS NOT NULL
                   AND x.row_id < w.row_id ORDER BY x.row_id DESC LIMIT 1) b ON true
WHERE CASE WHEN l.link IS NULL THEN b.link IS NOT NULL OR l.space > (SELECT unlinked FROM perdure.meta)
           ELSE l.link IS DISTINCT FROM perdure.linked(coalesce(b.link, int8send(coalesce(b.row_id, 0)::bigint)), l.op_id,
               l.intent, w.revisions, l.position, l.chain, l.row_id) END
"""


def faults_of(tenant: str, space: str, page: ScannedPage) -> StoreQuestion[list[Fact]]:
    """Ask what of a page is not found by what leads to it, or is not in its place; return all of its facts."""
    keys = [(key, row.number) for row in page.rows for key in row.keys]
    placed = [row for row in page.rows if row.commit is not None]
    repeated = [row for row in page.rows if row.repeated is not None]
    completing = [row for row in page.rows if row.revisions is not None]

    def read(answer: list[Row]) -> list[Fact]:
        wrong = {row: str(what) for row, what in answer}
        facts: list[Fact] = []
        for row in page.rows:
            if row.number in wrong:
                what = f"row {row.number} of the log: {wrong[row.number]}"
                facts.append(Fact("row", None, None, fault=what))
                facts += row.facts
            else:
                facts += [msgspec.structs.replace(fact, audited=fact.fault is None) for fact in row.facts]
        return facts

    numbers = [row.number for row in page.rows] or [0]
    parameters = (
        integer_array([key for key, _ in keys]),
        integer_array([number for _, number in keys], short=True),
        integer_array([row.number for row in placed], short=True),
        bytea_array([row.commit for row in placed]),
        bytea_array([row.parent for row in placed]),
        integer_array([row.number for row in repeated], short=True),
        bytea_array([row.repeated for row in repeated]),
        numbers[0],
        numbers[-1],
        integer_array([row.number for row in completing], short=True),
        bytea_array([row.revisions for row in completing]),
    )
    return StoreQuestion(_FAULTS, (tenant, bytes_of(space), *parameters), read)


def writes(
    tenant: str, space: str, after: int, limit: int
) -> StoreQuestion[tuple[list[Written], int | None]]:
    """Ask for the writes of a space after a row, with what they stored."""
    count = max(1, limit // _FACTS_OF_A_ROW)

    def read(answer: list[Row]) -> tuple[list[Written], int | None]:
        wanted, states = _stored_rows(answer)
        found: list[Written] = []
        facts: list[Fact] = []
        size, last = 0, after
        for at, row in enumerate(wanted):
            recorded, new = _row_content(row, states)
            facts += *_lost_before(row, last), *new
            last = row.number
            if row.op_id is None:
                continue
            why = None if row.dropped is None else row.dropped.decode("utf-8", "replace")
            found.append(Written(op_name(row.op_id), recorded, tuple(facts), why))
            size, facts = size + len(facts), []
            if size >= limit and at + 1 < len(wanted):
                return found, row.number
        if facts:  # no row completes it
            found.append(Written("", None, tuple(facts)))
        return found, wanted[-1].number if len(wanted) > count else None

    return StoreQuestion(_PAGE, (tenant, bytes_of(space), after, count), read)


def _row_content(row: _StoredRow, states: StateReader) -> tuple[Recorded | None, Sequence[Fact]]:
    """Return the write that a row completes, and what the row holds."""
    if row.dropped is not None:
        return None, ()
    recorded = None
    try:
        pack = decode_pack(row.pack)
        if row.op_id is not None:
            check_intent(pack, row.op_id, row.intent)
            intent = Digest((row.intent or b"").hex())
            recorded = Recorded(intent, receipt_of(op_name(row.op_id), pack, row.position, row.chain))
        return recorded, _facts(row, pack, states)
    except (Corrupt, msgspec.DecodeError) as fault:
        return recorded, [Fact("row", None, None, fault=getattr(fault, "message", str(fault)))]


def _facts(row: _StoredRow, pack: RowPack, states: StateReader) -> list[Fact]:
    state = states.items(row.number)
    if len(state) != pack.states:
        raise damaged(f"row {row.number} of the log has lost its values and nodes.", "row_damaged")
    facts = [_fact(item, states.base(row.number, at)) for at, item in enumerate(state)]
    facts += [_fact(item) for item in pack.items]
    if row.op_id is not None:
        for move in moves_of(pack, row.op_id, row.previous):
            stored = Object.of(Kind.MOVE, encode_move(move))
            facts.append(Fact(Kind.MOVE, stored.digest, stored))
    return facts


def _fact(item: PackedItem, base: PackedItem | None = None) -> Fact:
    """Return an object; a copy stores it against the same `base`."""
    kind, digest = kind_of(item), digest_of_item(item)
    if is_buried(item):
        return Fact(kind, digest, None, forgotten=item[1][32:].decode("utf-8", "replace"))
    return Fact(kind, digest, Object(kind, digest, item[1], None if base is None else digest_of_item(base)))


def stored_cells(tenant: str, space: str, after: str, limit: int) -> StoreQuestion[list[Rebuilt]]:
    """Ask for every cell of a space, emptied ones too, by name."""
    sql = f"SELECT {CELL} FROM perdure.cells c WHERE {OF} AND c.name > $3 ORDER BY c.name LIMIT $4"
    return StoreQuestion(
        sql,
        (tenant, bytes_of(space), bytes_of(after), max(limit, 0)),
        lambda rows: [rebuilt(cell_of(space, row), listed=bool(row[4])) for row in rows],
    )


# ---- the check of a space

_SEALS = "SELECT s.seal::text, perdure.sum_of(s.tenant, s.id)::text FROM perdure.spaces s WHERE s.tenant = $1 AND s.name = $2"
_CELLS_DAMAGED = (
    "SELECT c.name, c.revision, c.value, c.position, c.listed, c.digest FROM perdure.spaces s "
    "JOIN perdure.cells c ON c.tenant = s.tenant AND c.space = s.id WHERE s.tenant = $1 AND s.name = $2 AND "
    "(c.digest <> perdure.cell_digest(s.name, c.name, c.revision, c.value, c.position, c.listed) "
    "OR c.is_found <> (c.listed AND c.value IS NOT NULL)) LIMIT 1"
)
_HEADS = (
    "SELECT h.timeline, h.version, h.commit, h.sealed, h.move, h.record FROM perdure.spaces s "
    "JOIN perdure.heads h ON h.tenant = s.tenant AND h.space = s.id WHERE s.tenant = $1 AND s.name = $2"
)
_ENDS = (
    "SELECT s.rows, coalesce((SELECT max(row_id) FROM perdure.log l WHERE l.tenant = s.tenant AND l.space = s.id), 0), "
    "s.position, coalesce((SELECT max(e.position) FROM perdure.entries e WHERE e.tenant = s.tenant AND e.space = s.id), 0), "
    "s.chain IS NOT DISTINCT FROM (SELECT e.chain FROM perdure.entries e WHERE e.tenant = s.tenant AND e.space = s.id "
    "ORDER BY e.position DESC LIMIT 1), s.link = coalesce((SELECT l.link FROM perdure.log l WHERE l.tenant = s.tenant "
    "AND l.space = s.id AND l.op_id IS NOT NULL ORDER BY l.row_id DESC LIMIT 1), int8send(s.rows::bigint)) "
    "FROM perdure.spaces s WHERE s.tenant = $1 AND s.name = $2"
)
# Every space has the key of its name, and the next space of which there are rows has a row of its own.
_NEIGHBOURS = """
SELECT EXISTS (SELECT FROM perdure.keys k WHERE k.tenant = $1 AND k.space = 0 AND k.key = perdure.name_key($2)),
    EXISTS (SELECT FROM (
        SELECT min(l.space) AS id FROM perdure.log l WHERE l.tenant = $1 AND l.space > s.id
        UNION ALL SELECT max(l.space) FROM perdure.log l WHERE l.tenant = $1 AND l.space < s.id
    ) n WHERE n.id IS NOT NULL AND NOT EXISTS (SELECT FROM perdure.spaces o WHERE o.tenant = $1 AND o.id = n.id)),
    EXISTS (SELECT FROM perdure.heads h LEFT JOIN perdure.log l
            ON l.tenant = h.tenant AND l.space = h.space AND l.row_id = h.row_id
            WHERE h.tenant = $1 AND h.space = s.id AND l.digest IS DISTINCT FROM h.commit)
FROM perdure.spaces s WHERE s.tenant = $1 AND s.name = $2
"""
_IS_LOST = "SELECT perdure.is_lost($1, $2)"
_EMPTY_DAMAGED = _CELLS_DAMAGED.replace(" LIMIT 1", " AND c.value IS NULL LIMIT 1")


def check_space(db: Connection, tenant: str, space: str, *, again: bool) -> None:
    """Raise `Corrupt` unless the space adds up to its seal, or was never written to.

    `again` also compares the bytes of every cell and head, and looks for what would not be found by its name.
    """
    questions = [_SEALS, _IS_LOST, _CELLS_DAMAGED if again else _EMPTY_DAMAGED]
    questions += [_HEADS, _ENDS, _NEIGHBOURS] if again else []
    seals, ((is_lost,),), broken, *heads = db.ask_all([(sql, (tenant, bytes_of(space))) for sql in questions])
    if is_lost:
        raise lost_space(space)
    if again:
        _check_ends(space, heads[1], heads[2])
    for row in broken:
        cell, revision, value, position, listed, digest = row
        found = Cell(space, name_of(cell), int(str(revision)), value, int(str(position)))  # pyright: ignore[reportArgumentType]
        check_cell(found, digest, listed=bool(listed))
        check_cell(found, b"", listed=bool(listed))  # its mark among the listed cells is wrong
    for seal, total in seals:
        check_seal(space, int(str(total)), int(str(seal)))
    for row in heads[0] if heads else ():
        hold_of(row)


def _check_ends(space: str, ends: Sequence[Row], neighbours: Sequence[Row]) -> None:
    """Raise `Corrupt` unless the row of the space counts what is stored, and is found, as are the spaces beside it."""
    for rows, last_row, position, last_position, is_chained, is_linked in ends:
        if (rows, position) != (last_row, last_position) or not is_chained:
            raise damaged(
                f"'{space}' counts {rows} rows and {position} entries, and has {last_row} and {last_position}.",
                "space_miscounted",
                space=space,
            )
        if not is_linked:
            raise damaged(
                f"the newest write of '{space}' in the log is not the one that its row in the table `spaces` names: writes were cut off, exchanged or edited.",
                "link_broken",
                space=space,
            )
    for has_key, has_orphans, is_astray in neighbours:
        if not has_key:
            raise damaged(f"the key of the name '{space}' is missing.", "key_lost", space=space)
        if has_orphans:
            raise damaged(
                f"beside '{space}' there are rows of a space whose row is missing in the table `spaces`.",
                "space_lost",
                space=space,
            )
        if is_astray:
            raise damaged(
                f"a head of '{space}' leads to another row than its commit's.", "head_damaged", space=space
            )
