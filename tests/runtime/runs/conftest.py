"""Stores that runs are tried on: in memory, and in a real file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import perdure
from perdure import Store
from tests.engines.postgres.stores import new_store
from tests.selection import engines

_names = count()


@pytest.fixture(params=engines("sqlite", "memory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet and can be opened several times."""
    if request.param == "memory":
        return f"memory:runs-{next(_names)}"
    if request.param == "postgres":
        return new_store(request)
    return str(tmp_path / "agents.db")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store of that address."""
    with perdure.open(store_url) as opened:
        yield opened


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory where there is one: a process that is killed needs no disk, and a campaign is faster."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="perdure-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)
