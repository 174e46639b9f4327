"""Checking what is no object: the ledger's chain and the cells.

Checking the directory: every thread's record leads to the history of that thread, and every history has one.

Commits say whose they are, and their digests cover it.  The directory and the names of spaces
are not hashed; so the two are compared, from either side.  What no commit speaks of, the owner
of a thread and the agent of one that never read its agent's map, is taken as it is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.engines import shared_rules
from perdure.engines.contract import Cell, Engine, Entry, Hold
from perdure.errors import Corrupt
from perdure.history import cells
from perdure.history.space import AGENTS, ALIVE, STORE, THREAD, THREADS, Space, label_of
from perdure.history.verify.report import Findings
from perdure.model import canonical
from perdure.model.digest import Digest

__all__ = ["check_cells", "check_ledger", "readable_cells", "check_directory"]


_PAGE = 200


def check_ledger(space: Space, findings: Findings) -> None:
    """Check that the ledger has no gap, that each entry fits the chain, and that it can be read."""
    position, chain = 0, None
    while page := _page(space, position, findings):
        for entry in page:
            _check_entry(entry, position, chain, findings)
            position, chain = max(entry.position, position + 1), entry.chain
        findings.count("entry", len(page))


def _page(space: Space, after: int, findings: Findings) -> Sequence[Entry]:
    """The next entries; where some of them cannot be given, those that can."""
    try:
        return space.engine.entries(space.name, after=after, limit=_PAGE)
    except Corrupt:
        return _one_by_one(space, after, findings)


def _one_by_one(space: Space, after: int, findings: Findings) -> Sequence[Entry]:
    found: list[Entry] = []
    for position in range(after, after + _PAGE):
        with findings.watching("ledger", name=f"entry {position + 1}"):
            entries = space.engine.entries(space.name, after=position, limit=1)
            if not entries:
                break
            found += entries
    return found


def _check_entry(entry: Entry, position: int, chain: Digest | None, findings: Findings) -> None:
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
    """The cells that are not empty, by name; in the place of a damaged one, what is wrong with it."""
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
    """What is compared of a thread's record."""

    space: str
    agent: str


class _Removed(msgspec.Struct, frozen=True):
    """What a thread's space says once the thread was removed."""

    removed_at: int  # µs since 1970, UTC


_records = msgspec.json.Decoder(_Record)
_removals = msgspec.json.Decoder(_Removed)


def check_directory(space: Space, findings: Findings) -> None:
    """Check where a space stands in the directory; of the store's own space, every record that it holds."""
    if space.name == STORE:
        for cell in _record_cells(space.engine):
            with findings.watching("cell", name=cell.name):
                _check_record(space.engine, cell)
    elif space.name.startswith(THREADS) and _has_directory(space.engine):
        with findings.watching("space", name=space.name):
            _check_thread(space, findings)


def _check_record(engine: Engine, cell: Cell) -> None:
    id, record = cell.name.removeprefix(THREAD), cells.read(cell, _records)
    if not record.space.startswith(THREADS):
        raise Corrupt(f"it leads to space '{record.space}', which is not a thread's")
    label = label_of(engine, record.space)
    if label not in (id, record.space):  # the name of the space stands for one without commits
        raise Corrupt(f"it leads to space '{record.space}', which holds the thread '{label}'")


def _check_thread(space: Space, findings: Findings) -> None:
    """Check that the thread whose commits the space holds is recorded here, or was removed."""
    if space.label == space.name:
        return  # nothing was committed, or it cannot be read: that is reported where it is
    # A thread that is removed while we look is closed first, and only then is its record emptied.
    cell = space.engine.cell(STORE, THREAD + space.label)
    alive = space.engine.cell(space.name, ALIVE)
    if alive is not None:
        with findings.watching("cell", name=ALIVE):
            cells.read(alive, _removals)
        return
    record = None if cell is None or cell.value is None else cells.read(cell, _records)
    if record is None or record.space != space.name:
        what = f"it holds the thread '{space.label}', but the directory does not lead to it"
        findings.add("space", what, name=space.name)
        return
    for hold in space.engine.holds(space.name, limit=_PAGE):
        _check_agent(space, hold, record.agent, findings)


def _check_agent(space: Space, hold: Hold, agent: str, findings: Findings) -> None:
    """Check that what the line has read of its agent's map is that agent's."""
    if hold.head.commit is None:
        return
    read = space.step(hold.head.commit).commit.reads.agent_commit
    if read is not None and space.engine.missing(AGENTS + agent, (read,)):
        what = f"it has read commit {read} of its agent's map, which '{agent}' does not have"
        findings.add("head", what, name=hold.head.timeline)


def _has_directory(engine: Engine) -> bool:
    """Whether this is a store of threads: histories that were written without one have no directory."""
    return STORE in engine.spaces(after=STORE[:-1], limit=1)


def _record_cells(engine: Engine) -> Iterator[Cell]:
    after = ""
    while page := engine.cells(STORE, prefix=THREAD, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name
