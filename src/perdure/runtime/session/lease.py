"""Leases: one run at a time on a line, and nobody writes there who has lost it.

Two cells of the thread's space for each timeline:

    lease/<timeline>      {run, holder, clock, until}, written only when it is taken or let go,
                          so that its revision after taking is the *epoch* of that run
    renewal/<timeline>    {epoch, until}, written only when it is renewed

Every write of the run is fenced by the epoch.  Taking over raises it, and from then on
whatever the old holder still tries to write is refused by the store.  So safety depends on
no clock; clocks decide only when others may take over:

    live      the run is to be left alone
    expired   its time is over, or its process gave it up: it may be taken over, but the process
              may still wake up, and what it was doing may still happen
    gone      its process is proven to have ended: what was not done will not be done any more
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias

import msgspec

from perdure.engines.contract import Cell, CellWrite, Fence, Write
from perdure.errors import Busy, Conflict
from perdure.history import cells, writer
from perdure.history.space import Space, removed
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of
from perdure.model.head import Head

__all__ = [
    "LEASE",
    "RENEWAL",
    "Lease",
    "LeaseState",
    "Lost",
    "Roster",
    "busy",
    "check_free",
    "current",
    "epoch_after",
    "fence",
    "look",
    "releasing",
    "renew",
    "state",
    "taken",
    "taking",
]

LEASE, RENEWAL = "lease/", "renewal/"  # cells, by timeline

LeaseState: TypeAlias = Literal["live", "expired", "gone"]

_SECOND = 1_000_000  # µs
_DAY = 86_400 * _SECOND
_TRIES_MAX = 8


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A run's right to write on a line, as it was read."""

    timeline: str
    run: str
    holder: str  # the process, by the engine's name for it
    clock: str
    until: int  # µs on that clock, the last renewal included
    epoch: int


class Lost(Conflict):
    """The lease is not this run's any more.  Nothing was written."""

    def __init__(self, lease: Lease) -> None:
        """Name the run and its line."""
        self.lease = lease
        super().__init__(
            f"run '{lease.run}' no longer holds timeline '{lease.timeline}': another process took it over; "
            "nothing was written. What that process records is the run's truth."
        )


class Roster(Protocol):
    """Who knows which leases are kept in this process."""

    def expect(self, space: Space, lease: Lease) -> None:
        """Count a lease that is about to be taken here as kept, for as long as it lasts."""
        ...

    def abandoned(self, space: Space, lease: Lease) -> bool:
        """Whether a lease was taken here, and nobody here keeps it any more."""
        ...


class _LeaseCell(msgspec.Struct, frozen=True):
    """What the cell of a lease says."""

    run: str
    holder: str
    clock: str
    until: int


class _Renewed(msgspec.Struct, frozen=True):
    """What the cell of its renewals says."""

    epoch: int
    until: int


_taken = msgspec.json.Decoder(_LeaseCell)
_renewed = msgspec.json.Decoder(_Renewed)


def current(space: Space, timeline: str) -> Lease | None:
    """The lease on a line, whatever its state; None if nobody has taken it, or it was let go."""
    return look(space, timeline)[0]


def look(space: Space, timeline: str) -> tuple[Lease | None, int]:
    """The same, and the revision of its cell: 0 if there never was one."""
    cell = space.engine.cell(space.name, LEASE + timeline)
    if cell is None or cell.value is None:
        return None, cell.revision if cell else 0
    lease = _lease(timeline, cells.read(cell, _taken), cell.revision)
    renewal = space.engine.cell(space.name, RENEWAL + timeline)
    if renewal is not None and renewal.value is not None:
        lease = _with(lease, cells.read(renewal, _renewed))
    return lease, cell.revision


def state(space: Space, lease: Lease, *, owners: Roster | None = None) -> LeaseState:
    """How a lease stands now.

    `owners` also knows of leases that this process took and gave up; None: only others' are asked about.
    Another clock ends a lease but proves nothing: where a platform has no name for a boot,
    every process has a clock of its own.
    """
    engine = space.engine
    if engine.gone(lease.holder):
        return "gone"
    now = engine.instant()
    if now.clock != lease.clock or now.at >= lease.until:
        return "expired"
    return "expired" if owners is not None and owners.abandoned(space, lease) else "live"


def taking(
    space: Space,
    timeline: str,
    run: str,
    ttl: float,
    after: Lease | None,
    *,
    owners: Roster | None = None,
    revision: int | None = None,
) -> CellWrite:
    """The write that takes a line for `run` for `ttl` seconds, as a part of whatever the run writes first.

    `after` is the lease that it takes over; None: the line must be free.  Raises `Busy` if
    that lives, or if the line is not free.  If anything changes before the write is applied,
    the engine refuses it with `Conflict`.  `owners` is told; None: nobody in this process keeps it.
    `revision` is that of a line which was read as free; None: it is looked at here.
    """
    if after is not None and state(space, after, owners=owners) == "live":
        raise busy(space, after, owners=owners)
    if after is not None:
        expected = after.epoch
    else:
        expected = check_free(space, timeline, owners=owners).revision if revision is None else revision
    now = space.engine.instant()
    told = _LeaseCell(run, space.engine.holder(), now.clock, now.at + round(ttl * _SECOND))
    value = canonical.encode_struct(told)
    if owners is not None:
        owners.expect(space, _lease(timeline, told, expected + 1))
    return CellWrite(name=LEASE + timeline, expected=expected, value=value)


def epoch_after(taking: CellWrite) -> int:
    """The epoch that a lease has once the write that takes it is true."""
    return taking.expected + 1


def taken(taking: CellWrite) -> Lease:
    """The lease that is there once the write that takes it is true."""
    cell = Cell("", taking.name, epoch_after(taking), taking.value)
    return _lease(taking.name.removeprefix(LEASE), cells.read(cell, _taken), cell.revision)


def releasing(lease: Lease) -> CellWrite:
    """The write that lets a line go, as a part of the run's last; good only as long as it is held."""
    return CellWrite(name=LEASE + lease.timeline, expected=lease.epoch, value=None)


def fence(lease: Lease) -> Fence:
    """What every write of the run requires: that nobody has taken the line over, nor let it go."""
    return Fence(LEASE + lease.timeline, lease.epoch)


def renew(space: Space, lease: Lease, ttl: float) -> Lease:
    """Hold the line for `ttl` seconds from now.

    Raises `Lost`, having written nothing, if it is not held under that epoch any more, and
    `Unavailable` if the store cannot be written now, after which it may be tried again.
    """
    for _ in range(_TRIES_MAX):
        now = space.engine.instant()
        renewed = _Renewed(lease.epoch, now.at + round(ttl * _SECOND))
        try:
            writer.submit(space, _renewal(space, lease, renewed), Head(lease.timeline, 0, None))
        except Conflict as conflict:
            if not _is_held(space, lease):
                raise Lost(lease) from conflict
        else:
            return _with(lease, renewed)
    raise Conflict(f"'{RENEWAL}{lease.timeline}' is written by others all the time; nothing was written.")


def check_free(space: Space, timeline: str, what: str = "", *, owners: Roster | None = None) -> Fence:
    """The fence by which a write made by hand says that no run is on the line, nor begins there meanwhile.

    Raises `Busy` if one is, be it live or interrupted; `what` says what is not possible then.
    """
    cell = space.engine.cell(space.name, LEASE + timeline)
    lease = None if cell is None or cell.value is None else current(space, timeline)
    if lease is not None:
        raise busy(space, lease, what, owners=owners)
    return Fence(LEASE + timeline, cell.revision if cell else 0)


def busy(space: Space, lease: Lease, what: str = "", *, owners: Roster | None = None) -> Busy:
    """What to raise where a run is in the way of `what`, for people to read; '' leaves that out."""
    now = space.engine.instant()
    return Busy(
        lease.run,
        _in_words(space, lease.until - now.at)
        if now.clock == lease.clock
        else "an earlier start of the clock",
        timeline=lease.timeline,
        what=what,
        interrupted=state(space, lease, owners=owners) != "live",
    )


def _lease(timeline: str, told: _LeaseCell, epoch: int) -> Lease:
    return Lease(
        timeline=timeline, run=told.run, holder=told.holder, clock=told.clock, until=told.until, epoch=epoch
    )


def _with(lease: Lease, renewed: _Renewed) -> Lease:
    """The lease with a renewal, if that is one of its own."""
    if renewed.epoch != lease.epoch:
        return lease
    return msgspec.structs.replace(lease, until=max(lease.until, renewed.until))


def _renewal(space: Space, lease: Lease, renewed: _Renewed) -> Write:
    before = space.engine.cell(space.name, RENEWAL + lease.timeline)
    revision = before.revision if before else 0
    value = canonical.encode_struct(renewed)
    wanted = CellWrite(name=RENEWAL + lease.timeline, expected=revision, value=value)
    return Write(
        space=space.name,
        # Not one of the space's ids: those are the run's, and renewing must not change what it writes.
        op_id=f"{wanted.name} {lease.epoch} {revision}",
        intent=digest_of(Kind.BODY, value),
        fences=(*space.fences, fence(lease)),
        cells=(wanted,),
    )


def _is_held(space: Space, lease: Lease) -> bool:
    if removed(space):
        return False
    cell = space.engine.cell(space.name, LEASE + lease.timeline)
    return cell is not None and cell.revision == lease.epoch


def _in_words(space: Space, remaining: int) -> str:
    """A moment that many µs from now, as people write it.  What was stored may be any number."""
    at = space.clock() + max(-_DAY, min(_DAY, remaining))
    return datetime.fromtimestamp(at / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
