"""Scanning: everything stored for a space, in storage order, damage included.

Nothing here raises for damaged data.  An object's full digest is not stored beside it,
only its key; where the bytes no longer fit, the scan looks for the digest they should have
in the row's own changeset and columns.

The scan also audits each row: what is not hashed must still follow from what is.  Keys, the places of
ancestors and the spans of words are there to find things fast.  If they were wrong, a read could miss what is
there, or walk to a foreign commit; so `verify` derives them again from the row's own content.

Nearly every row is sound.  So rows are read in batches, each is decoded once from its first byte to its last, and its
keys are looked up together with those of its neighbours.  A row in which anything is not as expected is left to
`facts_of`, which reads it part by part and names what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from perdure.engines.contract import Fact, Written
from perdure.engines.shared_rules import damaged, labels
from perdure.engines.sqlite.commit.apply import op_id_of, recorded_of
from perdure.engines.sqlite.commit.layout import spans_of
from perdure.engines.sqlite.commit.seals import linked
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import look_again
from perdure.engines.sqlite.format.commits import hashed_step, is_placed
from perdure.engines.sqlite.format.index import (
    KEY_BYTES,
    all_places,
    label_keys,
    object_key,
    op_keys,
    run_key,
    split,
    version_key,
)
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Columns,
    Op,
    PackForm,
    PackItem,
    buried_of,
    commit_in,
    cut_digests,
    is_against,
    joined,
    move_of,
    pack_commit,
    timeline_of,
    why_of,
    with_digests,
)
from perdure.engines.sqlite.format.rows import (
    COLUMNS,
    FROM,
    FROM_FAR,
    JUMP,
    LogRow,
    Rows,
    changeset_of,
    commit_of,
    row_of,
)
from perdure.engines.sqlite.maintenance.removal import spans_in
from perdure.engines.sqlite.reads import moves_of
from perdure.engines.sqlite.schema import COUNTERS
from perdure.errors import Corrupt, Forgotten, PerdureError, Unsupported
from perdure.model.commit import Changeset, Commit, MoveRecord, encode_commit, encode_move
from perdure.model.digest import Digest, Kind, Object, digest_of

__all__ = ["Bodies", "facts_of", "scan", "writes"]


# Text is read as bytes, and another type like none, so only the column itself tells what a writer would not have stored.
_IS_TYPED = " AND ".join(
    [f"typeof(l.{name}) IN ('null', 'text')" for name in ("changeset", "spans", "bodies", "timeline")]
    + [f"typeof(l.{name}) IN ('null', 'blob')" for name in ("digest", "root", "fields", "digests")]
    + ["l.bodies IS NOT ''", "l.digest IS NOT x''"]
)
_DERIVED = f"SELECT l.jump IS {JUMP}, CAST(l.spans AS BLOB), CAST(l.timeline AS BLOB) {FROM_FAR} WHERE l.id=?"
# All commits of a write are of one timeline; its last row, which has its moves, has the last of them.
_TIMELINE_AFTER = (
    "SELECT CAST(timeline AS BLOB) FROM log WHERE id>? AND digest IS NOT NULL ORDER BY id LIMIT 1"
)


def row_faults(db: Database, rows: Rows, row: LogRow, facts: Sequence[Fact]) -> Iterator[str]:
    """Return what is wrong with the unhashed columns of a row whose objects are `facts`, in the order of its keys."""
    if row.digest is None and not row.follows:
        yield f"row {row.id} of the log has no commit, and something in a column of commits"
    if not db.execute(f"SELECT {_IS_TYPED} FROM log l WHERE l.id=?", (row.id,)).get:
        yield f"row {row.id} of the log has a column of another type, or an empty one"
    if len(row.bodies) != sum(item.size for item in row.pack.items if item.form == PackForm.BODIES):
        yield f"row {row.id} of the log has other words than those that it should hold"
    if row.pack.dropped is not None:  # the rest of its keys are those of what it held
        own = {*op_keys(op_id_of(row) or "")} if row.pack.op is not None else set[bytes]()
        if not own <= {*split(row.keys)}:
            yield f"row {row.id} of the log does not carry the keys of its write"
        yield from _unfound(db, rows, row)
        return
    try:
        if row.digest is not None:
            yield from _line_faults(db, row)
        yield from _found_faults(db, rows, row, facts)
    except PerdureError as error:  # damage to what is hashed, which is reported as such where the row has it
        if all([fact.fault is None for fact in facts]):
            yield f"row {row.id} of the log: {error.message}"


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
    yield from _unfound(db, rows, row)


def _unfound(db: Database, rows: Rows, row: LogRow) -> Iterator[str]:
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
    if not _is_plain(row):
        yield f"row {row.id} of the log has its commit or its changeset in another form than the one that is written"
    if timeline != _timeline(db, row):
        yield f"row {row.id} of the log names another timeline than the one that its commit was written to"


def _is_plain(row: LogRow) -> bool:
    """True if a row has its commit and its changeset in the form that a writer gives them, of several that read alike."""
    found, (commit, body) = changeset_of(row), commit_of(row)
    if found is None or not _is_cut(row, found[1]):
        return False
    return row.fields == (pack_commit(commit, found[0]) if encode_commit(commit) == body else body)


def _is_cut(row: LogRow, text: bytes) -> bool:
    """True if the digests of a changeset with this text are where a writer puts them."""
    cut, digests = cut_digests(text.decode())
    return row.changeset == cut.encode() and row.digests == digests


def _timeline(db: Database, row: LogRow) -> object:
    """Return what the row must say of the timeline of its commit."""
    if row.pack.op is None:
        return db.execute(_TIMELINE_AFTER, (row.id,)).get
    found = timeline_of(row.pack.op.moves)
    return None if found is None else found.encode()


_DIGEST = re.compile(rb"[0-9a-f]{64}")
_ROWS_MAX = 1_000  # read by one statement
_ITEMS_OF_A_ROW = 8  # about as many as a commit has
_FIRST = 1  # the space that was written first: what concerns all rows is reported with it
_LOG_MARKS = {
    "log_base",
    "log_mark",
}  # a store from before logs were bound has none until its next log begins
_STRETCHED = """
SELECT (SELECT value FROM meta WHERE name='indexed_upto'), coalesce(sum(last-first+1), 0), coalesce(max(last), 0),
    (SELECT count(*) FROM stretches s JOIN log l ON l.id BETWEEN s.first AND s.last AND l.space=s.space)
FROM stretches
"""
_BATCH = (
    f"SELECT {COLUMNS}, l.jump IS {JUMP}, CAST(l.spans AS BLOB), CAST(l.timeline AS BLOB), p.run, {_IS_TYPED} {FROM_FAR} "
    "WHERE l.id IN (SELECT value FROM json_each(?)) ORDER BY l.id"
)
_BATCH_BYTES_MAX = 8 * 1024 * 1024
_FOUND = "SELECT count(*) FROM json_each(?) wanted CROSS JOIN places ON places.place = wanted.value"
_COLUMNS = 18  # of `COLUMNS`; what the audit needs comes behind them


def scan(
    db: Database, rows: Rows, bodies: Bodies, space: int | None, after: int, limit: int
) -> tuple[list[Fact], int | None]:
    """Return up to about `limit` facts from the rows after `after`, and where to go on; damage counts if it is found twice."""
    if not after:
        bodies.forget()
    found = _scan(db, rows, bodies, space, after, limit)
    if not any([fact.fault is not None for fact in found[0]]):
        return found
    look_again(db, rows.forget)
    bodies.forget()
    return _scan(db, rows, bodies, space, after, limit)


def _scan(
    db: Database, rows: Rows, bodies: Bodies, space: int | None, after: int, limit: int
) -> tuple[list[Fact], int | None]:
    facts = [*_index_faults(db), *_counter_faults(db)] if space == _FIRST and not after else []
    before = _op_of(db, rows, after) if after else _NO_WRITE
    at_once = max(1, min(_ROWS_MAX, limit // _ITEMS_OF_A_ROW))
    while space is not None and len(facts) < limit:
        numbers = rows.index.rows_of(db, space, after, at_once)
        if not numbers:
            return facts, None
        batch = _Batch(db, rows, bodies, space, numbers)
        for number in batch.numbers:
            facts += batch.facts(number)
            row = batch.row(number)
            if row is not None and row.pack.op is not None:
                facts += [] if before is None else _order_faults(number, before, row.pack.op)
                before = row.pack.op
        after = batch.numbers[-1]
        if batch.is_cut:
            break
    return facts, None if space is None else after


def writes(
    db: Database, rows: Rows, bodies: Bodies, space: int | None, after: int, limit: int
) -> tuple[list[Written], int | None]:
    """Return writes with about `limit` objects from the rows after `after`, and the row of the last one of them."""
    if not after:
        bodies.forget()
    found: list[Written] = []
    facts: list[Fact] = []
    count = 0
    is_cut = False  # the last row that was read is not the last one of its write
    while space is not None and (count < limit or is_cut):
        numbers = rows.index.rows_of(db, space, after, max(1, min(_ROWS_MAX, limit // _ITEMS_OF_A_ROW)))
        if not numbers:
            return found, None
        batch = _Batch(db, rows, bodies, space, numbers, names_bases=True)
        for number in batch.numbers:
            facts += batch.facts(number)
            row = batch.row(number)
            is_cut = row is not None and row.pack.op is None
            if not is_cut:
                found.append(_written(row, facts))
                count += len(facts) + 1
                facts = []
        after = batch.numbers[-1]
    return found, None if space is None else after


def _written(row: LogRow | None, facts: list[Fact]) -> Written:
    """Return the write that a row completes; None: the row cannot be read."""
    if row is None or row.pack.op is None:
        return Written("", None, tuple(facts))
    op_id = op_id_of(row) or ""
    if row.pack.dropped is not None:
        return Written(op_id, None, forgotten=row.pack.dropped)
    try:
        return Written(op_id, recorded_of(row, row.pack.op), tuple(facts))
    except (Corrupt, Unsupported):
        return Written(op_id, None, tuple(facts))


class Bodies:
    """Nodes and values that a scan has read, by the place of their item: later rows hold differences to them.

    Two generations: what no row asked for since the last change of generation is dropped.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._young: dict[tuple[int, int, int], tuple[bytes, int]] = {}
        self._old: dict[tuple[int, int, int], tuple[bytes, int]] = {}
        self._held = 0

    def get(self, place: tuple[int, int, int]) -> tuple[bytes, int] | None:
        """Return the bytes of the item at a space, row and index, and how many differences they were made from."""
        found = self._young.get(place)
        if found is None:
            found = self._old.get(place)
            if found is not None:
                self.put(place, *found)
        return found

    def put(self, place: tuple[int, int, int], body: bytes, depth: int) -> None:
        """Keep the bytes of an item."""
        self._held += len(body) + _BODY_BYTES
        if self._held > _BODIES_BYTES_MAX // 2:
            self._old, self._young, self._held = self._young, {}, 0
        self._young[place] = body, depth

    def forget(self) -> None:
        """Drop all, because a scan begins, or looks at the disk again."""
        self._young, self._old, self._held = {}, {}, 0


_BODIES_BYTES_MAX = 8 * 1024 * 1024
_BODY_BYTES = 300  # what one costs beside its bytes
_BASE_BYTES_MIN, _BASE_BYTES_MAX = 64, 1024 * 1024  # what differences are made against
_DIFFERENCES_MAX = 64  # a longer chain is refused by every read
_BASES = frozenset((KINDS.index(Kind.NODE), KINDS.index(Kind.VALUE), KINDS.index(Kind.LIST)))


class _Odd(Exception):
    """Something in a row is not as it should be: `facts_of` names it."""


class _Audited(msgspec.Struct, frozen=True, gc=False):
    """A sound row."""

    facts: list[Fact]
    row: LogRow


class _Batch:
    """Some rows of a space, read by one statement: all of `numbers`, or the first of them if they are large.

    With `names_bases` an object names what it is stored against, so that a copy stores it against the same.
    """

    def __init__(
        self,
        db: Database,
        rows: Rows,
        bodies: Bodies,
        space: int,
        numbers: list[int],
        *,
        names_bases: bool = False,
    ) -> None:
        self._names_bases = names_bases
        self._db, self._rows, self._bodies = db, rows, bodies
        self._sound: dict[int, _Audited] = {}
        self._bytes = 0
        self.numbers, self.is_cut = numbers, False
        keys: dict[int, bytes] = {}
        for values in db.execute(_BATCH, (msgspec.json.encode(numbers).decode(),)):
            try:
                row = row_of(values[:_COLUMNS])
                *derived, is_typed = values[_COLUMNS:]
                if row.space != space or not is_typed:
                    raise _Odd
                self._sound[row.id] = self._audited(row, derived)
                keys[row.id] = row.keys
            except (_Odd, PerdureError, LookupError, TypeError, ValueError):
                pass
            if self._bytes > _BATCH_BYTES_MAX:
                self.numbers = [number for number in numbers if number <= values[0]]
                self.is_cut = len(self.numbers) < len(numbers)
                break
        if not self._are_found(space, keys):
            for number in [number for number in keys if not self._are_found(space, {number: keys[number]})]:
                del self._sound[number]

    def facts(self, number: int) -> list[Fact]:
        """Return everything that a row holds."""
        sound = self._sound.get(number)
        return facts_of(self._db, self._rows, number) if sound is None else sound.facts

    def row(self, number: int) -> LogRow | None:
        """Return a row; None if it cannot be read."""
        sound = self._sound.get(number)
        if sound is not None:
            return sound.row
        try:
            return self._rows.row(self._db, number)
        except Corrupt:
            return None

    def _are_found(self, space: int, keys: dict[int, bytes]) -> bool:
        """True if every row is found by each of its keys."""
        # First: a key that is sorted in at this moment is then found twice, and not missed.
        recent = self._rows.index.keys_of(space)
        places: list[int] = []
        for row, carried in keys.items():
            own = split(carried)
            if recent:
                own = [
                    key
                    for key in own
                    if (at := recent.get(key)) != row and not (type(at) is tuple and row in at)
                ]
            places += all_places(space, own, [row] * len(own))
        wanted = sorted(set(places))
        return self._db.execute(_FOUND, (msgspec.json.encode(wanted).decode(),)).get == len(wanted)

    def _audited(self, row: LogRow, derived: Sequence[object]) -> _Audited:
        """Return what a row holds, each part decoded and hashed once; raise `_Odd` or `Corrupt` if anything is wrong."""
        pack, op = row.pack, row.pack.op
        if pack.dropped is not None:
            raise _Odd
        changeset: Changeset | None = None
        text, digest = b"", Digest("")
        if row.digest is not None:
            found = changeset_of(row)
            if found is None or not _is_cut(row, found[1]):
                raise _Odd
            changeset, text = found
            digest = digest_of(Kind.CHANGESET, text)
        columns = Columns(row.digest, row.parent, row.root, row.depth or 0, row.at or 0, changeset, digest)
        facts = self._items(row, columns, text)
        names: list[bytes] = []
        if changeset is not None:
            names += self._check_line(row, facts, changeset, derived)
        elif not row.follows:
            raise _Odd
        if op is not None:
            names += op_keys(op_id_of(row) or "")
            for stored in op.moves:
                move = move_of(stored, columns)
                body = encode_move(move)
                address = digest_of(Kind.MOVE, body)
                facts.append(
                    Fact(Kind.MOVE, address, Object(Kind.MOVE, address, body, None, move), audited=True)
                )
                names.append(version_key(move.timeline, move.version))
        if sorted(split(row.keys[len(pack.items) * KEY_BYTES :])) != sorted(names):
            raise _Odd
        return _Audited(facts, row)

    def _items(self, row: LogRow, columns: Columns, text: bytes) -> list[Fact]:
        """Return the objects of a row, in the order of its keys."""
        facts: list[Fact] = []
        keys: list[str] = []
        start = 0
        for at, item in enumerate(row.pack.items):
            form, record, base = item.form, None, None
            if not 0 <= item.kind < len(KINDS):
                raise _Odd
            kind = KINDS[item.kind]
            if form == PackForm.FORGOTTEN:
                digest = buried_of(item)
                facts.append(Fact(kind, digest, None, forgotten=why_of(item)))
                keys.append(digest[: 2 * KEY_BYTES])
                continue
            if form == PackForm.BODIES:
                body = row.bodies[start : start + item.size]
                start += item.size
            elif form == PackForm.CHANGESET and kind is Kind.CHANGESET and columns.changeset is not None:
                body, record = text, columns.changeset
            elif form == PackForm.COMMIT and kind is Kind.COMMIT:
                record, body = commit_in(row.fields, columns)
                if body is row.fields:
                    raise _Odd  # our types do not give it back
            elif form == PackForm.WHOLE and kind is not Kind.COMMIT:
                body = item.data
                self._note(row, at, item, body, 0)
            elif is_against(item):
                body = self._joined(row, at, item)
                if self._names_bases:
                    held = self._bodies.get((row.space, item.row, item.index))
                    base = None if held is None else digest_of(kind, held[0])
            else:
                raise _Odd
            self._bytes += len(body)
            digest = columns.changeset_digest if body is text else digest_of(kind, body)
            facts.append(Fact(kind, digest, Object(kind, digest, body, base, record), audited=True))
            keys.append(digest[: 2 * KEY_BYTES])
        if "".join(keys) != row.keys[: len(keys) * KEY_BYTES].hex() or start != len(row.bodies):
            raise _Odd
        return facts

    def _joined(self, row: LogRow, at: int, item: PackItem) -> bytes:
        base = self._bodies.get((row.space, item.row, item.index))
        if base is None:
            return self._rows.body(self._db, row, at)
        body, depth = joined(base[0], item), base[1] + 1
        if depth > _DIFFERENCES_MAX:
            raise _Odd
        self._note(row, at, item, body, depth)
        return body

    def _note(self, row: LogRow, at: int, item: PackItem, body: bytes, depth: int) -> None:
        if item.kind in _BASES and _BASE_BYTES_MIN <= len(body) <= _BASE_BYTES_MAX:
            self._bodies.put((row.space, row.id, at), body, depth)

    def _check_line(
        self, row: LogRow, facts: list[Fact], changeset: Changeset, derived: Sequence[object]
    ) -> Iterator[bytes]:
        """Compare the columns of a commit with what they follow from; yield the keys of its labels."""
        jumps, spans, timeline, above = derived
        commits = [fact for fact in facts if fact.kind is Kind.COMMIT]
        commit = commits[0].object.record if len(commits) == 1 and commits[0].object else None
        if not isinstance(commit, Commit) or row.digest is None or row.digest.hex() != commits[0].digest:
            raise _Odd
        run = None if commit.run is None else run_key(commit.run)
        if not (jumps and row.follows and row.events == len(changeset.events) and row.run == run):
            raise _Odd
        if row.fields != pack_commit(commit, changeset):
            raise _Odd
        found = _spans(row, changeset)
        if spans != (None if found is None else found.encode()) or timeline != _timeline(self._db, row):
            raise _Odd
        for name in labels(commit, changeset, commit.run if run is not None and above == run else None):
            yield from label_keys(name)


def _spans(row: LogRow, changeset: Changeset) -> str | None:
    """Return where the words of a row's events are in its bodies."""
    spans: dict[str, tuple[int, int]] = {}
    start = 0
    for at, item in enumerate(row.pack.items):
        if item.form == PackForm.BODIES:
            spans[row.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES].hex()] = start, item.size
            start += item.size
    return spans_of(changeset, lambda digest: spans.get(digest[: 2 * KEY_BYTES]))


_NO_WRITE = Op(b"", b"")  # what the first write of a space comes after


def _op_of(db: Database, rows: Rows, row: int) -> Op | None:
    """Return the write that a row completes; None if it completes none, or cannot be read."""
    try:
        found = rows.row(db, row)
    except Corrupt:
        return None
    return None if found is None else found.pack.op


def _order_faults(row: int, before: Op, op: Op) -> list[Fact]:
    """Return what is wrong with the place of a write among the writes of its space."""
    fault = None
    if op.number != before.number + 1:
        fault = f"row {row} of the log completes write {op.number} of its space, after write {before.number}"
    elif op.link != linked(before.link, op.op_id, op.intent, op.revisions, op.position, op.chain, op.number):
        fault = f"row {row} of the log does not follow from the write before: one of the two was exchanged or edited"
    return [] if fault is None else [_row_fault(fault)]


def _index_faults(db: Database) -> list[Fact]:
    """Return faults of the index: stretches must be all rows up to where it goes, each once and in its space."""
    values = db.execute(_STRETCHED).fetchone()
    db.execute(
        "SELECT max(place) FROM places"
    ).fetchall()  # else nothing would read it in a store with few rows
    if values is not None and len(set(values)) == 1:
        return []
    return [_row_fault("the index does not say truly which rows of the log belong to which space")]


def _counter_faults(db: Database) -> list[Fact]:
    """Return faults of the table of counters: each must be there once, as a number, and no other row."""
    found = db.execute("SELECT name, typeof(value)='integer' AND value >= 0 FROM meta").fetchall()
    names = {name for name, is_number in found if is_number}
    if len(found) == len(names) and COUNTERS - _LOG_MARKS <= names <= COUNTERS:
        return []
    return [_row_fault("a counter of the store is missing, is no number, or is not one of Perdure's")]


def _row_fault(what: str) -> Fact:
    return Fact("row", None, None, fault=what)


def facts_of(db: Database, rows: Rows, number: int) -> list[Fact]:
    """Return everything that one row of the log holds."""
    values = db.execute(f"SELECT {COLUMNS} {FROM} WHERE l.id=?", (number,)).fetchone()
    if values is None:
        return [Fact("row", None, None, fault=f"row {number} of the log is missing")]
    try:
        row = row_of(values)
    except Corrupt as error:
        digest = Digest(values[7].hex()) if isinstance(values[7], bytes) else None
        return [Fact("row", digest, None, fault=f"row {number} of the log: {error.message}")]
    facts = [_fact(db, rows, row, at) for at in range(len(row.pack.items))]
    digest = None if row.digest is None else Digest(row.digest.hex())
    odd = [Fact("row", digest, None, fault=fault) for fault in row_faults(db, rows, row, facts)]
    return facts + [_moved(row, move) for move in _moves(row)] + odd


def _moves(row: LogRow) -> list[MoveRecord | Corrupt | Unsupported]:
    try:
        return list(moves_of(row))
    except (Corrupt, Unsupported) as error:
        return [error]


def _moved(row: LogRow, move: MoveRecord | Corrupt | Unsupported) -> Fact:
    if not isinstance(move, MoveRecord):
        return Fact(Kind.MOVE, None, None, fault=f"row {row.id} of the log: {move.message}")
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
    # Unsupported: a changed letter can look like a name of a newer version.
    except (Corrupt, Forgotten, Unsupported) as error:
        return Fact(kind, _wanted(row, prefix), None, fault=error.message)
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
        return b"" if row.changeset is None else with_digests(row.changeset, row.digests)
    except Corrupt:
        return b""
