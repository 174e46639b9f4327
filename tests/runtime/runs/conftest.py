"""What the tests of runs share: a directory for processes that are killed, and what tools change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.runtime.runs.world import World


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory where there is one: a process that is killed needs no disk, and a campaign is faster."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="perdure-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """What tools change outside of the store."""
    return World(tmp_path / "world")
