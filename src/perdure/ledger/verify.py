"""Verifies and repairs the cells of calls and tickets, and the count of calls: they must say the same as the ledger.

The entries of the ledger are chained and the cells are not, so an altered cell is found by this comparison.  Of a
settled call only a digest stays in memory, some dozen bytes a call.

A repair rebuilds cells that are missing or differ from the ledger.  Only what follows from the ledger can be rebuilt:
the records of calls and tickets with their marks, the gates of the repeat guard, and the claims on the thread's keys.
A wrong count of calls is emptied, because a later run counts again.
The ledger itself must be whole, up to the newest write that added to it; nothing is rebuilt from a ledger that was cut
or edited.  A rebuilt gate records no start as checked, so the guard checks every earlier call again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, Engine, Rebuilt
from perdure.engines.loops import spaces
from perdure.errors import Corrupt
from perdure.history import verify as history
from perdure.history.space import (
    THREADS,
    Space,
    label_of,
    mark_write,
)
from perdure.history.tree import NodeCache
from perdure.history.verify import Progress, VerifiedPoint, VerifyReport
from perdure.history.verify.records import readable_cells
from perdure.ledger import call_identity
from perdure.ledger.call_identity import KEY, Owner
from perdure.ledger.calls import CALL
from perdure.ledger.repeat_guard import rebuilt_gate
from perdure.ledger.snapshot import COUNT, CallCount, CallKey, count_key, counted_at, stored_count
from perdure.ledger.tickets import ASKED, ASKS, TICKET
from perdure.model import canonical
from perdure.model.call import SETTLED, TWIN, UNCLEAR, CallRecord
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["faults", "verify", "repair", "repair_all"]


_READS_MAX = 5

# The default of each optional field.  Older releases wrote some defaults, so a written default equals a missing field.
_DEFAULTS: dict[str, dict[str, Any]] = {
    prefix: {field.encode_name: field.default for field in msgspec.structs.fields(kind) if not field.required}
    for prefix, kind in ((CALL, CallRecord), (TICKET, Ticket))
} | {ASKS: {}, ASKED: {}}


def faults(space: Space) -> list[tuple[str, str]]:
    """Return each wrong cell or entry by its name, with what is wrong.

    A fault that is found while other processes write is checked again before it is reported.
    """
    found: list[tuple[str, str]] = []
    for _ in range(_READS_MAX):
        expected = _ExpectedCells(space)
        found = [*expected.faults, *_compared(space, expected)]
        if not found or not space.engine.entries(space.name, after=expected.position, limit=1):
            break
    return found


def _compared(space: Space, ledger: _ExpectedCells) -> Iterator[tuple[str, str]]:
    left = dict(ledger.digests)
    for prefix in (CALL, TICKET, ASKS, ASKED):
        for cell in readable_cells(space, prefix):
            if isinstance(cell, Corrupt):
                left.pop(cell.cell or "", None)  # history reports a damaged cell itself
                continue
            expected = left.pop(cell.name, None)
            if ledger.position < cell.position <= space.engine.ledger(space.name).position:
                continue  # written since the ledger was read: the next verification compares it
            if expected is None:
                yield cell.name, "the ledger does not mention it"
            elif expected != _digest(cell.value or b"", prefix):
                yield cell.name, "it is not what the ledger says"
    yield from ((name, "the ledger mentions it, but it is missing") for name in left)
    if ledger.is_miscounted:
        yield COUNT, "it is not what the ledger says"


class _ExpectedCells:
    """The cells that follow from the ledger, each by the digest of its value."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.digests: dict[str, Digest] = {}  # by the name of the cell
        self.faults: list[tuple[str, str]] = []
        self.position = 0  # of the last entry
        self._count = _readable_count(space)
        self._last: dict[str, tuple[int, CallKey | None]] = {}  # by call: its last entry that is counted
        self._chain: Digest | None = None  # of the entry up to which the stored count goes
        resumed = self._fold(None)
        if resumed:  # a few settled calls have later entries, and are folded again
            self._fold(resumed)

    def _fold(self, only: set[str] | None) -> set[str]:
        """Apply the entries of these calls (None: of all), and return the settled calls that had later entries."""
        book, resumed = Book(), set[str]()
        for position, step in self._steps():
            if only is not None and step.call not in only:
                continue
            if only is None and CALL + step.call in self.digests:
                resumed.add(step.call)
                continue
            try:
                book.take(step)
            except Corrupt as error:
                self.faults.append((f"entry {position}", error.message))
            if self._count is not None and position <= self._count.upto.position and step.call in book.calls:
                self._last[step.call] = position, count_key(book.calls[step.call])
            if only is None:
                self._drop(book, step)
        self._add(book)
        return resumed

    @property
    def is_miscounted(self) -> bool:
        """True if the stored count is not that of the ledger, or not of this ledger."""
        count = self._count
        if count is None:
            return False
        return self._chain != count.upto.chain or count != counted_at(count.upto, count.start, self._last)

    def _drop(self, book: Book, step: Transition) -> None:
        """Replace the record of a settled call by its digest, to save memory."""
        record = book.calls.get(step.call)
        if record is None or record.state not in SETTLED:
            return
        self.digests[CALL + record.id] = _digest(canonical.encode_struct(record), CALL)
        del book.calls[record.id]

    def _add(self, book: Book) -> None:
        for prefix, records in ((CALL, book.calls), (TICKET, book.tickets)):
            for id, record in records.items():
                self.digests[prefix + id] = _digest(canonical.encode_struct(record), prefix)
        for ticket in book.tickets.values():
            place = ASKS if ticket.decision is None else ASKED
            marked = mark_write(place, ticket.timeline, ticket.id, expected=0, present=True)
            self.digests[marked.name] = _digest(marked.value or b"", place)

    def _steps(self) -> Iterator[tuple[int, Transition]]:
        self.position = 0
        try:
            for entry in loops.entries(self._space.engine, self._space.name):
                self.position = entry.position
                if self._count is not None and entry.position == self._count.upto.position:
                    self._chain = entry.chain
                yield entry.position, decode_transition(entry.body)
        except Corrupt as error:
            self.faults.append((f"after entry {self.position}", error.message))


def _readable_count(space: Space) -> CallCount | None:
    try:
        return stored_count(space)
    except Corrupt:  # history reports a damaged cell itself
        return None


def _digest(value: bytes, prefix: str) -> Digest:
    """Return a digest of the record; a field with its default counts as missing."""
    try:
        fields = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return digest_of(Kind.BODY, value)
    defaults = _DEFAULTS[prefix]
    explicit = {name: item for name, item in fields.items() if name not in defaults or defaults[name] != item}
    return digest_of(Kind.BODY, msgspec.json.encode(explicit, order="sorted"))


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    since: Mapping[str, VerifiedPoint] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check everything in `spaces` (None: in all spaces), calls and tickets included; never raises on damaged data.

    `since` are points of an earlier report: what was written before them is not read again (None: all is checked).
    """
    return history.verify(engine, spaces=spaces, since=since, progress=progress, books=_books)


def _books(space: Space) -> Iterable[tuple[str, str]]:
    return faults(space) if space.name.startswith(THREADS) else ()


_REBUILT = (CALL, TICKET, ASKS, ASKED, TWIN, KEY, COUNT)


_NO_COUNT = Rebuilt(name=COUNT, value=None)  # the next run that has to counts again


def repair(space: Space) -> tuple[str, ...]:
    """Rebuild the cells of a thread that are not what its ledger says, seal it, and return the names of the cells.

    Raises `Corrupt`, having changed nothing, if the ledger is damaged or was cut, or if a cell is damaged that
    does not follow from it: then only a backup helps.
    """
    found: dict[str, Cell] = {}
    wrong: list[Rebuilt] = []
    for cell in readable_cells(space):
        if isinstance(cell, Corrupt):
            if not (cell.cell or "").startswith(_REBUILT):
                raise cell
            if cell.cell == COUNT:
                wrong.append(_NO_COUNT)
            continue
        found[cell.name] = cell
    wrong += [each for each in _LedgerFacts(space).cells() if not _agrees(each, found.get(each.name))]
    if COUNT in found and _ExpectedCells(space).is_miscounted:
        wrong.append(_NO_COUNT)
    if wrong or not _is_sealed(space.engine, space.name):
        space.engine.reseal(space.name, wrong)
    return tuple(each.name for each in wrong)


def repair_all(engine: Engine) -> dict[str, tuple[str, ...]]:
    """Repair every thread that is not as its newest write left it; return the rebuilt cells by thread.

    Raises `Corrupt` at the first thread that cannot be repaired; the threads before it are repaired.
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
    """True if a cell can stay as it is.  A gate may say more than the ledger, and a claim may name another call."""
    if cell is None or cell.value is None:
        return False
    if wanted.name.startswith((TWIN, KEY)):
        return True
    return cell.value == wanted.value


class _LedgerFacts:
    """What an undamaged ledger says."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._book = Book()
        self._positions: dict[str, int] = {}  # of the newest entry about a call
        self._starts: defaultdict[str, list[str]] = defaultdict(list)  # by fingerprint: calls, in order
        self._owners: dict[str, CallRecord] = {}  # by key: the call that was started last
        for entry in loops.entries(space.engine, space.name):
            self._take(decode_transition(entry.body), entry.position)

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
        """Return every cell that follows from the ledger."""
        cells = [
            _of(CALL + record.id, record, self._positions[record.id], listed=record.state in UNCLEAR)
            for record in self._book.calls.values()
        ]
        for ticket in self._book.tickets.values():
            is_open = ticket.decision is None
            cells.append(_of(TICKET + ticket.id, ticket, self._positions.get(ticket.call, 0), listed=is_open))
            place = ASKS if is_open else ASKED
            marked = mark_write(place, ticket.timeline, ticket.id, expected=0, present=True)
            cells.append(Rebuilt(name=marked.name, value=marked.value or b""))
        for fingerprint, started in self._starts.items():
            cells += [Rebuilt(name=name, value=value) for name, value in rebuilt_gate(fingerprint, started)]
        for key, record in self._owners.items():
            owner = Owner(space=self._space.name, call=record.id, at=record.at)
            cells.append(_of(KEY + sha256(key.encode()).hexdigest(), owner, 0, listed=False))
        return cells


def _of(name: str, record: msgspec.Struct, position: int, *, listed: bool) -> Rebuilt:
    return Rebuilt(name=name, value=canonical.encode_struct(record), position=position, listed=listed)
