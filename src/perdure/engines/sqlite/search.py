"""The search index in SQLite: FTS5 for words, sqlite-vec for vectors, one file for each owner.

The file is beside the store and derived from it: it may be deleted at any time, and a damaged one is deleted.
A write-ahead log with `synchronous=normal` loses no more than the last
changes at a power loss, never a part of one, and the root that the index is at is in the same
transaction as the rows.  Without a path the index is in memory.

BM25 looks at the table as a whole, so ranking depends on what this root holds and nothing else.
The vectors of one text can differ in their last bits from one computation to the next: distances
are compared after rounding, and ties are settled by the id of the item.

As with the store itself, no connection to the file is open while the process forks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TypeVar, cast

import apsw

from perdure.engines.forks import watch
from perdure.engines.search_contract import INDEX_FORMAT, Filters, Hit, IndexPosition, SearchRow
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import translated
from perdure.engines.sqlite.file_system import make_database
from perdure.engines.sqlite.schema import read_objects
from perdure.errors import Unsupported
from perdure.model.digest import Digest
from perdure.model.fork_safety import ThreadLock, keep_forever

__all__ = ["SqliteSearch", "check_vectors", "split_words"]

_FORMAT = str(INDEX_FORMAT)
_BUSY_MS = 2_000  # a process that waits longer makes an index of its own, in memory
_PAGE = 500
_NEAR_MAX = 4_096  # the most neighbours that sqlite-vec gives at once
_DIGITS = 6
_REST_SECONDS = 10.0  # how long a fork waits for a search

_T = TypeVar("_T")

_TOKENIZER = ("porter", "unicode61", "remove_diacritics", "2")
_TABLES = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE versions(
    row INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, item TEXT NOT NULL, digest TEXT NOT NULL,
    kind TEXT NOT NULL, scope TEXT NOT NULL, has_words INTEGER NOT NULL, has_vector INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX versions_item ON versions(item, path);
CREATE INDEX versions_digest ON versions(digest) WHERE has_vector;
CREATE INDEX versions_bare ON versions(row) WHERE has_words AND NOT has_vector;
CREATE VIRTUAL TABLE words USING fts5(terms, tokenize = '{" ".join(_TOKENIZER)}');
INSERT INTO words(words, rank) VALUES ('secure-delete', 1);
"""

_VECTOR_TABLE = re.compile(
    r"CREATE VIRTUAL TABLE vectors USING vec0\("
    r"embedding float\[\d+\] distance_metric=cosine, kind TEXT, scope TEXT\)"
)
_FOUND = "SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
_FOUND_AMONG = """
SELECT words.rowid, words.rank FROM words JOIN versions v ON v.row = words.rowid
WHERE words MATCH ?1 AND (?3 IS NULL OR v.kind = ?3) AND (?4 IS NULL OR v.scope = ?4)
ORDER BY words.rank LIMIT ?2
"""
_NEAR = "SELECT rowid, distance FROM vectors WHERE embedding MATCH ? AND k = ?"
_FARTHER = """
SELECT x.rowid, vec_distance_cosine(x.embedding, ?1) AS distance
FROM vectors x JOIN versions v ON v.row = x.rowid
WHERE (?3 IS NULL OR v.kind = ?3) AND (?4 IS NULL OR v.scope = ?4) ORDER BY distance LIMIT ?2
"""


def check_vectors() -> str:
    """Return where the extension for vectors is; raise `Unsupported` if it is not installed."""
    try:
        import sqlite_vec  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise Unsupported(
            "searching by vectors needs the package sqlite-vec; nothing was opened.",
            code="vector_package_missing",
            advice="Install it with `pip install 'perdure[memory]'`, or open the store without embed=.",
            package="sqlite-vec",
        ) from error
    return sqlite_vec.loadable_path()


def split_words(text: str) -> list[str]:
    """Return the stems of the words of a text, in order, as the index has them."""
    data = text.encode("utf-8", "replace")
    with _lock:
        found = _tokenizer()(
            data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
    return cast("list[str]", found)


_lock = ThreadLock()


@cache
def _tokenizer() -> apsw.FTS5Tokenizer:
    name, *arguments = _TOKENIZER
    return apsw.Connection(":memory:").fts5_tokenizer(name, list[str](arguments))


class _IndexMoved(Exception):
    """The index is not at the root that the caller named."""


class SqliteSearch:
    """The index of one owner's memory."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        """Prepare an index in that file, or in memory; nothing is opened yet.  `read_only` never makes or changes a file."""
        self._path = path
        self._read_only = read_only
        self._lock = RLock()
        self._open: Database | None = None
        self._is_resting = False  # for a fork, holding the lock
        watch(self)

    def standing(self) -> IndexPosition:
        """Return the root that the index is at; none if there is no index, or it cannot be used."""
        with self._lock:
            if self._read_only and self._path is not None and not self._path.exists():
                return IndexPosition(None)
            return self._try(lambda db: IndexPosition(_root(db), _meta(db, "model")), IndexPosition(None))

    def move(
        self, before: Digest | None, after: Digest, gone: Iterable[str], rows: Iterable[SearchRow]
    ) -> bool:
        def move(db: Database) -> bool:
            if before is None:
                self._drop(db)
            elif _meta(db, "root") != before:
                return False
            self._remove(db, gone)
            for row in rows:
                _insert(db, row)
            _set(db, "root", after)
            return True

        with self._lock:
            return self._write(move)

    def found(
        self, root: Digest, terms: Sequence[str], among: Filters, *, limit: int
    ) -> Sequence[Hit] | None:
        if not terms:
            return self._at(root, lambda db: [])
        match = " OR ".join(f'"{term.replace(chr(34), chr(34) * 2)}"' for term in terms)

        def found(db: Database) -> list[Hit]:
            everything = among == Filters()
            sql = _FOUND if everything else _FOUND_AMONG
            rest = () if everything else (among.kind, among.scope)
            return _settled(
                db,
                lambda most: db.execute(sql, (match, most, *rest)).fetchall(),
                limit,
                spare=3 * limit,
                digits=None,
            )

        return self._at(root, found)

    def near(self, root: Digest, vector: bytes, among: Filters, *, limit: int) -> Sequence[Hit] | None:
        def near(db: Database) -> list[Hit]:
            if _meta(db, "model") is None:
                return []
            return _settled(
                db, lambda most: _neighbours(db, vector, among, most), limit, spare=4, digits=_DIGITS
            )

        check_vectors()
        return self._at(root, near)

    def without_vector(
        self, root: Digest, *, limit: int, claim: bool = False
    ) -> Sequence[tuple[str, Digest]] | None:
        """Return what has no vector; nothing is claimed in a file, so two processes at once may embed the same text."""
        sql = "SELECT path, digest FROM versions WHERE has_words AND NOT has_vector ORDER BY row LIMIT ?"
        return self._at(
            root, lambda db: [(path, Digest(digest)) for path, digest in db.execute(sql, (limit,))]
        )

    def learn(self, root: Digest, model: str, vectors: Mapping[str, bytes], *, width: int) -> bool:
        def learn(db: Database) -> bool:
            if _meta(db, "root") != root:
                return False
            if _meta(db, "model") != model:
                self._forget_vectors(db)
                db.execute(
                    "CREATE VIRTUAL TABLE vectors USING vec0("
                    f"embedding float[{int(width)}] distance_metric=cosine, kind TEXT, scope TEXT)"
                )
                _set(db, "model", model)
            for path, vector in vectors.items():
                _learn(db, path, vector)
            return True

        check_vectors()
        with self._lock:
            return self._write(learn)

    def vectors(self, digests: Sequence[Digest], model: str) -> Mapping[Digest, bytes]:
        def known(db: Database) -> dict[Digest, bytes]:
            if _meta(db, "model") != model:
                return {}
            sql = (
                "SELECT x.embedding FROM versions v JOIN vectors x ON x.rowid = v.row "
                "WHERE v.digest = ? AND v.has_vector LIMIT 1"
            )
            found = {digest: db.execute(sql, (digest,)).get for digest in digests}
            return {digest: vector for digest, vector in found.items() if vector is not None}

        check_vectors()
        with self._lock:
            if self._read_only and self._path is not None and not self._path.exists():
                return {}
            return self._try(known, {})

    def discard(self) -> None:
        """Remove everything, the file too."""
        with self._lock:
            self.close()
            if self._path is not None and not self._read_only:
                for suffix in ("", "-wal", "-shm"):
                    with suppress(OSError):
                        Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None

    def before_fork(self) -> None:
        """Finish what is under way, and close the file; an index in memory is copied with the process."""
        self._is_resting = self._lock.acquire(timeout=_REST_SECONDS)
        if self._is_resting and self._path is not None:
            with suppress(apsw.Error):  # a signal handler may fork in the middle of a search
                self.close()

    def after_fork_in_parent(self) -> None:
        """Go on; the file is opened when it is next needed."""
        if self._is_resting:
            self._is_resting = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on alone; a connection that a thread of the parent was using is neither used nor closed."""
        if self._open is not None and not (self._is_resting and self._path is None):
            keep_forever(self._open)
            self._open = None
        self._lock, self._is_resting = RLock(), False

    def _at(self, root: Digest, ask: Callable[[Database], _T]) -> _T | None:
        """Return what `ask` finds, in one transaction in which the index is at `root`; None if it is not."""

        def asked(db: Database) -> _T:
            db.execute("BEGIN")
            try:
                if _meta(db, "root") != root:
                    raise _IndexMoved
                return ask(db)
            finally:
                db.execute("ROLLBACK")

        with self._lock:
            try:
                return self._try(asked, None)
            except _IndexMoved:
                return None

    def _try(self, ask: Callable[[Database], _T], otherwise: _T) -> _T:
        """Return what `ask` finds; `otherwise` if the file cannot be used now; a damaged file is deleted.

        An index in memory is neither damaged nor another's: any error there is raised.
        """
        try:
            return ask(self._database())
        except (apsw.Error, OSError) as error:
            if self._path is None:
                raise translated(error, "nothing was searched", "the index") from error
            if not _is_passing(error):
                self.discard()
            return otherwise

    def _write(self, work: Callable[[Database], bool]) -> bool:
        """Do `work` in one transaction, if it says so; a damaged index is deleted, and nothing was done."""

        def written(db: Database) -> bool:
            db.execute("BEGIN IMMEDIATE")
            try:
                done = work(db)
                db.execute("COMMIT" if done else "ROLLBACK")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return done

        return self._try(written, False)

    def _database(self) -> Database:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def _connect(self) -> Database:
        place, flags = ":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if self._path is not None:
            place = str(self._path)
            if self._read_only:
                flags = apsw.SQLITE_OPEN_READONLY
            else:
                self._path.parent.mkdir(mode=0o700, exist_ok=True)  # it holds words of the items
                make_database(self._path, 0)
        connection = apsw.Connection(place, flags=flags)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        try:
            return self._prepared(connection)
        except BaseException:
            connection.close()
            raise

    def _prepared(self, connection: apsw.Connection) -> Database:
        db = cast("Database", connection)
        db.set_busy_timeout(_BUSY_MS)
        if _has_vec():
            connection.enable_load_extension(True)
            connection.load_extension(check_vectors())
            connection.enable_load_extension(False)
        db.pragma("trusted_schema", 0)
        db.pragma("cache_size", -16_000)
        if self._read_only and self._path is not None:
            _check_objects(db)
            if not _is_laid(db):
                raise apsw.CorruptError("the index is of another format")
            return db
        db.pragma("secure_delete", 1)
        if self._path is not None:
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "normal")
        if not _is_laid(db):
            db.execute("BEGIN IMMEDIATE")
            if not _is_laid(db):
                self._drop(db)
            db.execute("COMMIT")
        _check_objects(db)
        return db

    def _drop(self, db: Database) -> None:
        """Begin with an empty index."""
        for table in ("vectors", "words", "versions", "meta"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(_TABLES)
        _set(db, "format", _FORMAT)

    def _forget_vectors(self, db: Database) -> None:
        db.execute("DROP TABLE IF EXISTS vectors")
        db.execute("UPDATE versions SET has_vector = 0 WHERE has_vector")
        db.execute("DELETE FROM meta WHERE name = 'model'")

    def _remove(self, db: Database, paths: Iterable[str]) -> None:
        has_vectors = _meta(db, "model") is not None
        for path in paths:
            row = db.execute("SELECT row FROM versions WHERE path = ?", (path,)).get
            db.execute("DELETE FROM versions WHERE row = ?", (row,))
            db.execute("DELETE FROM words WHERE rowid = ?", (row,))
            if has_vectors:
                db.execute("DELETE FROM vectors WHERE rowid = ?", (row,))


def _check_objects(db: Database) -> None:
    """Raise what a damaged index raises, unless its schema is the one that is made here."""
    there = read_objects(db)
    vectors = there.pop("vectors", None)
    for name, (kind, table, _) in list(there.items()):
        if kind != "trigger" and table.startswith(("vectors_", "sqlite_")):
            del there[name]  # sqlite-vec and SQLite keep them for themselves
    if there != _known() or not (vectors is None or _VECTOR_TABLE.fullmatch(vectors[2] or "")):
        raise apsw.CorruptError("the index has another schema than the one that is made")


@cache
def _known() -> Mapping[str, tuple[str, str, str | None]]:
    connection = apsw.Connection(":memory:")
    try:
        db = cast("Database", connection)
        db.execute(_TABLES)
        return read_objects(db)
    finally:
        connection.close()


def _is_laid(db: Database) -> bool:
    """True if the tables are there, and hold what this format holds."""
    is_there = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get
    return is_there is not None and _meta(db, "format") == _FORMAT


def _insert(db: Database, row: SearchRow) -> None:
    db.execute(
        "INSERT INTO versions(path, item, digest, kind, scope, has_words) VALUES (?, ?, ?, ?, ?, ?)",
        (row.path, row.item, row.digest, row.kind, row.scope, row.words is not None),
    )
    if row.words is not None:
        db.execute("INSERT INTO words(rowid, terms) VALUES (?, ?)", (db.last_insert_rowid(), row.words))


def _learn(db: Database, path: str, vector: bytes) -> None:
    known = db.execute("SELECT row, kind, scope FROM versions WHERE path = ? AND NOT has_vector", (path,)).get
    if known is not None:
        row, kind, scope = known
        if vector:
            db.execute(
                "INSERT INTO vectors(rowid, embedding, kind, scope) VALUES (?, ?, ?, ?)",
                (row, vector, kind, scope),
            )
        db.execute("UPDATE versions SET has_vector = 1 WHERE row = ?", (row,))


def _neighbours(db: Database, vector: bytes, among: Filters, most: int) -> list[tuple[int, float]]:
    if most > _NEAR_MAX:
        return db.execute(_FARTHER, (vector, most, among.kind, among.scope)).fetchall()  # pyright: ignore[reportReturnType]
    sql = _NEAR
    bound: list[object] = [vector, most]
    for name, wanted in (("kind", among.kind), ("scope", among.scope)):
        if wanted is not None:
            sql += f" AND {name} = ?"
            bound.append(wanted)
    return db.execute(sql + " ORDER BY distance", bound).fetchall()  # pyright: ignore[reportReturnType]


def _settled(
    db: Database,
    ask: Callable[[int], Sequence[tuple[int, float]]],
    limit: int,
    *,
    spare: int,
    digits: int | None,
) -> list[Hit]:
    """Return the first `limit`, ties settled by item and path: those that tie with the last of them count too."""
    most = limit + spare  # asking again costs more than a few rows
    while True:
        rows = [(row, distance if digits is None else round(distance, digits)) for row, distance in ask(most)]
        if len(rows) < most or rows[-1][1] > rows[limit - 1][1]:
            break
        most *= 8
    last = rows[limit - 1][1] if len(rows) > limit else None
    hits = [_hit(db, row, distance) for row, distance in rows if last is None or distance <= last]
    hits.sort(key=lambda hit: (hit.distance, hit.item, hit.path))
    return hits[:limit]


def _hit(db: Database, row: int, distance: float) -> Hit:
    found = db.execute("SELECT path, item, digest FROM versions WHERE row = ?", (row,)).get
    if found is None:
        raise apsw.CorruptError(f"the index names row {row}, which it does not have")
    path, item, digest = found
    return Hit(path, item, Digest(digest), distance)


def _root(db: Database) -> Digest | None:
    found = _meta(db, "root")
    return None if found is None else Digest(found)


def _meta(db: Database, name: str) -> str | None:
    return db.execute("SELECT value FROM meta WHERE name = ?", (name,)).get


def _set(db: Database, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _has_vec() -> bool:
    try:
        check_vectors()
    except Unsupported:
        return False
    return True


def _is_passing(error: Exception) -> bool:
    """True if the error says nothing about the index itself."""
    return isinstance(error, apsw.BusyError | apsw.LockedError | apsw.FullError | apsw.InterruptError)
