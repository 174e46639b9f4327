"""The two loops around an engine: read a whole list page by page, and try a write again that others overtook.

The engine answers in pages so that memory stays bounded.  The first page is small and each further page is larger,
so a caller that stops early has read little.  Each function yields what the method of the same name returns.

`Attempts` bounds how often a write is tried:

    attempts = Attempts("call 'c1'", "it was not decided")
    while True:
        attempts.begin()  # raises Conflict after the last one
        ...  # read, decide, write; return if nothing has changed since the read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from perdure.engines.contract import Cell, Engine, Hold, LedgerEntry, Step
from perdure.engines.shared_rules import damaged
from perdure.errors import Conflict, Corrupt, Unavailable
from perdure.model.commit import MoveRecord, encode_move
from perdure.model.digest import Digest, Kind, digest_of

__all__ = [
    "ATTEMPTS_MAX",
    "Attempts",
    "DamagedCell",
    "cells",
    "delayed",
    "entries",
    "holds",
    "listed",
    "listed_or_damaged",
    "moves",
    "pages",
    "spaces",
    "steps",
]

_T = TypeVar("_T")
_K = TypeVar("_K")
_PAGE_MIN, _PAGE_MAX = 8, 256


def pages(
    read: Callable[[_K, int], Sequence[_T]], start: _K, key: Callable[[_T], _K], *, fills: bool = False
) -> Iterator[_T]:
    """Yield what `read(cursor, limit)` returns until it returns nothing; the next cursor is `key` of the last item.

    `fills`: a page that is not the last has `limit` items, so that a shorter one ends the reading.
    Raises `Corrupt` if a page leads to itself: a key of another type, which an edit can leave, sorts behind every cursor.
    """
    limit = _PAGE_MIN
    while page := read(start, limit):
        yield from page
        if fills and len(page) < limit:
            return
        before, start, limit = start, key(page[-1]), min(4 * limit, _PAGE_MAX)
        if start == before:
            raise damaged("a list of the store leads back to itself; the rest was not read.", "list_damaged")


def cells(
    engine: Engine,
    space: str,
    *,
    prefix: str = "",
    after: str = "",
    before: str | None = None,
    descending: bool = False,
) -> Iterator[Cell]:
    """Yield the cells of a space that are not empty, by name."""
    if descending:
        return pages(
            lambda name, limit: engine.cells(
                space, prefix=prefix, after=after, before=name, descending=True, limit=limit
            ),
            before,
            lambda cell: cell.name,
            fills=True,
        )
    return pages(
        lambda name, limit: engine.cells(space, prefix=prefix, after=name, before=before, limit=limit),
        after,
        lambda cell: cell.name,
        fills=True,
    )


def listed(engine: Engine, *, prefix: str) -> Iterator[Cell]:
    """Yield the listed cells of every space, by name and space."""
    return pages(
        lambda cursor, limit: engine.listed(prefix=prefix, after=cursor, limit=limit),
        ("", ""),
        lambda cell: (cell.name, cell.space),
        fills=True,
    )


class DamagedCell(msgspec.Struct, frozen=True):
    """A listed cell that cannot be read, and why."""

    space: str
    name: str
    error: Corrupt


def listed_or_damaged(
    engine: Engine, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int
) -> list[Cell | DamagedCell]:
    """Return listed cells as `engine.listed` does; one that is damaged, or in a damaged space, does not hide the others.

    A damaged page is read cell by cell.  Raises `Corrupt` if the list itself is damaged: then no part of it is sure.
    """
    try:
        return [*engine.listed(prefix=prefix, after=after, limit=limit)]
    except Corrupt as error:
        if error.facts.get("space") is None:
            raise
    found: list[Cell | DamagedCell] = []
    while len(found) < limit:
        try:
            page = engine.listed(prefix=prefix, after=after, limit=1)
        except Corrupt as error:
            found.append(_damaged_after(engine, prefix, after, error))
        else:
            if not page:
                break
            found.append(page[0])
        after = found[-1].name, found[-1].space
    return found


def _damaged_after(engine: Engine, prefix: str, after: tuple[str, str], error: Corrupt) -> DamagedCell:
    """Return the cell that `error` is about: the one that it names, or the next of its space; raise it if there is none."""
    space = error.facts.get("space")
    if not isinstance(space, str):
        raise error
    if error.cell is not None and error.cell.startswith(prefix):
        return DamagedCell(space, error.cell, error)
    for cell in pages(
        lambda name, limit: engine.stored_cells(space, after=name, limit=limit),
        prefix,
        lambda cell: cell.name,
    ):
        is_next = cell.name.startswith(prefix) and (cell.name, space) > after
        if is_next and cell.listed and cell.value is not None:
            return DamagedCell(space, cell.name, error)
    raise error


def holds(engine: Engine, space: str) -> Iterator[Hold]:
    """Yield the timelines of a space that have moved, by name."""
    return pages(
        lambda name, limit: engine.holds(space, after=name, limit=limit),
        "",
        lambda hold: hold.head.timeline,
    )


def moves(engine: Engine, space: str, timeline: str, *, before: int | None = None) -> Iterator[MoveRecord]:
    """Yield the moves of a timeline, newest first, with versions below `before` (None: all).

    Raises `Corrupt` at a move that is not the one that the next newer one names.
    """
    newer: MoveRecord | None = None
    for move in pages(
        lambda version, limit: engine.moves(space, timeline, before=version, limit=limit),
        before,
        lambda move: move.version,
    ):
        is_next = newer is not None and newer.version == move.version + 1
        if newer is not None and is_next and digest_of(Kind.MOVE, encode_move(move)) != newer.previous:
            raise Corrupt(
                f"the move of timeline '{timeline}' to version {move.version} does not match its digest; nothing was read.",
                code="move_damaged",
                advice="Run `perdure verify`.",
                timeline=timeline,
                version=move.version,
            )
        yield move
        newer = move


def entries(
    engine: Engine, space: str, *, after: int = 0, before: int | None = None, descending: bool = False
) -> Iterator[LedgerEntry]:
    """Yield the ledger entries of a space between two positions."""
    if descending:
        return pages(
            lambda position, limit: engine.entries(
                space, after=after, before=position, descending=True, limit=limit
            ),
            before,
            lambda entry: entry.position,
        )
    return pages(
        lambda position, limit: engine.entries(space, after=position, before=before, limit=limit),
        after,
        lambda entry: entry.position,
    )


def steps(
    engine: Engine, space: str, at: Digest, *, skip: int, limit: int, bodies: bool = False
) -> Iterator[Step]:
    """Yield the commits from `at` backwards along first parents, at most `limit` of them."""
    here: Digest | None = at
    size = _PAGE_MIN
    while here is not None and limit > 0:
        page = engine.steps(space, here, skip=skip, limit=min(limit, size), bodies=bodies)
        yield from page
        here = page[-1].commit.first_parent if page else None
        skip, limit, size = 0, limit - len(page), min(4 * size, _PAGE_MAX)


def spaces(engine: Engine) -> Iterator[str]:
    """Yield every space that was ever written, by name."""
    return pages(lambda name, limit: engine.spaces(after=name, limit=limit), "", str)


ATTEMPTS_MAX = 64


class Attempts:
    """Counts the attempts of one optimistic write.

    `what` names what other writers change, and `undone` says what is not done if all attempts fail.
    """

    def __init__(self, what: str, undone: str) -> None:
        self._what, self._undone = what, undone
        self._count = 0

    def begin(self) -> None:
        """Count one more attempt; raise `Conflict` with code `contended` instead if there were too many."""
        if self._count == ATTEMPTS_MAX:
            raise Conflict(
                f"other writers changed {self._what} during each of {ATTEMPTS_MAX} attempts; {self._undone}.",
                code="contended",
                advice="Try again.",
                what=self._what,
                attempts=ATTEMPTS_MAX,
            )
        self._count += 1


def delayed(what: str) -> Unavailable:
    """Return the error for a second write that keeps being overtaken after the first one is durable.

    The caller's own write is done, so it sees a delay and no conflict.
    """
    return Unavailable(
        f"other writers changed {what} during each of {ATTEMPTS_MAX} attempts; it was not changed yet.",
        code="delivery_delayed",
        advice="The next change of the thread, or the next opening of the store, does it.",
        what=what,
        attempts=ATTEMPTS_MAX,
    )
