"""Settings that every test shares.

`PERDURE_DEEP=1` (see `make deep`) asks for the long campaigns; without it each test stays short enough for
every change.  Temporary files stand in memory where there is room: a third of a run would be waiting for the disk.
`PYTEST_DEBUG_TEMPROOT` names another place for them.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

import perdure
from perdure import Store
from tests import selection
from tests.engines.postgres.server import MISSING, OLDER, Server, ServerNotStarted, shared_server
from tests.engines.postgres.stores import SERVER, new_store

pytest_plugins = ["tests.parallel", "tests.socket_owners"]

settings.register_profile("short", deadline=None, print_blob=True, max_examples=20)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile("deep" if os.environ.get("PERDURE_DEEP") else "short")

gc.disable()  # until all is imported and collected
gc.set_threshold(10_000, 20, 20)  # what the tests make lives short, or to their end

# The models of the tests are small: with a thread for each core their sums are mostly waiting, on a busy machine for seconds.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES_MIN = 4 << 30  # a run needs less than one

_names = count()

if (
    IN_MEMORY.is_dir()
    and os.access(IN_MEMORY, os.W_OK)
    and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES_MIN
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what only a deep run does."""
    selection.leave_out(items)


def pytest_collection_finish() -> None:
    """Spare what was imported and collected from the search for garbage: a million objects, and none is garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Generator[Server]:
    """A PostgreSQL server with one database that holds the schema; `stores` gives each test a tenant there."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(shared_server())
        except ServerNotStarted as reason:
            pytest.skip(str(reason))
        os.environ[SERVER] = server.url()
        yield server
        del os.environ[SERVER]


@pytest.fixture(scope="session")
def older_postgres() -> Generator[Server]:
    """A server of the oldest supported version that this machine has; skips by name where it has none."""
    if MISSING or OLDER is None:
        pytest.skip(MISSING or "no PostgreSQL 15, 16 or 17 is installed in /usr/lib/postgresql")
    with ExitStack() as stack:
        try:
            server = stack.enter_context(shared_server(OLDER))
        except ServerNotStarted as reason:
            pytest.skip(str(reason))
        yield server


@pytest.fixture(params=selection.engines("sqlite", "memory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet and can be opened several times."""
    if request.param == "memory":
        return f"memory:test-{next(_names)}"
    return new_store(request) if request.param == "postgres" else str(tmp_path / "agents.db")


@pytest.fixture
def store(store_url: str) -> Generator[Store]:
    """A store of that address."""
    with perdure.open(store_url) as opened:
        yield opened
