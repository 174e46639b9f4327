"""Random edits of stored rows by a user with write access and stock `sqlite3`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

__all__ = ["EDITS", "edit"]

_Value: TypeAlias = "int | str | bytes | None"

KEYS = {
    "meta": ("name",),
    "spaces": ("id",),
    "log": ("id",),
    "places": ("place",),
    "stretches": ("space", "first"),
    "heads": ("space", "timeline"),
    "cells": ("space", "name"),
    "entries": ("space", "position"),
}
WEIGHTS = (1, 2, 4, 1, 1, 3, 8, 6)  # of these tables, in their order


class Editor:
    """One random edit of the database at `path`; `older` is a copy from before its last writes."""

    def __init__(self, path: Path, older: Path, seed: int) -> None:
        self.path, self.older, self.random = path, older, random.Random(seed)
        self.db = sqlite3.connect(path)
        self.db.text_factory = bytes

    def table(self) -> str:
        """A table, more often one that matters."""
        return self.random.choices(list(KEYS), WEIGHTS)[0]

    def rows(self, table: str, where: str = "1") -> list[dict[str, _Value]]:
        """All rows of a table, in the order of their keys."""
        if table == "meta":  # nothing depends on the values of these two
            where = "name NOT IN ('barrier', 'generation')"
        found = self.db.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY {', '.join(KEYS[table])}")
        names = [each[0] for each in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def put(self, table: str, row: dict[str, _Value], column: str, value: _Value) -> None:
        """Give a column of a row another value, of the type that it had."""
        sql = f"SELECT typeof({column}) FROM {table} WHERE {_where(table)}"
        (kind,) = self.db.execute(sql, _key(table, row)).fetchone() or (b"",)
        new = "CAST(? AS TEXT)" if kind == b"text" else "?"
        update = f"UPDATE OR IGNORE {table} SET {column}={new} WHERE {_where(table)}"
        self.db.execute(update, (value, *_key(table, row)))

    def delete(self, table: str, row: dict[str, _Value]) -> None:
        """Delete a row."""
        self.db.execute(f"DELETE FROM {table} WHERE {_where(table)}", _key(table, row))

    def older_rows(self, table: str) -> list[tuple[_Value, ...]]:
        """The rows of the older copy."""
        with closing(sqlite3.connect(self.older)) as db:
            return db.execute(f"SELECT * FROM {table}").fetchall()


def _where(table: str) -> str:
    return " AND ".join(f"{name}=CAST(? AS {_type(name)})" for name in KEYS[table])


def _type(name: str) -> str:
    return "TEXT" if name in ("name", "timeline") else "INTEGER"


def _key(table: str, row: dict[str, _Value]) -> list[_Value]:
    return [row[name] for name in KEYS[table]]


def flip_a_bit(editor: Editor) -> str:
    """One bit of one value."""
    table = editor.table()
    row = editor.random.choice(editor.rows(table))
    column = editor.random.choice([name for name, value in row.items() if value not in (None, b"")])
    value = row[column]
    if isinstance(value, int):
        changed: _Value = value ^ (1 << editor.random.randrange(max(8, value.bit_length())))
    else:
        assert isinstance(value, bytes)
        at = editor.random.randrange(len(value))
        changed = value[:at] + bytes([value[at] ^ (1 << editor.random.randrange(8))]) + value[at + 1 :]
    editor.put(table, row, column, changed)
    return f"a bit of {table}.{column} {_key(table, row)}"


def delete_a_row(editor: Editor) -> str:
    """One row of any table."""
    table = editor.table()
    row = editor.random.choice(editor.rows(table))
    editor.delete(table, row)
    return f"row {_key(table, row)} of {table}"


def delete_a_tail(editor: Editor) -> str:
    """The last rows of a table, or of the part of it that belongs to one space."""
    table = editor.table()
    rows = editor.rows(table)
    if "space" in rows[0] and editor.random.random() < 0.7:
        space = editor.random.choice(rows)["space"]
        rows = [row for row in rows if row["space"] == space]
    gone = rows[-editor.random.randint(1, min(6, len(rows))) :]
    for row in gone:
        editor.delete(table, row)
    return f"the last {len(gone)} rows of {table}"


def swap_two_rows(editor: Editor) -> str:
    """The values of one or all columns of two rows, but for their keys."""
    table = editor.random.choice(["log", "heads", "cells", "cells", "entries"])
    one, other = editor.random.sample(editor.rows(table), 2)
    free = [name for name in one if name not in KEYS[table]]
    for column in free if editor.random.random() < 0.5 else [editor.random.choice(free)]:
        editor.put(table, one, column, other[column])
        editor.put(table, other, column, one[column])
    return f"rows {_key(table, one)} and {_key(table, other)} of {table} swapped"


STATES = [b"requested", b"started", b"succeeded", b"failed", b"unknown", b"approved", b"awaiting_approval", b"waiting",
          b"running", b"cancelled", b"resolved"]  # fmt: skip


def edit_a_state(editor: Editor) -> str:
    """The state of a call, a ticket or a run, or another word of its record."""
    table, column = editor.random.choice([("cells", "value"), ("cells", "value"), ("entries", "body")])
    rows = [row for row in editor.rows(table) if any(state in bytes(row[column] or b"") for state in STATES)]  # pyright: ignore[reportArgumentType]
    row = editor.random.choice(rows)
    value = row[column]
    assert isinstance(value, bytes)
    before = editor.random.choice([state for state in STATES if state in value])
    editor.put(table, row, column, value.replace(before, editor.random.choice(STATES)))
    return f"a state in {table} {_key(table, row)}"


def put_back_a_row(editor: Editor) -> str:
    """A row as it was before the last writes, digest and all."""
    table = editor.table()
    rows = editor.older_rows(table)
    row = editor.random.choice(rows)
    editor.db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(row))})", row)
    return f"{table} {row[:2]} as before"


def put_back_a_table(editor: Editor) -> str:
    """A whole table, or two of them, as before the last writes."""
    tables = editor.random.sample(list(KEYS), editor.random.choice([1, 1, 2]))
    for table in tables:
        editor.db.execute(f"DELETE FROM {table}")
        for row in editor.older_rows(table):
            editor.db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
    return f"tables {tables} as before"


def remove_a_call(editor: Editor) -> str:
    """Everything that the cells say of a call, and the last entries of its ledger."""
    cells = [row for row in editor.rows("cells") if bytes(row["name"]).startswith(b"call/")]  # pyright: ignore[reportArgumentType]
    row = editor.random.choice(cells)
    id, space = bytes(row["name"]).removeprefix(b"call/"), row["space"]  # pyright: ignore[reportArgumentType]
    what = editor.random.sample(["cells", "twin", "key", "tail", "entries"], editor.random.randint(1, 5))
    for table, column in (("cells", "name"), ("cells", "value"), ("entries", "body")):
        if ("entries" if table == "entries" else "cells") in what:
            sql = f"DELETE FROM {table} WHERE space=? AND instr(CAST({column} AS BLOB), ?)"
            editor.db.execute(sql, (space, id))
    for prefix in ("twin", "key"):
        if prefix in what:
            editor.db.execute("DELETE FROM cells WHERE name LIKE ?", (f"{prefix}/%",))
    if "tail" in what:
        for each in editor.rows("entries", f"space={space}")[-editor.random.randint(1, 4) :]:
            editor.delete("entries", each)
    return f"call {id!r}: {sorted(what)}"


def move_to_another_space(editor: Editor) -> str:
    """Rows of one space under the number of another."""
    table = editor.random.choice(["cells", "entries", "heads", "log"])
    row = editor.random.choice(editor.rows(table))
    spaces = [each["id"] for each in editor.rows("spaces") if each["id"] != row["space"]]
    editor.db.execute(
        f"UPDATE OR REPLACE {table} SET space=? WHERE {_where(table)}",
        (editor.random.choice(spaces), *_key(table, row)),
    )
    return f"{table} {_key(table, row)} in another space"


def rename_something(editor: Editor) -> str:
    """A space, a cell or a timeline under another name."""
    table, column = editor.random.choice([("spaces", "name"), ("cells", "name"), ("heads", "timeline")])
    row = editor.random.choice(editor.rows(table))
    old = row[column]
    assert isinstance(old, bytes)
    name = (old + b"x").decode()
    editor.db.execute(
        f"UPDATE OR IGNORE {table} SET {column}=? WHERE {_where(table)}", (name, *_key(table, row))
    )
    return f"{table} {_key(table, row)} renamed"


def add_to_the_schema(editor: Editor) -> str:
    """A trigger or an index on a table of ours, or a column in it."""
    table = editor.table()
    sql = editor.random.choice(
        [
            f"CREATE TRIGGER spy AFTER UPDATE ON {table} BEGIN DELETE FROM entries; END",
            f"CREATE TRIGGER spy AFTER INSERT ON {table} BEGIN DELETE FROM cells WHERE name LIKE 'twin/%'; END",
            f"CREATE INDEX spy ON {table}({KEYS[table][-1]})",
            f"ALTER TABLE {table} ADD COLUMN spy",
        ]
    )
    editor.db.execute(sql)
    return sql


EDITS: list[Callable[[Editor], str]] = [
    add_to_the_schema,
    flip_a_bit,
    flip_a_bit,
    delete_a_row,
    delete_a_row,
    delete_a_tail,
    swap_two_rows,
    edit_a_state,
    edit_a_state,
    put_back_a_row,
    put_back_a_table,
    remove_a_call,
    remove_a_call,
    move_to_another_space,
    rename_something,
]


def edit(path: Path, older: Path, seed: int) -> str | None:
    """Make one random edit; what it was, None if it changed nothing."""
    editor = Editor(path, older, seed)
    with closing(editor.db) as db:
        before = _dump(db)
        what = editor.random.choice(EDITS)(editor)
        db.commit()
        changed = _dump(db) != before
    return what if changed else None


def _dump(db: sqlite3.Connection) -> list[list[tuple[_Value, ...]]]:
    schema = [db.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()]
    return schema + [
        db.execute(f"SELECT * FROM {table} ORDER BY {', '.join(KEYS[table])}").fetchall() for table in KEYS
    ]
