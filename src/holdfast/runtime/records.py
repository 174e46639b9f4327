"""Run records: one cell of the thread's space for each run.

A run that has not ended is listed over all threads of the store, so that whoever starts up
finds what was interrupted.  A run goes from state to state only as `RUN_TRANSITIONS` allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from holdfast.engines.contract import CellWrite, Engine, Write
from holdfast.errors import NotFound
from holdfast.history import cells, writer
from holdfast.history.space import Space
from holdfast.model import canonical
from holdfast.model.digest import Kind, digest_of
from holdfast.model.head import Head
from holdfast.model.run import ENDED, RunRecord, RunState, check_run_step

__all__ = ["RUN", "Kept", "apply", "changed", "find", "listing", "moved", "new", "open_runs", "read"]

RUN = "run/"  # cells of runs, by id

_PAGE = 100
_SHOWN = 200

_records = msgspec.json.Decoder(RunRecord)


class Kept(msgspec.Struct, frozen=True):
    """A run as it was read, and the permission to change its record once."""

    record: RunRecord
    revision: int


def find(space: Space, id: str) -> Kept | None:
    """The run of that id; None if the thread has none."""
    cell = space.engine.cell(space.name, RUN + id)
    return None if cell is None or cell.value is None else Kept(cells.read(cell, _records), cell.revision)


def read(space: Space, id: str) -> Kept:
    """The run of that id; raises `NotFound`, naming ids that are close."""
    found = find(space, id)
    if found is None:
        known = [record.id for record in listing(space, limit=_SHOWN)]
        near = get_close_matches(id, known, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See what there is with runs()."
        raise NotFound(f"'{space.label}' has no run '{id}'; nothing was read. {hint}")
    return found


def listing(space: Space, *, after: str = "", limit: int) -> list[RunRecord]:
    """The thread's runs by id, those after the id `after`."""
    found = space.engine.cells(space.name, prefix=RUN, after=RUN + after, limit=limit)
    return [cells.read(cell, _records) for cell in found]


def open_runs(engine: Engine) -> Iterator[tuple[str, RunRecord]]:
    """Every run of the store that has not ended, with the space of its thread."""
    after = ("", "")
    while page := engine.listed(prefix=RUN, after=after, limit=_PAGE):
        for cell in page:
            yield cell.space, cells.read(cell, _records)
        after = (page[-1].name, page[-1].space)


def new(record: RunRecord) -> CellWrite:
    """The write that enters a run."""
    return _write(record, 0)


def changed(kept: Kept, **fields: Any) -> tuple[CellWrite, Kept]:
    """The write that changes a run's record, and the record as it will stand."""
    record = msgspec.structs.replace(kept.record, **fields)
    return _write(record, kept.revision), Kept(record, kept.revision + 1)


def moved(kept: Kept, to: RunState, *, at: int, **fields: Any) -> tuple[CellWrite, Kept]:
    """The write that takes a run to another state; raises `Conflict` if it cannot go there."""
    check_run_step(kept.record, to)
    return changed(kept, state=to, at=at, **fields)


def apply(space: Space, what: str, *cells: CellWrite, op_id: str | None = None) -> None:
    """Write cells alone; raises `Conflict`, having written nothing, if one is at another revision."""
    write = Write(
        space=space.name,
        op_id=op_id or space.ids(),
        intent=digest_of(Kind.BODY, canonical.encode([what, *(cell.name for cell in cells)])),
        fences=space.fences,
        cells=cells,
    )
    writer.submit(space, write, Head("main", 0, None))


def _write(record: RunRecord, expected: int) -> CellWrite:
    value = canonical.encode_struct(record)
    return CellWrite(name=RUN + record.id, expected=expected, value=value, listed=record.state not in ENDED)
