"""Renews the leases of the runs that live in this process, while their code runs.

One thread for each open store renews leases and waits for news of the threads whose runs it keeps: a write there may
ask a run to stop.  It starts with the first live run and ends when there is none.  However many runs there are, they
cost the store one wait, and one read for all runs that have news, not more than four times a second.  It is a thread because user
code can block the event loop for minutes; code that blocks the whole interpreter
for longer than a lease lasts loses the lease.

Just before a tool is called, the clock alone says whether the run still has its lease, without a read of
the store.  The clock counts while the machine sleeps, and from a moment before the renewal was made: so
this process gives up before another may take over.  A run that was stopped for longer than its lease
is lost when it wakes up, even if no process has taken its timeline.

A forked child renews none of its parent's leases.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from perdure.errors import PerdureError
from perdure.history.space import Space
from perdure.model.fork_safety import renew_in_child
from perdure.model.run import RunRecord
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.lease import LEASE, Lease, Lost

__all__ = ["POLL_SECONDS", "TTL_SECONDS", "HeldLease", "LeaseKeeper", "StopSignal", "boot_seconds"]

_log = logging.getLogger("perdure.runs")

TTL_SECONDS = 30.0
POLL_SECONDS = 0.5

_SECOND = 1_000_000  # µs
_PAUSES = 2  # in one wait: how often news is looked at, at most
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first counts sleep too

_Key: TypeAlias = tuple[str, str, int]  # space, timeline, epoch


def boot_seconds() -> float:
    """Seconds on a clock that never goes back and counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class HeldLease:
    """A lease that this process renews, until it is released or lost.

    Release it after the write that releases the timeline, or when there will be none: a run whose
    lease no process renews counts as interrupted, and any process may take it over.
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
        """Renew `lease`, which ends at `until` on the keeper's clock; made by `LeaseKeeper.hold`."""
        self._owners = owners
        self.lease = lease  # as it was last renewed
        self.space = space
        self.key = _key(space, lease)  # among all of the store; a renewal does not change it
        self._until = until
        self._lost, self._cancelled = lost, cancelled
        self.is_over = False
        self._is_cancelled = False  # True: the run was informed that it was asked to stop

    def until_monotonic(self) -> float:
        """Return when the lease ends, on the keeper's clock, unless it is renewed."""
        return self._until

    def still_ours(self) -> bool:
        """True if the lease is this run's for certain at this moment; costs no read of the store."""
        return not self.is_over and self._owners.clock() < self._until

    def release(self) -> None:
        """Stop renewing it; no callback is called any more.  Releasing again is no error."""
        self._owners.drop(self)

    def renewed(self, lease: Lease, until: float) -> None:
        """Set the lease and its end after a renewal."""
        self.lease, self._until = lease, until

    def lose(self) -> None:
        """Inform the run that it has lost its lease."""
        self._lost()

    def cancel(self, why: str) -> None:
        """Inform the run, once, that it was asked to stop."""
        if not self._is_cancelled:
            self._is_cancelled = True
            self._cancelled(why)


class LeaseKeeper:
    """Renews the leases of one open store in this process."""

    def __init__(
        self,
        *,
        ttl: float = TTL_SECONDS,
        poll: float = POLL_SECONDS,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        """Renew for `ttl` seconds each time a third of that is over; wait for news `poll` seconds at a time."""
        self.ttl, self.clock = ttl, clock
        self._tick = min(poll, ttl / 6)
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Key, HeldLease] = {}
        self._expected: dict[_Key, float] = {}  # leases that are about to be taken, with their ends
        self._holders: set[str] = set()  # the engine's names of this process under which it took leases
        self._thread: threading.Thread | None = None

    def hold(
        self, lease: Lease, *, space: Space, lost: Callable[[], None], cancelled: Callable[[str], None]
    ) -> HeldLease:
        """Renew a lease that was just taken.

        `lost` is called when another process has taken it, or it could not be renewed in time; `cancelled` is
        called with the reason when the run is asked to stop.  Each is called at most once, from
        another thread, and neither after `release` has returned, except if the call began before.
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
        """Count a lease that this process is about to take as renewed, for as long as it lasts."""
        until = self._ends(space, lease)
        with self._lock:
            if self._expected:
                now = self.clock()
                self._expected = {key: end for key, end in self._expected.items() if end > now}
            self._expected[_key(space, lease)] = until
            self._holders.add(lease.holder)

    def give_up(self, space: Space, lease: Lease) -> None:
        """Expect a lease no longer: the write that was to take it has failed, or its outcome is unknown."""
        with self._lock:
            self._expected.pop(_key(space, lease), None)

    def abandoned(self, space: Space, lease: Lease) -> bool:
        """True if this process took the lease, and does not renew it any more."""
        key = _key(space, lease)
        with self._lock:
            kept = key in self._kept or self._expected.get(key, 0.0) > self.clock()
            return lease.holder in self._holders and not kept

    def drop(self, keeping: HeldLease) -> bool:
        """Stop renewing a lease; True if it was renewed until now."""
        with self._lock:
            was_kept = not keeping.is_over
            keeping.is_over = True
            if self._kept.get(keeping.key) is keeping:
                del self._kept[keeping.key]
            return was_kept

    def after_fork_in_child(self) -> None:
        """Forget the leases of the parent, whose thread this process does not have."""
        for keeping in self._kept.values():
            keeping.is_over = True
        self._begin()

    def _ends(self, space: Space, lease: Lease) -> float:
        """Return when a lease ends on our clock, which is never later than on the engine's."""
        here, there = self.clock(), space.engine.instant()
        return here + (lease.until - there.at - there.error) / _SECOND if there.clock == lease.clock else here

    # ---- in the thread

    def _run(self) -> None:
        seen: dict[str, int] = {}  # the standing of each space when its runs were last looked at
        while True:
            time.sleep(self._tick / _PAUSES)  # a run that writes often is news all the time
            with self._lock:
                kept = list(self._kept.values())
                if not kept:
                    self._thread = None
                    return
            seen = {keeping.space.name: seen.get(keeping.space.name, -1) for keeping in kept}
            news = self._news(kept, seen)
            for keeping in kept:
                self._guarded(partial(self._attend, keeping))
            failed = self._look(kept, news)
            seen.update({space: at for space, at in news.items() if space not in failed})

    def _news(self, kept: list[HeldLease], seen: dict[str, int]) -> Mapping[str, int]:
        """Wait for news of these spaces; where the store cannot say, any may have some."""
        try:
            return kept[0].space.engine.wait(seen, self._tick)
        except Exception:  # noqa: BLE001  # the leases of this process are renewed whatever happens here
            time.sleep(self._tick)
            return dict(seen)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Attend to one lease; an error there does not affect the others."""
        try:
            work()
        except Exception:  # noqa: BLE001  # the callbacks may raise anything
            report = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            threading.excepthook(report)

    def _attend(self, keeping: HeldLease) -> None:
        now = self.clock()
        if now >= keeping.until_monotonic():
            self._lose(keeping)
        elif now >= keeping.until_monotonic() - self.ttl * 2 / 3:
            self._renew(keeping)

    def _renew(self, keeping: HeldLease) -> None:
        """Renew a lease; if that fails, the next tick tries again, until the lease has ended."""
        before = self.clock()
        try:
            error = keeping.space.engine.instant().error
            lease = leases.renew(keeping.space, keeping.lease, self.ttl)
        except Lost:
            if _was_released(keeping):
                self.drop(keeping)
            else:
                self._lose(keeping)
        except PerdureError:
            return
        else:
            keeping.renewed(lease, before + self.ttl - error / _SECOND)

    def _look(self, kept: list[HeldLease], news: Mapping[str, int]) -> set[str]:
        """Inform the runs that have news and were asked to stop; return the spaces in which a record cannot be read."""
        fresh = [keeping for keeping in kept if keeping.space.name in news and not keeping.is_over]
        if not fresh:
            return set()
        failed = set[str]()
        try:
            found = records.find_all([(keeping.space, keeping.lease.run) for keeping in fresh])
        except PerdureError:
            found = [_found(keeping, failed) for keeping in fresh]
        for keeping, record in zip(fresh, found, strict=True):
            if record is not None and record.cancel is not None and not keeping.is_over:
                self._guarded(partial(keeping.cancel, record.cancel))
        return failed

    def _lose(self, keeping: HeldLease) -> None:
        if self.drop(keeping):
            keeping.lose()
            _log.warning("run %s of %s lost its lease", keeping.lease.run, keeping.space.label)


def _key(space: Space, lease: Lease) -> _Key:
    return space.name, lease.timeline, lease.epoch


def _found(keeping: HeldLease, failed: set[str]) -> RunRecord | None:
    """Return the record of a run; None if there is none, or if it cannot be read: then its space has failed."""
    try:
        found = records.find(keeping.space, keeping.lease.run)
    except PerdureError:
        failed.add(keeping.space.name)
        return None
    return None if found is None else found.record


def _was_released(keeping: HeldLease) -> bool:
    """True if the run's own last write released the lease just before the renewal."""
    lease = keeping.lease
    try:
        cell = keeping.space.engine.cell(keeping.space.name, LEASE + lease.timeline)
    except PerdureError:
        return False
    return cell is not None and cell.value is None and cell.revision == lease.epoch + 1


class StopSignal:
    """Carries a request to stop from the thread that renews leases to the task of a run."""

    def __init__(self) -> None:
        """Stop the task that makes this."""
        task = asyncio.current_task()
        assert task is not None
        self.task, self._loop = task, task.get_loop()
        self.why = ""  # the reason of a cancellation; "": there was none
        self.is_lost = False  # True: another process has the timeline
        self.is_sent = False
        self._is_over = False

    def end(self) -> None:
        """Stop nothing any more: the run is over, and its task may go on with something else."""
        self._is_over = True

    def lose(self) -> None:
        """End the task because the lease is lost; may be called from any thread."""
        self.is_sent = True
        self._loop.call_soon_threadsafe(self._stop, "", True)

    def cancel(self, why: str) -> None:
        """End the task because the run was asked to stop; may be called from any thread."""
        self.is_sent = True
        self._loop.call_soon_threadsafe(self._stop, why, False)

    def _stop(self, why: str, is_lost: bool) -> None:  # call_soon takes no keywords
        if not self._is_over:
            self.why, self.is_lost = why, is_lost
            self.task.cancel()
