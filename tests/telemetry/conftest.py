"""A store for the tests of telemetry."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import perdure
from perdure.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "store.db") as opened:
        yield opened
