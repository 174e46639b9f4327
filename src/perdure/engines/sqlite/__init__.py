"""A store in one SQLite file."""

from __future__ import annotations

from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.reader import open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
