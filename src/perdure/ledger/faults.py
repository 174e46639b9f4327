"""Holding the cells of calls and tickets, and the marks of tickets, against the log: they must say the same.

The entries are chained and the cells are not, so this is how an altered cell is found.  A call
that was settled is remembered by a digest alone; memory grows by some dozen bytes a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.errors import Corrupt
from perdure.history.space import Space
from perdure.history.verify.records import readable_cells
from perdure.ledger.calls import CALL
from perdure.ledger.listing import mark
from perdure.ledger.tickets import ASKED, ASKS, TICKET
from perdure.model import canonical
from perdure.model.call import SETTLED, CallRecord
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["faults"]

_PAGE = 200
_TRIES_MAX = 5

# What a field says that is left out.  Whether one is depends on the object that held it, not on its value alone.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    prefix: {field.encode_name: field.default for field in msgspec.structs.fields(kind) if not field.required}
    for prefix, kind in ((CALL, CallRecord), (TICKET, Ticket))
} | {ASKS: {}, ASKED: {}}


def faults(space: Space) -> list[tuple[str, str]]:
    """Each cell or entry that is wrong, by its name, and in what way.

    Where others write meanwhile, it is looked at again before anything is said.
    """
    found: list[tuple[str, str]] = []
    for _ in range(_TRIES_MAX):
        told = _Told(space)
        found = [*told.faults, *_compared(space, told)]
        if not found or not space.engine.entries(space.name, after=told.position, limit=1):
            break
    return found


def _compared(space: Space, told: _Told) -> Iterator[tuple[str, str]]:
    left = dict(told.marks)
    for prefix in (CALL, TICKET, ASKS, ASKED):
        for cell in readable_cells(space, prefix):
            if isinstance(cell, Corrupt):
                left.pop(cell.cell or "", None)  # it is reported as a cell
                continue
            expected = left.pop(cell.name, None)
            if expected is None:
                yield cell.name, "the ledger knows nothing of it"
            elif expected != _mark(cell.value or b"", prefix):
                yield cell.name, "it is not what the ledger says"
    yield from ((name, "the ledger speaks of it, but it is not there") for name in left)


class _Told:
    """What the log says that the cells hold, each by a digest."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.marks: dict[str, Digest] = {}
        self.faults: list[tuple[str, str]] = []
        self.position = 0  # of the last entry
        resumed = self._fold(None)
        if resumed:  # something was learnt of calls that were settled; these are few
            self._fold(resumed)

    def _fold(self, only: set[str] | None) -> set[str]:
        """Take in the entries of these calls, None: of all; the calls that were dropped too soon."""
        book, resumed = Book(), set[str]()
        for position, step in self._steps():
            if only is not None and step.call not in only:
                continue
            if only is None and CALL + step.call in self.marks:
                resumed.add(step.call)
                continue
            try:
                book.take(step)
            except Corrupt as error:
                self.faults.append((f"entry {position}", str(error)))
            if only is None:
                self._drop(book, step)
        self._keep(book)
        return resumed

    def _drop(self, book: Book, step: Transition) -> None:
        """Keep only a digest of what will not change again."""
        record = book.calls.get(step.call)
        if record is None or record.state not in SETTLED:
            return
        self.marks[CALL + record.id] = _mark(canonical.encode_struct(record), CALL)
        del book.calls[record.id]

    def _keep(self, book: Book) -> None:
        for prefix, records in ((CALL, book.calls), (TICKET, book.tickets)):
            for id, record in records.items():
                self.marks[prefix + id] = _mark(canonical.encode_struct(record), prefix)
        for ticket in book.tickets.values():
            place = ASKS if ticket.decision is None else ASKED
            marked = mark(place, ticket.timeline, ticket.id, expected=0, present=True)
            self.marks[marked.name] = _mark(marked.value or b"", place)

    def _steps(self) -> Iterator[tuple[int, Transition]]:
        self.position = 0
        try:
            while page := self._space.engine.entries(self._space.name, after=self.position, limit=_PAGE):
                for entry in page:
                    self.position = entry.position
                    yield entry.position, decode_transition(entry.body)
        except Corrupt as error:
            self.faults.append((f"after entry {self.position}", str(error)))


def _mark(value: bytes, prefix: str) -> Digest:
    """A digest of what a record says; a field that says what it says when it is left out makes no difference."""
    try:
        told = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return digest_of(Kind.BODY, value)
    left_out = _LEFT_OUT[prefix]
    said = {name: item for name, item in told.items() if name not in left_out or left_out[name] != item}
    return digest_of(Kind.BODY, msgspec.json.encode(said, order="sorted"))
