"""The schema is made and migrated once, whatever is killed and whoever comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from perdure.errors import NotFound, Unavailable, Unsupported
from perdure.testing.engines.builders import Pen
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.test_links import BEFORE_LINKS

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import schema

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

STEPS = range(6)
FIRST = 10  # the version of a store without a table
_VERSION = "SELECT version FROM perdure.meta"
_NOTHING = "SELECT count(*) FROM pg_namespace WHERE nspname = 'perdure'"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["first", "last"])
def test_a_migration_that_is_killed_is_resumed(
    step: int,
    when: str,
    postgres: Server,
    database: str,
    open_engine: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session that ends inside a migration leaves whole migrations, and the next opening does the rest."""
    whole, end = schema.MIGRATIONS, "SELECT pg_terminate_backend(pg_backend_pid());"
    killed = end + whole[step] if when == "first" else whole[step] + end
    monkeypatch.setattr(schema, "MIGRATIONS", (*whole[:step], killed, *whole[step + 1 :]))
    with pytest.raises(Unavailable):
        open_engine(postgres.url(database))
    assert postgres.sql(_VERSION if step else _NOTHING, database=database) == [(step and FIRST + step,)]
    monkeypatch.setattr(schema, "MIGRATIONS", whole)

    Pen(open_engine(postgres.url(database))).commit("milk")

    assert postgres.sql(_VERSION, database=database) == [(FIRST + len(whole),)]


def test_many_who_arrive_first_make_one_schema(postgres: Server, database: str, open_engine: Opener) -> None:
    """They take turns, and all of them use the same store."""
    with ThreadPoolExecutor(6) as pool:
        engines = list(pool.map(lambda _: open_engine(postgres.url(database)), range(6)))

    assert len({engine.instant().clock for engine in engines}) == 1
    Pen(engines[0]).commit("milk")
    assert [len(engine.spaces(limit=9)) for engine in engines] == [1] * 6


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
