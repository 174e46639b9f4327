"""Describing a store: what `doctor` shows of it."""

from __future__ import annotations

from pathlib import Path

import apsw

from perdure.engines.sqlite.connections import Options
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.filesystem import file_system_of
from perdure.engines.sqlite.schema import foreign_objects

__all__ = ["described"]


def described(db: Database, options: Options) -> dict[str, str | int]:
    """Kind, place, versions, settings and sizes."""
    size = _pragma(db, "page_size")
    others = foreign_objects(db)
    return {
        "engine": "sqlite",
        "path": options.path,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "schema": _pragma(db, "user_version"),
        "journal": str(db.pragma("journal_mode")),
        "durability": "power_loss" if options.durable else "process_crash",
        "file_system": file_system_of(Path(options.path).parent) or "unknown",
        "bytes": _pragma(db, "page_count") * size,
        "bytes_free": _pragma(db, "freelist_count") * size,
        "rows": int(str(db.execute("SELECT coalesce(max(id), 0) FROM log").get)),
        **({"other_tables": ", ".join(others)} if others else {}),
    }


def _pragma(db: Database, name: str) -> int:
    return int(str(db.pragma(name)))
