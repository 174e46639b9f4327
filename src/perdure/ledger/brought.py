"""Calls brought from elsewhere, and how the repeat guard comes to know them.

Two calls are the same if their fingerprints are, and making one takes the tool: its version, its defaults.
Where that is not at hand when a call is brought in, a mark stands for it under the tool's name.  Whoever is
about to start a call to a tool of that name has the fingerprints learnt first; then the mark goes.

An import sends nothing, so a start that comes between is simply the earlier of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import islice

from perdure.engines.contract import CellWrite
from perdure.history.space import Space
from perdure.ledger import calls, guard
from perdure.ledger import listing as marks
from perdure.ledger.calls import Held
from perdure.model.call import CallRecord

__all__ = ["BROUGHT", "entering", "learning", "unlearnt"]

BROUGHT = "brought/"  # marks of calls that have no fingerprint yet, by the SHA-256 of the tool's name


def entering(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """What the write must hold that enters calls made elsewhere, so that the guard will know them."""
    known = [record for record in records if record.fingerprint]
    unknown = [_mark(record, present=True) for record in records if not record.fingerprint]
    return (*guard.counting(space, known), *unknown)


def unlearnt(space: Space, tool: str, *, limit: int) -> list[Held]:
    """Calls to a tool of that name whose fingerprint nobody could make when they were brought in."""
    ids = islice(marks.marked(space, BROUGHT, _line(tool)), limit)
    return [calls.read(space, id) for id in ids]


def learning(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
    """What the write must hold that learns the fingerprints of these calls."""
    return (*guard.counting(space, records), *(_mark(record, present=False) for record in records))


def _mark(record: CallRecord, *, present: bool) -> CellWrite:
    return marks.mark(BROUGHT, _line(record.tool), record.id, expected=0 if present else 1, present=present)


def _line(tool: str) -> str:
    return sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
