"""Walking a line of first parents backwards: by steps, by jumps, and in one query."""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import Step
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.index import Index
from holdfast.engines.sqlite.keys import object_key
from holdfast.engines.sqlite.rows import COLUMNS, row_of, step_of
from holdfast.errors import Corrupt, NotFound
from holdfast.model.digest import Digest

__all__ = ["back", "commit_row", "last_of_turn", "steps_from"]

_BACK = f"""
WITH RECURSIVE back(id, n) AS (
    VALUES (?1, 1) UNION ALL
    SELECT log.prev, n + 1 FROM back JOIN log ON log.id = back.id WHERE n < ?2 AND log.prev IS NOT NULL
)
SELECT {COLUMNS} FROM back JOIN log l ON l.id = back.id LEFT JOIN log p ON p.id = l.prev ORDER BY back.n
"""


class _Line(msgspec.Struct, frozen=True):
    """Where a row's commit stands, as far as walking back needs it."""

    prev: int | None
    jump: int | None
    depth: int
    turn: int


def commit_row(db: Database, index: Index, space: int | None, commit: Digest) -> int:
    """The row of a commit; raises `NotFound`."""
    digest = bytes.fromhex(commit)
    for row in index.candidates(db, space, object_key(commit)) if space is not None else ():
        if db.execute(
            "SELECT 1 FROM log WHERE id=? AND space=? AND digest=?", (row, space, digest)
        ).fetchone():
            return row
    raise NotFound(f"there is no commit {commit} in this space; nothing was returned.")


def back(db: Database, row: int, skip: int) -> int | None:
    """The ancestor `skip` commits back: a far jump where it does not go too far, else a step."""
    line = _line(db, row)
    wanted = line.depth - max(skip, 0)
    found: int | None = row
    while found is not None and (line := _line(db, found)).depth > wanted:
        is_near = line.jump is None or _line(db, line.jump).depth < wanted
        found = line.prev if is_near else line.jump
    return found


def last_of_turn(db: Database, row: int, turn: int) -> int | None:
    """The newest commit of that turn on the line that ends at `row`."""
    found: int | None = row
    while found is not None and (line := _line(db, found)).turn > turn:
        is_near = line.jump is None or _line(db, line.jump).turn <= turn
        found = line.prev if is_near else line.jump
    return found if found is not None and _line(db, found).turn == turn else None


def steps_from(db: Database, row: int, limit: int) -> list[Step]:
    """Commits from `row` backwards, newest first."""
    return [step_of(row_of(values)) for values in db.execute(_BACK, (row, limit))] if limit > 0 else []


def _line(db: Database, row: int) -> _Line:
    values = db.execute("SELECT prev, jump, depth, turn FROM log WHERE id=?", (row,)).fetchone()
    if values is None or not isinstance(values[2], int) or not isinstance(values[3], int):
        raise Corrupt(
            f"row {row} of the log is missing or damaged; the line could not be followed. Run `holdfast verify`."
        )
    return _Line(*values)
