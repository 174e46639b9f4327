"""Begins short work one piece at a time, and more of it while the processor would be idle.

Threads that compute side by side hand Python's lock to each other at every statement of SQLite, and each then waits to
get it back: eight reads at once take a third more of the processor than one after the other.  So work that comes while
other work is being done waits for its end, and the thread that ends takes it over.  Work that itself waits, for a disk,
a server or a model, keeps no other from beginning: once a millisecond the event loop checks whether the process had
something to compute, and begins the next piece if it had not, or if the last one takes long.  While all threads are at
work it checks less often: then a thread that ends makes the same check, and goes on with the next piece.

A forked child has none of the threads, so all work that was handed over stays with the parent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from perdure.aio.proxy import report_to_loop
from perdure.errors import Unavailable
from perdure.model.fork_safety import renew_in_child

__all__ = ["Admission"]

_T = TypeVar("_T")

_CHECK_SECONDS = 0.001
_BUSY_SHARE = 0.7  # of one processor; a process that used less of it was waiting
_LONG_SECONDS = 0.01  # after which a piece of work keeps no other from beginning


class Admission:
    """Blocking work for the threads of a pool; it is handed over on the event loop."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        threads_max: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.process_time,
    ) -> None:
        """Let threads of `pool` do the work, at most `threads_max` at the same time.

        `clock` is the time, and `computed` how long the process has computed, in seconds.
        """
        self._pool, self._threads_max = pool, threads_max
        self._clock, self._computed = clock, computed
        self.after_fork_in_child()
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Begin with no work and no thread."""
        self._lock = threading.Lock()
        self._waiting: deque[_Piece] = deque()
        self._threads = 0
        self._current_worker: object | None = (
            None  # the thread that does the next piece; None: none is at work
        )
        self._begun_at = 0.0  # when it began its last piece, or was begun itself
        # The loop that checks; another one may be in use after it was closed.
        self._checking_loop: asyncio.AbstractEventLoop | None = None
        self._since = 0.0, 0.0  # how long the process had computed when the next check was planned, and when

    def hand_over(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do `work` when it is its turn, and return its result as a future of the running loop.

        Cancelling it stops nothing.  Raises `Unavailable` if the pool was shut down.
        """
        loop = asyncio.get_running_loop()
        piece = _Piece(work, loop, loop.create_future())
        with self._lock:
            is_begun = self._current_worker is None or (self._is_long() and self._threads < self._threads_max)
            if is_begun:
                self._begin_worker()
            self._waiting.append(piece)
            is_taken = is_begun and len(self._waiting) == 1
            if not is_taken and self._checking_loop is not loop:
                self._plan_check(loop)
        return piece.done

    def _begin_worker(self) -> None:
        """Let another thread do the next pieces; the one that did them so far ends with the piece that it has."""
        worker = object()
        try:
            self._pool.submit(self._work, worker)
        except RuntimeError as error:
            raise Unavailable(
                "this store was closed; nothing was done.", code="store_closed", advice="Open it again."
            ) from error
        self._current_worker, self._begun_at = worker, self._clock()
        self._threads += 1

    def _work(self, worker: object) -> None:
        """Do one piece after the other, on a thread of the pool."""
        while (piece := self._next_piece(worker)) is not None:
            report_to_loop(*piece)

    def _next_piece(self, worker: object) -> _Piece | None:
        """Return the piece that a thread does next; None: it ends."""
        with self._lock:
            is_current = self._current_worker is worker
            if self._waiting and (is_current or self._may_begin()):
                self._current_worker, self._begun_at = worker, self._clock()
                return self._waiting.popleft()
            if is_current:
                self._current_worker = None
            self._threads -= 1
            return None

    def _is_long(self) -> bool:
        return self._clock() - self._begun_at > _LONG_SECONDS

    def _may_begin(self) -> bool:
        """True if a piece may begin beside the others: the process waited since the last check, or the last piece lasts."""
        computed, at = self._since
        is_idle = self._computed() - computed < _BUSY_SHARE * (self._clock() - at)
        return is_idle or self._is_long()

    def _plan_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._checking_loop, self._since = loop, (self._computed(), self._clock())
        is_full = self._threads == self._threads_max
        loop.call_later(_LONG_SECONDS if is_full else _CHECK_SECONDS, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next piece if it may begin and a thread is free, and go on as long as pieces wait."""
        with self._lock:
            self._checking_loop = None
            if not self._waiting:
                return
            if self._threads < self._threads_max and self._may_begin():
                with suppress(Unavailable):  # then the thread that is at work does the rest
                    self._begin_worker()
            self._plan_check(loop)


class _Piece(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
