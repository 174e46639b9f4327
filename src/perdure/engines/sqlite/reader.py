"""A store that is opened for reading, also where a part of its file is damaged.

A damaged page costs what it holds.  Where SQLite cannot go on at one, the reader salvages what is left, and answers
from that, for as long as the files are as they were.  An engine that writes does no such thing: whether a write is
recorded can only be answered from a whole log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.file_system import resolved
from perdure.engines.sqlite.maintenance.copy import back_up
from perdure.engines.sqlite.maintenance.salvage import Salvaged, salvage
from perdure.errors import Corrupt, Invalid, NotFound

__all__ = ["SqliteReader", "open_sqlite"]

T = TypeVar("T")


class SqliteReader(SqliteEngine):
    """A store in one SQLite file, for reading."""

    _salvaged: Salvaged | None = None  # None: no damaged page was met

    def backup(self, path: Path) -> None:
        """Copy the file; what is left of a damaged one is not a backup of it."""
        back_up(super()._read, path)

    def facts(self) -> dict[str, str | int]:
        """Return what is true of the file, and what of it is lost."""
        facts, salvaged = super().facts(), self._salvaged
        return facts if salvaged is None else {**facts, "lost": salvaged.lost}

    def _read(self, read: Callable[[Database], T]) -> T:
        if self._salvaged is None:
            try:
                return super()._read(read)
            except Corrupt:
                if not self._salvage():
                    raise
        with self._one_at_a_time:
            salvaged = self._salvaged
            if salvaged is not None and salvaged.is_current():
                self._check_open()
                return self._confirmed(read, salvaged.db)
            self._salvaged = None
            self._forget_reads()
        return self._read(read)

    def _salvage(self) -> bool:
        """Read from what is left of the file, from now on; False if SQLite can read all of it."""
        with self._one_at_a_time:
            if self._salvaged is None:
                self._salvaged = super()._read(lambda db: salvage(db, self._path))
                self._forget_reads()
            return self._salvaged is not None


def open_sqlite(
    path: Path, *, read_only: bool = False, create: bool = True, durability: str = "power_loss"
) -> SqliteEngine:
    """Return the engine on the store at `path`; raise `NotFound` if it does not exist and may not be created."""
    if durability not in ("power_loss", "process_crash"):
        raise Invalid(
            f"durability {durability!r} is not 'power_loss' or 'process_crash'; nothing was opened.",
            code="durability_unknown",
            durability=durability,
        )
    if not path.exists() and (read_only or not create):
        raise NotFound(
            f"there is no store at {path}; nothing was opened.",
            code="store_not_found",
            advice="Create one with `perdure init`.",
            path=str(path),
        )
    if path.is_dir():
        raise NotFound(
            f"{path} is a directory, not a store; nothing was opened.",
            code="is_a_directory",
            advice=f"Name a file in it, such as {path / 'perdure.db'}.",
            path=str(path),
        )
    kind = SqliteReader if read_only else SqliteEngine
    return kind(resolved(path), read_only=read_only, durable=durability == "power_loss")
