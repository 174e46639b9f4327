"""Memories that are tried on every engine, and one embedding function that is small enough to see through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Store
from tests.engines.postgres.stores import new_store
from tests.selection import engines

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: more threads only wait for each other

_names = count()


@pytest.fixture(params=engines("sqlite", "memory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet and can be opened several times."""
    if request.param == "memory":
        return f"memory:remembering-{next(_names)}"
    if request.param == "postgres":
        return new_store(request)
    return str(tmp_path / "agents.db")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store of that address."""
    with perdure.open(store_url) as opened:
        yield opened
