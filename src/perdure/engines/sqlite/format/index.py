"""The index: from a key to the rows that may hold what the key names.

A key is five bytes by which a row can be found.  It is a hint, never a proof: a reader that follows one checks the
digest, the op_id or the label that it finds there.  Short keys keep the index a quarter of the size of one by digest.

In the index a key and its row are one number, a *place*, because SQLite is fastest with
numbers: the key, mixed with the number of its space, and the last bits of the row's number.

Writing a random key into a B-tree at every commit would dirty a page per key, which is
what makes stores by hash slow.  So a row carries its own keys, and only every few
thousand keys the writer sorts them into `places` in one transaction.  Until then they are
found in memory: each process reads the keys of rows above `indexed_upto` once.
The rows of a space are recorded as `stretches` of consecutive ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import unpack

import msgspec

from perdure.engines import loops
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.database import Database
from perdure.errors import Corrupt
from perdure.model.digest import Digest

__all__ = [
    "KEY_BYTES",
    "PLACES_AND_LOG",
    "label_keys",
    "object_key",
    "op_keys",
    "places_of",
    "run_key",
    "split",
    "version_key",
    "Index",
]


KEY_BYTES = 5
PREFIX_MIN = 4  # hex digits of a digest that are enough to look for it by its key

_DIGITS = 2 * KEY_BYTES
_PADDING = bytes(8 - KEY_BYTES)
_KEY_BITS = 39  # of the forty; with those of the row they make a positive number of SQLite's
_ROW_BITS = 24
_ROW_MASK = (1 << _ROW_BITS) - 1
PLACES_AND_LOG = f"places CROSS JOIN log ON log.id = place & {_ROW_MASK}"
_SPREAD = 0x9E3779B97F  # times the number of a space: some forty bits that differ for each


def object_key(digest: Digest) -> bytes:
    """Return the key of an object: the first bytes of its digest."""
    return bytes.fromhex(digest[:_DIGITS])


# Two keys each, so that a name is found though one was damaged: a caller must be able to rely on an answer of None.


def op_keys(op_id: str) -> tuple[bytes, bytes]:
    """Return the keys of a write."""
    digest = blake2b(b"op\0" + op_id.encode("utf-8", "surrogatepass"), digest_size=_DIGITS).digest()
    return digest[:KEY_BYTES], digest[KEY_BYTES:]


def label_keys(label: str) -> tuple[bytes, bytes]:
    """Return the keys of a label: of a message, a name or a run."""
    digest = blake2b(b"label\0" + label.encode("utf-8", "surrogatepass"), digest_size=_DIGITS).digest()
    return digest[:KEY_BYTES], digest[KEY_BYTES:]


def version_key(timeline: str, version: int) -> bytes:
    """Return the key of a recorded move."""
    return blake2b(b"version\0%d/" % version + timeline.encode(), digest_size=KEY_BYTES).digest()


@lru_cache(maxsize=256)
def run_key(run: str) -> int:
    """Return forty-eight bits that represent a run in a column of its own."""
    return int.from_bytes(blake2b(run.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")


def all_places(space: int, keys: Sequence[bytes], rows: Sequence[int]) -> list[int]:
    """Return where the index keeps keys of one space, each with its row.

    Nothing is made for each key but its place: thousands of pairs would start the garbage collector.
    """
    mix = _mix(space)
    # All keys as numbers of eight bytes, by one call: one call for each would cost as much as all else here.
    numbers = unpack(f">{len(keys)}Q", b"".join([_PADDING + key for key in keys]))
    return [
        (number ^ mix) >> 1 << _ROW_BITS | row & _ROW_MASK for number, row in zip(numbers, rows, strict=True)
    ]


def places_of(space: int, key: bytes) -> tuple[int, int]:
    """Return the first and the last place that a key can have."""
    low = _mixed(space, key) << _ROW_BITS
    return low, low | _ROW_MASK


def places_between(space: int, prefix: str) -> tuple[int, int]:
    """Return the first and the last place of objects whose digest starts with these hex digits, `PREFIX_MIN` or more."""
    digits = prefix[:_DIGITS]
    bits = min(4 * len(digits), _KEY_BITS)
    low = _mixed(space, bytes.fromhex(digits.ljust(_DIGITS, "0"))) >> (_KEY_BITS - bits)
    shift = _KEY_BITS - bits + _ROW_BITS
    return low << shift, (low + 1 << shift) - 1


def rows_at(place: int, upto: int) -> range:
    """Return the rows up to `upto` that a place can mean: one, in a store of less than sixteen million rows."""
    first = place & _ROW_MASK
    return range(first, max(first, upto) + 1, _ROW_MASK + 1)


def split(keys: bytes) -> list[bytes]:
    """Return the keys of a row, from the bytes that it has."""
    count, rest = divmod(len(keys), KEY_BYTES)  # what is left over is damage, which the caller finds
    return [*unpack(f"{KEY_BYTES}s" * count + (f"{rest}s" if rest else ""), keys)]


def _mixed(space: int, key: bytes) -> int:
    return (int.from_bytes(key) ^ _mix(space)) >> 1


def _mix(space: int) -> int:
    return space * _SPREAD & 0xFF_FFFF_FFFF


_BATCH_MIN, _BATCH_MAX = 4_096, 32_768
_BATCH_LAST = 1_024  # when a store is closed: the next opening reads a few hundred rows at most
_FORGET_FROM = 4 * _BATCH_MAX
_NONE: dict[bytes, int | tuple[int, ...]] = {}
_PLACES = "SELECT place FROM places WHERE place BETWEEN ? AND ?"
_PLACES_OF = f"SELECT place FROM json_each(?) AS low CROSS JOIN places ON place BETWEEN low.value AND low.value + {_ROW_MASK}"
_JOINED = (
    f"SELECT {{}} FROM places CROSS JOIN log ON log.id = place & {_ROW_MASK} WHERE place BETWEEN ? AND ?"
)
_SORTED_AT_ONCE = 256  # places that one statement inserts
_SORT_IN = "INSERT OR IGNORE INTO places VALUES " + ",".join(["(?)"] * _SORTED_AT_ONCE)
_STRETCHES = (
    "SELECT first, last FROM stretches WHERE space=?1 AND last>?2 AND first>="
    "coalesce((SELECT max(first) FROM stretches WHERE space=?1 AND first<=?2), 0) ORDER BY first LIMIT ?3"
)


class Index:
    """One process's view of where keys are.  Thread-safe."""

    def __init__(self) -> None:
        """Begin empty; the first look-up reads what is not in `places`."""
        self._lock = threading.Lock()
        self._rows: dict[int, list[tuple[int, bytes]]] = {}  # per space, rows above `_upto` and their keys
        # Per space, the same keys one by one, each with its rows; of the rows that no caller has asked for since: none.
        self._recent: dict[int, dict[bytes, int | tuple[int, ...]]] = {}
        self._later: dict[int, int] = {}  # per space, the first of those in `_rows`
        self._owners: dict[int, int] = {}  # the spaces of those rows
        self._count = 0  # of the keys of those rows
        self._upto = 0  # rows up to here are in `places`
        self._seen = -1  # rows up to here are known; -1: nothing was read yet

    def rows(self, connection: Database, space: int, key: bytes) -> list[int]:
        """Return the rows that may hold what `key` names, oldest first."""
        self.catch_up(connection)
        return self.known(connection, space, key)

    def known(self, connection: Database, space: int, key: bytes) -> list[int]:
        """Return the same for a caller that knows that no other process has written since `catch_up`."""
        # First: a key that is sorted in at this moment is then found twice, and not missed.
        recent = self.keys_of(space).get(key)
        older = self._sorted(connection, *places_of(space, key))
        return older if recent is None else older + [row for row in _many(recent) if row not in older]

    def recent(self, space: int, key: bytes) -> tuple[int, ...]:
        """Return those of `rows` that are known without reading the database."""
        found = self.keys_of(space).get(key)
        return () if found is None else _many(found)

    def keys_of(self, space: int) -> Mapping[bytes, int | tuple[int, ...]]:
        """Return the keys of a space that `recent` knows, each with its rows."""
        if self._later and space in self._later:
            with self._lock:
                self._split(space)
        return self._recent.get(space, _NONE)

    def candidates(self, connection: Database, space: int, key: bytes) -> Iterator[int]:
        """Yield the same rows for a caller that can recognise the right one, some of them twice: the costly look-up comes last."""
        yield from self.recent(space, key)
        yield from self._sorted(connection, *places_of(space, key))
        yield from self.rows(connection, space, key)  # with what others have written since

    @property
    def names_rows(self) -> bool:
        """True if every place names one row, so that `PLACES_AND_LOG` finds all: false beyond sixteen million rows."""
        return self._upto <= _ROW_MASK and self._seen <= _ROW_MASK

    def likely(self, connection: Database, space: int, keys: Sequence[bytes]) -> set[int]:
        """Return the rows that these keys lead to without the costly look-up of `candidates`, by one statement."""
        recent = self.keys_of(space)
        found = {row for key in keys if (rows := recent.get(key)) is not None for row in _many(rows)}
        lows = [places_of(space, key)[0] for key in keys if key not in recent]
        upto = max(self._upto, self._seen)
        for (place,) in connection.execute(_PLACES_OF, (msgspec.json.encode(lows).decode(),)) if lows else ():
            found.update(rows_at(place, upto))
        return found

    def between(self, connection: Database, space: int, prefix: str) -> Iterator[int]:
        """Return the rows that may hold an object of the space whose digest starts with these hex digits, in order."""
        if len(prefix) >= 2 * KEY_BYTES:
            yield from self.rows(connection, space, bytes.fromhex(prefix[: 2 * KEY_BYTES]))
        elif len(prefix) < PREFIX_MIN:
            yield from self._all_of(connection, space)
        else:
            self.catch_up(connection)
            with self._lock:
                self._split(space)
                recent = [
                    row
                    for key, rows in self._recent.get(space, {}).items()
                    if key.hex().startswith(prefix)
                    for row in _many(rows)
                ]
            yield from sorted({*self._sorted(connection, *places_between(space, prefix)), *recent})

    def rows_of(self, connection: Database, space: int, after: int, limit: int) -> list[int]:
        """Return the rows of a space in order, those after `after`."""
        self.catch_up(connection)
        # A writer of this process may have noted rows that the reader's transaction does not see.
        newest = int(connection.execute("SELECT coalesce(max(id), 0) FROM log").get or 0)
        with self._lock:
            recent = [row for row, _ in self._rows.get(space, ()) if after < row <= newest]
        rows: list[int] = []
        for first, last in connection.execute(_STRETCHES, (space, after, limit)):
            rows += range(max(first, after + 1), min(last, max(first, after + 1) + limit) + 1)
            if len(rows) >= limit:
                return rows[:limit]
        return (rows + [row for row in recent if not rows or row > rows[-1]])[:limit]

    def add(self, space: int, row: int, keys: bytes) -> None:
        """Note a row that this process has written, with its keys as the row has them."""
        with self._lock:
            if row == self._seen + 1:
                self._see(space, row, keys)

    def catch_up(self, connection: Database) -> int:
        """Read the keys of rows that other processes wrote; return the last row."""
        with self._lock:
            self._catch_up(connection)
            return self._seen

    @property
    def last_row(self) -> int | None:
        """The last row that is known; None: nothing was read yet."""
        return None if self._seen < 0 else self._seen

    def spaces_from(self, row: int) -> set[int] | None:
        """Return the spaces that have rows from that one on; None if that is no longer known."""
        with self._lock:
            if row <= self._upto:
                return None
            return {self._owners[each] for each in range(row, self._seen + 1) if each in self._owners}

    def reset(self) -> None:
        """Drop everything, because rows that were seen were rolled back."""
        with self._lock:
            self._seen = -1  # first: after an interruption everything is read again
            self._clear()

    @property
    def is_due(self) -> bool:
        """True if there are enough keys to sort in; more in a larger store, where it costs more."""
        count = self._count  # the two bounds one by one: this is asked after every write
        return count > _BATCH_MIN and (count > _BATCH_MAX or count > self._upto // 4)

    def is_worth_it(self) -> bool:
        """True if there are enough keys for an opening that closes the store to sort them in."""
        return self._count > _BATCH_LAST

    def sort_in(self, connection: Database) -> int:
        """Move keys into `places`; the caller holds a write transaction and calls `sorted_in` after its commit."""
        with self._lock:
            if self._upto != _upto(connection):  # another process has sorted in what this one remembers
                self._clear()
                self._seen = -1
            self._catch_up(connection)
            places: list[int] = []  # without what damage has left of a key
            for space, rows in self._rows.items():
                keys = [key for _, keys in rows for key in split(keys) if len(key) == KEY_BYTES]
                numbers = [row for row, keys in rows for _ in range(len(keys) // KEY_BYTES)]
                places += all_places(space, keys, numbers)
            stretches = [(space, *run) for space, rows in self._rows.items() for run in _runs(rows)]
            upto = self._seen
        places.sort()
        # Many by one statement: handing them over one by one, or as JSON, costs more than inserting them.
        places += places[-1:] * (-len(places) % _SORTED_AT_ONCE)  # the last again, which is ignored
        cursor = connection.cursor()
        for at in range(0, len(places), _SORTED_AT_ONCE):
            cursor.execute(_SORT_IN, places[at : at + _SORTED_AT_ONCE])
        connection.executemany("INSERT OR REPLACE INTO stretches VALUES (?,?,?)", stretches)
        connection.execute("UPDATE meta SET value=? WHERE name='indexed_upto'", (upto,))
        return upto

    def sorted_in(self, upto: int) -> None:
        """Drop from memory what `sort_in` moved, which is now durable."""
        with self._lock:
            self._clear()
            self._upto = self._seen = upto

    def _sorted(self, connection: Database, low: int, high: int) -> list[int]:
        """Return the rows that `places` has between two places; all of them are up to `_upto`, or were sorted in by others."""
        found = connection.execute(_PLACES, (low, high)).fetchall()
        if not found:
            return []
        upto = max(self._upto, self._seen)
        return [row for (place,) in found for row in rows_at(place, upto)]

    def _all_of(self, connection: Database, space: int) -> Iterator[int]:
        return loops.pages(lambda after, limit: self.rows_of(connection, space, after, limit), 0, int)

    def _catch_up(self, connection: Database) -> None:
        if self._seen < 0 or self._count > _FORGET_FROM:
            upto = _upto(connection)
            # Before it is used: every row up to there is a candidate, so a large number would be read without an end.
            if (connection.execute("SELECT max(last) FROM stretches").get or 0) != upto:
                raise damaged(
                    "the index does not end where the store records; nothing was used.", "index_damaged"
                )
            self._clear()
            self._upto = self._seen = upto
        for row, space, keys in connection.execute(
            "SELECT id, space, keys FROM log WHERE id>?", (self._seen,)
        ):
            if row != self._seen + 1:
                raise _lost(self._seen + 1)
            if not isinstance(keys, bytes):
                raise damaged(f"row {row} of the log is damaged; nothing was used.", "row_damaged", row=row)
            self._see(space, row, keys)

    def _see(self, space: int, row: int, keys: bytes) -> None:
        """Note a row.  `_seen` comes last: after an interruption before it the row is read again."""
        rows = self._rows.get(space)
        if rows is None:
            rows = self._rows[space] = []
        if space not in self._later:
            self._later[space] = len(
                rows
            )  # before the row is there: a row that is not named here is never split
        if not rows or rows[-1][0] < row:
            rows.append((row, keys))
        self._owners[row] = space
        self._count += len(keys) // KEY_BYTES
        self._seen = row

    def _split(self, space: int) -> None:
        """Take in the keys of rows that no caller had asked for; most rows are written and never asked for."""
        first = self._later.get(space)
        if first is not None:
            for row, keys in self._rows[space][first:]:
                self._remember(space, row, split(keys))
            del self._later[space]  # last: a reader that finds nothing here reads without a lock

    def _remember(self, space: int, row: int, keys: list[bytes]) -> None:
        recent = self._recent.get(space)
        if recent is None:
            recent = self._recent[space] = {}
        if recent.keys().isdisjoint(keys):
            recent.update(dict.fromkeys(keys, row))
            return
        for key in dict.fromkeys(keys):
            there = recent.get(key)
            recent[key] = row if there is None else (*_many(there), row)

    def _clear(self) -> None:
        self._rows, self._recent, self._later = {}, {}, {}
        self._owners = {}
        self._count = 0


def _many(rows: int | tuple[int, ...]) -> tuple[int, ...]:
    return (rows,) if isinstance(rows, int) else rows


def _runs(rows: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Return rising numbers of rows as stretches without a gap: the first and the last of each."""
    runs: list[tuple[int, int]] = []
    for row, _ in rows:
        if runs and runs[-1][1] == row - 1:
            runs[-1] = runs[-1][0], row
        else:
            runs.append((row, row))
    return runs


def _lost(row: int) -> Corrupt:
    return damaged(f"row {row} of the log is missing; nothing was used or written.", "row_lost", row=row)


def _upto(connection: Database) -> int:
    value = connection.execute("SELECT value FROM meta WHERE name='indexed_upto'").get
    if not isinstance(value, int):
        raise damaged("the store has no record of how far its index goes; nothing was read.", "index_damaged")
    return value
