"""Holds threads that came from another store: their runs and approvals wait until a person releases them.

A copy and its original have the same open runs.  If both went on, what a run does outside could happen twice, so in
the copy no run is resumed or retried and no call is decided before `release`.  Reading, other writes and
runs that a program begins itself are allowed; a queued one waits, because workers begin nothing in a held thread.

The space `copies` of a store records what came into it.  Its ledger has an entry for each copy that began or ended and
for each release.  Its cells:

    held/<space>       {copy, source}: the thread of that space is held
    copy/<id>          the `Arrival`: where it came from and how far it is
    done/<space>       how far a copy has replayed the space
    copying            {copy, holder, clock, until}: a copy of a whole store is not complete; the store is not opened
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Engine, Fence, Write
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Held, Moved
from perdure.history.space import Space, read_record
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of

__all__ = [
    "COPIES",
    "COPY",
    "COPYING",
    "DONE",
    "HELD",
    "Arrival",
    "ArrivalKind",
    "ArrivalState",
    "arrivals",
    "cell_write",
    "check_complete",
    "check_released",
    "held_threads",
    "hold",
    "record",
    "release",
]

COPIES = "copies"  # the space
COPYING = "copying"
COPY, DONE, HELD = "copy/", "done/", "held/"

ArrivalKind: TypeAlias = Literal["copy", "restore"]
ArrivalState: TypeAlias = Literal["copying", "settling", "complete"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Threads that came into this store from another one."""

    id: str
    kind: ArrivalKind = "copy"
    source: str  # its address, without a password
    origin: str  # names the source by its first write, whatever its address is
    begun_at: int  # µs since 1970, UTC
    state: ArrivalState = "copying"
    threads: tuple[str, ...] | None = None  # None: the whole store
    completed_at: int | None = None
    unknown: int = 0  # calls that were started in the source, and are unknown here
    leases: int = 0  # that were ended here


class HeldThread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread whose runs and approvals wait for a release."""

    space: str
    copy: str  # the id of its arrival
    source: str  # the address of the store that it came from


class _HeldCell(msgspec.Struct, frozen=True):
    """The value of a cell `held/<space>`."""

    copy: str
    source: str


_arrivals = msgspec.json.Decoder(Arrival)
_held = msgspec.json.Decoder(_HeldCell)


def check_released(space: Space) -> None:
    """Raise `Held` if the thread of that space came from another store and was not released."""
    cell = space.engine.cell(COPIES, HELD + space.name)
    if cell is not None and cell.value is not None:
        raise Held(space.label, read_record(cell, _held).source)


def check_complete(engine: Engine, place: str) -> None:
    """Raise `Conflict` if a copy of a whole store into this one is not complete."""
    cell = engine.cell(COPIES, COPYING)
    if cell is not None and cell.value is not None:
        found = next((each for each in arrivals(engine) if each.state != "complete"), None)
        source = found.source if found else "another store"
        again = f"copy {source} {place}"
        if found is not None and found.kind == "restore":
            again = f"restore {source} --store {place}"
        raise Conflict(
            f"{place} is a copy of {source} that is not complete; it was not opened.",
            code="copy_incomplete",
            advice=f"Finish it with `perdure {again}`.",
            source=source,
            store=place,
        )


def arrivals(engine: Engine) -> Iterator[Arrival]:
    """Yield the copies that came into this store."""
    return (read_record(cell, _arrivals) for cell in loops.cells(engine, COPIES, prefix=COPY))


def held_threads(engine: Engine) -> Iterator[HeldThread]:
    """Yield the threads that are held, by space."""
    for cell in loops.cells(engine, COPIES, prefix=HELD):
        found = read_record(cell, _held)
        yield HeldThread(space=cell.name.removeprefix(HELD), copy=found.copy, source=found.source)


def hold(engine: Engine, space: str, arrival: Arrival, *, fences: tuple[Fence, ...] = ()) -> None:
    """Hold the thread of a space, before anything of it is in this store."""
    before = engine.cell(COPIES, HELD + space)
    if before is None or before.value is None:
        value = canonical.encode_struct(_HeldCell(arrival.id, arrival.source))
        record(engine, f"hold {arrival.id} {space}", cell_write(HELD + space, before, value), fences=fences)


def release(engine: Engine, spaces: Sequence[str], *, at: int, by: str | None) -> list[str]:
    """Release the threads of these spaces; return those that were held.

    Raises `Conflict`, having released nothing, if one belongs to a copy that is not complete.
    """
    attempts = Attempts("the held threads", "nothing was released")
    while True:
        attempts.begin()
        states = {each.id: each for each in arrivals(engine)}
        cells = [
            cell
            for cell in engine.answers([CellOf(COPIES, HELD + space) for space in spaces])
            if cell is not None and cell.value is not None
        ]
        for cell in cells:
            arrival = states.get(read_record(cell, _held).copy)
            if arrival is not None and arrival.state != "complete":
                raise Conflict(
                    f"the copy from {arrival.source} is not complete; nothing was released.",
                    code="copy_incomplete",
                    advice="Run the same `perdure copy` again; it goes on where it stopped.",
                    source=arrival.source,
                )
        if not cells:
            return []
        names = [cell.name.removeprefix(HELD) for cell in cells]
        entry = canonical.encode({"at": at, "by": by, "spaces": names, "what": "released"})
        meant = " ".join(f"{cell.name} {cell.revision}" for cell in cells)
        op_id = f"release {digest_of(Kind.BODY, meant.encode())}"
        try:
            record(engine, op_id, *(cell_write(cell.name, cell, None) for cell in cells), entries=(entry,))
        except Moved:
            continue
        return names


def record(
    engine: Engine,
    op_id: str,
    *cells: CellWrite,
    entries: tuple[bytes, ...] = (),
    fences: tuple[Fence, ...] = (),
) -> None:
    """Write to the space `copies`."""
    engine.apply(
        Write(
            space=COPIES,
            op_id=op_id,
            intent=digest_of(Kind.BODY, op_id.encode()),
            cells=cells,
            entries=entries,
            fences=fences,
        )
    )


def cell_write(name: str, before: Cell | None, value: bytes | None) -> CellWrite:
    """Return the write of a cell after the one that was read; None: it was never written."""
    return CellWrite(name=name, expected=before.revision if before else 0, value=value)
