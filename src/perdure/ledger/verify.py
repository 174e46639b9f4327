"""Holding the cells of calls and tickets, and the marks of tickets, against the log: they must say the same.

The entries are chained and the cells are not, so this is how an altered cell is found.  A call
that was settled is remembered by a digest alone; memory grows by some dozen bytes a call.

Verifying a store with its books: everything that history checks, and that calls are what their log says.

Repairing a thread: what the ledger says is written again where cells say otherwise or are missing.

Only what follows from the ledger can be rebuilt: records of calls and tickets with their marks, the gates of
the repeat guard, and the claims of the thread's keys.  The ledger itself must be whole, up to the newest write
that added to it; nothing is rebuilt from one that was cut or edited.  A gate is rebuilt without what it
remembered to be well, so the guard looks at every earlier call again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engines.contract import Cell, Engine, Rebuilt
from perdure.errors import Corrupt
from perdure.history import verify as history
from perdure.history.cells import mark
from perdure.history.space import THREADS, Space, label_of
from perdure.history.stored_objects import spaces
from perdure.history.tree import NodeCache
from perdure.history.verify import Report
from perdure.history.verify.records import readable_cells
from perdure.ledger import call_identity
from perdure.ledger.call_identity import KEY, Owner
from perdure.ledger.calls import CALL
from perdure.ledger.repeat_guard import TWIN, rebuilt_gate
from perdure.ledger.tickets import ASKED, ASKS, TICKET
from perdure.model import canonical
from perdure.model.call import SETTLED, UNCLEAR, CallRecord
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["faults", "verify", "repair", "repair_all"]


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
        told = _ExpectedCells(space)
        found = [*told.faults, *_compared(space, told)]
        if not found or not space.engine.entries(space.name, after=told.position, limit=1):
            break
    return found


def _compared(space: Space, told: _ExpectedCells) -> Iterator[tuple[str, str]]:
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


class _ExpectedCells:
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


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Report:
    """Check everything that `spaces` hold, all of them if None; never raises on damaged data."""
    return history.verify(engine, spaces=spaces, progress=progress, books=_books)


def _books(space: Space) -> Iterable[tuple[str, str]]:
    return faults(space) if space.name.startswith(THREADS) else ()


_REBUILT = (CALL, TICKET, ASKS, ASKED, TWIN, KEY)


def repair(space: Space) -> tuple[str, ...]:
    """Rebuild the cells of a thread that are not what its ledger says, and seal it; the names of those cells.

    Raises `Corrupt`, having changed nothing, if the ledger is damaged or was cut, or if a cell is damaged that
    does not follow from it: then only a backup helps.
    """
    found: dict[str, Cell] = {}
    for cell in readable_cells(space):
        if isinstance(cell, Corrupt):
            if not (cell.cell or "").startswith(_REBUILT):
                raise cell
            continue
        found[cell.name] = cell
    told = _LedgerFacts(space)
    wrong = [each for each in told.cells() if not _agrees(each, found.get(each.name))]
    if wrong or not _is_sealed(space.engine, space.name):
        space.engine.reseal(space.name, wrong)
    return tuple(each.name for each in wrong)


def repair_all(engine: Engine) -> dict[str, tuple[str, ...]]:
    """Repair every thread that is not as its newest write left it; the cells that were rebuilt, by thread.

    Raises `Corrupt` at the first that cannot be repaired; those before it are.
    """
    repaired: dict[str, tuple[str, ...]] = {}
    for name in spaces(engine):
        if not name.startswith(THREADS):
            engine.check(name, again=True)
            continue
        label, was_sealed = label_of(engine, name), _is_sealed(engine, name)
        space = Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=NodeCache(0))
        rebuilt = repair(space)
        if rebuilt or not was_sealed:
            repaired[label] = rebuilt
    return repaired


def _is_sealed(engine: Engine, space: str) -> bool:
    try:
        engine.check(space, again=True)
    except Corrupt:
        return False
    return True


def _agrees(wanted: Rebuilt, cell: Cell | None) -> bool:
    """Whether a cell can stay as it is.  A gate may say more than the ledger does, and a claim name another call."""
    if cell is None or cell.value is None:
        return False
    if wanted.name.startswith((TWIN, KEY)):
        return True
    return cell.value == wanted.value


class _LedgerFacts:
    """What a whole ledger says."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._book = Book()
        self._positions: dict[str, int] = {}  # of the newest entry about a call
        self._starts: defaultdict[str, list[str]] = defaultdict(list)  # by fingerprint: calls, in order
        self._owners: dict[str, CallRecord] = {}  # by key: the call that was started last
        after = 0
        while page := space.engine.entries(space.name, after=after, limit=_PAGE):
            for entry in page:
                self._take(decode_transition(entry.body), entry.position)
            after = page[-1].position

    def _take(self, step: Transition, position: int) -> None:
        self._book.take(step)
        if not step.call:
            return
        record = self._book.calls[step.call]
        self._positions[step.call] = position
        learnt = "fingerprint" in step.set and record.origin == "import"
        for _ in range((*step.via, step.to).count("started") + learnt):
            if record.fingerprint and record.reach.guarded:
                self._starts[record.fingerprint].append(record.id)
            if (
                record.key
                and record.key_scope == "thread"
                and not call_identity.is_default(record, self._space.label)
            ):
                self._owners[record.key] = record

    def cells(self) -> list[Rebuilt]:
        """Every cell that follows from it."""
        made = [
            _of(CALL + record.id, record, self._positions[record.id], listed=record.state in UNCLEAR)
            for record in self._book.calls.values()
        ]
        for ticket in self._book.tickets.values():
            is_open = ticket.decision is None
            made.append(_of(TICKET + ticket.id, ticket, self._positions.get(ticket.call, 0), listed=is_open))
            place = ASKS if is_open else ASKED
            marked = mark(place, ticket.timeline, ticket.id, expected=0, present=True)
            made.append(Rebuilt(name=marked.name, value=marked.value or b""))
        for fingerprint, started in self._starts.items():
            made += [Rebuilt(name=name, value=value) for name, value in rebuilt_gate(fingerprint, started)]
        for key, record in self._owners.items():
            owner = Owner(space=self._space.name, call=record.id, at=record.at)
            made.append(_of(KEY + sha256(key.encode()).hexdigest(), owner, 0, listed=False))
        return made


def _of(name: str, record: msgspec.Struct, position: int, *, listed: bool) -> Rebuilt:
    return Rebuilt(name=name, value=canonical.encode_struct(record), position=position, listed=listed)
