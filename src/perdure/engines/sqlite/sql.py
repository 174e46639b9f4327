"""Plain SQL on a store, read-only, with functions that open what is packed.

`perdure_objects(row)` gives the values and messages of a row of the log as JSON, and a list that is stored by element as one value;
`perdure_snapshot(space, root)` gives the path → value map of a state, NULL for one that was forgotten.

A store of another engine is copied to a temporary SQLite file first, so that it has the same views with the same
columns.  That reads the whole store: about a second for two thousand commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias, cast

import apsw
import apsw.ext

from perdure.engines.contract import Engine
from perdure.engines.replays import replay_store
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.connections import Connections, Options
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import translated
from perdure.engines.sqlite.file_system import check_one_name
from perdure.engines.sqlite.format.index import Index
from perdure.engines.sqlite.format.rows import Rows
from perdure.engines.sqlite.maintenance.scan import facts_of
from perdure.engines.sqlite.reader import open_sqlite
from perdure.errors import Forgotten, Invalid, PerdureError
from perdure.model import lists
from perdure.model.digest import Digest, Kind

__all__ = ["Entries", "Sql"]

Nodes: TypeAlias = Callable[[Sequence[Digest]], Sequence[bytes]]
Entries: TypeAlias = Callable[[Nodes, Digest], Iterable[tuple[str, Digest]]]


class _Info(Protocol):
    """What the driver reports of a query before it runs."""

    @property
    def query_remaining(self) -> str | None:
        """Return the text behind the first statement; None if there is none."""
        ...


_info = cast("Callable[[Database, str], _Info]", apsw.ext.query_info)  # pyright: ignore[reportUnknownMemberType]
_VIEWS = "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"
_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


_READS = frozenset(
    [
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_FUNCTION,
        apsw.SQLITE_RECURSIVE,
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_SAVEPOINT,
    ]
)
_PRAGMAS = frozenset(
    [
        "application_id",
        "collation_list",
        "compile_options",
        "data_version",
        "database_list",
        "encoding",
        "foreign_key_check",
        "foreign_key_list",
        "freelist_count",
        "function_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "journal_mode",
        "module_list",
        "page_count",
        "page_size",
        "pragma_list",
        "quick_check",
        "schema_version",
        "table_info",
        "table_list",
        "table_xinfo",
        "user_version",
    ]
)
_PRAGMAS_WITH_ARGUMENT = frozenset(
    name for name in _PRAGMAS if name.endswith(("_info", "_xinfo", "_list", "_check"))
)


def _may(
    action: int, first: str | None, second: str | None, _database: str | None, _inside: str | None
) -> int:
    """True if a statement may do that: read, and nothing else."""
    allowed = action in _READS
    if action == apsw.SQLITE_PRAGMA:
        name = (first or "").lower()
        allowed = name in _PRAGMAS and (second is None or name in _PRAGMAS_WITH_ARGUMENT)
    elif action == apsw.SQLITE_FUNCTION:
        allowed = (second or "").lower() != "load_extension"
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


class Sql:
    """A store opened for queries in SQL.  Nothing can be written through it."""

    def __init__(self, path: Path, *, entries: Entries) -> None:
        """Open the store at `path`, read-only; `entries` reads a map, which an engine cannot."""
        self._place = str(path)
        self._copy: TemporaryDirectory[str] | None = None
        self._entries = entries
        check_one_name(path)
        try:
            self._connections = Connections(Options(path=str(path), read_only=True))
        except apsw.Error as error:
            raise translated(error, "it was not opened", self._place) from error
        self._db = self._connections.writer
        self._rows = Rows(Index(), self._place)
        self._db.pragma("query_only", 1)
        self._db.pragma("trusted_schema", 1)  # the views of our own schema call the two functions below
        self._db.create_scalar_function("perdure_objects", self._objects, 1)
        self._db.create_scalar_function("perdure_snapshot", self._snapshot, 2)
        # A read-only connection can still make files: by VACUUM INTO, ATTACH and temporary tables.
        cast("apsw.Connection", self._db).authorizer = _may

    @classmethod
    def of_engine(cls, engine: Engine, place: str, *, entries: Entries) -> Sql:
        """Open a copy of the store that an engine has open, which is at `place`; closing removes the copy.

        Each space is as it was at one moment, the store as a whole need not be.  Raises `Corrupt` if it is damaged.
        """
        directory = TemporaryDirectory(prefix="perdure-sql-")  # only its user may enter it
        try:
            path = Path(directory.name) / "store.db"
            with closing(open_sqlite(path, durability="process_crash")) as target:
                replay_store(engine, target, place)
            opened = cls(path, entries=entries)
        except BaseException:
            directory.cleanup()
            raise
        opened._place, opened._copy = place, directory
        return opened

    def query(
        self, sql: str, bindings: Sequence[object] = ()
    ) -> tuple[list[str], Iterator[tuple[object, ...]]]:
        """Return the columns and the rows of one statement with these parameters; raise `Invalid` if it is not SQL, or is several statements."""
        try:
            self._check_one(sql)
            cursor = self._db.execute(sql, bindings)
            return [str(column[0]) for column in cursor.get_description()], self._each(iter(cursor))
        except apsw.ExecutionCompleteError:
            return [], iter(())
        except apsw.Error as error:
            raise _refused(error, self._place, self._columns_of(sql)) from error

    def _columns_of(self, sql: str) -> str:
        """Return the columns of the views that a query names, or else the names of all views."""
        words = {each.lower() for each in _WORD.findall(sql)}
        views: list[str] = [name for (name,) in self._db.execute(_VIEWS)]
        named = [name for name in views if name in words]
        columns = {name: [row[1] for row in self._db.execute(f"PRAGMA table_info({name})")] for name in named}
        if not named:
            return f"The views are {', '.join(views)}."
        return " ".join(f"{name} has {', '.join(each)}." for name, each in columns.items())

    def _check_one(self, sql: str) -> None:
        """Raise `Invalid` if anything but comments follows the first statement: its result would be lost."""
        rest = _info(self._db, sql).query_remaining
        if rest is not None and _COMMENT.sub("", rest).strip(" ;\t\r\n"):
            raise Invalid(
                f"the query was not run on {self._place}: it is more than one statement.",
                code="query_invalid",
                advice="Ask them one by one.",
            )

    def close(self) -> None:
        """Release the store."""
        self._connections.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _each(self, cursor: Iterator[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
        try:
            yield from cursor
        except apsw.Error as error:
            raise _refused(error, self._place) from error

    def _objects(self, number: int) -> str:
        """Return what a row holds, without what was forgotten; raise `Corrupt` for data that was never written."""
        self._rows.index.catch_up(self._db)
        found: list[dict[str, object]] = []
        for fact in facts_of(self._db, self._rows, number):
            if fact.fault is not None:
                raise damaged(f"{fact.fault}; the query was not answered.", "query_on_damage")
            if fact.object is not None and fact.object.kind is not Kind.LIST:
                shown = fact.object.body.decode("utf-8", "backslashreplace")
                found.append({"kind": fact.kind, "hash": fact.digest, "content": shown})
            elif fact.object is not None:
                ((space,),) = self._db.execute("SELECT space FROM log WHERE id=?", (number,))
                with suppress(Forgotten):  # the rest of a removal that was interrupted
                    shown = lists.read(partial(self._rows.objects, self._db, space), fact.object).decode()
                    found.append({"kind": Kind.VALUE, "hash": fact.digest, "content": shown})
        return json.dumps(found)

    def _snapshot(self, space: int, root: bytes) -> str | None:
        def nodes(digests: Sequence[Digest]) -> Sequence[bytes]:
            return [found.body for found in self._rows.objects(self._db, space, digests)]

        try:
            return json.dumps(dict(self._entries(nodes, Digest(root.hex()))))
        except Forgotten:
            return None


def _refused(error: apsw.Error, place: str, has: str = "") -> PerdureError:
    """Return our error for one of SQLite; `has` says what could be asked."""
    if isinstance(error, apsw.SQLError | apsw.ReadOnlyError | apsw.BindingsError | apsw.AuthError):
        return Invalid(
            f"the query was not run on {place}: {error}.",
            code="query_invalid",
            advice=has
            if has and type(error) is apsw.SQLError
            else "The store is open read-only; see `perdure sql`.",
        )
    return translated(error, "the query was not run", place)
