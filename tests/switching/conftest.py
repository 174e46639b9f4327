"""What the tests of switches share: stores in memory, in a real file and on a server, and settings of the vendors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Store
from tests.engines.postgres.stores import new_store
from tests.selection import engines

_names = count()


@pytest.fixture(autouse=True)
def settings_of_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give two backends an address: without one, their SDKs read the user's files each time that a test asks for it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(params=engines("sqlite", "memory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet and can be opened several times."""
    if request.param == "memory":
        return f"memory:switches-{next(_names)}"
    return new_store(request) if request.param == "postgres" else str(tmp_path / "agents.db")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store of that address."""
    with perdure.open(store_url) as opened:
        yield opened


@pytest.fixture(params=engines("sqlite", "postgres"))
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that other processes can open."""
    return new_store(request) if request.param == "postgres" else str(tmp_path / "agents.db")
