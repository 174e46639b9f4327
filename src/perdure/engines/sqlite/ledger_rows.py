"""Cells, ledgers and the names of spaces, as they are read."""

from __future__ import annotations

from typing import cast

from perdure.engines.contract import Cell, Entry
from perdure.engines.shared_rules import chained, check_cell
from perdure.engines.sqlite.commit.seals import check_listed, check_spaces
from perdure.engines.sqlite.database import Database
from perdure.errors import Corrupt
from perdure.model.digest import Digest

__all__ = ["cell", "cells", "entries", "listed", "spaces", "stored"]

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
    """The names of spaces; raises `Corrupt` at their end if there is one without a name."""
    names = [str(name) for (name,) in db.execute(_SPACES, (after, limit))]
    if not names:
        check_spaces(db)
        check_listed(db)
    nameless = None if names else db.execute(_NAMELESS).get
    if nameless is not None:
        raise Corrupt(
            f"space number {nameless} has lost its name, so what it holds was not read. Run `perdure verify`."
        )
    return names


def cell(db: Database, space: str, number: int | None, name: str) -> Cell | None:
    """The cell, or None if it was never written."""
    found = stored(db, space, number, name)
    return None if found is None else found[0]


def stored(db: Database, space: str, number: int | None, name: str) -> tuple[Cell, bytes, int] | None:
    """The cell, the digest that it is stored with, which matches, and whether it is listed; None: never written."""
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
    return [_checked(space, *values) for values in db.execute(select, (number, after, prefix, limit, before))]


def listed(db: Database, prefix: str, after: tuple[str, str], limit: int) -> list[Cell]:
    """Listed cells of every space, by (name, space)."""
    return [_checked(*values) for values in db.execute(_LISTED, (*after, prefix, limit))]


def _checked(
    space: str, name: str, revision: int, value: bytes | None, position: int, listed: int, digest: object
) -> Cell:
    return check_cell(Cell(space, name, revision, value, position), digest, listed=listed)


def entries(
    db: Database, number: int | None, after: int, before: int | None, *, descending: bool, limit: int
) -> list[Entry]:
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
    found: list[Entry] = []
    expected, chain = 1, None
    for index, (position, stored, body) in enumerate(cast("list[tuple[int, bytes, bytes]]", rows)):
        entry = Entry(position, Digest(stored.hex()), body)
        is_neighbour = index == 0 and (position == after or is_cut)
        is_linked = position == expected and (position == top or entry.chain == chained(chain, body))
        if not is_linked and not is_neighbour:
            raise Corrupt(
                f"ledger entry {position} does not follow the one before it.",
                code="ledger_chain_broken",
                advice="Run `perdure verify`.",
                position=position,
            )
        expected, chain = position + 1, entry.chain
        if after < position < top:
            found.append(entry)
    return (found[::-1] if descending else found)[:limit]
