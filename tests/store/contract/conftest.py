"""What must hold at the face, whichever engine is below: each test runs on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Store, Thread
from tests.engines.postgres.stores import new_store
from tests.selection import engines

_names = count()


@pytest.fixture(params=engines("sqlite", "memory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet and can be opened several times."""
    if request.param == "memory":
        return f"memory:contract-{next(_names)}"
    if request.param == "postgres":
        return new_store(request)
    return str(tmp_path / "agents.db")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store of that address."""
    with perdure.open(store_url) as opened:
        yield opened


@pytest.fixture
def other(store: Store, store_url: str) -> Iterator[Store]:
    """The same store, opened by somebody else."""
    with perdure.open(store_url) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread of that store, with nothing committed."""
    return store.thread("trip-42", agent="planner")
