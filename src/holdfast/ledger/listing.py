"""Listing: small records of a thread, those of one line, and the last ones, without reading the rest.

A *mark* is a cell whose name says it all: `<prefix><line>:<id>`.  No timeline has a colon in its name, so
the marks of a line stand together.  Ids that we make begin with the time, so what came last stands last.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.engines.contract import Cell, CellWrite
from holdfast.history.space import Space

__all__ = ["last", "mark", "marked", "marked_elsewhere"]

_FIRST_PAGE, _PAGE = 8, 256
_SECOND = 1_000  # ms
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
    """The last so many cells of those with a prefix, by name.

    Looks back from now, in spans that grow.  Where names do not begin with the time all are read.
    """
    span = _SECOND
    now = space.clock() // 1_000
    while limit > 0:
        begin = now - span
        after = prefix + (_at(begin) if begin > 0 else "")
        found = list(_cells(space, prefix, after))
        if len(found) >= limit or begin <= 0:
            return found[-limit:]
        span *= 4
    return []


def _at(ms: int) -> str:
    """What an id begins with that was made at that moment."""
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _cells(space: Space, prefix: str, after: str) -> Iterator[Cell]:
    """Page by page, each larger than the one before: whoever stops soon has read little."""
    limit = _FIRST_PAGE
    while page := space.engine.cells(space.name, prefix=prefix, after=after, limit=limit):
        yield from page
        after, limit = page[-1].name, min(2 * limit, _PAGE)
