"""What the conformance suite knows about the engine under test, as data."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import pytest

from perdure.engines.contract import Engine

__all__ = ["StoredEdit", "EngineSubject"]


class StoredEdit(msgspec.Struct, frozen=True, kw_only=True):
    """An edit of stored data by somebody who does not keep the contract."""

    what: Literal[
        "cell value", "cell revision", "cell gone", "cell moved", "entry body", "entry gone", "head gone"
    ]
    space: str
    name: str  # of the cell or the timeline; of an entry its position
    to: str = ""  # the new value, or the name of the cell that this one replaces


class EngineSubject:
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

    def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
        """Make `edit` behind the back of this store, and open the store again.

        An engine on a file closes `engine`, edits the file and opens it; one in memory edits what it holds.
        """
        raise NotImplementedError

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Generator[Engine]:
        """A new, empty store."""
        engine = self.open(tmp_path)
        yield engine
        engine.close()
