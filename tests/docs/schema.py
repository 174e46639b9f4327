"""The tables and views of a new SQLite store, for comparing pages with them."""

from __future__ import annotations

from pathlib import Path

import apsw

import perdure

__all__ = ["columns_of_new_store"]


def columns_of_new_store(directory: Path) -> dict[str, list[str]]:
    """Each table and view with its columns, in order."""
    path = directory / "store.db"
    perdure.open(path).close()
    connection = apsw.Connection(str(path))
    # Two views cannot even be looked at without the functions that `perdure sql` adds.
    for name, count in (("perdure_objects", 1), ("perdure_snapshot", 2)):
        connection.create_scalar_function(name, lambda *_: None, count)
    sql = "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type IN ('table', 'view')"
    found: dict[str, list[str]] = {}
    for name, column in connection.execute(sql):
        found.setdefault(str(name), []).append(str(column))
    connection.close()
    return found
