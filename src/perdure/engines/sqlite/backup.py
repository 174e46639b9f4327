"""Backing up: a consistent copy of a store in a new file, while others write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from perdure.engines.sqlite.database import Database
from perdure.errors import Conflict, Unavailable

__all__ = ["back_up", "sync_names"]


def back_up(read: Callable[[Callable[[Database], object]], object], path: Path) -> None:
    """Copy what `read` reads to the new file `path`, which appears whole or not at all.

    Raises `Conflict` if the file exists, `Unavailable` if it cannot be written.
    """
    if path.exists():
        raise Conflict(f"{path} exists already; nothing was copied. Choose another path, or remove it first.")
    partial = _new_file(path)
    try:
        read(lambda db: db.execute("VACUUM INTO ?", (str(partial),)).fetchall())
        _sync(partial)
        os.link(partial, path)  # fails if somebody made the file meanwhile
    except FileExistsError as error:
        raise Conflict(f"{path} exists already; nothing was copied. Choose another path.") from error
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        partial.unlink(missing_ok=True)
    sync_names(path.parent)


def _new_file(path: Path) -> Path:
    """An empty file beside `path`, under a name that nobody else uses."""
    try:
        file, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise _failed(path, error) from error
    os.close(file)
    return Path(name)


def _failed(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path} could not be written ({error}); there is no backup. Check its directory.")


def sync_names(path: Path) -> None:
    """Make the names in a directory certain."""
    _sync(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
