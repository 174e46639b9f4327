"""What the conformance suite knows about the engine under test, as data."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.engines.contract import Engine

__all__ = ["Ground"]


class Ground:
    """How to open the engine under test, and what it cannot do.

    Where an attribute says that an engine cannot do a thing, the suite checks that it
    refuses, instead of skipping.
    """

    persistent: ClassVar[bool] = True  # what was written is there when the store is opened again
    shared_between_processes: ClassVar[bool] = True  # one directory opened twice is one store
    file: ClassVar[str | None] = "store.db"  # where in its directory the store is; None: `backup` is refused
    kills: ClassVar[int] = 8  # how often a writing process is killed

    def open(self, path: Path) -> Engine:
        """Open the store in the directory `path`, making it if it is not there."""
        raise NotImplementedError

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Generator[Engine]:
        """A new, empty store."""
        engine = self.open(tmp_path)
        yield engine
        engine.close()
