"""The ground that a run stands on: one line of a thread, and what surrounds it.

Everything that a run needs of the outside is passed in here: the agent as it is declared,
where the line stands, who renews leases, which threads sync tools run on, and how the awaitable
face keeps the disk away from the event loop.

The workshop of an open store: what its runs share, made when it is first needed.

Closing waits for the runs that go on in the background, and for tools that still run: a process
whose mark is taken away counts as gone, and must not be doing anything then.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec

from perdure.history.space import Space, TimelineContext
from perdure.memory import OwnerMemory
from perdure.model.effect import Effect
from perdure.model.fork_safety import renew_in_child
from perdure.providers.catalog import Catalog, shipped
from perdure.providers.profile import BackendRef
from perdure.runtime.agent.agent import Agent
from perdure.runtime.session.backend_cache import BackendCache
from perdure.runtime.session.broadcast import Feeds
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.runtime.session.prompt_cache import PromptCache
from perdure.switching.current_backend import RecordedBackend

__all__ = ["RunEnvironment", "Hands", "inline", "WorkerPool", "StoreRuntime"]


_TOOLS_MAX = 64  # that run side by side


class WorkerPool(ThreadPoolExecutor):
    """A pool of threads that is empty in a forked child: neither threads nor queued work come along."""

    def __init__(self, workers_max: int, name: str) -> None:
        """Start up to `workers_max` threads, whose names begin with `name`, as they are needed."""
        super().__init__(workers_max, thread_name_prefix=name)
        self._options = workers_max, name
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Begin anew; a pool that was shut down stays so."""
        was_shut_down = self._shutdown
        super().__init__(self._options[0], thread_name_prefix=self._options[1])
        self._shutdown = was_shut_down


class StoreRuntime:
    """What the runs of one open store share.  In a forked child it has no run, no watcher and no thread."""

    def __init__(self, owners: LeaseKeeper | None = None) -> None:
        """Begin with no run; `owners` renews leases, None as often as usual."""
        self.owners = owners or LeaseKeeper()
        self._tool_threads: WorkerPool | None = None
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self.feeds, self.prompt_cache, self.lines = Feeds(), PromptCache(), BackendCache()
        self._lock = threading.Lock()
        self._going_on: set[threading.Thread] = set()

    def after_fork_in_child(self) -> None:
        """Leave runs, watchers and threads to the parent."""
        self._begin()

    @property
    def tool_threads(self) -> ThreadPoolExecutor:
        """The threads on which plain tools run."""
        with self._lock:
            if self._tool_threads is None:
                self._tool_threads = WorkerPool(_TOOLS_MAX, "perdure-tool")
            return self._tool_threads

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` in the background; it is finished even if the program ends meanwhile."""

        def done() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._going_on.discard(threading.current_thread())

        thread = threading.Thread(target=done, name="perdure-run")
        with self._lock:
            self._going_on.add(thread)
        thread.start()

    def close(self) -> None:
        """Wait for what goes on in the background."""
        with self._lock:
            going_on, tool_threads = tuple(self._going_on), self._tool_threads
            self._tool_threads = None
        for thread in going_on:
            if thread is not threading.current_thread():
                thread.join()
        if tool_threads is not None:
            tool_threads.shutdown(wait=True)


_T = TypeVar("_T")


class Hands(Protocol):
    """How blocking work is done from a coroutine."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """What comes of `work`."""
        ...


async def inline(work: Callable[[], _T], /) -> _T:
    """Do it here and now: this thread runs nothing but the run."""
    return work()


class RunEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a thread, for runs on it."""

    standing: TimelineContext
    agent: Agent
    store_runtime: StoreRuntime
    store: Space  # the store's own space, for keys that hold store-wide
    finish: Callable[[], None]  # does what a commit leaves to be done in the agent's map
    run_blocking: Hands = inline
    owns_thread: bool = True  # whether this thread may be blocked by a tool: nothing else runs on its loop
    effect_max: Effect | None = None  # the most that calls on this line may reach
    handed: Mapping[RecordedBackend, BackendRef] = {}  # backends that were handed to a switch on this handle
    models: Callable[[], Catalog] = shipped  # what is known of models
    memory: OwnerMemory | None = None  # of the thread's owner; None: it has none
    parent_run: str | None = None  # the run whose tool is running here; None: no tool is

    @property
    def owners(self) -> LeaseKeeper:
        """Who renews leases."""
        return self.store_runtime.owners

    @property
    def feeds(self) -> Feeds:
        """What live runs hand out."""
        return self.store_runtime.feeds

    @property
    def prompt_cache(self) -> PromptCache:
        """Conversations, kept between steps."""
        return self.store_runtime.prompt_cache

    @property
    def lines(self) -> BackendCache:
        """Whose turn it is on which line, as it was found last."""
        return self.store_runtime.lines

    @property
    def tool_threads(self) -> Executor:
        """The threads on which plain tools run."""
        return self.store_runtime.tool_threads

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts unless it is renewed."""
        return self.store_runtime.owners.ttl

    @property
    def space(self) -> Space:
        """The thread's space."""
        return self.standing.space

    @property
    def timeline(self) -> str:
        """The line's name."""
        return self.standing.timeline
