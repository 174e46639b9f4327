"""A store in one SQLite file."""

from __future__ import annotations

from perdure.engines.sqlite.engine import SqliteEngine, open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
