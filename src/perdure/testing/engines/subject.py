"""What the conformance suite knows about the engine under test, as data."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import msgspec
import pytest

from perdure.engines.contract import Engine
from perdure.errors import PerdureError

__all__ = ["EngineSubject", "StoredEdit", "raises"]

_E = TypeVar("_E", bound=PerdureError)


def raises(kind: type[_E], **facts: object) -> pytest.RaisesExc[_E]:
    """Expect an error of this kind with at least these facts; `code` is one of them.

    The wording of an error is free, so no law looks at it.
    """

    def has_facts(error: _E) -> bool:
        assert {name: getattr(error, name, None) for name in facts} == facts, error
        return True

    return pytest.raises(kind, check=has_facts)


class StoredEdit(msgspec.Struct, frozen=True, kw_only=True):
    """An edit of stored data by a program that does not follow the contract."""

    what: Literal[
        "cell value", "cell revision", "cell gone", "cell moved", "entry body", "entry gone", "head gone"
    ]
    space: str
    name: str  # of the cell or the timeline; of an entry its position
    to: str = ""  # the new value, or the name of the cell that this one replaces


class EngineSubject:
    """Tells the suite how to open the engine under test, and what the engine cannot do.

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
        """Open a new, empty store."""
        engine = self.open(tmp_path)
        yield engine
        engine.close()
