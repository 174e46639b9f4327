"""The schema: tables, functions and views, made by numbered migrations.

    spaces   a row for each space; a writer locks it.  It has the seal, the end of the ledger and the newest link
    log      a row for each commit or write: its objects in one pack and, of values and nodes, one state; the place of
             the commit; the op_id; the rows that the state needs to be read; the link to the write before
    keys     from the first bytes of a digest, a label, an op_id or a move to the rows of the log that hold it
    heads    the timelines, each with the record of its last move
    cells    small named records
    entries  the ledgers
    holders  the uses of the store that are over
    requests writes that wait for their space (see `together.sql`)
    meta     the version of the schema, the name of the store, and the last space with writes from before links

The tables of search indexes are described in `search`.  Tenant and space lead every key, so that the tables can be partitioned by
them; `partitions` in the address of a new store does so.  Names are `bytea`, which sorts by bytes and takes any text.

Each migration runs in a transaction of its own that also counts it, under one advisory lock.  A process that is
killed leaves whole migrations; the next one goes on.  Two processes take turns, and the second finds nothing to do.

The statements are in the directory `sql`; each file says what it is for.
"""

from __future__ import annotations

import re
from importlib.resources import files

from perdure.engines.postgres.connections import Connection
from perdure.errors import NotFound, Unsupported

__all__ = ["MIGRATIONS", "ROW_SECURITY", "SCHEMA_VERSION", "SERVER_VERSION_MIN", "prepare_schema"]

_FILES = files("perdure.engines.postgres").joinpath("sql")
_PARTITIONS_FROM = 170_000  # a partitioned table may have an identity column since 17
SERVER_VERSION_MIN = 150_000  # views read with the rights of the role that asks since 15


def _sql(*names: str) -> str:
    """Return the text of these files."""
    return "".join([_FILES.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in names])


MIGRATIONS: tuple[str, ...] = (
    _sql("tables"),
    _sql("functions", "ties", "together"),
    _sql("views"),
    _sql("search"),
    _sql("links", "writes"),
    _sql("writes"),
    _sql("writes"),
)
ROW_SECURITY = _sql("row_security")
_EMPTY = 10  # the version before the first migration; lower ones are from before the first release
SCHEMA_VERSION = _EMPTY + len(MIGRATIONS)

_LOCK = 7_310_290_571_302_155_637  # of all stores of a database: migrations are rare
_STATE = "SELECT current_setting('server_version_num')::int, to_regclass('perdure.meta') IS NOT NULL"
_META = f"""
CREATE SCHEMA IF NOT EXISTS perdure;
CREATE TABLE IF NOT EXISTS perdure.meta (version integer NOT NULL, store text NOT NULL);
INSERT INTO perdure.meta SELECT {_EMPTY}, md5(random()::text || clock_timestamp()::text)
WHERE NOT EXISTS (SELECT 1 FROM perdure.meta);
"""
_VERSION = "SELECT version, store FROM perdure.meta"

_TABLE = re.compile(
    r"CREATE TABLE perdure\.(?P<name>\w+) \((?P<columns>.*?)\n\)(?P<settings> WITH \(.*?\))?;", re.DOTALL
)
_PARTITIONED = {
    "spaces": "tenant",
    **dict.fromkeys(("log", "keys", "heads", "cells", "entries"), "tenant, space"),
}


def partitioned(tables: str, count: int) -> str:
    """Return the statements that make these tables in `count` parts each, by the hash of tenant and space."""

    def parts(found: re.Match[str]) -> str:
        name, settings = found["name"], found["settings"] or ""
        if name not in _PARTITIONED:
            return found[0]
        made = [
            f"CREATE TABLE perdure.{name} ({found['columns']}\n) PARTITION BY HASH ({_PARTITIONED[name]});"
        ]
        made += [
            f"CREATE TABLE perdure.{name}_{part} PARTITION OF perdure.{name} "
            f"FOR VALUES WITH (MODULUS {count}, REMAINDER {part}){settings};"
            for part in range(count)
        ]
        return "\n".join(made)

    return _TABLE.sub(parts, tables)


def prepare_schema(
    connection: Connection, place: str, *, may_create: bool, read_only: bool = False, partitions: int = 0
) -> str:
    """Make sure that the database has this schema; return the name of the store, which is random.

    `partitions` is the number of parts of each table, if they are made now; 0: they have no parts.

    Raises `Unsupported` if the server is too old, the schema is from a newer Perdure or an unreleased one, or it has to be
    migrated and the store was opened `read_only`; `NotFound` if there is no schema and it may not be made.
    """
    ((server, is_there),) = connection.ask(_STATE)
    if int(str(server)) < SERVER_VERSION_MIN:
        raise Unsupported(
            f"{place} is PostgreSQL {int(str(server)) // 10_000}, and Perdure needs {SERVER_VERSION_MIN // 10_000} or newer; nothing was changed.",
            code="server_too_old",
            advice="Upgrade the server.",
            version=int(str(server)),
        )
    if partitions and not is_there and int(str(server)) < _PARTITIONS_FROM:
        raise Unsupported(
            f"{place} is PostgreSQL {int(str(server)) // 10_000}, and partitions need {_PARTITIONS_FROM // 10_000} or newer; nothing was changed.",
            code="server_too_old",
            advice="Upgrade the server, or leave partitions out of the address.",
            version=int(str(server)),
        )
    version, store = _version(connection) if is_there else (_EMPTY, "")
    _check(place, version, may_create=may_create)
    if version < SCHEMA_VERSION:
        if read_only:
            raise Unsupported(
                f"{place} has schema version {version}, which has to be migrated, and it was opened read-only; nothing was changed.",
                code="schema_not_migrated",
                advice="Let a role that may create objects run `perdure init`.",
                path=place,
                version=version,
            )
        _migrate(connection, place, partitions)
        version, store = _version(connection)
    return store


def _check(place: str, version: int, *, may_create: bool) -> None:
    if version > SCHEMA_VERSION:
        raise Unsupported(
            f"{place} has schema version {version}, and this Perdure knows versions up to {SCHEMA_VERSION}; nothing was changed.",
            code="schema_too_new",
            advice="Upgrade Perdure.",
            path=place,
            version=version,
        )
    if version < _EMPTY:
        raise Unsupported(
            f"{place} has schema version {version}, from before the first release; nothing was changed.",
            code="schema_too_old",
            advice="Copy it with the version that made it, or drop the schema `perdure`.",
            path=place,
            version=version,
        )
    if version == _EMPTY and not may_create:
        raise NotFound(
            f"{place} holds no store; nothing was opened.",
            code="store_not_found",
            advice="Create one with `perdure init`.",
            path=place,
        )


def _version(connection: Connection) -> tuple[int, str]:
    ((version, store),) = connection.ask(_VERSION)
    return int(str(version)), str(store)


def _migrate(connection: Connection, place: str, partitions: int) -> None:
    """Run the migrations that are missing, each in its own transaction."""
    for number in range(len(MIGRATIONS)):
        with connection.transaction():
            connection.ask(f"SELECT 1 FROM pg_advisory_xact_lock({_LOCK})")
            if number == 0:
                connection.run("SET LOCAL client_min_messages = warning;" + _META)
            version, _ = _version(connection)
            _check(place, version, may_create=True)
            if version == _EMPTY + number:
                sql = MIGRATIONS[number]
                if partitions and number == 0:
                    sql = partitioned(sql, partitions)
                connection.run(
                    sql + ROW_SECURITY + f"UPDATE perdure.meta SET version = {_EMPTY + number + 1};"
                )
