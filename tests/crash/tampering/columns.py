"""Single edits of stored columns: each changes one value, or swaps it with that of the next row, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

import msgspec

from tests.crash.tampering.edits import KEYS

__all__ = ["ColumnEdit", "Text", "column_edits", "make"]


class Text(msgspec.Struct, frozen=True):
    """A text as it is stored, which may not be UTF-8."""

    body: bytes


_Stored: TypeAlias = "int | float | Text | bytes | None"


class ColumnEdit(msgspec.Struct, frozen=True):
    """Another value for one column of one row."""

    table: str
    row: tuple[_Stored, ...]  # its key
    column: str
    how: str
    was: str  # the type of the value
    values: tuple[_Stored, ...]  # of the row, and of the next one if the two are swapped
    next_row: tuple[_Stored, ...] = ()

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """What edits of many rows have in common."""
        return self.table, self.column, self.was, self.how


def column_edits(db: sqlite3.Connection) -> Iterator[ColumnEdit]:
    """Yield every edit of every column of every row."""
    db.text_factory = Text
    for table, key in KEYS.items():
        found = db.execute(f"SELECT * FROM {table} ORDER BY {', '.join(key)}")
        names = [each[0] for each in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        for at, row in enumerate(rows):
            own = tuple(row[name] for name in key)
            for column, value in row.items():
                was = type(value).__name__
                for how, other in _others(value).items():
                    yield ColumnEdit(table, own, column, how, was, (other,))
                if at + 1 < len(rows) and column not in key:
                    below = rows[at + 1]
                    next_row = tuple(below[name] for name in key)
                    yield ColumnEdit(table, own, column, "swapped", was, (below[column], value), next_row)


def make(db: sqlite3.Connection, edit: ColumnEdit) -> bool:
    """Make an edit; False if the database refuses it, or stores what was there before."""
    before = _dump(db, edit.table)
    with suppress(sqlite3.IntegrityError), db:
        for value, row in zip(edit.values, (edit.row, edit.next_row), strict=False):
            where = " AND ".join(
                [f"{name} IS {_bound(key)}" for name, key in zip(KEYS[edit.table], row, strict=True)]
            )
            sql = f"UPDATE {edit.table} SET {edit.column}={_bound(value)} WHERE {where}"
            db.execute(sql, [each.body if isinstance(each, Text) else each for each in (value, *row)])
    return _dump(db, edit.table) != before


def _bound(value: _Stored) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, Text) else "?"


def _others(value: _Stored) -> dict[str, _Stored]:
    """Return what could be there instead of a value, by what was done to it."""
    match value:
        case None:
            return {"empty text": Text(b""), "empty blob": b"", "zero": 0}
        case int():
            digits = str(value).encode()
            return {
                "null": None,
                "one more": value + 1,
                "one less": value - 1,
                "half more": value + 0.5,
                "text": Text(digits),
                "blob": digits,
            }
        case Text(body):
            return {"null": None, "empty text": Text(b""), "blob": body}
        case bytes():
            return {"null": None, "empty blob": b"", "text": Text(value)}
        case _:
            raise AssertionError(f"no column holds {value!r}")


def _dump(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    names = [row[0] for row in db.execute(f"SELECT CAST(name AS BLOB) FROM pragma_table_info('{table}')")]
    columns = ", ".join([f"typeof({name.decode()}), CAST({name.decode()} AS BLOB)" for name in names])
    return db.execute(f"SELECT {columns} FROM {table}").fetchall()
