"""Rows: from stored columns back to objects, each checked against its digest.

A row is read whole and unpacked once; unpacked rows are kept for a while, because the
nodes of one state tend to be in the same few rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import cast

import msgspec

from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.index import (
    KEY_BYTES,
    PLACES_AND_LOG,
    Index,
    object_key,
    places_of,
    split,
)
from perdure.engines.sqlite.format.pack import (
    KINDS,
    Columns,
    Pack,
    PackForm,
    PackItem,
    buried_of,
    commit_in,
    decode_framed,
    decode_pack,
    is_against,
    joined,
    unframed,
    why_of,
    with_digests,
)
from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.model.commit import (
    Changeset,
    Commit,
    decode_changeset,
)
from perdure.model.digest import Digest, Kind, Object, digest_of

__all__ = [
    "COLUMNS",
    "FROM",
    "FROM_FAR",
    "IS_PLACED",
    "JUMP",
    "LogRow",
    "Rows",
    "changeset_of",
    "columns_of",
    "commit_of",
    "row_of",
]

# Whether the columns that no digest covers follow from the parent's row; a row without a commit has none of them.
IS_PLACED = """CASE
    WHEN l.digest IS NULL THEN coalesce(
        l.prev, l.jump, l.depth, l.turn, l.sequence, l.events, l.run, l.at, l.root, l.fields, l.changeset,
        l.digests, l.spans, l.timeline) IS NULL
    WHEN l.prev IS NULL THEN (l.jump, l.depth, l.turn, l.sequence) IS (NULL, 0, 1, 0)
    ELSE p.digest IS NOT NULL AND (l.space, l.depth, l.turn, l.sequence) IS
        (p.space, p.depth + 1, p.turn + (l.run IS NULL OR l.run IS NOT p.run), p.sequence + p.events)
END"""
# The row that a commit jumps to: where two equal jumps from its parent would end, or else its parent.
JUMP = "iif(p.depth - f.depth = f.depth - s.depth, f.jump, l.prev)"
FROM = "FROM log l LEFT JOIN log p ON p.id = l.prev"
FROM_FAR = f"{FROM} LEFT JOIN log f ON f.id = p.jump LEFT JOIN log s ON s.id = f.jump"
# Text is read as bytes: a damaged letter must be found by its digest, not break the driver.
COLUMNS = (
    "l.id, l.space, l.depth, l.turn, l.sequence, l.at, l.keys, l.digest, l.root, "
    "l.fields, CAST(l.changeset AS BLOB), l.digests, CAST(l.bodies AS BLOB), l.pack, "
    f"p.digest, l.events, l.run, {IS_PLACED}"
)
_PACKED_COLUMNS = "log.id, log.space, log.keys, log.pack"
_PACKED = f"SELECT {_PACKED_COLUMNS} FROM log WHERE id=?"
_PACKED_AT = f"SELECT {_PACKED_COLUMNS} FROM {PLACES_AND_LOG} WHERE place BETWEEN ? AND ?"
_PACKED_ROWS = f"SELECT {_PACKED_COLUMNS} FROM log WHERE id IN (SELECT value FROM json_each(?))"
_WHOLE_ROWS = f"SELECT {COLUMNS} {FROM} WHERE l.id IN (SELECT value FROM json_each(?))"
_STRETCH = "SELECT 1 FROM stretches WHERE space=? AND first<=? AND last>=?"
_AT_ONCE = 64  # objects whose rows are read together
_CACHE_BYTES = 8 * 1024 * 1024
_DEPTH_MAX = 64  # far beyond what is ever written; a loop in damaged rows ends here


class Packed(msgspec.Struct, frozen=True, gc=False):
    """What a row of the log holds beside its plain columns: enough for most objects.

    Its frame is decompressed when one of its values is read: a reader of a node needs no value.
    """

    id: int
    space: int
    keys: bytes
    pack: Pack
    size: int

    def index_of(self, key: bytes) -> list[int]:
        """Return the items whose key this is."""
        found: list[int] = []
        at = self.keys.find(key)
        while at >= 0:
            index, within = divmod(at, KEY_BYTES)
            if not within and index < len(self.pack.items):
                found.append(index)
            at = self.keys.find(key, at + 1)
        return found


class LogRow(Packed, frozen=True, gc=False):
    """One whole row of the log, unpacked."""

    depth: int | None
    turn: int | None
    sequence: int | None
    at: int | None
    digest: bytes | None  # of the commit, where the row has one
    root: bytes | None
    fields: bytes | None  # of the commit, that no other column has
    changeset: bytes | None  # without the digests that were cut out
    digests: bytes | None
    bodies: bytes
    parent: bytes | None  # the first parent's digest
    events: int | None
    run: int | None
    follows: bool  # whether its place follows from its parent's


def row_of(values: Sequence[object]) -> LogRow:
    """Return a row from `COLUMNS`; raises `Corrupt` if it cannot be unpacked."""
    row, space, depth, turn, sequence, at, keys, digest, root, fields, *texts = values
    changeset, digests, bodies, pack, parent, events, run, follows = texts
    if not isinstance(keys, bytes) or not isinstance(pack, bytes) or not isinstance(space, int):
        raise damaged_row(row)
    words = _bytes(bodies) or b""
    return LogRow(
        cast("int", row),
        space,
        keys,
        decode_pack(pack),
        len(pack) + len(words),
        cast("int | None", depth),
        cast("int | None", turn),
        cast("int | None", sequence),
        cast("int | None", at),
        _bytes(digest),
        _bytes(root),
        _bytes(fields),
        _bytes(changeset),
        _bytes(digests),
        words,
        _bytes(parent),
        cast("int | None", events),
        cast("int | None", run),
        bool(follows),
    )


def _packed(values: Sequence[object]) -> Packed:
    row, space, keys, pack = values
    if not isinstance(keys, bytes) or not isinstance(pack, bytes) or not isinstance(space, int):
        raise damaged_row(row)
    return Packed(cast("int", row), space, keys, decode_framed(pack), len(pack))


def columns_of(row: LogRow) -> Columns:
    """Return what the row's own columns say of its commit."""
    return Columns(row.digest, row.parent, row.root, row.depth or 0, row.at or 0)


def changeset_of(row: LogRow) -> tuple[Changeset, bytes] | None:
    """Return the changeset that a row holds and its canonical bytes, not checked; None if it has none.

    Raises `Corrupt` if it cannot be put together.
    """
    if row.changeset is None:
        return None
    body = with_digests(row.changeset, row.digests)
    return decode_changeset(body), body


def commit_of(row: LogRow) -> tuple[Commit, bytes]:
    """Return the commit that a row holds and its bytes, not checked; raise `Corrupt`."""
    found = changeset_of(row)
    if found is None:
        raise damaged(f"the changeset of row {row.id} of the log is missing.", "row_damaged", row=row.id)
    columns = Columns(
        row.digest,
        row.parent,
        row.root,
        row.depth or 0,
        row.at or 0,
        found[0],
        digest_of(Kind.CHANGESET, found[1]),
    )
    return commit_in(row.fields, columns)


class Rows:
    """Reads rows through one process's index and cache.  Thread-safe."""

    def __init__(self, index: Index, place: str, writes: Callable[[], int] = lambda: -1) -> None:
        """Read by `index`; `place` names the store in errors; `writes` counts them, -1 where that is not known."""
        self.index = index
        self._place = place
        self._lock = Lock()
        self._cache: OrderedDict[int, Packed] = OrderedDict()
        self._last: Packed | None = (
            None  # what was last read from the database: a node and its children tend to be in one row
        )
        self._bytes = 0
        self._epoch = 0  # rows read before it last changed are not kept
        self._generation: object = None  # of the rows that are kept; None: nothing was read yet
        self._writes = writes
        self.looked_at = -1  # how many writes there had been; own ones change no row in place

    def row(self, connection: Database, row: int) -> LogRow | None:
        """Return the row of that number, or None if it is not there (yet)."""
        with self._lock:
            found, epoch = self._cache.get(row), self._epoch
        if isinstance(found, LogRow):
            return found
        values = connection.execute(f"SELECT {COLUMNS} {FROM} WHERE l.id=?", (row,)).fetchone()
        if values is None:
            return None
        whole = row_of(values)
        self._keep(connection, whole, epoch)
        return whole

    def row_in(self, connection: Database, space: int, row: int) -> LogRow | None:
        """Return the row of that number; None if it is not one of the space, or not there yet.

        Raises `Corrupt` if it is missing, or the index lists it under the space and the row is of another.
        """
        found = self.row(connection, row)
        if found is not None and found.space == space:
            return found
        if found is None:
            is_damaged = connection.execute("SELECT 1 FROM log WHERE id>? LIMIT 1", (row,)).fetchone()
        else:
            is_damaged = connection.execute(_STRETCH, (space, row, row)).fetchone()
        if is_damaged is not None:
            raise damaged(f"row {row} of {self._place} is missing or damaged.", "row_lost", row=row)
        return None

    def named(self, connection: Database, space: int, keys: Sequence[bytes]) -> Iterator[LogRow]:
        """Yield the rows that a name with these two keys may lead to, for a caller that has caught up with other writers.

        Raises `Corrupt` if the index has a row under both keys and the row carries neither: one alone could be chance.
        """
        one, other = (self.index.known(connection, space, key) for key in keys)
        for number in sorted({*one, *other}):
            row = self.row_in(connection, space, number)
            if row is None:
                continue
            if number in one and number in other and not set(keys) & set(split(row.keys)):
                raise damaged(
                    f"row {number} of {self._place} does not have the key under which the index lists it.",
                    "index_damaged",
                    row=number,
                )
            yield row

    def packed(self, connection: Database, row: int) -> Packed | None:
        """Return the same without the plain columns, which cost more to read than the rest."""
        with self._lock:
            found, epoch = self._cache.get(row), self._epoch
        if found is None:
            values = connection.execute(_PACKED, (row,)).fetchone()
            if values is None:
                return None
            found = _packed(values)
            self._keep(connection, found, epoch)
        return found

    def objects(self, connection: Database, space: int | None, digests: Sequence[Digest]) -> list[Object]:
        """Return the objects of these digests; raises `NotFound`, `Forgotten` or `Corrupt` for the first that fails."""
        if space is None:
            if digests:
                raise _not_found(digests[0])
            return []
        found: list[Object] = []
        for start in range(0, len(digests), _AT_ONCE):
            page = [(digest, object_key(digest)) for digest in digests[start : start + _AT_ONCE]]
            near = self._near(connection, space, [key for _, key in page]) if len(page) > 1 else {}
            for digest, key in page:
                places = chain(near.get(key, ()), self._found(connection, space, key))
                found.append(self._object(connection, digest, places))
        return found

    def whole(self, connection: Database, space: int | None, digest: Digest) -> Object | None:
        """Return an object that is stored whole where a node of a large map mostly is; None if it has to be looked for.

        A caller need not `look` before: rows that this process remembers are used after a look, others are read now.
        """
        key = object_key(digest)
        for row in () if space is None else self._likely_rows(connection, space, key):
            for at in row.index_of(key) if row.space == space else ():
                item = row.pack.items[at]
                if item.form == PackForm.WHOLE and digest_of(kind_of(item), item.data) == digest:
                    return Object(kind_of(item), digest, item.data)
        return None

    def _likely_rows(self, connection: Database, space: int, key: bytes) -> Iterator[Packed]:
        last, epoch = self._last, self._epoch
        if last is not None and key in last.keys:
            self.look(connection)
            if self._epoch == epoch:
                yield last
        if key in self.index.keys_of(space) or not self.index.names_rows:
            return
        for values in connection.execute(_PACKED_AT, places_of(space, key)).fetchall():
            row = self._cache.get(values[0])
            if row is not None:
                self.look(connection)
                row = self._cache.get(values[0])
            if row is None:
                row = _packed(values)
                self._keep(connection, row, epoch)
            yield row

    def _near(
        self, connection: Database, space: int, keys: Sequence[bytes]
    ) -> dict[bytes, list[tuple[Packed, int]]]:
        """Return where objects of these keys seem to be, as far as one look finds them, by one statement.

        The rows that they build on are cached, by one statement for each level.
        """
        found: dict[bytes, list[tuple[Packed, int]]] = {key: [] for key in keys}
        for row in self._rows(connection, self.index.likely(connection, space, keys)).values():
            for at in range(len(row.pack.items)) if row.space == space else ():
                places = found.get(row.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES])
                if places is not None:
                    places.append((row, at))
        items = [row.pack.items[at] for places in found.values() for row, at in places]
        self._read_whole(
            connection,
            [
                row
                for places in found.values()
                for row, at in places
                if row.pack.items[at].form == PackForm.BODIES
            ],
        )
        for _ in range(_DEPTH_MAX):
            items = [item for item in items if is_against(item)]
            bases = self._rows(connection, {item.row for item in items})
            items = [
                base.pack.items[item.index]
                for item in items
                if (base := bases.get(item.row)) is not None and item.index < len(base.pack.items)
            ]
            if not items:
                break
        return found

    def _read_whole(self, connection: Database, rows: Iterable[Packed]) -> None:
        """Cache the plain columns of rows too, by one statement; a damaged row is left to the caller that needs it."""
        with self._lock:
            epoch, numbers = (
                self._epoch,
                {row.id for row in rows if not isinstance(self._cache.get(row.id), LogRow)},
            )
        sql = _WHOLE_ROWS, (msgspec.json.encode(sorted(numbers)).decode(),)
        for values in connection.execute(*sql).fetchall() if numbers else ():
            with suppress(Corrupt):
                self._keep(connection, row_of(values), epoch)

    def _rows(self, connection: Database, numbers: Iterable[int]) -> dict[int, Packed]:
        """Return the rows of these numbers, without those that are missing or damaged: a caller that needs one raises for it."""
        with self._lock:
            epoch, found = self._epoch, {row: kept for row in numbers if (kept := self._cache.get(row))}
        others = [row for row in numbers if row not in found]
        sql = _PACKED_ROWS, (msgspec.json.encode(others).decode(),)
        for values in connection.execute(*sql).fetchall() if others else ():
            with suppress(Corrupt):
                row = found[values[0]] = _packed(values)
                self._keep(connection, row, epoch)
        return found

    def missing(self, connection: Database, space: int | None, digests: Sequence[Digest]) -> list[Digest]:
        """Return those of `digests` that the space never had."""
        return [digest for digest in digests if space is None or not self.has(connection, space, digest)]

    def find(self, connection: Database, space: int, digest: Digest) -> tuple[Packed, int] | None:
        """Return where the object seems to be; only its bytes prove it."""
        return next(self._found(connection, space, object_key(digest)), None)

    def has(self, connection: Database, space: int, digest: Digest) -> bool:
        """True if the space has the object, or had it before it was forgotten."""
        found = self._found(connection, space, object_key(digest))
        return any(self._is(connection, row, at, digest) for row, at in found)

    def _found(self, connection: Database, space: int, key: bytes) -> Iterator[tuple[Packed, int]]:
        last = self._last
        if last is not None and last.space == space:
            yield from ((last, at) for at in last.index_of(key))
        for row in self._candidates(connection, space, key):
            if row.space == space:
                yield from ((row, at) for at in row.index_of(key))

    def _candidates(self, connection: Database, space: int, key: bytes) -> Iterator[Packed]:
        """Yield the rows that may hold what `key` names, some of them twice: the costly look-up comes last."""
        yield from self._packed_rows(connection, self.index.recent(space, key))
        if self.index.names_rows:
            # Index and rows by one statement: a node of a large map is one look-up, not two.
            with self._lock:
                epoch = self._epoch
            for values in connection.execute(_PACKED_AT, places_of(space, key)).fetchall():
                row = self._cache.get(values[0])
                if row is None:
                    row = _packed(values)
                    self._keep(connection, row, epoch)
                yield row
        # With what others have written since.
        yield from self._packed_rows(connection, self.index.rows(connection, space, key))

    def _packed_rows(self, connection: Database, numbers: Iterable[int]) -> Iterator[Packed]:
        for number in numbers:
            row = self.packed(connection, number)
            if row is not None:
                yield row

    def _is(self, connection: Database, row: Packed, at: int, digest: Digest) -> bool:
        """True if an item with the object's key is the object, and not another; a damaged one counts as the object."""
        item = row.pack.items[at]
        if item.form == PackForm.FORGOTTEN:
            return buried_of(item) == digest
        try:
            found = digest_of(kind_of(item), self.body(connection, row, at))
        except (Corrupt, Forgotten):
            return True
        return found == digest or object_key(found) != object_key(digest)

    def body(self, connection: Database, row: Packed, at: int) -> bytes:
        """Return the bytes of an item, whatever its form; raises `Forgotten` or `Corrupt`."""
        later: list[PackItem] = []
        item = row.pack.items[at]
        while is_against(item):
            later.append(item)
            base = self.packed(connection, item.row) if len(later) <= _DEPTH_MAX else None
            if base is None or base.space != row.space or item.index >= len(base.pack.items):
                raise damaged(
                    f"row {row.id} of {self._place} builds on a row that is not there.",
                    "row_lost",
                    row=row.id,
                )
            row, at = base, item.index
            item = row.pack.items[at]
        if item.form == PackForm.FRAMED:
            body = self._unframed(row).pack.items[at].data
        else:
            body = item.data if item.form == PackForm.WHOLE else self._plain(connection, row, at)
        for difference in reversed(later):
            body = joined(body, difference)
        return body

    def _unframed(self, row: Packed) -> Packed:
        """Return the row with the objects of its frame, which is decompressed once while the row is cached."""
        opened = msgspec.structs.replace(row, pack=unframed(row.pack))
        with self._lock:
            if self._cache.get(row.id) is row:
                self._cache[row.id] = opened
            if self._last is row:
                self._last = opened
        return opened

    def forget(self) -> None:
        """Drop all cached rows, because rows were changed in place."""
        with self._lock:
            self._forget()

    def refresh(self, connection: Database) -> object:
        """Drop all cached rows if a process has changed rows in place since the last time; return a mark of this state."""
        generation = connection.execute("SELECT value FROM meta WHERE name='generation'").get
        if generation != self._generation:
            with self._lock:
                self._generation = generation
                self._forget()
        return generation

    def look(self, connection: Database) -> None:
        """Refresh, unless no process has written since the last look."""
        writes = self._writes()
        if writes < 0 or writes != self.looked_at:
            self.refresh(connection)
            self.looked_at = writes

    def _forget(self) -> None:
        self._epoch += 1
        self._last = None
        self._cache.clear()
        self._bytes = 0

    def _object(self, connection: Database, digest: Digest, places: Iterable[tuple[Packed, int]]) -> Object:
        """Return the object of that digest, which seems to be at one of these places."""
        damage: Corrupt | Forgotten | None = None
        for row, at in places:
            kind = kind_of(row.pack.items[at])
            try:
                return Object.read(kind, digest, self.body(connection, row, at))
            except (Corrupt, Forgotten) as error:  # another row may have it whole
                if damage is None and self._is(connection, row, at, digest):
                    damage = error
        raise damage or _not_found(digest)

    def _plain(self, connection: Database, row: Packed, at: int) -> bytes:
        """Return the bytes of an item that are in the row's own columns."""
        whole = row if isinstance(row, LogRow) else self.row(connection, row.id)
        if whole is None or at >= len(whole.pack.items):
            raise damaged(f"row {row.id} of {self._place} is not there any more.", "row_lost", row=row.id)
        return _plain(whole, at, whole.pack.items[at])

    def _keep(self, connection: Database, row: Packed, epoch: int) -> None:
        if row.size > _CACHE_BYTES // 8 or connection.in_transaction:
            return  # what is not durable yet must not be shown to others
        with self._lock:
            if epoch == self._epoch:
                before = self._cache.pop(row.id, None)
                self._cache[row.id] = self._last = row
                self._bytes += row.size + 500 - (0 if before is None else before.size + 500)
            while self._bytes > _CACHE_BYTES:
                self._bytes -= self._cache.popitem(last=False)[1].size + 500


def damaged_row(row: object) -> Corrupt:
    """Return the error for a row that cannot be read."""
    return damaged(f"row {row} of the log is damaged; it was not used.", "row_damaged", row=row)


def _plain(row: LogRow, at: int, item: PackItem) -> bytes:
    match item.form:
        case PackForm.WHOLE:
            return item.data
        case PackForm.BODIES:
            start = sum(other.size for other in row.pack.items[:at] if other.form == PackForm.BODIES)
            return row.bodies[start : start + item.size]
        case PackForm.CHANGESET:
            return b"" if row.changeset is None else with_digests(row.changeset, row.digests)
        case PackForm.COMMIT:
            return commit_of(row)[1]
        case PackForm.FORGOTTEN:
            raise Forgotten(f"{kind_of(item)} {buried_of(item)}", why_of(item))
        case _:
            raise damaged(
                f"row {row.id} of the log has an item of an unknown form.", "row_damaged", row=row.id
            )


def kind_of(item: PackItem) -> Kind:
    """Return the kind of an item; raise `Corrupt` if there is none of its number."""
    if not 0 <= item.kind < len(KINDS):
        raise damaged("a stored item is of an unknown kind.", "row_damaged")
    return KINDS[item.kind]


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _not_found(digest: Digest) -> NotFound:
    return NotFound(
        f"there is no object {digest} in this space; nothing was returned.",
        code="object_not_found",
        digest=digest,
    )
