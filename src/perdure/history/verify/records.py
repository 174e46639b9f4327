"""Checks what is not an object: the ledger's chain, the cells, and the directory of threads.

Every thread's record in the directory must lead to the history of that thread, and every history
must have a record.  A commit names its thread, and its digest covers that name.  The directory and
the names of spaces are not hashed; so the two are compared, from either side.  The owner of a
thread, and the agent of a thread that never read its agent's map, are in no commit and cannot be
checked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

from perdure.engines import paging, shared_rules
from perdure.engines.contract import Cell, Engine, Hold, LedgerEntry
from perdure.errors import Corrupt
from perdure.history.space import (
    AGENTS,
    ALIVE,
    STORE,
    THREAD,
    THREADS,
    Space,
    label_of,
    read_record,
)
from perdure.history.verify.report import Findings
from perdure.model import canonical
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest

__all__ = ["check_cells", "check_ledger", "readable_cells", "check_directory"]


_PAGE = 200


def check_ledger(space: Space, begun: LedgerRead, findings: Findings) -> LedgerRead:
    """Check that the ledger has no gap after `begun`, that each entry fits the chain, and that it can be read.

    Return where it ended.  What is added after the check began is left out.
    """
    position, chain = begun.position, begun.chain
    try:
        end = space.engine.ledger(space.name).position
    except Corrupt:
        end = sys.maxsize  # the entry that cannot be read is named below
    while position < end and (page := _page(space, position, findings)):
        for entry in page:
            _check_entry(entry, position, chain, findings)
            position, chain = max(entry.position, position + 1), entry.chain
        findings.count("entry", len(page))
    return LedgerRead(position, chain)


def _page(space: Space, after: int, findings: Findings) -> Sequence[LedgerEntry]:
    """Return the next entries; if some cannot be read, those that can."""
    try:
        return space.engine.entries(space.name, after=after, limit=_PAGE)
    except Corrupt:
        return _one_by_one(space, after, findings)


def _one_by_one(space: Space, after: int, findings: Findings) -> Sequence[LedgerEntry]:
    found: list[LedgerEntry] = []
    for position in range(after, after + _PAGE):
        with findings.watching("ledger", name=f"entry {position + 1}"):
            entries = space.engine.entries(space.name, after=position, limit=1)
            if not entries:
                break
            found += entries
    return found


def _check_entry(entry: LedgerEntry, position: int, chain: Digest | None, findings: Findings) -> None:
    name = f"entry {entry.position}"
    if entry.position != position + 1:
        findings.add(
            "ledger", f"it comes after entry {position}; what was between cannot be given", name=name
        )
    elif shared_rules.chained(chain, entry.body) != entry.chain:
        findings.add("ledger", "it does not fit the chain of what came before it", name=name)
    with findings.watching("ledger", name=name):
        canonical.decode(entry.body)


def check_cells(space: Space, findings: Findings) -> None:
    """Check that every cell is what was written, and can be read."""
    for cell in readable_cells(space):
        findings.count("cell")
        if isinstance(cell, Corrupt):
            findings.add("cell", str(cell), name=cell.cell)
            continue
        with findings.watching("cell", name=cell.name):
            canonical.decode(cell.value or b"null")


def readable_cells(space: Space, prefix: str = "") -> Iterator[Cell | Corrupt]:
    """Yield the cells that are not empty, by name; for a damaged one, the error.

    It pages by hand: after damage it reads cell by cell up to the damaged one, and skips that.
    """
    after, limit = "", _PAGE
    while True:
        try:
            page = space.engine.cells(space.name, prefix=prefix, after=after, limit=limit)
        except Corrupt as error:
            if limit > 1 and error.cell is not None:
                limit = 1  # those before it can be read
                continue
            yield error
            if error.cell is None or error.cell <= after:
                return
            after, limit = error.cell, _PAGE
            continue
        if not page or page[-1].name <= after:
            return
        yield from page
        after = page[-1].name


class _Record(msgspec.Struct, frozen=True):
    """The fields of a thread's record that are compared."""

    space: str
    agent: str


class _Removed(msgspec.Struct, frozen=True):
    """The value of the cell that marks a thread as removed."""

    removed_at: int  # µs since 1970, UTC


_records = msgspec.json.Decoder(_Record)
_removals = msgspec.json.Decoder(_Removed)


def check_directory(space: Space, findings: Findings) -> None:
    """Check that a space and the directory agree; for the store's own space, check every record in it."""
    if space.name == STORE:
        for cell in paging.cells(space.engine, STORE, prefix=THREAD):
            with findings.watching("cell", name=cell.name):
                _check_record(space.engine, cell)
    elif space.name.startswith(THREADS) and _has_directory(space.engine):
        with findings.watching("space", name=space.name):
            _check_thread(space, findings)


def _check_record(engine: Engine, cell: Cell) -> None:
    id, record = cell.name.removeprefix(THREAD), read_record(cell, _records)
    if not record.space.startswith(THREADS):
        raise Corrupt(f"it leads to space '{record.space}', which is not a thread's")
    label = label_of(engine, record.space)
    if label not in (id, record.space):  # a space without commits is labelled by its name
        raise Corrupt(f"it leads to space '{record.space}', which holds the thread '{label}'")


def _check_thread(space: Space, findings: Findings) -> None:
    """Check that the thread whose commits the space holds is recorded here, or was removed."""
    if space.label == space.name:
        return  # nothing was committed, or it cannot be read, which is reported elsewhere
    # A thread that is removed during the check is closed first, and only then is its record emptied.
    cell = space.engine.cell(STORE, THREAD + space.label)
    alive = space.engine.cell(space.name, ALIVE)
    if alive is not None:
        with findings.watching("cell", name=ALIVE):
            read_record(alive, _removals)
        return
    record = None if cell is None or cell.value is None else read_record(cell, _records)
    if record is None or record.space != space.name:
        what = f"it holds the thread '{space.label}', but the directory does not lead to it"
        findings.add("space", what, name=space.name)
        return
    for hold in space.engine.holds(space.name, limit=_PAGE):
        _check_agent(space, hold, record.agent, findings)


def _check_agent(space: Space, hold: Hold, agent: str, findings: Findings) -> None:
    """Check that the commit of the agent's map that the line has read is that agent's."""
    if hold.head.commit is None:
        return
    read = space.step(hold.head.commit).commit.reads.agent_commit
    if read is not None and space.engine.missing(AGENTS + agent, (read,)):
        what = f"it has read commit {read} of its agent's map, which '{agent}' does not have"
        findings.add("head", what, name=hold.head.timeline)


def _has_directory(engine: Engine) -> bool:
    """True if the store has a directory; one that was written through the engine alone has none."""
    return STORE in engine.spaces(after=STORE[:-1], limit=1)
