"""The schema is made and migrated once, whatever is killed and whoever comes first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from perdure.engines.contract import CellWrite
from perdure.errors import NotFound, PerdureError, Unavailable, Unsupported
from perdure.testing.engines.builders import Pen, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.test_links import BEFORE_LINKS

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import schema
    from perdure.engines.postgres.connections import Connection, Parameter, Row

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

STEPS = range(7)
FIRST = 10  # the version of a store without a table
_VERSION = "SELECT version FROM perdure.meta"
_NOTHING = "SELECT count(*) FROM pg_namespace WHERE nspname = 'perdure'"


class Migrations:
    """The migrations of one empty database, which a test kills or holds up."""

    def __init__(
        self, server: Server, database: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._server, self._database, self._open, self._patch = server, database, open_engine, monkeypatch
        self._whole = schema.MIGRATIONS

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in the database."""
        return self._server.sql(*statements, database=self._database)

    def open(self) -> str:
        """Open the store, as a process that arrives does, and return how that ended."""
        try:
            self._open(self._server.url(self._database))
        except PerdureError as error:
            return error.code
        return "opened"

    def replace(self, step: int, sql: str) -> None:
        """Let a step be these statements."""
        self._patch.setattr(schema, "MIGRATIONS", (*self._whole[:step], sql, *self._whole[step + 1 :]))

    def check_resumed(self, step: int, killed: str) -> None:
        """Check that a step that was killed leaves whole steps, and that the next opening does the rest."""
        self.replace(step, killed)
        assert self.open() in ("server_lost", "connection_refused")
        self._patch.setattr(schema, "MIGRATIONS", self._whole)
        assert self.sql(_VERSION if step else _NOTHING) == [(step and FIRST + step,)]

        engine = self._open(self._server.url(self._database))

        Pen(engine).commit("milk")
        assert self.sql(_VERSION) == [(FIRST + len(self._whole),)]

    def arrive(self, count: int) -> Counter[str]:
        """Open the store by so many at once, while the first one is held up in its first step; return how that ended."""
        import psycopg

        self.replace(0, f"{self._whole[0]}SELECT pg_advisory_xact_lock_shared(7);")
        held_up = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            f"AND datname = '{self._database}'"
        )
        with psycopg.connect(self._server.url(self._database)) as gate, ThreadPoolExecutor(count) as pool:
            gate.execute("SELECT pg_advisory_lock(7)")
            opened = [pool.submit(self.open) for _ in range(count)]
            deadline = time.monotonic() + 20
            while self.sql(held_up) != [(count,)]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            gate.execute("SELECT pg_advisory_unlock(7)")
            return Counter([each.result() for each in opened])


@pytest.fixture
def migrations(
    postgres: Server, database: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> Migrations:
    """The migrations of an empty database."""
    return Migrations(postgres, database, open_engine, monkeypatch)


_END = "SELECT pg_terminate_backend(pg_backend_pid());"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["first", "last"])
def test_a_migration_that_is_killed_is_resumed(step: int, when: str, migrations: Migrations) -> None:
    """A session that ends inside a migration leaves whole migrations, and the next opening does the rest."""
    whole = schema.MIGRATIONS[step]

    migrations.check_resumed(step, _END + whole if when == "first" else whole + _END)


@pytest.mark.parametrize("step", [0, 2, 3])
def test_a_migration_that_commits_before_it_is_counted_is_not_resumed(
    step: int, migrations: Migrations
) -> None:
    """Control: the same check finds it, because what is there already cannot be made again."""
    with pytest.raises((AssertionError, Unavailable)):
        migrations.check_resumed(step, f"{schema.MIGRATIONS[step]}COMMIT;{_END}")


def test_many_who_arrive_first_make_one_schema(migrations: Migrations, open_engine: Opener) -> None:
    """They take turns, and all of them use the same store."""
    assert migrations.arrive(6) == {"opened": 6}


def test_without_its_lock_a_migration_fails_for_all_but_one(
    migrations: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same check finds those who make what another one makes at that moment."""
    ask = Connection.ask

    def unlocked(connection: Connection, sql: str, *parameters: Parameter) -> list[Row]:
        return [] if str(schema._LOCK) in sql else ask(connection, sql, *parameters)

    monkeypatch.setattr(Connection, "ask", unlocked)

    assert migrations.arrive(6) == {"opened": 1, "postgres_failed": 5}


def test_a_store_can_be_partitioned(postgres: Server, database: str, open_engine: Opener) -> None:
    """Tables in parts hold the same store; which part a space is in shows nowhere."""
    url = f"{postgres.url(database)}&partitions=3"
    engine, pens = open_engine(url), [Pen(open_engine(url), space=f"space {number}") for number in range(9)]
    tips = [pen.commit("milk", messages=["m-1"]) and pen.commit("eggs") for pen in pens]

    for pen, tip in zip(pens, tips, strict=True):
        assert [step.place.depth for step in engine.steps(pen.space, tip.digest, limit=9)] == [1, 0]
        engine.check(pen.space, again=True)
    engine.drop("space 0", why="too old")

    assert list(engine.spaces(limit=99)) == [f"space {number}" for number in range(9)]
    parts = [
        postgres.sql(f"SELECT count(*) > 0 FROM perdure.log_{part}", database=database) for part in range(3)
    ]
    assert parts == [[(True,)]] * 3


def test_a_newer_schema_is_refused(postgres: Server, database: str, open_engine: Opener) -> None:
    """An old client says so and changes nothing."""
    open_engine(postgres.url(database)).close()
    postgres.sql("UPDATE perdure.meta SET version = 99", database=database)

    with raises(Unsupported, "schema_too_new", version=99):
        open_engine(postgres.url(database))

    assert postgres.sql(_VERSION, database=database) == [(99,)]


def test_a_store_that_is_read_only_is_not_migrated(
    postgres: Server, database: str, open_engine: Opener
) -> None:
    """It is refused and left as it is; opened for writing it is migrated, and then read."""
    open_engine(postgres.url(database)).close()
    postgres.sql(*BEFORE_LINKS, database=database)

    with raises(Unsupported, "schema_not_migrated", version=14):
        open_engine(postgres.url(database), read_only=True)

    assert postgres.sql(_VERSION, database=database) == [(14,)]
    open_engine(postgres.url(database), create=False).close()
    assert open_engine(postgres.url(database), read_only=True).spaces(limit=9) == []


@pytest.mark.parametrize("version", [1, 4])
def test_a_schema_from_before_the_first_release_is_refused(
    version: int, postgres: Server, database: str, open_engine: Opener
) -> None:
    """Its commits are hashed in another way, so nothing of it is used or changed."""
    open_engine(postgres.url(database)).close()
    postgres.sql(f"UPDATE perdure.meta SET version = {version}", database=database)

    with raises(Unsupported, "schema_too_old", version=version):
        open_engine(postgres.url(database))

    assert postgres.sql(_VERSION, database=database) == [(version,)]


@pytest.mark.parametrize("how", [{"read_only": True}, {"create": False}], ids=["read-only", "not created"])
def test_a_database_without_a_store_is_left_empty(
    how: dict[str, bool], postgres: Server, database: str, open_engine: Opener
) -> None:
    """Only an opening that may create makes the schema."""
    with raises(NotFound, "store_not_found"):
        open_engine(postgres.url(database), **how)

    assert postgres.sql(_NOTHING, database=database) == [(0,)]


def test_a_role_without_rights_to_create_uses_a_prepared_schema(
    postgres: Server, database: str, open_engine: Opener
) -> None:
    """The owner makes the schema once; the application's role never needs more than to use it."""
    role = f"app_{database}"
    postgres.sql(f"CREATE ROLE {role} LOGIN", f"REVOKE CREATE ON DATABASE {database} FROM public")
    with raises(Unavailable, "permission_denied"):
        open_engine(postgres.url(database, user=role))
    assert postgres.sql(_NOTHING, database=database) == [(0,)]
    open_engine(postgres.url(database)).close()
    postgres.sql(
        f"GRANT USAGE ON SCHEMA perdure TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {role}",
        database=database,
    )

    engine = open_engine(postgres.url(database, user=role))
    Pen(engine).commit("milk")

    assert engine.holder()
    engine.close()
    postgres.sql(f"DROP OWNED BY {role}", database=database)
    postgres.sql(f"DROP ROLE {role}")


def test_a_server_that_is_too_old_is_refused(
    postgres: Server, database: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which version it is and which one is needed."""
    monkeypatch.setattr(schema, "SERVER_VERSION_MIN", 990_000)

    with raises(Unsupported, "server_too_old"):
        open_engine(postgres.url(database))

    assert postgres.sql(_NOTHING, database=database) == [(0,)]


ODD_SETTINGS = {
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Pacific/Chatham",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "transform_null_equals": "on",
}


@pytest.fixture
def odd_role(postgres: Server) -> Iterator[str]:
    """A role with settings that change what text in SQL means and how values are shown."""
    name = f"odd_{uuid4().hex[:12]}"
    settings = [f"ALTER ROLE {name} SET {setting} = '{value}'" for setting, value in ODD_SETTINGS.items()]
    postgres.sql(f"CREATE ROLE {name} LOGIN SUPERUSER", *settings)
    yield name
    postgres.sql(f"DROP ROLE {name}")


def test_a_role_with_odd_settings_makes_and_uses_the_same_schema(
    odd_role: str, postgres: Server, database: str, open_engine: Opener
) -> None:
    """What it writes another role reads and checks, and the other way round."""
    odd, plain = (open_engine(postgres.url(database, user=user)) for user in (odd_role, "postgres"))
    odd.apply(write("a\0b", CellWrite(name="\\x00", expected=0, value=b"\0\\'"), b'"\\000"', space="\\'"))
    Pen(odd).commit("milk")
    Pen(plain, space="another").commit("eggs")

    for engine in (odd, plain):
        assert len(engine.spaces(limit=9)) == 3
        for space in engine.spaces(limit=9):
            engine.check(space, again=True)
    postgres.sql(f"REASSIGN OWNED BY {odd_role} TO postgres", database=database)


def test_without_the_sessions_own_settings_the_schema_is_not_made(
    odd_role: str,
    postgres: Server,
    database: str,
    open_engine: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: a string in a function then means something else, and is refused."""
    monkeypatch.setattr("perdure.engines.postgres.connections._SETTINGS", "")

    with raises(Unavailable, "postgres_failed"):
        open_engine(postgres.url(database, user=odd_role))
