"""What the tests of crashes share: the places of a store and of its lock file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store that does not exist yet."""
    return tmp_path / "store.db"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """The lock file of every store of the test."""
    return tmp_path / "lock"
