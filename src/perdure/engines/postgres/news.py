"""News: how a process hears of what other processes write, at no cost for spaces that no process follows.

A follower marks the spaces that it waits for, in their rows, for a minute.  A write reads that row in any case, and its
answer says who has marked it.  Unless that is the writer's own process alone, the process notifies the followers, after
the commit and in a transaction of its own: a notification inside the transaction of the write would let commits happen
only one by one.

A notification that is lost costs time and never news, because each follower also looks by itself once a second.  Behind
a pooler in transaction mode nothing can be heard.  There a follower looks often while there is news, and once a second
while there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from secrets import randbits
from threading import Event, Lock
from typing import Protocol

import psycopg

from perdure.engines.postgres.connections import Connection, Pool, bytea_array
from perdure.engines.postgres.errors import ConnectionLost, StatementFailed
from perdure.engines.postgres.pack import bytes_of, name_of
from perdure.errors import PerdureError
from perdure.model.fork_safety import renew_in_child

__all__ = ["LISTEN_SECONDS", "NewsOfOthers"]

LISTEN_SECONDS = 0.01  # how often the socket of the listening session is looked at
_LOOK_SECONDS, _LOOK_SECONDS_MIN = 1.0, 0.05
_MARKED_SECONDS = 60
_IDLE_SECONDS = 2.0  # how long the thread that notifies stays when there is nothing to tell
_KEYS_MAX = 400  # of one notification, which has at most 8,000 bytes

_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_LOOK = "SELECT name, rows FROM perdure.spaces WHERE tenant = $1 AND name = ANY($2)"
# A row that a writer has locked is marked by the next look: nothing here waits for a lock.
_MARK = f"""
WITH due AS MATERIALIZED (
    SELECT name FROM perdure.spaces, set_config('synchronous_commit', 'off', true)
    WHERE tenant = $1 AND name = ANY($2) FOR NO KEY UPDATE OF spaces SKIP LOCKED
), marked AS (
    UPDATE perdure.spaces s SET followed_until = perdure.now_us() + {_MARKED_SECONDS} * 1000000,
        follower = CASE WHEN s.followed_until > perdure.now_us() AND s.follower <> $3 THEN 0 ELSE $3 END FROM due
    WHERE s.tenant = $1 AND s.name = due.name RETURNING s.name, s.rows
)
SELECT name, rows, true FROM marked
UNION ALL
SELECT name, rows, false FROM perdure.spaces WHERE tenant = $1 AND name = ANY($2) AND name NOT IN (SELECT name FROM marked)
"""


class Retried(Protocol):
    """Runs work with a connection, again after a lost one."""

    def __call__(self, work: Callable[[Connection], dict[str, int]], left: str, /) -> dict[str, int]:
        """Return what `work` returns."""
        ...


class NewsOfOthers:
    """What one opening of a store hears and tells.  Thread-safe; a forked child begins with nothing."""

    def __init__(self, pool: Pool, tenant: str, *, read_only: bool) -> None:
        """Open nothing before a caller waits or has something to tell."""
        self._pool, self._tenant, self._read_only = pool, tenant, read_only
        self._channel = f"perdure_{_key(bytes_of(tenant))}"
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self.own = randbits(62) + 1  # the name of this follower; its own writes are not notified to it
        self._lock = Lock()
        self._listening: Connection | None = None
        self._marked: dict[str, float] = {}  # spaces, and when the mark has to be renewed
        self._standings: Mapping[str, int] = {}
        self._look_at, self._pause = 0.0, _LOOK_SECONDS
        self._untold: set[str] = set()
        self._told = Event()
        self._thread: threading.Thread | None = None

    def after_fork_in_child(self) -> None:
        """Close the inherited session without sending anything."""
        if self._listening is not None:
            self._listening.abandon()
        self._begin()

    def close(self) -> None:
        """Tell what is untold, and end the thread and the session."""
        thread = self._thread
        self._told.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_IDLE_SECONDS)
        self.rest()

    def rest(self) -> None:
        """End the listening session: nothing is waited for."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with suppress(psycopg.Error):
                listening.close()

    # ---- hearing

    def has_changed(self) -> bool:
        """True if a followed space may have been written to; asked often, by one thread."""
        now = time.monotonic()
        if self._heard() or now >= self._look_at:
            self._look_at = now + self._pause
            return True
        return False

    def standings(self, spaces: Iterable[str], retried: Retried) -> dict[str, int]:
        """Return how many rows these spaces have, in one round trip that also marks them where that is due."""
        wanted = sorted(spaces)
        names = bytea_array([bytes_of(space) for space in wanted])
        now = time.monotonic()
        is_due = not self._read_only and any(self._marked.get(space, 0) <= now for space in wanted)
        rows: dict[str, int] = dict.fromkeys(wanted, 0)

        def look(connection: Connection) -> dict[str, int]:
            sql, own = (_MARK, (self.own,)) if is_due else (_LOOK, ())
            for name, count, *marked in connection.ask(sql, self._tenant, names, *own):
                space = name_of(name)
                rows[space] = int(str(count))
                if marked and marked[0]:
                    self._marked[space] = now + _MARKED_SECONDS / 2
            return rows

        found = retried(look, "nothing was read")
        marked_at = self._marked
        if len(marked_at) > 2 * len(wanted):
            self._marked = {space: marked_at[space] for space in wanted if space in marked_at}
        self._set_pause(found)
        return found

    def _set_pause(self, found: Mapping[str, int]) -> None:
        """Look more often while there is news and none of it can be heard."""
        before, self._standings = self._standings, found
        if self._pool.prepares and not self._read_only:
            self._pause = _LOOK_SECONDS
        elif any(rows != before.get(space, rows) for space, rows in found.items()):
            self._pause = _LOOK_SECONDS_MIN
        else:
            self._pause = min(2 * self._pause, _LOOK_SECONDS)
        self._look_at = min(self._look_at, time.monotonic() + self._pause)

    def _heard(self) -> bool:
        if self._read_only or not self._pool.prepares:  # nothing is marked, or a pooler stands between
            return False
        try:
            if self._listening is None:
                if time.monotonic() < self._look_at:
                    # The session was lost; the next look asks the server for another.
                    return False
                self._listening = self._pool.connect()
                self._listening.ask(f"LISTEN {self._channel}")
            heard = {key for payload in self._listening.notifications() for key in payload.split()}
            if not heard:
                return False
            followed = {_key(bytes_of(space)) for space in list(self._marked)}  # other threads mark too
        except (ConnectionLost, StatementFailed):
            self.rest()
            return True
        return not heard.isdisjoint(followed)

    # ---- telling

    def tell(self, space: str) -> None:
        """Notify those who follow the space, soon and from another thread."""
        with self._lock:
            self._untold.add(_key(bytes_of(space)))
            if self._thread is None:
                thread = threading.Thread(target=self._tell_all, name="perdure-notifier", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started now; followers look by themselves
                    return
                self._thread = thread
        self._told.set()

    def _tell_all(self) -> None:
        while True:
            self._told.wait(_IDLE_SECONDS)
            self._told.clear()
            with self._lock:
                keys = [self._untold.pop() for _ in range(min(len(self._untold), _KEYS_MAX))]
                if not keys:
                    self._thread = None
                    return
                if self._untold:
                    self._told.set()
            # Followers look by themselves, so what cannot be told is left.
            with (
                suppress(ConnectionLost, StatementFailed, PerdureError),
                self._pool.connection() as connection,
            ):
                connection.ask(_NOTIFY, self._channel, " ".join(keys))


def _key(name: bytes) -> str:
    return sha256(name).hexdigest()[:16]
