"""Begins short work one piece at a time, and more of it while the processor would be idle.

Threads that compute side by side hand Python's lock to each other at every statement of SQLite, and each then waits to
get it back: eight reads at once take a third more of the processor than one after the other.  So work that comes while
other work is being done waits for its end, and the thread that ends takes it over.  Work that itself waits, for a disk,
a server or a model, keeps no other from beginning: once a millisecond the event loop looks whether the process had
something to compute, and begins the next piece if it had not, or if the last one takes long.
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

__all__ = ["Admission"]

_T = TypeVar("_T")

_LOOK_SECONDS = 0.001
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
        self._lock = threading.Lock()
        self._waiting: deque[_Piece] = deque()
        self._threads = 0
        self._taker: _Taker | None = None  # the thread that takes the next piece; None: none is at work
        self._taken_at = 0.0  # when it took its last one, or was begun
        # The loop that looks; another one may be in use after it was closed.
        self._watcher: asyncio.AbstractEventLoop | None = None

    def hand_over(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do `work` when it is its turn, and return its result as a future of the running loop.

        Cancelling it stops nothing.  Raises `Unavailable` if the pool was shut down.
        """
        loop = asyncio.get_running_loop()
        piece = _Piece(work, loop, loop.create_future())
        with self._lock:
            is_begun = self._taker is None or (self._is_long() and self._threads < self._threads_max)
            if is_begun:
                self._begin()
            self._waiting.append(piece)
            is_taken = is_begun and len(self._waiting) == 1
            if not is_taken and self._watcher is not loop:
                self._watch(loop)
        return piece.done

    def _begin(self) -> None:
        """Let another thread take the next pieces; the one that took them so far ends with the piece that it has."""
        taker = _Taker()
        try:
            self._pool.submit(self._take, taker)
        except RuntimeError as error:
            raise Unavailable(
                "this store was closed; nothing was done.", code="store_closed", advice="Open it again."
            ) from error
        self._taker, self._taken_at = taker, self._clock()
        self._threads += 1

    def _is_long(self) -> bool:
        return self._clock() - self._taken_at > _LONG_SECONDS

    def _take(self, taker: _Taker) -> None:
        """Do one piece after the other, on a thread of the pool."""
        while (piece := self._next(taker)) is not None:
            report_to_loop(*piece)

    def _next(self, taker: _Taker) -> _Piece | None:
        with self._lock:
            if self._taker is taker:
                if self._waiting:
                    self._taken_at = self._clock()
                    return self._waiting.popleft()
                self._taker = None
            self._threads -= 1
            return None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = loop
        loop.call_later(_LOOK_SECONDS, self._look, loop, self._computed(), self._clock())

    def _look(self, loop: asyncio.AbstractEventLoop, computed: float, since: float) -> None:
        """Begin the next piece if the process waited `since` a moment, until which it had `computed` for a time."""
        with self._lock:
            self._watcher = None
            if not self._waiting:
                return
            is_idle = self._computed() - computed < _BUSY_SHARE * (self._clock() - since)
            if (is_idle or self._is_long()) and self._threads < self._threads_max:
                with suppress(Unavailable):  # then the thread that is at work does the rest
                    self._begin()
            self._watch(loop)


class _Taker:
    """Stands for one thread that takes pieces of work."""


class _Piece(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
