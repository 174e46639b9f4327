"""Reads the records that cells hold, and lists small records of a thread: those of one timeline, or the last ones.

A *mark* is a cell whose name is the whole record: `<prefix><timeline>:<id>`.  No timeline has a colon in its name, so
the marks of a timeline are adjacent.  Ids that Perdure makes begin with the time, so the newest mark is the last.
"""

from __future__ import annotations

from collections import deque
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


_SECOND = 1_000  # ms
_MARKED = b"{}"
_LAST = chr(0x10FFFF)  # no name has it, and none comes after it
_PLAIN = 0x80  # the first letter that is not ASCII
_PROBES_MAX = 64


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
    """The last so many cells of those with a prefix, by name.

    Looks back from now, in spans that grow, until there are enough.  Where there are too many, because they
    came all at once or their names do not begin with the time, names are halved until there are not.
    """
    few, span, now = f"{prefix}{_LAST}", _SECOND, space.clock() // 1_000
    while limit > 0:
        begin = now - span
        after = prefix + (_at(begin) if begin > 0 else "")
        page = space.engine.cells(space.name, prefix=prefix, after=after, limit=2 * limit)
        if len(page) == 2 * limit:
            return _narrowed(space, prefix, page[limit - 1].name, few, limit)
        if len(page) >= limit or begin <= 0:
            return list(page[-limit:])
        few, span = after, 4 * span
    return []


def _narrowed(space: Space, prefix: str, many: str, few: str, limit: int) -> list[Cell]:
    """The last `limit` cells; at least so many come after the name `many`, and fewer after the name `few`."""
    probes = 0
    while many < few and probes < _PROBES_MAX:
        probes += 1
        at = next(each for each, (a, b) in enumerate(zip(many + "\0", few, strict=False)) if a != b)
        after = _half_way(many, few, at)
        if after is None and few[at + 1 :]:
            after = few[: at + 1]
        if after is None:
            few = many[: _shared(space, prefix, many, at + 1, limit)] + _LAST
            continue
        page = space.engine.cells(space.name, prefix=prefix, after=after, limit=2 * limit)
        if limit <= len(page) < 2 * limit:
            return list(page[-limit:])
        if page[limit:]:
            many = page[limit - 1].name
        else:
            few = after
    return list(deque(_cells(space, prefix, many), maxlen=limit))


def _half_way(low: str, high: str, at: int) -> str | None:
    """A name between two that differ from the letter `at` on; None: there is no letter between theirs."""
    a, b = ord(low[at]) if at < len(low) else 0, ord(high[at])
    if a < _PLAIN - 1:
        b = min(b, _PLAIN)
    return low[:at] + _letter((a + b) // 2) if b - a > 1 else None


def _shared(space: Space, prefix: str, name: str, least: int, limit: int) -> int:
    """With how many letters of `name` nearly all begin that come after it: all but fewer than `limit`."""
    most = len(name) + 1
    while most - least > 1:
        middle = (least + most) // 2
        after = name[:middle] + _LAST
        page = space.engine.cells(space.name, prefix=prefix, after=after, limit=limit)
        least, most = (middle, most) if len(page) < limit else (least, middle)
    return least


def _letter(code: int) -> str:
    """That letter, or the last before those that stand for none."""
    return chr(0xD7FF if 0xD800 <= code <= 0xDFFF else code)


def _at(ms: int) -> str:
    """What an id begins with that was made at that moment."""
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _cells(space: Space, prefix: str, after: str) -> Iterator[Cell]:
    return paging.cells(space.engine, space.name, prefix=prefix, after=after)
