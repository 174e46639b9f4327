"""The SQLite engine keeps the engine contract."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from perdure.engines.contract import Engine
from perdure.engines.sqlite import open_sqlite
from perdure.testing import EngineSuite
from perdure.testing.engines.subject import StoredEdit
from tests.crash.campaign import sized

_OF = "space=(SELECT id FROM spaces WHERE name=?1)"
EDITS = {
    "cell value": f"UPDATE cells SET value=?3 WHERE {_OF} AND name=?2",
    "cell revision": f"UPDATE cells SET revision=?3 WHERE {_OF} AND name=?2",
    "cell gone": f"DELETE FROM cells WHERE {_OF} AND name=?2",
    "cell moved": f"UPDATE OR REPLACE cells SET name=?3 WHERE {_OF} AND name=?2",
    "entry body": f"UPDATE entries SET body=?3 WHERE {_OF} AND position=?2",
    "entry gone": f"DELETE FROM entries WHERE {_OF} AND position=?2",
    "head gone": f"DELETE FROM heads WHERE {_OF} AND timeline=?2",
}


class TestSqliteEngine(EngineSuite):
    kills = sized(4, 8)

    def open(self, path: Path) -> Engine:
        return open_sqlite(path / "store.db", read_only=False, create=True, durability="power_loss")

    def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
        path, sql = Path(str(engine.facts()["path"])), EDITS[edit.what]
        engine.close()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(sql, (edit.space, edit.name, edit.to)[: sql.count("?")])
        return self.open(path.parent)
