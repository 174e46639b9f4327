"""The PostgreSQL engine keeps the engine contract."""

from __future__ import annotations

import os
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.engines.contract import Engine
from perdure.testing import EngineSuite
from perdure.testing.engines import CellLaws, HeadLaws, NewsLaws, RemovalLaws, ReplayLaws, WriteLaws
from perdure.testing.engines.subject import StoredEdit
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import GRANTS, SERVER, edited, url_in, url_of

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.engine import open_postgres

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

_names = count()


@pytest.mark.usefixtures("postgres")
class TestPostgresEngine(EngineSuite):
    file = None
    kills = 3

    def open(self, path: Path) -> Engine:
        return open_postgres(url_in(path), read_only=False, create=True, durability="power_loss")

    def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
        tenant = str(engine.facts()["tenant"])
        engine.close()
        edited(tenant, edit)
        return open_postgres(url_of(tenant), read_only=False, create=True, durability="power_loss")


@pytest.fixture(scope="class")
def parts(postgres: Server) -> Generator[None]:
    """Another database, whose tables are partitioned, for the tests of a class and the processes that they start."""
    name = f"parts{os.getpid()}_{next(_names)}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0")
    before = os.environ[SERVER]
    os.environ[SERVER] = f"{postgres.url(name)}&partitions=4"
    yield
    os.environ[SERVER] = before


@pytest.mark.usefixtures("parts")
class TestReplaysInParts(ReplayLaws):
    """A space is copied alike where the tables are partitioned."""

    open = TestPostgresEngine.open


@pytest.fixture(scope="class")
def older(older_postgres: Server) -> Generator[None]:
    """The same on an older server."""
    before = os.environ.get(SERVER)
    os.environ[SERVER] = older_postgres.url()
    yield
    if before is None:
        del os.environ[SERVER]
    else:
        os.environ[SERVER] = before


@pytest.mark.usefixtures("older")
class TestOlderServer(WriteLaws, HeadLaws, CellLaws, RemovalLaws, ReplayLaws, NewsLaws):
    """Every statement of the engine is understood by an older server too, and means the same."""

    open = TestPostgresEngine.open


@pytest.fixture(scope="class")
def secured(postgres: Server) -> Generator[None]:
    """Another database, whose owner is a superuser, and a role to which row security applies."""
    name = f"secured{os.getpid()}_{next(_names)}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0", f"CREATE ROLE {name} LOGIN")
    open_postgres(postgres.url(name), read_only=False, create=True, durability="power_loss").close()
    postgres.sql(*[grant.format(role=name) for grant in GRANTS], database=name)
    before = os.environ[SERVER]
    os.environ[SERVER] = postgres.url(name, user=name)
    yield
    os.environ[SERVER] = before


if os.environ.get("PERDURE_DEEP"):  # the same suite again

    @pytest.mark.usefixtures("older")
    class TestPostgresEngineOnOlderServer(EngineSuite):
        """The same laws hold on an older server."""

        file, kills = None, 3
        open, tamper = TestPostgresEngine.open, TestPostgresEngine.tamper

    @pytest.mark.usefixtures("parts")
    class TestPostgresEngineInParts(TestPostgresEngine):
        """The same laws hold where the tables are partitioned."""

    @pytest.mark.usefixtures("secured")
    class TestPostgresEngineSecured(TestPostgresEngine):
        """The same laws hold for a role to which row security applies."""
