"""A store in one SQLite file."""

from __future__ import annotations

from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.opening import open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
