"""Reads and writes run records: one cell of the thread's space for each run.

A run that has not ended is listed over all threads of the store, so that a process that starts up finds the
interrupted ones; a run that waits is marked on its timeline.  A run changes its state only as
`RUN_TRANSITIONS` allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from perdure.engines import loops
from perdure.engines.contract import CellWrite, Engine, Write
from perdure.errors import NotFound
from perdure.history import writer
from perdure.history.space import (
    Space,
    mark_write,
    read_record,
)
from perdure.model import canonical
from perdure.model.digest import Kind, Object, digest_of
from perdure.model.head import Head
from perdure.model.run import ENDED, RunRecord, RunState, check_run_step

__all__ = [
    "RUN",
    "WAITS",
    "VersionedRun",
    "apply",
    "changed",
    "find",
    "last",
    "listing",
    "moved",
    "new",
    "open_runs",
    "read",
    "waiting",
]

RUN = "run/"  # cells of runs, by id
WAITS = "waits/"  # marks of runs that wait, by timeline

_SUGGESTED_MAX = 200  # runs whose ids are compared with one that was not found

_records = msgspec.json.Decoder(RunRecord)


class VersionedRun(msgspec.Struct, frozen=True):
    """A run's record and the revision at which it was read, good for one change."""

    record: RunRecord
    revision: int


def find(space: Space, id: str, *, known: VersionedRun | None = None) -> VersionedRun | None:
    """Return the run of an id; None if the thread has none.

    `known` is the same run as it was read or written before: it is returned if it has not changed since.
    """
    cell = space.engine.cell(space.name, RUN + id)
    if cell is None or cell.value is None:
        return None
    if known is not None and known.revision == cell.revision:
        return known
    return VersionedRun(read_record(cell, _records), cell.revision)


def read(space: Space, id: str, *, known: VersionedRun | None = None) -> VersionedRun:
    """Return the run of an id, as `find` does; raise `NotFound`, with ids that are close."""
    found = find(space, id, known=known)
    if found is None:
        others = [record.id for record in listing(space, limit=_SUGGESTED_MAX)]
        near = get_close_matches(id, others, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise NotFound(
            f"'{space.label}' has no run '{id}'; nothing was read.{hint}",
            code="run_not_found",
            advice="See what there is with runs().",
            run=id,
            thread=space.label,
            near=tuple(near),
        )
    return found


def listing(space: Space, *, after: str = "", limit: int) -> list[RunRecord]:
    """Return the thread's runs by id, those after the id `after`."""
    found = space.engine.cells(space.name, prefix=RUN, after=RUN + after, limit=limit)
    return [read_record(cell, _records) for cell in found]


def open_runs(engine: Engine) -> Iterator[tuple[str, RunRecord]]:
    """Yield every run of the store that has not ended, with the space of its thread."""
    return ((cell.space, read_record(cell, _records)) for cell in loops.listed(engine, prefix=RUN))


def last(space: Space, limit: int) -> list[RunRecord]:
    """Return the last `limit` runs of the thread, by id."""
    return [read_record(cell, _records) for cell in space.last_cells(RUN, limit)]


def waiting(space: Space, timeline: str) -> list[RunRecord]:
    """Return the runs that wait on a timeline."""
    found = [find(space, id) for id in space.marked(WAITS, timeline)]
    return [kept.record for kept in found if kept is not None]


def new(record: RunRecord) -> tuple[CellWrite, ...]:
    """Return the writes that enter a run."""
    if record.state != "waiting":
        return (_write(record, 0),)
    return _write(msgspec.structs.replace(record, waited=1), 0), _waits(record, present=True)


def changed(kept: VersionedRun, **fields: Any) -> tuple[CellWrite, VersionedRun]:
    """Return the write that changes a run's record, and the record after it."""
    record = msgspec.structs.replace(kept.record, **fields)
    return _write(record, kept.revision), VersionedRun(record, kept.revision + 1)


def moved(
    kept: VersionedRun, to: RunState, *, at: int, **fields: Any
) -> tuple[tuple[CellWrite, ...], VersionedRun]:
    """Return the writes that give a run another state, and its record after them; raise `Conflict` if it cannot have it."""
    before = kept.record
    check_run_step(before, to)
    if (before.state == "waiting") == (to == "waiting"):
        write, updated = changed(kept, state=to, at=at, **fields)
        return (write,), updated
    write, updated = changed(kept, state=to, at=at, waited=before.waited + 1, **fields)
    return (write, _waits(before, present=to == "waiting")), updated


def apply(
    space: Space, what: str, *cells: CellWrite, op_id: str | None = None, objects: tuple[Object, ...] = ()
) -> None:
    """Write cells and the objects that they name; move no head.

    Raises `Conflict`, having written nothing, if a cell is at another revision.
    """
    write = Write(
        space=space.name,
        op_id=op_id or space.ids(),
        intent=digest_of(Kind.BODY, canonical.encode([what, *(cell.name for cell in cells)])),
        fences=space.fences,
        objects=objects,
        cells=cells,
    )
    writer.submit(space, write, Head("main", 0, None))


def _waits(record: RunRecord, *, present: bool) -> CellWrite:
    """Return the write of the mark of a run that waits; its revision is what the record counts."""
    return mark_write(WAITS, record.timeline, record.id, expected=record.waited, present=present)


def _write(record: RunRecord, expected: int) -> CellWrite:
    value = canonical.encode_struct(record)
    return CellWrite(name=RUN + record.id, expected=expected, value=value, listed=record.state not in ENDED)
