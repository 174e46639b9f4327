"""Checking what is no object: the ledger's chain and the cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.engines import rules
from perdure.engines.contract import Cell, Entry
from perdure.errors import Corrupt
from perdure.history.space import Space
from perdure.history.verify.report import Findings
from perdure.model import canonical
from perdure.model.digest import Digest

__all__ = ["check_cells", "check_ledger", "readable_cells"]

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
    elif rules.chained(chain, entry.body) != entry.chain:
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
