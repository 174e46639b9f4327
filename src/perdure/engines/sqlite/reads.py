"""Reads what the engine returns: heads, cells, ledgers, names of spaces, and the history of commits.

Everything that is read is checked: a cell against its digest, a head against its last move, a ledger entry against the
chain.  History is followed along first parents, by steps, by far jumps, or in one query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import cast

import msgspec

from perdure.engines.contract import Cell, Hold, LedgerEntry, Rebuilt, Step
from perdure.engines.shared_rules import (
    broken_chain,
    chained,
    check_cell,
    check_hold,
    damaged,
    event_labels,
    newest_labelled,
    rebuilt,
    unmoved,
)
from perdure.engines.sqlite.commit.seals import check_listed, check_spaces
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.commits import (
    EVENT_COLUMNS,
    LINE_COLUMNS,
    TEXT_COLUMNS,
    events_of,
    hashed_step,
    line_of,
    step_of,
    steps_apart,
)
from perdure.engines.sqlite.format.index import Index, label_keys, object_key, run_key, split, version_key
from perdure.engines.sqlite.format.pack import move_of
from perdure.engines.sqlite.format.rows import FROM_FAR, IS_PLACED, JUMP, LogRow, Rows, columns_of
from perdure.errors import Corrupt, NotFound
from perdure.model.commit import CommitEvents, MoveRecord, decode_move
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN, Head

__all__ = [
    "moves_of",
    "hold_of",
    "holds_of",
    "cell",
    "cells",
    "cells_of",
    "entries",
    "listed",
    "spaces",
    "stored",
    "stored_cells",
    "commit_row",
    "commits_from",
    "events_from",
    "labelled",
    "last_of_turn",
    "moves",
    "steps",
    "steps_from",
]

# ---- cells, ledgers and names

# After every name that starts with parameter 3, compared byte by byte.
_END_OF_3 = "CAST(CAST(?3 AS BLOB) || x'ff' AS TEXT)"
_CELLS = (
    "SELECT name, revision, CAST(value AS BLOB), position, listed, digest FROM cells WHERE space=?1 AND name>=max(?3, ?2) AND name<>?2 "
    f"AND name<min({_END_OF_3}, coalesce(?5, {_END_OF_3})) AND value IS NOT NULL ORDER BY name LIMIT ?4"
)
_CELLS_DESCENDING = _CELLS.replace("ORDER BY name", "ORDER BY name DESC")
_LISTED = (
    "SELECT s.name, c.name, c.revision, CAST(c.value AS BLOB), c.position, c.listed, c.digest "
    "FROM cells c JOIN spaces s ON s.id=c.space "
    f"WHERE c.listed AND c.value IS NOT NULL AND c.name>=max(?3, ?1) AND c.name<{_END_OF_3} "
    "AND (c.name, s.name) > (?1, ?2) ORDER BY c.name, s.name LIMIT ?4"
)
_CELL = "SELECT revision, CAST(value AS BLOB), position, listed, digest FROM cells WHERE space=? AND name=?"
_CELLS_OF = (
    "SELECT space, revision, CAST(cells.value AS BLOB), position, listed, digest FROM json_each(?) AS wanted "
    "CROSS JOIN cells ON space=wanted.value AND name=?"
)
_STORED_CELLS = "SELECT name, revision, CAST(value AS BLOB), position, listed, digest FROM cells WHERE space=? AND name>? ORDER BY name LIMIT ?"
_SPACES = "SELECT name FROM spaces WHERE name>? ORDER BY name LIMIT ?"
_NAMELESS = (
    "SELECT space FROM heads WHERE space NOT IN (SELECT id FROM spaces) UNION ALL "
    "SELECT space FROM cells WHERE space NOT IN (SELECT id FROM spaces) LIMIT 1"
)
_ENTRIES = (
    "SELECT position, chain, CAST(body AS BLOB) FROM entries WHERE space=? AND position>=? "
    "AND position<=? ORDER BY position LIMIT ?"
)
_ENTRIES_DESCENDING = _ENTRIES.replace("ORDER BY position", "ORDER BY position DESC")
_POSITION_MAX = (1 << 63) - 1


def spaces(db: Database, after: str, limit: int) -> list[str]:
    """Return the names of spaces; raise `Corrupt` at their end if there is one without a name."""
    names = [str(name) for (name,) in db.execute(_SPACES, (after, limit))]
    if not names:
        check_spaces(db)
        check_listed(db)
    nameless = None if names else db.execute(_NAMELESS).get
    if nameless is not None:
        raise damaged(
            f"the name of space number {nameless} is missing, so what it holds was not read.",
            "spaces_damaged",
        )
    return names


def cell(db: Database, space: str, number: int | None, name: str) -> Cell | None:
    """Return the cell, or None if it was never written."""
    found = stored(db, space, number, name)
    return None if found is None else found[0]


def stored(db: Database, space: str, number: int | None, name: str) -> tuple[Cell, bytes, int] | None:
    """Return the cell, the digest that it is stored with, which matches, and whether it is listed; None: never written."""
    values = db.execute(_CELL, (number, name)).fetchone()
    if values is None:
        return None
    revision, value, position, listed, digest = values
    return check_cell(Cell(space, name, revision, value, position), digest, listed=listed), digest, listed


def cells(
    db: Database,
    space: str,
    number: int | None,
    prefix: str,
    after: str,
    before: str | None,
    *,
    descending: bool,
    limit: int,
) -> list[Cell]:
    """Return the cells that are not empty, by name."""
    select = _CELLS_DESCENDING if descending else _CELLS
    found = db.execute(select, (number, after, prefix, limit, before)).fetchall()
    return [_checked_cell(space, *values) for values in found]


def stored_cells(db: Database, space: str, number: int | None, after: str, limit: int) -> list[Rebuilt]:
    """Return every cell, emptied ones too, by name."""
    found = db.execute(_STORED_CELLS, (number, after, limit)).fetchall()
    return [rebuilt(_checked_cell(space, *values), listed=values[4]) for values in found]


def cells_of(db: Database, spaces: Mapping[int | None, str], name: str) -> list[Cell]:
    """Return the cells of that name in the spaces of these numbers."""
    numbers = msgspec.json.encode([number for number in spaces if number is not None]).decode()
    return [
        _checked_cell(spaces[space], name, *values)
        for space, *values in db.execute(_CELLS_OF, (numbers, name)).fetchall()
    ]


def listed(db: Database, prefix: str, after: tuple[str, str], limit: int) -> list[Cell]:
    """Return the listed cells of every space, by (name, space)."""
    found = db.execute(_LISTED, (*after, prefix, limit)).fetchall()
    return [_checked_cell(*values) for values in found]


# The rows are read to the end before they are checked: a statement that an error leaves halfway pins its connection to
# an old moment for as long as anything holds the error.
def _checked_cell(
    space: str, name: str, revision: int, value: bytes | None, position: int, listed: int, digest: object
) -> Cell:
    return check_cell(Cell(space, name, revision, value, position), digest, listed=listed)


def entries(
    db: Database, number: int | None, after: int, before: int | None, *, descending: bool, limit: int
) -> list[LedgerEntry]:
    """Return ledger entries between two positions, each checked against the chain.

    The entry below the lowest one is read too, because the chain goes through it, and so is the entry `before`:
    only its position shows that an entry right below it is missing.
    """
    top = _POSITION_MAX if before is None else before
    if descending:
        rows = db.execute(_ENTRIES_DESCENDING, (number, after, top, limit + 2)).fetchall()[::-1]
    else:
        count = limit + (after > 0) + (before is not None)
        rows = db.execute(_ENTRIES, (number, after, top, count)).fetchall()
    is_cut = descending and len(rows) == limit + 2  # the lowest row is only there for the chain
    found: list[LedgerEntry] = []
    expected, chain = 1, None
    for index, (position, stored, body) in enumerate(cast("list[tuple[int, bytes, bytes]]", rows)):
        named = Digest(stored.hex())
        is_linked = position == expected and (position == top or named == chained(chain, body))
        if not is_linked and not (index == 0 and (position == after or is_cut)):
            raise broken_chain(position)
        expected, chain = position + 1, named
        if after < position < top:
            found.append(LedgerEntry(position, named, body))
    return (found[::-1] if descending else found)[:limit]


# ---- heads

_CHECKED_MAX = 4_096
_HEAD = "SELECT CAST(move AS BLOB), digest, commit_row FROM heads WHERE space=? AND timeline=?"


_checked_heads: dict[
    object, tuple[str, bytes, Hold]
] = {}  # heads as they were stored, by the digest of the last move


def hold_of(connection: Database, space: int | None, timeline: str) -> tuple[Hold | None, int | None]:
    """Return the head of a timeline, checked against its last move, and the row of its commit."""
    values = None if space is None else connection.execute(_HEAD, (space, timeline)).fetchone()
    if values is None:
        return unmoved(timeline), None
    return _hold(timeline, values[0], values[1]), values[2]


def holds_of(connection: Database, space: int | None, after: str, limit: int) -> list[Hold]:
    """Return the heads of the timelines after `after`, by name."""
    sql = "SELECT timeline FROM heads WHERE space=? AND timeline>? ORDER BY timeline LIMIT ?"
    names = [str(name) for (name,) in connection.execute(sql, (space, after, limit))]
    return [hold for name in names if (hold := hold_of(connection, space, name)[0]) is not None]


def _note_head(timeline: str, move: bytes, digest: bytes, hold: Hold) -> None:
    """Note a head that was read and checked: one that reads the same need not be checked again."""
    if len(_checked_heads) >= _CHECKED_MAX:
        _checked_heads.clear()
    _checked_heads[digest] = timeline, move, hold


def _hold(timeline: str, move: object, digest: object) -> Hold:
    found = _checked_heads.get(digest)
    if found is not None and found[0] == timeline and found[1] == move:
        return found[2]
    if not isinstance(move, bytes) or not isinstance(digest, bytes):
        raise damaged(
            f"the head of timeline '{timeline}' is damaged; it was not used.",
            "head_damaged",
            timeline=timeline,
        )
    if digest_of(Kind.MOVE, move) != digest.hex():
        raise damaged(
            f"the head of timeline '{timeline}' does not match its last move; it was not used.",
            "head_damaged",
            timeline=timeline,
        )
    record = decode_move(move)
    hold = Hold(Head(timeline, record.version, record.to), record.sealed, Digest(digest.hex()))
    check_hold(hold, record)
    _note_head(timeline, move, digest, hold)
    return hold


# ---- history


def moves_of(row: LogRow) -> list[MoveRecord]:
    """Return the moves that a row records; raise `Corrupt` if they depend on a commit that does not match its digest."""
    op = row.pack.op
    if op is not None and op.moves and row.digest is not None:
        hashed_step(row)
    return [] if op is None else [move_of(move, columns_of(row)) for move in op.moves]


# The queue of this recursion never has more than one row, so rows come in the order of the line.
_BACK = """
WITH RECURSIVE back(id, n) AS (
    VALUES (?1, 1) UNION ALL
    SELECT log.prev, n + 1 FROM back JOIN log ON log.id = back.id WHERE n <= ?2 AND log.prev IS NOT NULL
)
SELECT {} FROM back CROSS JOIN log l ON l.id = back.id
"""
# The same where nothing else was written in between, which is known by the depths at both ends; else no row.
_STRETCH = """
SELECT {} FROM log l WHERE l.id BETWEEN ?1 - ?2 AND ?1 AND (
    SELECT last.depth - first.depth = ?2 AND last.space = first.space
    FROM log last, log first WHERE last.id = ?1 AND first.id = ?1 - ?2
) ORDER BY l.id DESC
"""
_WORDS, _NO_WORDS = ", ".join(TEXT_COLUMNS), f"{TEXT_COLUMNS[0]}, NULL, NULL"
_STEPS_BACK = [_BACK.format(f"{LINE_COLUMNS}, {texts}") for texts in (_NO_WORDS, _WORDS)]
_EVENTS_BACK = [_BACK.format(f"{EVENT_COLUMNS}, {texts}") for texts in (_NO_WORDS, _WORDS)]
_EVENTS_STRETCH = [_STRETCH.format(f"{EVENT_COLUMNS}, {texts}") for texts in (_NO_WORDS, _WORDS)]
# The same without the commits: of each row only what says which labels it may have.
_FOLLOWED = """
WITH RECURSIVE back(id, prev, space, depth, run, keys, n) AS (
    SELECT id, prev, space, depth, run, keys, 1 FROM log WHERE id = ?1 UNION ALL
    SELECT l.id, l.prev, l.space, l.depth, l.run, l.keys, n + 1
    FROM back JOIN log l ON l.id = back.prev AND l.space = back.space AND l.depth = back.depth - 1 WHERE n < ?2
)
SELECT id, depth, run, keys FROM back
"""
_APART = (
    f"SELECT {LINE_COLUMNS}, {TEXT_COLUMNS[0]}, iif(?2, {TEXT_COLUMNS[1]}, NULL), iif(?2, {TEXT_COLUMNS[2]}, NULL), "
    f"{LINE_COLUMNS.replace('l.', 'p.')} FROM json_each(?1) AS wanted CROSS JOIN log l ON l.id = wanted.value "
    "LEFT JOIN log p ON p.id = l.prev"
)
# The way back to a place on the line, by far jumps where one does not go too far, else by steps: each row, and whether
# the one before it jumps there.  It breaks off where the next row is missing, of another space, or not earlier.
_WAY = """
WITH RECURSIVE way(id, space, prev, jump, depth, turn, jumped) AS (
    SELECT id, space, prev, jump, depth, turn, 0 FROM log WHERE id = ?1 UNION ALL
    SELECT n.id, n.space, n.prev, n.jump, n.depth, n.turn, far.{0} >= ?3
    FROM way LEFT JOIN log far ON far.id = way.jump
    CROSS JOIN log n ON n.id = iif(far.{0} >= ?3, way.jump, way.prev)
    WHERE way.{0} > ?2 AND (way.jump IS NULL OR far.id IS NOT NULL)
        AND n.space = way.space AND n.depth < way.depth AND way.turn - n.turn BETWEEN 0 AND way.depth - n.depth
)
SELECT id, prev, {0}, jumped FROM way
"""
_JUMPS = (
    f"SELECT l.id {FROM_FAR} WHERE l.id IN (SELECT value FROM json_each(?)) "
    f"AND l.digest IS NOT NULL AND l.jump IS {JUMP} AND {IS_PLACED}"
)
_BY_DEPTH, _BY_TURN = _WAY.format("depth"), _WAY.format("turn")


def commit_row(db: Database, index: Index, space: int | None, commit: Digest) -> int:
    """Return the row of a commit; raise `NotFound`."""
    digest = bytes.fromhex(commit)
    for row in index.candidates(db, space, object_key(commit)) if space is not None else ():
        if db.execute(
            "SELECT 1 FROM log WHERE id=? AND space=? AND digest=?", (row, space, digest)
        ).fetchone():
            return row
    raise NotFound(
        f"there is no commit {commit} in this space; nothing was returned.",
        code="commit_not_found",
        commit=commit,
    )


def commits_from(db: Database, index: Index, space: int | None, prefix: str) -> list[Digest]:
    """Return the commits whose digest starts with these hex digits, sorted."""
    found: set[Digest] = set()
    for at in () if space is None else index.between(db, space, prefix):
        digest = db.execute("SELECT digest FROM log WHERE id=? AND space=?", (at, space)).get
        if isinstance(digest, bytes) and digest.hex().startswith(prefix):
            found.add(Digest(digest.hex()))
    return sorted(found)


def back(db: Database, row: int, skip: int) -> int | None:
    """Return the ancestor `skip` commits back; None if the line is shorter."""
    if skip <= 0:
        return row
    depth = db.execute("SELECT depth FROM log WHERE id=?", (row,)).get
    if not isinstance(depth, int):
        raise _not_followed(row)
    found = _followed(db, _BY_DEPTH, row, depth - skip, depth - skip)
    return None if found is None else found[0]


def last_of_turn(db: Database, row: int, turn: int) -> int | None:
    """Return the newest commit of that turn on the line that ends at `row`."""
    found = _followed(db, _BY_TURN, row, turn, turn + 1)
    if found is None or found[1] == turn:
        return None if found is None else found[0]
    steps_from(db, found[0], 1)  # before it is believed that there is none
    return None


def _followed(db: Database, way: str, row: int, goal: int, nearest: int) -> tuple[int, int] | None:
    """Return the first row on the way back from `row` that is not beyond `goal`, and where it is; None: the line begins later.

    A jump leads no further back than to `nearest`.  A row that is left is checked: one that jumps by the rows around
    it, one that steps by its commit, which names its parent.
    """
    rows = db.execute(way, (row, goal, nearest)).fetchall()
    last, prev, at, _ = rows[-1] if rows else (row, row, goal + 1, 0)
    is_found = isinstance(at, int) and at <= goal
    if not is_found and prev is not None:  # it broke off
        raise _not_followed(last)
    jumps = [one for (one, *_), (*_, is_jump) in pairwise(rows) if is_jump]
    steps = [one for one, *_ in (rows[:-1] if is_found else rows) if one not in jumps]
    checked = {one for (one,) in db.execute(_JUMPS, (_numbers(jumps),))} if jumps else set[int]()
    found = db.execute(_APART, (_numbers(steps), 0)).fetchall() if steps else []
    steps_apart(found)
    checked.update(one for one, *_ in found)
    for one in (*jumps, *steps):
        if one not in checked:
            raise _not_followed(one)
    return (last, at) if is_found else None


def _numbers(rows: Sequence[int]) -> str:
    return msgspec.json.encode(rows).decode()


def steps(
    db: Database, row: int, skip: int, limit: int, labels: Collection[str], *, bodies: bool
) -> list[Step]:
    """Return the commits from the one `skip` commits before `row` backwards, all of them or those with `labels`."""
    first = back(db, row, skip)
    if first is None:
        return []
    if labels:
        return labelled_from(db, first, limit, labels, bodies=bodies)
    return steps_from(db, first, limit, bodies=bodies)


def steps_from(db: Database, row: int, limit: int, *, bodies: bool = False) -> list[Step]:
    """Return the commits from `row` backwards, newest first; with `bodies` also the words that are stored with each."""
    if limit <= 0:
        return []
    found = db.execute(_STEPS_BACK[bodies], (row, limit))
    try:
        return line_of(found, limit)
    finally:
        found.close()  # after damage too, so that a second look reads the disk


def events_from(db: Database, row: int, limit: int, *, bodies: bool = False) -> list[CommitEvents]:
    """Return the events of the commits that `steps_from` returns."""
    for select in (_EVENTS_STRETCH[bodies], _EVENTS_BACK[bodies]):
        rows = db.execute(select, (row, limit))
        try:
            found = events_of(rows, limit)
        finally:
            rows.close()
        if found:
            return found
    return [step.as_events() for step in steps_from(db, row, limit, bodies=bodies)]


def labelled_from(
    db: Database, row: int, limit: int, labels: Collection[str], *, bodies: bool = False
) -> list[Step]:
    """Return the newest of the commits from `row` backwards for each label; only the rows that seem to have one are read whole."""
    if limit <= 0:
        return []
    rows = _numbers(_rows_with(db, row, limit, labels))
    return newest_labelled(steps_apart(db.execute(_APART, (rows, bodies)).fetchall()), labels)


def _rows_with(db: Database, row: int, limit: int, labels: Collection[str]) -> list[int]:
    """Return the newest row for each label among `limit` rows of a line, as far as keys tell; raise `Corrupt` if it breaks off."""
    keys = {key: (label, other) for label in labels for key, other in (label_keys(label),)}
    runs = {run_key(label): label for label in labels}
    left, found = set(labels), list[int]()
    count, last, before = 0, row, None
    rows = db.execute(_FOLLOWED, (row, limit))
    try:
        for number, depth, run, held in rows:
            if not isinstance(held, bytes):
                raise _not_followed(number)
            count, last, before = count + 1, number, depth
            own = split(held)
            if run not in runs and keys.keys().isdisjoint(own):  # as of most
                continue
            named = {keys[key][0] for key in own if key in keys and keys[key][1] in own}
            if run in runs:
                named.add(runs[run])
            if not named.isdisjoint(left):
                found.append(number)
                left -= named
                if not left:
                    return found
    finally:
        rows.close()
    if count < limit and before != 0:  # it did not end with the first commit
        raise _not_followed(last)
    return found


def _not_followed(row: int) -> Corrupt:
    return damaged(
        f"row {row} of the log is missing or damaged; its history could not be followed.", "row_lost", row=row
    )


def labelled(db: Database, rows: Rows, space: int | None, label: str) -> list[Digest]:
    """Return the commits of a space that have a label."""
    if space is None:
        return []
    rows.index.catch_up(db)
    found = rows.named(db, space, label_keys(label))
    steps = [step_of(row) for row in found if row.digest is not None]
    return list(dict.fromkeys(step.digest for step in steps if _is_labelled(step, label)))


def moves(
    db: Database, rows: Rows, space: int | None, timeline: str, before: int | None, limit: int
) -> list[MoveRecord]:
    """Return the recorded moves of a timeline to versions below `before`, newest first; raise `Corrupt` if one is missing.

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
            raise damaged(
                f"the move of timeline '{timeline}' to version {version} is missing; nothing was read.",
                "move_lost",
                timeline=timeline,
                version=version,
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
    """True if a message, a name or a run gives the commit that label."""
    return step.commit.run == label or label in event_labels(step.changeset.events)
