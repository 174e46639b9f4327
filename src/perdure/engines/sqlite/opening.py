"""Opening a store by its path."""

from __future__ import annotations

from pathlib import Path

from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.filesystem import resolved
from perdure.errors import Invalid, NotFound

__all__ = ["open_sqlite"]


def open_sqlite(
    path: Path, *, read_only: bool = False, create: bool = True, durability: str = "power_loss"
) -> SqliteEngine:
    """The engine on the store at `path`; raises `NotFound` if it is not there and may not be created."""
    if durability not in ("power_loss", "process_crash"):
        raise Invalid(
            f"durability {durability!r} is not 'power_loss' or 'process_crash'; nothing was opened."
        )
    if not path.exists() and (read_only or not create):
        raise NotFound(f"there is no store at {path}; nothing was opened. Create one with `perdure init`.")
    if path.is_dir():
        raise NotFound(
            f"{path} is a directory, not a store; nothing was opened. Name a file in it, such as {path / 'perdure.db'}."
        )
    return SqliteEngine(resolved(path), read_only=read_only, durable=durability == "power_loss")
