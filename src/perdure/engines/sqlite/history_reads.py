"""Walking a line of first parents backwards: by steps, by jumps, and in one query; finding commits and moves by name."""

from __future__ import annotations

import msgspec

from perdure.engines.contract import Step
from perdure.engines.sqlite.commit.caches import hold_of
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.index import Index, label_keys, object_key, version_key
from perdure.engines.sqlite.format.rows import (
    COLUMNS,
    FROM,
    FROM_FAR,
    IS_PLACED,
    JUMP,
    Rows,
    moves_of,
    row_of,
    step_of,
)
from perdure.errors import Corrupt, NotFound
from perdure.model.commit import MoveRecord
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN

__all__ = ["back", "commit_row", "commits_from", "labelled", "last_of_turn", "moves", "steps_from"]

_BACK = f"""
WITH RECURSIVE back(id, n) AS (
    VALUES (?1, 1) UNION ALL
    SELECT log.prev, n + 1 FROM back JOIN log ON log.id = back.id WHERE n < ?2 AND log.prev IS NOT NULL
)
SELECT {COLUMNS} FROM back JOIN log l ON l.id = back.id LEFT JOIN log p ON p.id = l.prev ORDER BY back.n
"""

_ONE = f"SELECT {COLUMNS} {FROM} WHERE l.id=?"
_LINE = "SELECT id, space, prev, jump, depth, turn FROM log WHERE id=?"
_JUMPS = f"SELECT 1 {FROM_FAR} WHERE l.id=? AND l.digest IS NOT NULL AND l.jump IS {JUMP} AND {IS_PLACED}"


class _RowPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a row's commit stands, as far as walking back needs it."""

    row: int
    space: int
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


def commits_from(db: Database, index: Index, space: int | None, prefix: str) -> list[Digest]:
    """The commits whose digest starts with these hex digits, sorted."""
    found: set[Digest] = set()
    for at in () if space is None else index.between(db, space, prefix):
        digest = db.execute("SELECT digest FROM log WHERE id=? AND space=?", (at, space)).get
        if isinstance(digest, bytes) and digest.hex().startswith(prefix):
            found.add(Digest(digest.hex()))
    return sorted(found)


def back(db: Database, row: int, skip: int) -> int | None:
    """The ancestor `skip` commits back: a far jump where it does not go too far, else a step."""
    if skip <= 0:
        return row
    line: _RowPlace | None = _line(db, row)
    wanted = line.depth - skip
    while line is not None and line.depth > wanted:
        far = None if line.jump is None else _line(db, line.jump)
        line = _parent(db, line) if far is None or far.depth < wanted else _jumped(db, line, far)
    return None if line is None else line.row


def last_of_turn(db: Database, row: int, turn: int) -> int | None:
    """The newest commit of that turn on the line that ends at `row`."""
    line: _RowPlace | None = _line(db, row)
    while line is not None and line.turn > turn:
        far = None if line.jump is None else _line(db, line.jump)
        line = _parent(db, line) if far is None or far.turn <= turn else _jumped(db, line, far)
    if line is None or line.turn == turn:
        return None if line is None else line.row
    steps_from(db, line.row, 1)  # before it is believed that there is none
    return None


def steps_from(db: Database, row: int, limit: int) -> list[Step]:
    """Commits from `row` backwards, newest first."""
    if limit <= 0:
        return []
    found = db.execute(_ONE, (row,)) if limit == 1 else db.execute(_BACK, (row, limit))
    return [step_of(row_of(values)) for values in found]


def _parent(db: Database, line: _RowPlace) -> _RowPlace | None:
    """The line at the first parent, which the commit itself names; None if it has none."""
    steps_from(db, line.row, 1)
    return None if line.prev is None else _checked(line, _line(db, line.prev))


def _jumped(db: Database, line: _RowPlace, far: _RowPlace) -> _RowPlace:
    """The line at `far`, if that is where `line` must jump to; a row is checked when it is left."""
    if db.execute(_JUMPS, (line.row,)).fetchone() is None:
        raise _not_followed(line.row)
    return _checked(line, far)


def _checked(line: _RowPlace, found: _RowPlace) -> _RowPlace:
    """The line before `line`, which must lie so in the same space: a loop or a stranger is damage."""
    if found.space != line.space or not 0 <= line.turn - found.turn <= line.depth - found.depth > 0:
        raise _not_followed(line.row)
    return found


def _line(db: Database, row: int) -> _RowPlace:
    values = db.execute(_LINE, (row,)).fetchone()
    if values is None or not isinstance(values[4], int) or not isinstance(values[5], int):
        raise _not_followed(row)
    return _RowPlace(*values)


def _not_followed(row: int) -> Corrupt:
    return Corrupt(
        f"row {row} of the log is missing or damaged; the line could not be followed. Run `perdure verify`."
    )


def labelled(db: Database, rows: Rows, space: int | None, label: str) -> list[Digest]:
    """The commits of a space that a message id or a run id names."""
    if space is None:
        return []
    rows.index.catch_up(db)
    found = rows.named(db, space, label_keys(label))
    steps = [step_of(row) for row in found if row.digest is not None]
    return list(dict.fromkeys(step.digest for step in steps if _is_labelled(step, label)))


def moves(
    db: Database, rows: Rows, space: int | None, timeline: str, before: int | None, limit: int
) -> list[MoveRecord]:
    """The recorded moves of a timeline to versions below `before`, newest first; raises `Corrupt` if one is missing.

    `main` is at version 0 without a move.
    """
    hold = hold_of(db, space, timeline)[0]
    if space is None or hold is None:
        return []
    top = hold.head.version if before is None else min(hold.head.version, before - 1)
    found: list[MoveRecord] = []
    for version in range(top, max(-1, top - limit), -1):
        move = _move(db, rows, space, timeline, version)
        if move is not None:
            found.append(move)
        elif version or timeline != MAIN:
            raise Corrupt(
                f"the move of timeline '{timeline}' to version {version} is missing; nothing was read. "
                "Run `perdure verify`."
            )
    return found


def _move(db: Database, rows: Rows, space: int, timeline: str, version: int) -> MoveRecord | None:
    for at in rows.index.candidates(db, space, version_key(timeline, version)):
        row = rows.row(db, at)
        for record in moves_of(row) if row is not None and row.space == space else ():
            if record.timeline == timeline and record.version == version:
                return record
    return None


def _is_labelled(step: Step, label: str) -> bool:
    """Whether a message or a run of that id names the commit."""
    said = (event.id for event in step.changeset.events if isinstance(event, MessageAppended))
    return step.commit.run == label or label in said
