"""What the tests of switches share: a store that other processes open, a count of effects, and settings of the vendors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.postgres.stores import new_store
from tests.selection import engines
from tests.switching.scenes import Counting


@pytest.fixture(autouse=True)
def settings_of_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give two backends an address: without one, their SDKs read the user's files each time that a test asks for it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(params=engines("sqlite", "postgres"))
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that other processes can open."""
    return new_store(request) if request.param == "postgres" else str(tmp_path / "agents.db")


@pytest.fixture
def world() -> Counting:
    """Counts how often each tool was run."""
    return Counting()
