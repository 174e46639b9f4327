"""Repairing a thread: what the ledger says is written again where cells say otherwise or are missing.

Only what follows from the ledger can be rebuilt: records of calls and tickets with their marks, the gates of
the repeat guard, and the claims of the thread's keys.  The ledger itself must be whole, up to the newest write
that added to it; nothing is rebuilt from one that was cut or edited.  A gate is rebuilt without what it
remembered to be well, so the guard looks at every earlier call again.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256

import msgspec

from perdure.engines.contract import Cell, Engine, Rebuilt
from perdure.errors import Corrupt
from perdure.history.scan import spaces
from perdure.history.space import THREADS, Space, label_of
from perdure.history.tree import Cache
from perdure.history.verify.records import readable_cells
from perdure.ledger import keys
from perdure.ledger.calls import CALL
from perdure.ledger.claims import KEY, Owner
from perdure.ledger.guard import TWIN, rebuilt_gate
from perdure.ledger.listing import mark
from perdure.ledger.tickets import ASKED, ASKS, TICKET
from perdure.model import canonical
from perdure.model.call import UNCLEAR, CallRecord
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["repair", "repair_all"]

_PAGE = 200
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
    told = _Told(space)
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
        space = Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=Cache(0))
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


class _Told:
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
            if record.key and record.key_scope == "thread" and not keys.is_default(record, self._space.label):
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
