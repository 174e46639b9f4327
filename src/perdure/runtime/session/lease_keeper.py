"""Ownership: the leases of the runs that live in this process, renewed while their code does whatever it likes.

One thread for each open store renews leases and sees whether somebody asked a run to stop.
It begins with the first live run and ends when there is none.  It is a thread because user
code can block the event loop for minutes; code that keeps the interpreter itself to itself
for longer than a lease lasts does lose it.

Whether a run still has its line is also a question of time alone, answered without the
store just before a tool is called.  The clock counts while the machine sleeps, and from a
moment before the renewal was made: so this process gives up before any other may take over.
A run that was stopped for longer than its lease is lost when it wakes up, even if nobody has
taken its line.

A forked child has no part in what its parent keeps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from perdure.errors import PerdureError
from perdure.history.space import Space
from perdure.model.fork_safety import renew_in_child
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.lease import LEASE, Lease, Lost

__all__ = ["POLL_SECONDS", "TTL_SECONDS", "HeldLease", "LeaseKeeper", "boot_seconds"]

TTL_SECONDS = 30.0
POLL_SECONDS = 0.5

_SECOND = 1_000_000  # µs
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first counts sleep too

_Key: TypeAlias = tuple[str, str, int]  # space, timeline, epoch


def boot_seconds() -> float:
    """Seconds on a clock that never goes back and counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class HeldLease:
    """A lease that this process keeps, until it is released or lost.

    Release it after the write that lets the line go, or when there will be none: a run whose
    lease nobody keeps counts as interrupted, and others may take it over.
    """

    def __init__(
        self,
        owners: LeaseKeeper,
        lease: Lease,
        *,
        space: Space,
        until: float,
        lost: Callable[[], None],
        cancelled: Callable[[str], None],
    ) -> None:
        """Keep `lease`, which ends at `until` on the owners' clock; made by `Owners.hold`."""
        self._owners = owners
        self.lease = lease  # as it was last renewed
        self.space = space
        self._until = until
        self._lost, self._cancelled = lost, cancelled
        self.is_over = False
        self._is_told = False  # that somebody wants the run to stop

    def until_monotonic(self) -> float:
        """When the lease ends, on the owners' clock, unless it is renewed."""
        return self._until

    def still_ours(self) -> bool:
        """Whether the line is this run's for certain, at this moment; costs no look at the store."""
        return not self.is_over and self._owners.clock() < self._until

    def release(self) -> None:
        """Keep it no longer; nobody is called any more.  Releasing again is no error."""
        self._owners.drop(self)

    def renewed(self, lease: Lease, until: float) -> None:
        """Go on until then."""
        self.lease, self._until = lease, until

    def lose(self) -> None:
        """Have the run told that the line is not its own any more."""
        self._lost()

    def tell(self, why: str) -> None:
        """Have the run told, once, that somebody wants it to stop."""
        if not self._is_told:
            self._is_told = True
            self._cancelled(why)

    @property
    def key(self) -> _Key:
        """What tells this lease from all others of the store."""
        return _key(self.space, self.lease)


class LeaseKeeper:
    """The leases that one open store keeps in this process."""

    def __init__(
        self,
        *,
        ttl: float = TTL_SECONDS,
        poll: float = POLL_SECONDS,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        """Renew for `ttl` seconds each time a third of that is over; look for cancellations every `poll` seconds."""
        self.ttl, self.clock = ttl, clock
        self._tick = min(poll, ttl / 6)
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Key, HeldLease] = {}
        self._expected: dict[_Key, float] = {}  # leases that are about to be taken, and when they end
        self._holders: set[str] = set()  # the names under which this process took any
        self._thread: threading.Thread | None = None

    def hold(
        self, lease: Lease, *, space: Space, lost: Callable[[], None], cancelled: Callable[[str], None]
    ) -> HeldLease:
        """Keep a lease that was just taken.

        `lost` is called when it is another's now, or could not be renewed in time; `cancelled` is
        called with the reason when somebody asks the run to stop.  Each is called at most once, from
        another thread, and neither after `release` has returned, except if it has begun before.
        """
        until = self._ends(space, lease)
        keeping = HeldLease(self, lease, space=space, until=until, lost=lost, cancelled=cancelled)
        with self._lock:
            self._expected.pop(keeping.key, None)
            self._holders.add(lease.holder)
            self._kept[keeping.key] = keeping
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="perdure-leases", daemon=True)
                self._thread.start()
        return keeping

    def expect(self, space: Space, lease: Lease) -> None:
        """Count a lease that is about to be taken here as kept, for as long as it lasts."""
        until, now = self._ends(space, lease), self.clock()
        with self._lock:
            self._expected = {key: end for key, end in self._expected.items() if end > now}
            self._expected[_key(space, lease)] = until
            self._holders.add(lease.holder)

    def give_up(self, space: Space, lease: Lease) -> None:
        """Expect a lease no longer: the write that was to take it has failed, or nobody knows what became of it."""
        with self._lock:
            self._expected.pop(_key(space, lease), None)

    def abandoned(self, space: Space, lease: Lease) -> bool:
        """Whether a lease was taken here, and nobody here keeps it any more."""
        key = _key(space, lease)
        with self._lock:
            kept = key in self._kept or self._expected.get(key, 0.0) > self.clock()
            return lease.holder in self._holders and not kept

    def drop(self, keeping: HeldLease) -> bool:
        """Keep that lease no longer; whether it was kept until now."""
        with self._lock:
            was_kept = not keeping.is_over
            keeping.is_over = True
            if self._kept.get(keeping.key) is keeping:
                del self._kept[keeping.key]
            return was_kept

    def after_fork_in_child(self) -> None:
        """Leave to the parent what it keeps; its thread did not come along."""
        for keeping in self._kept.values():
            keeping.is_over = True
        self._begin()

    def _ends(self, space: Space, lease: Lease) -> float:
        """When a lease ends, on our clock; never later than it does on the engine's."""
        here, there = self.clock(), space.engine.instant()
        return here + (lease.until - there.at) / _SECOND if there.clock == lease.clock else here

    # ---- in the thread

    def _run(self) -> None:
        while True:
            time.sleep(self._tick)
            with self._lock:
                kept = list(self._kept.values())
                if not kept:
                    self._thread = None
                    return
            for keeping in kept:
                self._guarded(keeping)

    def _guarded(self, keeping: HeldLease) -> None:
        """Attend to one lease; what goes wrong there takes nothing from the others."""
        try:
            self._attend(keeping)
        except Exception:  # noqa: BLE001  # what was passed in may raise anything
            report = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            threading.excepthook(report)

    def _attend(self, keeping: HeldLease) -> None:
        now = self.clock()
        if now >= keeping.until_monotonic():
            self._lose(keeping)
        elif now >= keeping.until_monotonic() - self.ttl * 2 / 3:
            self._renew(keeping)
        if not keeping.is_over:
            self._look(keeping)

    def _renew(self, keeping: HeldLease) -> None:
        """Renew a lease; if that fails, it is tried again at the next tick, until the lease has ended."""
        before = self.clock()
        try:
            lease = leases.renew(keeping.space, keeping.lease, self.ttl)
        except Lost:
            if _was_let_go(keeping):
                self.drop(keeping)
            else:
                self._lose(keeping)
        except PerdureError:
            return
        else:
            keeping.renewed(lease, before + self.ttl)

    def _look(self, keeping: HeldLease) -> None:
        """Pass on that somebody asked the run to stop; what cannot be read now is read at the next tick."""
        try:
            found = records.find(keeping.space, keeping.lease.run)
        except PerdureError:
            return
        if found is not None and found.record.cancel is not None and not keeping.is_over:
            keeping.tell(found.record.cancel)

    def _lose(self, keeping: HeldLease) -> None:
        if self.drop(keeping):
            keeping.lose()


def _key(space: Space, lease: Lease) -> _Key:
    return space.name, lease.timeline, lease.epoch


def _was_let_go(keeping: HeldLease) -> bool:
    """Whether the line was let go under this very epoch: by the run's own last write, which a renewal just missed."""
    lease = keeping.lease
    try:
        cell = keeping.space.engine.cell(keeping.space.name, LEASE + lease.timeline)
    except PerdureError:
        return False
    return cell is not None and cell.value is None and cell.revision == lease.epoch + 1
