"""Leases: one run at a time on a timeline, and a run that has lost its lease cannot write there.

Two cells of the thread's space for each timeline:

    lease/<timeline>      {run, holder, clock, until}, written only when it is taken or released,
                          so that its revision after taking is the *epoch* of that run
    renewal/<timeline>    {epoch, until}, written only when it is renewed

Every write of the run is fenced by the epoch.  Taking over raises the epoch, and from then on
the store refuses every write of the old holder.  A timeline that a run has of its own is held with the one that the
run moves.  So safety depends on
no clock; clocks decide only when another process may take over:

    live      no other process may take the timeline
    expired   the lease has run out, or its process gave it up: another process may take over, but the
              old one may still wake up, and a tool that it was running may still have its effect
    gone      its process is proven to have ended: it will do nothing any more
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Engine, Fence, Question, Write
from perdure.engines.loops import Attempts
from perdure.errors import Busy, Conflict
from perdure.history import writer
from perdure.history.space import (
    Space,
    read_record,
    removed,
)
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of
from perdure.model.head import Head
from perdure.model.run import LEASE

__all__ = [
    "LEASE",
    "OWN",
    "RENEWAL",
    "Lease",
    "LeaseState",
    "Lost",
    "Roster",
    "busy",
    "check_free",
    "current",
    "ending",
    "epoch_after",
    "fence",
    "found_in",
    "lease_questions",
    "look",
    "own_timelines_prefix",
    "releasing",
    "renew",
    "state",
    "state_anywhere",
    "taken",
    "taking",
]

RENEWAL = "renewal/"  # cells, by timeline, as those of `LEASE`

LeaseState: TypeAlias = Literal["live", "expired", "gone"]

OWN = "run/"  # begins the names of timelines that runs have of their own
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")

_SECOND = 1_000_000  # µs
_DAY = 86_400 * _SECOND


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A run's right to write on a timeline, as it was read."""

    timeline: str
    run: str
    holder: str  # the process, by the engine's name for it
    clock: str
    until: int  # µs on that clock, the last renewal included
    epoch: int


class Lost(Conflict):
    """Another process has taken the run's lease.  Nothing was written."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        super().__init__(
            f"run '{lease.run}' no longer holds timeline '{lease.timeline}': another process took it over; "
            "nothing was written.",
            advice="Read what that process records about the run.",
            run=lease.run,
            timeline=lease.timeline,
        )


class Roster(Protocol):
    """Knows which leases this process renews."""

    def expect(self, space: Space, lease: Lease) -> None:
        """Count a lease that this process is about to take as renewed, for as long as it lasts."""
        ...

    def abandoned(self, space: Space, lease: Lease) -> bool:
        """True if this process took the lease, and does not renew it any more."""
        ...


class _LeaseCell(msgspec.Struct, frozen=True):
    """The value of the cell of a lease."""

    run: str
    holder: str
    clock: str
    until: int


class _Renewed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of the cell of its renewals."""

    epoch: int
    until: int
    clock: str | None = None  # None: the clock on which the lease was taken


_taken = msgspec.json.Decoder(_LeaseCell)
_renewed = msgspec.json.Decoder(_Renewed)


def current(space: Space, timeline: str) -> Lease | None:
    """Return the lease on a timeline, whatever its state; None if it was never taken, or was released."""
    return look(space, timeline)[0]


def look(space: Space, timeline: str) -> tuple[Lease | None, int]:
    """Return the same, and the revision of its cell: 0 if there never was one.

    A timeline of a run's own has no cell: the lease of that run holds it, as long as the run has one.
    """
    lease, revision = found_in(timeline, *space.ask(*lease_questions(space, timeline)))
    if lease is None and timeline.startswith(OWN):
        lease = _of_own_timeline(space, timeline)
    return lease, revision


def own_timelines_prefix(run: str) -> str:
    """Return the prefix of the names of a run's own timelines."""
    plain = run if _PLAIN.match(run) else sha256(run.encode()).hexdigest()[:32]
    return f"{OWN}{plain}/"


def _of_own_timeline(space: Space, timeline: str) -> Lease | None:
    """Return the lease of the run that a timeline belongs to; None if that run has none.

    A run that was cut off keeps its lease until it goes on, and one that waits goes on elsewhere, so this needs no fence.
    """
    for cell in loops.cells(space.engine, space.name, prefix=LEASE):
        if timeline.startswith(own_timelines_prefix(read_record(cell, _taken).run)):
            return look(space, cell.name.removeprefix(LEASE))[0]
    return None


def lease_questions(space: Space, timeline: str) -> tuple[Question, Question]:
    """Return what `look` asks, for a caller that asks more in the same call."""
    return CellOf(space.name, LEASE + timeline), CellOf(space.name, RENEWAL + timeline)


def found_in(timeline: str, cell: Cell | None, renewal: Cell | None) -> tuple[Lease | None, int]:
    """Return what `look` does, from the answers to its questions."""
    if cell is None or cell.value is None:
        return None, cell.revision if cell else 0
    lease = _lease(timeline, read_record(cell, _taken), cell.revision)
    if renewal is not None and renewal.value is not None:
        lease = _with(lease, read_record(renewal, _renewed))
    return lease, cell.revision


def state(space: Space, lease: Lease, *, owners: Roster | None = None) -> LeaseState:
    """Return the state of a lease now.

    `owners` also knows of leases that this process took and gave up; None: such a lease counts as live.
    Another clock ends a lease but proves nothing: where a platform has no name for a boot,
    every process has a clock of its own.
    """
    found = state_anywhere(space.engine, lease)
    if found != "live" or owners is None:
        return found
    return "expired" if owners.abandoned(space, lease) else "live"


def state_anywhere(engine: Engine, lease: Lease, gone: Callable[[str], bool] | None = None) -> LeaseState:
    """Return the same for a lease of any space; `gone` answers for the engine, None: the engine is asked."""
    if (gone or engine.gone)(lease.holder):
        return "gone"
    now = engine.instant()
    return "expired" if now.clock != lease.clock or now.at >= lease.until else "live"


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
    """Return the write that takes a timeline for `run` for `ttl` seconds, as a part of the run's first write.

    `after` is the lease that it takes over; None: the timeline must be free.  Raises `Busy` if
    that lives, or if the timeline is not free.  If anything changes before the write is applied,
    the engine refuses it with `Conflict`.  `owners` will renew the lease; None: this process does not.
    `revision` is that of a free timeline's cell, as it was read; None: it is read here.
    """
    if after is not None and state(space, after, owners=owners) == "live":
        raise busy(space, after, owners=owners)
    if after is not None:
        expected = after.epoch
    else:
        expected = check_free(space, timeline, owners=owners).revision if revision is None else revision
    now = space.engine.instant()
    cell = _LeaseCell(run, space.engine.holder(), now.clock, now.at + round(ttl * _SECOND))
    value = canonical.encode_struct(cell)
    if owners is not None:
        owners.expect(space, _lease(timeline, cell, expected + 1))
    return CellWrite(name=LEASE + timeline, expected=expected, value=value)


def epoch_after(taking: CellWrite) -> int:
    """Return the epoch of a lease after the write that takes it."""
    return taking.expected + 1


def taken(taking: CellWrite) -> Lease:
    """Return the lease after the write that takes it."""
    cell = Cell("", taking.name, epoch_after(taking), taking.value)
    return _lease(taking.name.removeprefix(LEASE), read_record(cell, _taken), cell.revision)


def releasing(lease: Lease) -> CellWrite:
    """Return the write that releases a lease, as a part of the run's last write."""
    return CellWrite(name=LEASE + lease.timeline, expected=lease.epoch, value=None)


def ending(cell: Cell) -> CellWrite | None:
    """Return the write that ends a lease of another store, whose holder and clock mean nothing here; None if it is ended.

    Its run stays: it is interrupted, and whatever it left open may have happened.
    """
    before = read_record(cell, _taken)
    ended = _LeaseCell(before.run, "", "", 0)
    if before == ended:
        return None
    return CellWrite(name=cell.name, expected=cell.revision, value=canonical.encode_struct(ended))


def fence(lease: Lease) -> Fence:
    """Return the fence of every write of the run: the lease was neither taken over nor released."""
    return Fence(LEASE + lease.timeline, lease.epoch)


def renew(space: Space, lease: Lease, ttl: float) -> Lease:
    """Extend a lease to `ttl` seconds from now.

    Raises `Lost`, having written nothing, if the timeline has another epoch, and
    `Unavailable` if the store cannot be written now; then the caller may try again.
    """
    attempts = Attempts(f"timeline '{lease.timeline}'", f"the lease on '{lease.timeline}' was not renewed")
    while True:
        attempts.begin()
        now = space.engine.instant()
        clock = None if now.clock == lease.clock else now.clock
        renewed = _Renewed(lease.epoch, now.at + round(ttl * _SECOND), clock)
        try:
            writer.submit(space, _renewal(space, lease, renewed), Head(lease.timeline, 0, None))
        except Conflict as conflict:
            if not _is_held(space, lease):
                raise Lost(lease) from conflict
        else:
            return _with(lease, renewed)


def check_free(space: Space, timeline: str, what: str = "", *, owners: Roster | None = None) -> Fence:
    """Return the fence of a write outside runs: no run is on the timeline, and none begins before the write.

    Raises `Busy` if one is, live or interrupted; `what` names what is not possible then.
    """
    lease, revision = look(space, timeline)
    if lease is not None:
        raise busy(space, lease, what, owners=owners)
    return Fence(LEASE + timeline, revision)


def busy(space: Space, lease: Lease, what: str = "", *, owners: Roster | None = None) -> Busy:
    """Return the error for a run that is in the way of `what`; '' names nothing."""
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


def _lease(timeline: str, cell: _LeaseCell, epoch: int) -> Lease:
    return Lease(
        timeline=timeline, run=cell.run, holder=cell.holder, clock=cell.clock, until=cell.until, epoch=epoch
    )


def _with(lease: Lease, renewed: _Renewed) -> Lease:
    """Return the lease with a renewal, if that has the same epoch."""
    if renewed.epoch != lease.epoch:
        return lease
    if renewed.clock not in (None, lease.clock):
        return msgspec.structs.replace(lease, clock=renewed.clock, until=renewed.until)
    return msgspec.structs.replace(lease, until=max(lease.until, renewed.until))


def _renewal(space: Space, lease: Lease, renewed: _Renewed) -> Write:
    before = space.engine.cell(space.name, RENEWAL + lease.timeline)
    revision = before.revision if before else 0
    if renewed.clock is None and before is not None and before.value is not None:
        last = read_record(before, _renewed)
        if last.epoch == lease.epoch and last.clock is not None:  # the cell of the lease has another clock
            renewed = msgspec.structs.replace(renewed, clock=lease.clock)
    value = canonical.encode_struct(renewed)
    renewal = CellWrite(name=RENEWAL + lease.timeline, expected=revision, value=value)
    return Write(
        space=space.name,
        # Not one of the space's ids: those are the run's, and renewing must not change what it writes.
        op_id=f"{renewal.name} {lease.epoch} {revision}",
        intent=digest_of(Kind.BODY, value),
        fences=(*space.fences, fence(lease)),
        cells=(renewal,),
    )


def _is_held(space: Space, lease: Lease) -> bool:
    if removed(space):
        return False
    cell = space.engine.cell(space.name, LEASE + lease.timeline)
    return cell is not None and cell.revision == lease.epoch


def _in_words(space: Space, remaining: int) -> str:
    """Write the moment that many µs from now as text.  The stored number may be any."""
    at = space.clock() + max(-_DAY, min(_DAY, remaining))
    return datetime.fromtimestamp(at / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
