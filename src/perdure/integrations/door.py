"""The door through which a framework's code uses a store, wherever that code runs.

A framework has synchronous and awaitable methods in one object, and calls the synchronous ones on threads that run an
event loop too.  The handles of Perdure refuse that, because the loop would stall; here the framework has decided that it
may.  So `Workers` make a blocking call directly where no loop runs, on another thread where one does, and on a worker where
it is awaited.  A `Door` has the store as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure import aio
from perdure.aio.proxy import handed
from perdure.errors import Invalid
from perdure.runtime import event_loop
from perdure.store.store import Store

__all__ = ["Door", "Workers"]

_T = TypeVar("_T")
_WORKERS_MAX = 16


class Workers:
    """Makes blocking calls for a framework: `call` for its synchronous methods, `acall` for the others."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._workers: tuple[int, ThreadPoolExecutor] | None = None  # with the process that made them

    def call(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which blocks; an event loop of this thread waits meanwhile."""
        loop = asyncio.events._get_running_loop()
        if loop is None or event_loop.may_block(loop):
            return work()
        return event_loop.run_beside(work)

    async def acall(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which a worker does; it is finished there even if the caller is cancelled."""
        return await handed(self.workers, work)

    @property
    def workers(self) -> ThreadPoolExecutor:
        """The threads that make awaited calls, of this process."""
        workers = self._workers
        if workers is None or workers[0] != os.getpid():  # a forked child has none of the parent's threads
            threads = ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="perdure-integration")
            workers = self._workers = (os.getpid(), threads)
        return workers[1]


class Door(Workers):
    """The workers of a framework that uses a whole store."""

    def __init__(self, store: Store | aio.Store) -> None:
        """Use an open store, of either interface; raises `Invalid` for anything else."""
        super().__init__()
        held = store.target() if isinstance(store, aio.Store) else store
        if not isinstance(held, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"a framework's data is stored in an open store, not in {held!r}; nothing was done.",
                code="not_a_store",
                advice="Open one with perdure.open(…).",
            )
        self.store = held
