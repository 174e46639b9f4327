"""The search index on a server: one for each tenant and owner, shared by the processes of all machines.

    memory_indexes  a row for each owner: the root that the index is at, behind it the format of the index, and what the
                    ranking needs to know of it as a whole
    memory_rows     a row for each version of an item: its words as a `tsvector`, in which the position of a word is how
                    often the item has it (at most 16,383 times), and its weight is D, C or B if that is 1, 2 or 3
    memory_vectors  a row for each version that has a vector, or whose vector a process is making

Words are split and stemmed in the client, by the function that also serves SQLite, and ranked here by the same BM25
with the numbers of this owner alone.  So both engines find the same and rank it in the same order; distances by words
agree to 9 digits.  There is one difference: of a term that the tokenizer splits, each part counts by itself.

Vectors are compared by pgvector's cosine distance, over all vectors of the owner.  It adds in another order than
sqlite-vec, so distances agree within 0.000002, and so may the order of versions that are that close.  Only
one column needs the extension, so words are searched where it is missing.

A process that asks which versions have no vector yet claims them, and others wait for what it makes.  So a text is
embedded once, unless its process takes longer than `CLAIM_SECONDS` or is killed.

No statement uses an index on words: row security hides one from the planner, because `@@` is not leakproof.  A search
reads the rows of one owner.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from struct import Struct, unpack
from typing import TypeVar

import psycopg

from perdure.engines.postgres.connections import (
    Address,
    Connection,
    Encoded,
    Parameter,
    Pool,
    Row,
    bytea_array,
    integer_array,
    parse_address,
)
from perdure.engines.postgres.errors import (
    ConnectionLost,
    StatementFailed,
    connection_error,
    lost_error,
    translated,
)
from perdure.engines.postgres.pack import bytes_of, name_of
from perdure.engines.search_contract import INDEX_FORMAT, Filters, Hit, IndexPosition, SearchRow
from perdure.errors import PerdureError, Unsupported
from perdure.model.digest import Digest
from perdure.model.fork_safety import ThreadLock

__all__ = ["CLAIM_SECONDS", "PostgresSearch", "Tokenizer", "check_vectors"]

Tokenizer = Callable[[str], Sequence[str]]
"""From a text to the stems of its words, in order."""

_T = TypeVar("_T")

CLAIM_SECONDS = 20.0
_PAUSE_SECONDS = 0.05
_CONNECTIONS_MAX = 4  # for the indexes of all owners
_WAIT_SECONDS = 10.0  # for one of them
_BATCH = 500
_LEXEME_BYTES_MAX = 1_000  # a `tsvector` takes up to 2,046
_COUNT_MAX = 16_383  # the last position that a `tsvector` has
_WEIGHTS = " DCBA"  # by how often an item has a word: reading a weight costs less than reading a position
_DIGITS = 6
_DIGEST_BYTES = 32
_FORMAT = bytes([INDEX_FORMAT])  # an index has it behind its root
_NOTHING = Digest("0" * 64)
_REAL_ARRAY, _REAL = 1021, 700
_array_head = Struct(">iiiii").pack

# The index cannot be used now, which says nothing about the store: no such table, no right, a read-only server, a lock
# that another process holds, vectors of another width.
_UNUSABLE = frozenset({"42P01", "42501", "25006", "55P03", "40P01", "40001", "22000"})


# A number in the index is none that the ranking can use, such as a count of 0.
_DAMAGED = "22"

_BEGIN = "SELECT set_config('perdure.tenant', $1, true), set_config('jit', 'off', true), set_config('lock_timeout', '2s', true)"
_POSITION = "SELECT id, root, model FROM perdure.memory_indexes WHERE tenant = $1 AND owner = $2"
_LOCK = f"{_POSITION} FOR UPDATE"
_COUNTED = """
SELECT i.items = count(r.length) AND i.words = coalesce(sum(r.length), 0) FROM perdure.memory_indexes i
LEFT JOIN perdure.memory_rows r ON r.tenant = i.tenant AND r.memory = i.id
WHERE i.tenant = $1 AND i.owner = $2 GROUP BY i.items, i.words
"""
_MAKE = "INSERT INTO perdure.memory_indexes (tenant, owner) VALUES ($1, $2) ON CONFLICT (tenant, owner) DO NOTHING"
_ROWS = "perdure.memory_indexes i JOIN perdure.memory_rows r ON r.tenant = i.tenant AND r.memory = i.id"
_OWN = "i.tenant = $1 AND i.owner = $2"
_AMONG = "($4::bytea IS NULL OR r.kind = $4) AND ($5::bytea IS NULL OR r.scope = $5)"

# BM25 as FTS5 computes it: the same operations in the same order.
_FOUND = f"""
WITH term(lexeme, at) AS (
    SELECT convert_from(lexeme, 'UTF8'), at FROM unnest($3::bytea[]) WITH ORDINALITY AS t(lexeme, at)
), query(lexeme, at, ever, once, twice, thrice) AS MATERIALIZED (
    SELECT lexeme, at, q::tsquery, (q || ':D')::tsquery, (q || ':C')::tsquery, (q || ':B')::tsquery
    FROM term, quote_literal(lexeme) q
), hit AS MATERIALIZED (
    SELECT r.path, r.item, r.digest, {_AMONG} AS is_among, q.at, i.items,
           CASE WHEN r.words @@ q.once THEN 1 WHEN r.words @@ q.twice THEN 2 WHEN r.words @@ q.thrice THEN 3
                ELSE (SELECT u.positions[1] FROM unnest(r.words) u WHERE u.lexeme = q.lexeme) END::float8 AS f,
           0.25::float8 + 0.75::float8 * r.length::float8 / (i.words::float8 / i.items::float8) AS size
    FROM {_ROWS} JOIN query q ON r.words @@ q.ever
    WHERE {_OWN} AND r.words @@ $6::text::tsquery
), weight(at, idf) AS (
    SELECT at, ln(((items - count(*))::float8 + 0.5::float8) / (count(*)::float8 + 0.5::float8)) FROM hit GROUP BY at, items
)
SELECT path, item, digest, -sum(CASE WHEN idf <= 0 THEN '1e-6'::float8 ELSE idf END
           * ((f * 2.2::float8) / (f + 1.2::float8 * size)) ORDER BY at) AS distance
FROM hit JOIN weight USING (at) WHERE is_among GROUP BY path, item, digest ORDER BY distance, item, path LIMIT $7
"""
_NEAR = f"""
WITH hit AS (
    SELECT r.path, r.item, r.digest, v.embedding OPERATOR(SCHEMA.<=>) $3::real[]::SCHEMA.vector AS distance
    FROM {_ROWS} JOIN perdure.memory_vectors v ON v.tenant = r.tenant AND v.memory = r.memory AND v.digest = r.digest
    WHERE {_OWN} AND v.embedding IS NOT NULL AND {_AMONG}
)
SELECT path, item, digest, distance FROM hit ORDER BY round(distance * 1e6), item, path LIMIT $6
"""
# For a process that claims, what others are making counts as made.
_BARE = f"""
SELECT r.path, r.digest FROM {_ROWS} WHERE {_OWN} AND r.length IS NOT NULL AND NOT EXISTS (
    SELECT FROM perdure.memory_vectors v WHERE v.tenant = r.tenant AND v.memory = r.memory AND v.digest = r.digest
    AND (v.claimed_until IS NULL OR ($5 AND v.claimed_until > clock_timestamp() AND v.maker <> $4))
) ORDER BY r.path LIMIT $3
"""
_CLAIM = """
INSERT INTO perdure.memory_vectors (tenant, memory, digest, maker, claimed_until)
SELECT DISTINCT $1, $2::bigint, digest, $4::bytea, clock_timestamp() + $5 * interval '1 microsecond'
FROM unnest($3::bytea[]) AS d(digest)
ON CONFLICT (tenant, memory, digest) DO UPDATE SET maker = excluded.maker, claimed_until = excluded.claimed_until
"""
_LEARN = """
INSERT INTO perdure.memory_vectors (tenant, memory, digest, embedding)
SELECT $1, $2, digest, CASE WHEN at > 0 THEN ($5::real[])[at : at + $6 - 1] END::SCHEMA.vector
FROM unnest($3::bytea[], $4::bigint[]) AS n(digest, at)
ON CONFLICT (tenant, memory, digest) DO UPDATE SET maker = NULL, claimed_until = NULL, embedding = excluded.embedding
WHERE memory_vectors.claimed_until IS NOT NULL
"""
_RELEASE = "DELETE FROM perdure.memory_vectors WHERE tenant = $1 AND memory IN (SELECT id FROM perdure.memory_indexes WHERE tenant = $1 AND owner = $2) AND maker = $3"
_DIGESTS = "SELECT path, digest FROM perdure.memory_rows WHERE tenant = $1 AND memory = $2 AND path = ANY($3::bytea[])"
_VECTORS = (
    "SELECT v.digest, v.embedding FROM perdure.memory_indexes i JOIN perdure.memory_vectors v ON v.tenant = i.tenant "
    "AND v.memory = i.id WHERE i.tenant = $1 AND i.owner = $2 AND i.model = $4 AND v.digest = ANY($3::bytea[]) "
    "AND v.embedding IS NOT NULL"
)
_REMOVE = "DELETE FROM perdure.memory_rows WHERE tenant = $1 AND memory = $2 AND path = ANY($3::bytea[]) RETURNING digest, length"
_REMOVE_VECTORS = """
DELETE FROM perdure.memory_vectors v WHERE tenant = $1 AND memory = $2 AND digest = ANY($3::bytea[]) AND NOT EXISTS (
    SELECT FROM perdure.memory_rows r WHERE r.tenant = v.tenant AND r.memory = v.memory AND r.digest = v.digest)
"""
_EMPTY = "DELETE FROM perdure.memory_rows WHERE tenant = $1 AND memory = $2"
_FORGET_VECTORS = "DELETE FROM perdure.memory_vectors WHERE tenant = $1 AND memory = $2"
_ADD = """
INSERT INTO perdure.memory_rows (tenant, memory, path, item, digest, kind, scope, length, words)
SELECT $1, $2, path, item, digest, kind, scope, nullif(length, -1), convert_from(words, 'UTF8')::tsvector
FROM unnest($3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bytea[])
    AS n(path, item, digest, kind, scope, length, words)
"""
_ARRIVE = (
    "UPDATE perdure.memory_indexes SET root = $3, items = items + $4, words = words + $5 "
    "WHERE tenant = $1 AND id = $2"
)
_RESET = "UPDATE perdure.memory_indexes SET root = NULL, model = NULL, items = 0, words = 0 WHERE tenant = $1 AND id = $2"
_MODEL = "UPDATE perdure.memory_indexes SET model = $3 WHERE tenant = $1 AND id = $2"
_EXTENSION = """
SELECT to_regclass('perdure.memory_vectors') IS NOT NULL, EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = to_regclass('perdure.memory_vectors') AND attname = 'embedding'),
    (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'),
    EXISTS (SELECT FROM pg_available_extension_versions v WHERE v.name = 'vector' AND (v.installed
        OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        OR (v.trusted AND has_database_privilege(current_database(), 'CREATE'))))
"""
_ADD_VECTORS = "SELECT perdure.add_vectors()"


class PostgresSearch:
    """The index of one owner's memory."""

    def __init__(self, url: str, owner: str, tokenizer: Tokenizer, *, read_only: bool = False) -> None:
        """Prepare the index of that owner; nothing is opened yet.  `read_only` never changes it."""
        self._address = parse_address(url, read_only=read_only)
        self._tenant, self._owner = self._address.tenant, bytes_of(owner)
        self._tokenizer, self._read_only = tokenizer, read_only
        self._name = os.urandom(16)
        self._claimed: dict[bytes, bytes] = {}  # from a path to its digest
        self._vector_schema: str | None = None
        self._is_counted = False  # whether the index had all its rows when it was first used

    def standing(self) -> IndexPosition:
        """Return the root that the index is at; none if there is no index, it has lost rows, or it cannot be used."""
        asked = [] if self._is_counted else [(_COUNTED, (self._tenant, self._owner))]
        found = self._read(*asked)
        if not found or not found[0]:
            return IndexPosition(None)
        if asked and found[1] != [(True,)]:
            self.discard()
            return IndexPosition(None)
        self._is_counted = True
        _, root, model = found[0][0]
        return IndexPosition(_root(root), None if model is None else name_of(model))

    def move(
        self, before: Digest | None, after: Digest, gone: Iterable[str], rows: Iterable[SearchRow]
    ) -> bool:
        def move(db: Connection) -> bool:
            db.ask(_MAKE, self._tenant, self._owner)
            ((memory, root, _),) = db.ask(_LOCK, self._tenant, self._owner)
            of = (self._tenant, int(str(memory)))
            if before is None:
                db.ask(_EMPTY, *of)
                db.ask(_FORGET_VECTORS, *of)
                db.ask(_RESET, *of)
            elif _root(root) != before:
                return False
            items, words = _without(db, of, gone)
            more_items, more_words = self._with(db, of, rows)
            db.ask(_ARRIVE, *of, bytes.fromhex(after) + _FORMAT, more_items - items, more_words - words)
            return True

        return self._write(move)

    def found(
        self, root: Digest, terms: Sequence[str], among: Filters, *, limit: int
    ) -> Sequence[Hit] | None:
        lexemes = [lexeme for term in terms for lexeme in self._lexemes(term)]
        if not lexemes:
            return None if self._at(root) is None else []
        answer = self._at(
            root,
            _FOUND,
            bytea_array([lexeme.encode() for lexeme in lexemes]),
            *_bound(among),
            " | ".join(map(_quoted, lexemes)),
            limit,
        )
        return None if answer is None else [_hit(row) for row in answer]

    def near(self, root: Digest, vector: bytes, among: Filters, *, limit: int) -> Sequence[Hit] | None:
        sql = _NEAR.replace("SCHEMA", self._extension())
        answer = self._at(root, sql, _reals(vector), *_bound(among), limit)
        return None if answer is None else [_hit(row, _DIGITS) for row in answer]

    def without_vector(
        self, root: Digest, *, limit: int, claim: bool = False
    ) -> Sequence[tuple[str, Digest]] | None:
        if not claim or self._read_only:
            answer = self._at(root, _BARE, limit, self._maker, False)
            return None if answer is None else [(name_of(path), _known(digest)) for path, digest in answer]
        deadline = time.monotonic() + 2 * CLAIM_SECONDS
        while True:
            bare = self._claim(root, limit)
            if bare or bare is None:
                return bare
            if not self.without_vector(root, limit=1):
                return []
            if time.monotonic() > deadline:
                return None
            time.sleep(_PAUSE_SECONDS)  # another process makes the rest

    def learn(self, root: Digest, model: str, vectors: Mapping[str, bytes], *, width: int) -> bool:
        """Add vectors; those that were claimed are kept even if the index has moved on, and it has their versions still."""

        def learn(db: Connection) -> bool:
            locked = db.ask(_LOCK, self._tenant, self._owner)
            memory, now, known = locked[0] if locked else (0, None, None)
            is_there, of = _root(now) == root, (self._tenant, int(str(memory)))
            if known is None or name_of(known) != model:
                if not is_there:
                    return False
                db.ask(_FORGET_VECTORS, *of)
                db.ask(_MODEL, *of, bytes_of(model))
            paths = {bytes_of(path): vector for path, vector in vectors.items()}
            new = dict[bytes, bytes]()
            for path, digest in db.ask(_DIGESTS, *of, bytea_array(list(paths))) if paths else ():
                assert isinstance(path, bytes)
                assert isinstance(digest, bytes)
                if self._claimed.pop(path, None) == digest or is_there:
                    new[digest] = paths[path]
            if new:
                db.ask(insert, *of, bytea_array(list(new)), *_slices(new.values(), width))
            return is_there

        insert = _LEARN.replace("SCHEMA", self._extension())
        return self._write(learn)

    def vectors(self, digests: Sequence[Digest], model: str) -> Mapping[Digest, bytes]:
        self._extension()
        wanted = bytea_array([bytes.fromhex(digest) for digest in digests])
        found = self._read((_VECTORS, (self._tenant, self._owner, wanted, bytes_of(model))))
        if not found or not found[0] or _root(found[0][0][1]) is None:
            return {}
        return {_known(digest): _floats(vector) for digest, vector in found[1]}

    def discard(self) -> None:
        """Remove everything."""

        def discard(db: Connection) -> bool:
            for memory, _, _ in db.ask(_LOCK, self._tenant, self._owner):
                of = (self._tenant, int(str(memory)))
                db.ask(_EMPTY, *of)
                db.ask(_FORGET_VECTORS, *of)
                db.ask(_RESET, *of)
            return True

        self._write(discard)

    def close(self) -> None:
        if self._claimed:  # others need not wait for what this process does not make
            with suppress(PerdureError):
                self._write(lambda db: not db.ask(_RELEASE, self._tenant, self._owner, self._maker))
        self._claimed.clear()
        _pools.release(self)

    # ---- inside

    @property
    def _maker(self) -> bytes:
        return self._name + str(os.getpid()).encode()  # a forked child makes vectors of its own

    def _claim(self, root: Digest, limit: int) -> list[tuple[str, Digest]] | None:
        bare: list[tuple[str, Digest]] | None = None

        def claim(db: Connection) -> bool:
            nonlocal bare
            locked = db.ask(_LOCK, self._tenant, self._owner)
            if not locked or _root(locked[0][1]) != root:
                return False
            found = db.ask(_BARE, self._tenant, self._owner, limit, self._maker, True)
            bare = [(name_of(path), _known(digest)) for path, digest in found]
            pairs = {bytes_of(path): bytes.fromhex(digest) for path, digest in bare}
            claimed_us = int(CLAIM_SECONDS * 1_000_000)
            digests = bytea_array(sorted(set(pairs.values())))
            db.ask(_CLAIM, self._tenant, int(str(locked[0][0])), digests, self._maker, claimed_us)
            self._claimed |= pairs
            return True

        return bare if self._write(claim) else None

    def _with(self, db: Connection, of: tuple[str, int], rows: Iterable[SearchRow]) -> tuple[int, int]:
        """Add rows; return how many have words, and how many words."""
        items = words = 0
        for batch in _batches(rows):
            lengths, vectors = list[int](), list[bytes | None]()
            for row in batch:
                length, vector = (-1, None) if row.words is None else self._worded(row.words)
                lengths.append(length)
                vectors.append(vector)
            db.ask(
                _ADD,
                *of,
                bytea_array([bytes_of(row.path) for row in batch]),
                bytea_array([bytes_of(row.item) for row in batch]),
                bytea_array([bytes.fromhex(row.digest) for row in batch]),
                bytea_array([bytes_of(row.kind) for row in batch]),
                bytea_array([bytes_of(row.scope) for row in batch]),
                integer_array(lengths),
                bytea_array(vectors),
            )
            items += sum(length >= 0 for length in lengths)
            words += sum(max(length, 0) for length in lengths)
        return items, words

    def _worded(self, words: str) -> tuple[int, bytes]:
        """Return how many words a text has, and the text of its `tsvector`."""
        counted = Counter(self._lexemes(words))
        vector = [
            f"{_quoted(word)}:{min(many, _COUNT_MAX)}{_WEIGHTS[min(many, 4)]}"
            for word, many in counted.items()
        ]
        return counted.total(), " ".join(vector).encode()

    def _lexemes(self, text: str) -> list[str]:
        return [_short(token) for token in self._tokenizer(text)]

    def _extension(self) -> str:
        """Return the schema of the extension for vectors; raise `Unsupported` if the store does not have them."""
        if self._vector_schema is None:
            self._vector_schema = _vector_schema(self._pool, self._address)
        return self._vector_schema

    @property
    def _pool(self) -> Pool:
        return _pools.of(self, self._address)

    def _at(self, root: Digest, sql: str = "", *parameters: Parameter) -> list[Row] | None:
        """Return the rows of a question about this index, in a snapshot in which it is at `root`; None if it is not."""
        asked = [(sql, (self._tenant, self._owner, *parameters))] if sql else []
        found = self._read(*asked)
        if not found or not found[0] or _root(found[0][0][1]) != root:
            return None
        return found[1] if sql else []

    def _read(self, *questions: tuple[str, Sequence[Parameter]]) -> list[list[Row]] | None:
        """Return where the index is, and the answers to these questions in the same snapshot; None if it cannot be used."""
        position = (_POSITION, (self._tenant, self._owner))
        return self._try(lambda db: db.ask_all([(_BEGIN, (self._tenant,)), position, *questions])[1:], None)

    def _write(self, work: Callable[[Connection], bool]) -> bool:
        """Do `work` in one transaction and return what it does; False, having done nothing, if the index cannot be used."""

        def written(db: Connection) -> bool:
            with db.transaction():
                db.ask(_BEGIN, self._tenant)
                return work(db)

        return not self._read_only and self._try(written, False)

    def _try(self, ask: Callable[[Connection], _T], otherwise: _T) -> _T:
        """Return what `ask` finds, on a new connection if the first is lost; `otherwise` if the index cannot be used."""
        left, place = "nothing was searched", self._address.shown
        for is_last in (False, True):
            try:
                with self._pool.connection() as connection:
                    return ask(connection)
            except ConnectionLost as lost:
                if is_last:
                    raise lost_error(place, left, lost) from lost
            except StatementFailed as error:
                is_left = error.is_for_another_server and not is_last
                if error.sqlstate in _UNUSABLE and not is_left:
                    return otherwise
                if error.sqlstate.startswith(_DAMAGED):
                    self.discard()
                    return otherwise
                if is_last or not (error.is_passing or is_left):
                    raise translated(error, left, place) from error
        raise AssertionError


class _Pools:
    """One pool of connections for the indexes of all owners of a store, as long as one of them is in use."""

    def __init__(self) -> None:
        self._lock = ThreadLock()
        self._open: dict[str, tuple[Pool, set[int]]] = {}

    def of(self, user: PostgresSearch, address: Address) -> Pool:
        """Return the pool for an address, and count the user."""
        with self._lock:
            key = repr(sorted(address.parameters.items()))
            if key not in self._open:
                pool = Pool(address.parameters, size_max=_CONNECTIONS_MAX, wait_seconds=_WAIT_SECONDS)
                self._open[key] = (pool, set())
            pool, users = self._open[key]
            users.add(id(user))
            return pool

    def release(self, user: PostgresSearch) -> None:
        """Close the pool of a user, if it has no other."""
        with self._lock:
            for key, (pool, users) in list(self._open.items()):
                users.discard(id(user))
                if not users:
                    pool.close()
                    del self._open[key]


_pools = _Pools()


def check_vectors(url: str) -> None:
    """Raise `Unsupported` if a store has no vectors and they cannot be added, or a new one would not have them."""
    address = parse_address(url, read_only=True)
    pool = Pool(address.parameters, size_max=1, wait_seconds=_WAIT_SECONDS)
    try:
        _vector_schema(pool, address)
    finally:
        pool.close()


def _vector_schema(pool: Pool, address: Address) -> str:
    """Return the schema of the extension for vectors, '' if a new store will make it."""
    try:
        with pool.connection() as connection:
            ((is_store, is_ready, schema, is_available),) = connection.ask(_EXTENSION)
            if is_store and not is_ready and is_available:
                connection.ask(_ADD_VECTORS)
                ((is_store, is_ready, schema, is_available),) = connection.ask(_EXTENSION)
    except ConnectionLost as lost:
        if isinstance(lost.__cause__, psycopg.Error):
            raise connection_error(address.shown, address.parameters, lost.__cause__) from lost
        raise lost_error(address.shown, "it was not opened", lost) from lost
    except StatementFailed as error:
        raise translated(error, "it was not opened", address.shown) from error
    if is_ready or (is_available and not is_store):
        return str(schema or "")
    raise _no_vectors(address)


def _no_vectors(address: Address) -> Unsupported:
    return Unsupported(
        f"searching by vectors needs the extension 'vector' in the database of {address.shown}; nothing was opened.",
        code="vector_extension_missing",
        advice=(
            "Install pgvector on the server, let a superuser run CREATE EXTENSION vector in the database and the owner of "
            "the schema SELECT perdure.add_vectors(), or open the store without embed=."
        ),
        extension="vector",
        path=address.shown,
    )


def _without(db: Connection, of: tuple[str, int], gone: Iterable[str]) -> tuple[int, int]:
    """Remove rows, and vectors that no row has any more; return how many rows had words, and how many words."""
    items = words = 0
    for batch in _batches(gone):
        removed = db.ask(_REMOVE, *of, bytea_array([bytes_of(path) for path in batch]))
        digests = [digest for digest, _ in removed if isinstance(digest, bytes)]
        lengths = [int(str(length)) for _, length in removed if length is not None]
        items, words = items + len(lengths), words + sum(lengths)
        db.ask(_REMOVE_VECTORS, *of, bytea_array(digests))
    return items, words


def _batches(given: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(given)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _short(token: str) -> str:
    """Return a word, or for one that no `tsvector` takes a name that no word has."""
    data = token.encode()
    return token if len(data) <= _LEXEME_BYTES_MAX else f"#{sha256(data).hexdigest()}"


def _quoted(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _bound(among: Filters) -> tuple[bytes | None, bytes | None]:
    kind, scope = among.kind, among.scope
    return None if kind is None else bytes_of(kind), None if scope is None else bytes_of(scope)


def _hit(row: Row, digits: int | None = None) -> Hit:
    path, item, digest, distance = row
    if not isinstance(distance, bytes):  # a number that the ranking needs was damaged
        return Hit(name_of(path), name_of(item), _NOTHING, 0.0)
    (number,) = unpack(">d", distance)
    return Hit(
        name_of(path), name_of(item), _known(digest), number if digits is None else round(number, digits)
    )


def _root(stored: object) -> Digest | None:
    """Return the root that an index is at; None if it is at none, or the index is of another format or damaged."""
    if isinstance(stored, bytes) and stored[_DIGEST_BYTES:] == _FORMAT:
        return _digest(stored[:_DIGEST_BYTES])
    return None


def _digest(stored: object) -> Digest | None:
    """Return a stored digest; None if there is none, or it was damaged."""
    return Digest(stored.hex()) if isinstance(stored, bytes) and len(stored) == _DIGEST_BYTES else None


def _known(stored: object) -> Digest:
    """Return the digest of a row, or one that no version has: then the map contradicts the index."""
    return _digest(stored) or _NOTHING


def _reals(vector: bytes) -> Encoded:
    """Return a vector of float32 as an array, in the server's binary form."""
    numbers = array("f", vector)
    flat: list[float] = [4] * (2 * len(numbers))
    flat[1::2] = numbers
    head = _array_head(1, 0, _REAL, len(numbers), 1)
    return Encoded(_REAL_ARRAY, head + Struct(">" + "if" * len(numbers)).pack(*flat))


def _slices(vectors: Iterable[bytes], width: int) -> tuple[Encoded, Encoded, int]:
    """Return where each vector begins in one array of all of them, from 1 (0: it is empty), that array, and their width."""
    starts, joined = list[int](), bytearray()
    for vector in vectors:
        starts.append(len(joined) // 4 + 1 if vector else 0)
        joined += vector
    return integer_array(starts), _reals(bytes(joined)), width


def _floats(stored: object) -> bytes:
    """Return a vector in the server's binary form as float32 of this machine."""
    assert isinstance(stored, bytes)
    return array("f", unpack(f">{len(stored) // 4 - 1}f", stored[4:])).tobytes()
