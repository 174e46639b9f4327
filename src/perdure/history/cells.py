"""Reads the records that cells hold, and lists small records of a thread: those of one timeline, or the last ones.

A *mark* is a cell whose name is the whole record: `<prefix><timeline>:<id>`.  No timeline has a colon in its name, so
the marks of a timeline are adjacent.  Ids that Perdure makes begin with the time, so the newest mark is the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from perdure.engines import paging
from perdure.engines.contract import Cell, CellWrite
from perdure.errors import Corrupt
from perdure.history.space import Space

__all__ = ["read", "last", "mark", "marked", "marked_elsewhere"]


_T = TypeVar("_T")


def read(cell: Cell, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return the record that the cell holds; raises `Corrupt`, naming the cell, if it cannot be read."""
    try:
        return decoder.decode(cell.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"cell '{cell.name}' cannot be read: {error}.",
            cell=cell.name,
            code="cell_unreadable",
            advice="Run `perdure verify`.",
        ) from error


_MARKED = b"{}"


def mark(prefix: str, line: str, id: str, *, expected: int, present: bool) -> CellWrite:
    """Return the write that sets a mark, or removes it."""
    value = _MARKED if present else None
    return CellWrite(name=f"{prefix}{line}:{id}", expected=expected, value=value)


def marked(space: Space, prefix: str, line: str) -> Iterator[str]:
    """Return the ids that are marked on a timeline, in their order."""
    own = f"{prefix}{line}:"
    return (cell.name.removeprefix(own) for cell in _cells(space, own, own))


def marked_elsewhere(space: Space, prefix: str, line: str) -> Iterator[str]:
    """Yield the ids that are marked on other timelines; with '' as `line`, on all timelines."""
    own = f"{prefix}{line}:"
    for cell in _cells(space, prefix, prefix):
        if cell.name >= own:
            break
        yield cell.name.partition(":")[2]
    for cell in _cells(space, prefix, f"{prefix}{line};"):  # the character after the colon
        yield cell.name.partition(":")[2]


def last(space: Space, prefix: str, limit: int) -> list[Cell]:
    """Return the last `limit` cells whose names start with `prefix`, by name."""
    return [*space.engine.cells(space.name, prefix=prefix, descending=True, limit=limit)][::-1]


def _cells(space: Space, prefix: str, after: str) -> Iterator[Cell]:
    return paging.cells(space.engine, space.name, prefix=prefix, after=after)
