"""Reads and writes run records: one cell of the thread's space for each run.

Three kinds of cells are listed over all threads of the store, so that each kind of work is found without reading the
others, and each is written in the same write as the record:

    run/<run>                           it runs, or was interrupted
    waits/<timeline>:<run>              it waits
    due/<agent>:<time>:<run>.<number>   a worker has to look at it from that time on: it is queued or scheduled, a call
                                        that it waits for was decided, or a question of it expires; or it has ended,
                                        and its parent waits for it

A run has at most one cell of the last kind, whose name follows from its record.  The input of a run that was queued is
in `queue/<timeline>:<time>.<run>` until the run begins; the names are in the order in which the inputs are taken.
Earlier versions listed a run that waits under `run/` too.

A run changes its state only as `RUN_TRANSITIONS` allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Engine, Question, Write, time_of_day
from perdure.engines.loops import DamagedCell
from perdure.errors import Conflict, Corrupt, NotFound
from perdure.history import writer
from perdure.history.space import (
    Space,
    mark_write,
    read_record,
)
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.head import Head
from perdure.model.run import ENDED, QUEUE, RUN, RunRecord, RunState, check_run_step

__all__ = [
    "DUE",
    "QUEUE",
    "RUN",
    "WAITS",
    "WORK",
    "DamagedRun",
    "DueRun",
    "VersionedRun",
    "apply",
    "at_once",
    "changed",
    "drop_due",
    "due_at",
    "due_for_parent",
    "due_runs",
    "find",
    "find_all",
    "last",
    "listing",
    "moved",
    "new",
    "open_runs",
    "queue_name",
    "read",
    "record_question",
    "running",
    "waiting",
    "worker_agent",
]

WAITS = "waits/"  # marks of runs that wait, by timeline
DUE = "due/"  # cells of runs that a worker has to look at, by agent and time
WORK = "work"  # the space of the workers of a store

_TIME_DIGITS = 16  # of a number of µs

_PAGE = 256  # records that are read together
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
    cell: Cell | None = space.ask(record_question(space, id))[0]
    if cell is None or cell.value is None:
        return None
    if known is not None and known.revision == cell.revision:
        return known
    return VersionedRun(read_record(cell, _records), cell.revision)


def record_question(space: Space, id: str) -> Question:
    """Return what `find` asks, for a caller that asks more in the same call."""
    return CellOf(space.name, RUN + id)


def find_all(runs: Sequence[tuple[Space, str]]) -> list[RunRecord | None]:
    """Return the records of runs of one store, in one read; None for each that its thread does not have."""
    return _records_of(runs[0][0].engine, [(space.name, id) for space, id in runs]) if runs else []


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


class DamagedRun(msgspec.Struct, frozen=True):
    """A run whose record cannot be read, and why."""

    id: str
    error: Corrupt


def running(engine: Engine) -> Iterator[tuple[str, RunRecord | DamagedRun]]:
    """Yield every run of the store that runs or was interrupted, with the space of its thread.

    A run that waits is among them if an earlier version wrote its record.  Raises `Corrupt` if the list is damaged.
    """
    for cell in loops.pages(
        lambda cursor, limit: loops.listed_or_damaged(engine, prefix=RUN, after=cursor, limit=limit),
        ("", ""),
        lambda cell: (cell.name, cell.space),
        fills=True,
    ):
        found = cell.error if isinstance(cell, DamagedCell) else _readable(cell)
        id = cell.name.removeprefix(RUN)
        yield cell.space, DamagedRun(id, found) if isinstance(found, Corrupt) else found


def _readable(cell: Cell) -> RunRecord | Corrupt:
    try:
        return read_record(cell, _records)
    except Corrupt as error:
        return error


def open_runs(engine: Engine) -> Iterator[tuple[str, RunRecord]]:
    """Yield every run of the store that has not ended, with the space of its thread; no run twice.

    Raises `Corrupt` if one of them cannot be read.
    """
    seen: set[tuple[str, str]] = set()
    for space, record in running(engine):
        if isinstance(record, DamagedRun):
            raise record.error
        seen.add((space, record.id))
        yield space, record
    others = [(cell.space, cell.name.partition(":")[2]) for cell in loops.listed(engine, prefix=WAITS)]
    others += [(each.space, each.run) for each in map(DueRun.of, loops.listed(engine, prefix=DUE))]
    left = [each for each in dict.fromkeys(others) if each not in seen]
    for at in range(0, len(left), _PAGE):
        page = left[at : at + _PAGE]
        for (space, _), record in zip(page, _records_of(engine, page), strict=True):
            if record is not None and record.state not in ENDED:
                yield space, record


class DueRun(msgspec.Struct, frozen=True):
    """A run that a worker has to look at, as the name of its cell says."""

    space: str
    run: str
    at: int  # µs since 1970, UTC, on the store's clock
    name: str  # of the cell

    @classmethod
    def of(cls, cell: Cell | DamagedCell) -> DueRun:
        """Read the name of a cell."""
        time, _, rest = cell.name.partition(":")[2].partition(":")
        return cls(cell.space, rest.rpartition(".")[0], int(time), cell.name)


def due_runs(
    engine: Engine, agent: str, *, after: tuple[str, str] = ("", ""), limit: int
) -> tuple[list[tuple[DueRun, RunRecord | DamagedRun | None]], list[DueRun]]:
    """Return runs of an agent that a worker has to look at, the earliest first, those after a (name, space).

    The first list has those with their records (None: the thread has none) that are due by the store's clock, the
    second the others.  An input that is queued for no time is due whatever the clock says: it may have been turned back.
    Costs what it returns.  Raises `Corrupt` if the list is damaged.
    """
    cells = loops.listed_or_damaged(engine, prefix=f"{DUE}{agent}:", after=after, limit=limit)
    found = [(DueRun.of(cell), cell) for cell in cells]
    try:
        kept: list[RunRecord | DamagedRun | None] = [
            *_records_of(engine, [(each.space, each.run) for each, _ in found])
        ]
    except Corrupt:
        kept = [_record_or_damage(engine, each, cell) for each, cell in found]
    now = time_of_day(engine)
    due: list[tuple[DueRun, RunRecord | DamagedRun | None]] = []
    others: list[DueRun] = []
    for (each, cell), record in zip(found, kept, strict=True):
        if each.at > now and not _is_next_in_line(record):
            others.append(each)
        else:
            due.append((each, DamagedRun(each.run, cell.error) if isinstance(cell, DamagedCell) else record))
    return due, others


def _is_next_in_line(record: RunRecord | DamagedRun | None) -> bool:
    return isinstance(record, RunRecord) and record.state == "created" and not record.scheduled


def at_once(engine: Engine, record: RunRecord) -> int:
    """Return the due time of a run that a worker has to look at now, also if the clock is turned back before it does."""
    return min(time_of_day(engine), record.begun_at)


def _record_or_damage(engine: Engine, due: DueRun, cell: Cell | DamagedCell) -> RunRecord | DamagedRun | None:
    if isinstance(cell, DamagedCell):
        return DamagedRun(due.run, cell.error)
    try:
        return _records_of(engine, [(due.space, due.run)])[0]
    except Corrupt as error:
        return DamagedRun(due.run, error)


def _records_of(engine: Engine, runs: Sequence[tuple[str, str]]) -> list[RunRecord | None]:
    cells = engine.answers([CellOf(space, RUN + id) for space, id in runs]) if runs else ()
    return [None if cell is None or cell.value is None else read_record(cell, _records) for cell in cells]


def due_at(at: int) -> str:
    """Return a time as the names of cells have it, so that names are in the order of times."""
    return f"{at:0{_TIME_DIGITS}d}"


def queue_name(record: RunRecord) -> str:
    """Return the name of the cell that has the input of a run which has not begun."""
    assert record.due is not None, "a run that has not begun is due at some time"
    return f"{QUEUE}{record.timeline}:{due_at(record.due)}.{record.id}"


def last(space: Space, limit: int, *, before: str | None = None) -> list[RunRecord]:
    """Return the last `limit` runs of the thread, by id; of those before the id `before` if one is given."""
    found = space.last_cells(RUN, limit, before=None if before is None else RUN + before)
    return [read_record(cell, _records) for cell in found]


def waiting(space: Space, timeline: str) -> list[RunRecord]:
    """Return the runs that wait on a timeline."""
    ids = [*space.marked(WAITS, timeline)]
    known = space.knowing(*(record_question(space, id) for id in ids))
    found = [find(known, id) for id in ids]
    return [kept.record for kept in found if kept is not None]


def new(record: RunRecord) -> tuple[CellWrite, ...]:
    """Return the writes that enter a run; a due time is counted here."""
    if record.state == "running":
        return (_write(record, 0),)
    waits = record.state == "waiting"
    record = msgspec.structs.replace(record, waited=int(waits), dues=int(record.due is not None))
    marks = (_waits(record, 0, present=True),) if waits else ()
    return (_write(record, 0), *marks, *_due_writes(None, record))


def changed(kept: VersionedRun, **fields: Any) -> tuple[CellWrite, VersionedRun]:
    """Return the write that changes a run's record, and the record after it; `moved` changes its state and due time."""
    record = msgspec.structs.replace(kept.record, **fields)
    return _write(record, kept.revision), VersionedRun(record, kept.revision + 1)


def moved(
    kept: VersionedRun, to: RunState, *, at: int, due: int | None = None, **fields: Any
) -> tuple[tuple[CellWrite, ...], VersionedRun]:
    """Return the writes that give a run another state, and its record after them; raise `Conflict` if it cannot have it.

    `due` is when a worker has to look at it in that state; None: never.
    """
    before = kept.record
    if to != before.state or to == "running":
        check_run_step(before, to)
    if before.again and to != "created":
        fields["again"] = False
    if due != before.due:
        fields |= {"due": due, "dues": before.dues + (due is not None)}
    if (before.state == "waiting") == (to == "waiting"):
        write, updated = changed(kept, state=to, at=at, **fields)
        cells: tuple[CellWrite, ...] = (write,)
    else:
        write, updated = changed(kept, state=to, at=at, waited=before.waited + 1, **fields)
        cells = (write, _waits(before, before.waited, present=to == "waiting"))
    if before.state == "created":
        cells = (*cells, CellWrite(name=queue_name(before), expected=1, value=None))
    return (*cells, *_due_writes(before, updated.record)) if due != before.due else cells, updated


def apply(
    space: Space,
    what: str,
    *cells: CellWrite,
    op_id: str | None = None,
    intent: Digest | None = None,
    objects: tuple[Object, ...] = (),
) -> None:
    """Write cells and the objects that they name; move no head.  `intent` None: what is done, and to which cells.

    Raises `Conflict`, having written nothing, if a cell is at another revision.
    """
    write = Write(
        space=space.name,
        op_id=op_id or space.ids(),
        intent=intent or digest_of(Kind.BODY, canonical.encode([what, *(cell.name for cell in cells)])),
        fences=space.fences,
        objects=objects,
        cells=cells,
    )
    writer.submit(space, write, Head("main", 0, None))


def _waits(record: RunRecord, expected: int, *, present: bool) -> CellWrite:
    """Return the write of the mark of a run that waits; its revision is what the record counts."""
    return mark_write(WAITS, record.timeline, record.id, expected=expected, present=present, listed=True)


def _due_writes(before: RunRecord | None, after: RunRecord) -> tuple[CellWrite, ...]:
    """Return the writes that replace the cell of a due time.  Each name is written once and emptied once."""
    found: list[CellWrite] = []
    if before is not None and before.due is not None:
        found.append(CellWrite(name=_due_name(before), expected=1, value=None))
    if after.due is not None:
        found.append(CellWrite(name=_due_name(after), expected=0, value=b"{}", listed=True))
    return tuple(found)


def _due_name(record: RunRecord) -> str:
    assert record.due is not None
    return f"{DUE}{worker_agent(record)}:{due_at(record.due)}:{record.id}.{record.dues}"


def worker_agent(record: RunRecord) -> str:
    """Return the agent whose workers carry a run on: its own, or that of the run at the root, whose tools started it."""
    return (record.parent.root_agent if record.parent is not None else None) or record.agent


def due_for_parent(space: Space, record: RunRecord) -> int | None:
    """Return the due time of a child run that ends now: now if its parent waits, so that a worker goes on with that."""
    if record.parent is None or record.parent_run is None:
        return None
    parent = find(space.beside(record.parent.space, record.parent.thread), record.parent_run)
    waits = parent is not None and parent.record.state == "waiting"
    return at_once(space.engine, record) if waits else None


def drop_due(engine: Engine, space: str, record: RunRecord) -> None:
    """Empty the cell of a due time in the space of a thread that was removed, which takes no other write."""
    name = _due_name(record)
    write = Write(
        space=space,
        op_id=f"drop:{name}",
        intent=digest_of(Kind.BODY, name.encode()),
        cells=(CellWrite(name=name, expected=1, value=None),),
    )
    with suppress(Conflict):  # another worker has done the same
        engine.apply(write)


def _write(record: RunRecord, expected: int) -> CellWrite:
    value = canonical.encode_struct(record)
    return CellWrite(name=RUN + record.id, expected=expected, value=value, listed=record.state == "running")
