"""A store in one SQLite file."""

from __future__ import annotations

from holdfast.engines.sqlite.engine import SqliteEngine
from holdfast.engines.sqlite.opening import open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
