"""Reading cells: from the text that a cell holds to the record that it means.

Listing: small records of a thread, those of one line, and the last ones, without reading the rest.

A *mark* is a cell whose name says it all: `<prefix><line>:<id>`.  No timeline has a colon in its name, so
the marks of a line stand together.  Ids that we make begin with the time, so what came last stands last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from perdure.engines.contract import Cell, CellWrite
from perdure.errors import Corrupt
from perdure.history.space import Space

__all__ = ["read", "last", "mark", "marked", "marked_elsewhere"]


_T = TypeVar("_T")


def read(cell: Cell, decoder: msgspec.json.Decoder[_T]) -> _T:
    """What the cell says; raises `Corrupt`, naming it, if that cannot be read."""
    try:
        return decoder.decode(cell.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"cell '{cell.name}' cannot be read: {error}. Run `perdure verify`.", cell=cell.name
        ) from error


_FIRST_PAGE, _PAGE = 8, 256
_MARKED = b"{}"


def mark(prefix: str, line: str, id: str, *, expected: int, present: bool) -> CellWrite:
    """The write that sets a mark, or takes it away."""
    value = _MARKED if present else None
    return CellWrite(name=f"{prefix}{line}:{id}", expected=expected, value=value)


def marked(space: Space, prefix: str, line: str) -> Iterator[str]:
    """The ids that are marked on a line, in their order."""
    wanted = f"{prefix}{line}:"
    return (cell.name.removeprefix(wanted) for cell in _cells(space, wanted, wanted))


def marked_elsewhere(space: Space, prefix: str, line: str) -> Iterator[str]:
    """The ids that are marked on other lines; no line is called '', so of that all others are meant."""
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
    """Page by page, each larger than the one before: whoever stops soon has read little."""
    limit = _FIRST_PAGE
    while page := space.engine.cells(space.name, prefix=prefix, after=after, limit=limit):
        yield from page
        after, limit = page[-1].name, min(2 * limit, _PAGE)
