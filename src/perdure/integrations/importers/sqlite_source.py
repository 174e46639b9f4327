"""Opens the SQLite databases of other tools for reading, and writes nothing beside them.

The file is opened read-only.  A database in WAL mode needs its `-wal` and `-shm` files: if they are there, another
program may be writing, and SQLite uses them; if not, the file is opened as immutable, so that SQLite creates neither.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from perdure.errors import Corrupt

__all__ = ["MAGIC", "columns_of", "opened", "quoted", "tables_of"]

MAGIC = b"SQLite format 3\x00"


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    """Open a database for reading; raise `Corrupt` if SQLite cannot read it."""
    is_written = Path(f"{path}-wal").exists()
    options = "mode=ro" if is_written else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _text
            yield connection
        finally:
            connection.close()
    except (
        sqlite3.Error,
        UnicodeError,
    ) as error:  # damaged names are no text, not even in an error of SQLite
        raise Corrupt(
            f"SQLite cannot read {path}: {error}; nothing more was imported from it.",
            code="import_database_unreadable",
            source=str(path),
        ) from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def tables_of(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables, sorted; views are none, since they would run what the file says."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [str(name) for (name,) in rows if not str(name).startswith("sqlite_")]


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of the columns of a table; none if there is no such table."""
    if table not in tables_of(connection):
        return set()
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}


def quoted(name: str) -> str:
    """Return a name for use in SQL."""
    return '"' + name.replace('"', '""') + '"'
