"""The SQLite engine keeps the engine contract."""

from __future__ import annotations

from pathlib import Path

from holdfast.engines.contract import Engine
from holdfast.engines.sqlite import open_sqlite
from holdfast.testing import EngineSuite


class TestSqliteEngine(EngineSuite):
    def open(self, path: Path) -> Engine:
        return open_sqlite(path / "store.db", read_only=False, create=True, durability="power_loss")
