"""Presence: the server's clock without a round trip, and which uses of the store are over.

A lost session proves nothing: a restart, a failover or a cut cable ends every session while the clients live.  So each
use of the store has a lock file on its own host (`holders.HostPresence`), and other processes of that host know from its
lock whether it is over.  What is over, because it was closed or found to be, is also noted in the store, for other hosts.
Of a process that was killed on another host nothing is known; there the end of the lease decides.

The files are in a directory of the user, because a directory that others may write to proves nothing.

The clock is the server's.  An instant is never later than the server's own time, so a lease is never taken for over too
early, and it states how much earlier it may be.  After a failover the clock is another machine's and has another name
(decision 25).
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from perdure.engines.contract import Instant
from perdure.engines.holders import HostPresence, is_name
from perdure.engines.postgres.connections import Connection
from perdure.errors import Unavailable
from perdure.model.fork_safety import ThreadLock

__all__ = ["Clock", "HolderPresence"]

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first counts sleep too
_DRIFT = 5_000  # how many µs pass here while two clocks drift apart by one: 200 ppm
_FRESH = 1_000_000  # µs in which the clocks drift apart by less than an answer tells
_NOTE = "INSERT INTO perdure.holders (tenant, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_SWEEP = "DELETE FROM perdure.holders WHERE tenant = $1 AND closed_at < now() - interval '30 days'"
_LOOK = "SELECT 1 FROM perdure.holders WHERE tenant = $1 AND name = $2"


class Clock:
    """The server's clock, as far as this process knows it.

    Each answer that carries the server's time was made after its question was sent and before it arrived.  So it gives
    a lower and an upper bound of the distance between the two clocks; the narrowest bounds are used, widened by what the
    clocks may have drifted apart since.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.store = ""
        self._name = ""
        self._low, self._low_at = 0, 0  # µs to add to this host's clock at least, as of `_low_at`
        self._high, self._high_at = 0, 0  # and at most
        self._last = 0
        self._lock = ThreadLock()

    @staticmethod
    def now() -> int:
        """Return the time of this host's clock, in µs."""
        return time.clock_gettime_ns(_CLOCK) // 1_000

    def learn(self, sent: int, server: int, name: str) -> None:
        """Take in the server's time from an answer that has just arrived; `sent` is when its question was sent.

        `name` is the server's name for its clock.  After a failover it is another, and what was known is of no use.
        """
        now = self.now()
        low, high = server - now, server - sent
        known_at = min(self._low_at, self._high_at)
        if name == self._name and low <= self._low and high >= self._high and now - known_at < _FRESH:
            return  # most answers of a busy writer say nothing new
        with self._lock:
            self._learn(now, low, high, name)

    def _learn(self, now: int, low: int, high: int, name: str) -> None:
        if name != self._name:
            self._name, self._low, self._high, self._last = name, low, high, 0
            self._low_at = self._high_at = now
        if low >= self._low - (now - self._low_at) // _DRIFT:
            self._low, self._low_at = low, now
        if high <= self._high + (now - self._high_at) // _DRIFT:
            self._high, self._high_at = high, now

    def instant(self) -> Instant:
        """Return the time now; never earlier than the time returned before."""
        now = self.now()
        with self._lock:
            low = now + self._low - (now - self._low_at) // _DRIFT
            high = now + self._high + (now - self._high_at) // _DRIFT + 1
            self._last = max(self._last, low)
            # The server's clock is its time of day.
            clock = f"postgresql:{self.store}:{self._name}"
            return Instant(clock, self._last, max(0, high - self._last), self._last)


class HolderPresence:
    """One opening of a store, as other processes see it."""

    def __init__(self, store: str, tenant: str) -> None:
        """Mark nothing before a caller asks for the holder."""
        self._tenant = tenant
        self._own = Path(tempfile.gettempdir()) / f"perdure-held-{os.getuid()}"
        self._directory = self._own / sha256(f"{store} {tenant}".encode("utf-8", "replace")).hexdigest()[:32]
        self._here = HostPresence(self._directory)
        self._name: tuple[int, str] | None = None  # of this process

    def holder(self) -> str:
        """Return the name of this opening, marked on this host."""
        try:
            self._own.mkdir(mode=0o700, exist_ok=True)
            if self._is_own():
                name = self._here.holder()
                self._name = os.getpid(), name
                return name
            why = "it belongs to another user"
        except OSError as error:
            why = error.strerror or type(error).__name__
        raise Unavailable(
            f"{self._own} cannot be used ({why}); nothing was done.",
            code="marks_not_writable",
            advice="Set TMPDIR to a directory that this process may write to.",
        )

    def gone(self, connection: Connection, holder: str, *, may_write: bool) -> bool:
        """True if that holder is noted as over, or its lock on this host is free."""
        if not is_name(holder) or self._name == (os.getpid(), holder):
            return False
        if connection.ask(_LOOK, self._tenant, holder):
            return True
        if not self._is_over_here(holder):
            return False
        if may_write:  # so that other hosts learn it too
            connection.ask(_NOTE, self._tenant, holder)
        return True

    def _is_over_here(self, holder: str) -> bool:
        try:
            return self._is_own() and self._here.gone(holder)
        except OSError:
            return False

    def _is_own(self) -> bool:
        """True if no other user can write to the directory."""
        found = self._own.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022

    def close(self, ask: Callable[[Callable[[Connection], None]], None]) -> None:
        """Note that this opening is over, here and in the store."""
        name, self._name = self._name, None
        if name is None or name[0] != os.getpid():
            return
        try:
            ask(lambda connection: self._note(connection, name[1]))
        finally:
            self._here.close()

    def _note(self, connection: Connection, name: str) -> None:
        connection.ask(_SWEEP, self._tenant)
        connection.ask(_NOTE, self._tenant, name)
