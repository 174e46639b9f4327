"""`perdure sql`."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.hints import with_store
from perdure.cli.input.stores import engine, map_entries
from perdure.cli.options import EVERYWHERE, Everywhere, Limit
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Cell, Column, Screen
from perdure.engines.registry import open_sql
from perdure.shapes.text import shortened

__all__ = ["SqlAnswer", "ViewShape", "Views", "sql"]

_Value: TypeAlias = str | int | float | None

_CELL_LENGTH, _BLOCK_LENGTH = 80, 1_000  # characters of a value in a table, and in a block
_VIEWS = """
SELECT v.name, group_concat(c.name, ', ') FROM sqlite_schema v JOIN pragma_table_info(v.name) c
WHERE v.type = 'view' GROUP BY v.name ORDER BY v.name
"""
_EXAMPLES = (
    "SELECT id, agent_id, created_at FROM conversations",
    "SELECT event_type, created_at FROM conversation_events",
    "SELECT hash, parent_hash FROM state_commits",
    "SELECT content FROM state_values WHERE content LIKE '%milk%'",
)


class SqlAnswer(Answer, frozen=True, kw_only=True):
    """The rows that a query gave; bytes are written in hex."""

    columns: list[str]
    rows: list[list[_Value]]
    more: bool  # whether there are others beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table, or where it is wider than the screen each row as a block."""
        columns = [Column(name, gives_way=True) for name in self.columns]
        cells = [[_cell(value, _CELL_LENGTH) for value in row] for row in self.rows]
        if self.rows and screen.fits(columns, cells):
            screen.table(columns, cells)
        elif self.rows:
            screen.records(
                self.columns, [[_cell(value, _BLOCK_LENGTH) for value in row] for row in self.rows]
            )
        rows = count(len(self.rows), "row")
        screen.say((f"The first {rows}; --limit 0 shows all." if self.more else f"{rows}.", "quiet"))


class ViewShape(msgspec.Struct, frozen=True, kw_only=True):
    """One view that can be asked, and its columns."""

    name: str
    columns: list[str]


class Views(Answer, frozen=True, kw_only=True):
    """What can be asked, and how."""

    views: list[ViewShape]
    examples: list[str]

    def show(self, screen: Screen) -> None:
        """Print the views and the examples."""
        screen.say("Ask with one statement, such as")
        for example in self.examples:
            screen.say("  ", with_store(f'perdure sql "{example}"', screen.store))
        screen.gap()
        screen.say("Views:")
        for view in self.views:
            screen.say("  ", (view.name, "name"))
            screen.wrap((", ".join(view.columns), "quiet"), indent=4)


def sql(
    query: Annotated[
        str | None,
        Parameter(name="QUERY", help="One statement; the views are listed if left out", show_default=False),
    ] = None,
    /,
    *,
    limit: Limit = 200,
    everywhere: Everywhere = EVERYWHERE,
) -> SqlAnswer | Views:
    """Query the store in SQL, read-only

    Without a query the views are listed, with examples. Packed values are unpacked for you: see
    state_values and state_snapshots.
    """
    with engine(everywhere):
        pass  # raises the usual error if this is no store
    with closing(open_sql(everywhere.store, entries=map_entries)) as opened:
        columns, rows = opened.query(_VIEWS if query is None else query)
        if query is None:
            views = [ViewShape(name=str(name), columns=str(names).split(", ")) for name, names in rows]
            return Views(views=views, examples=list(_EXAMPLES))
        found, more = cut_off(list(islice(rows, limit + 1 if limit else None)), limit)
        return SqlAnswer(columns=columns, rows=[[_value(value) for value in row] for row in found], more=more)


def _value(value: object) -> _Value:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float) else None


def _cell(value: _Value, most: int) -> Cell:
    return ("null", "quiet") if value is None else shortened(str(value), most)
