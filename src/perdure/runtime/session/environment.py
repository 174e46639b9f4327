"""What a run needs from outside, and what the runs of one open store share.

`RunEnvironment` is passed to every run: the timeline, the agent as it is declared, the threads that sync
tools run on, and how the async interface keeps the disk away from the event loop.

`StoreRuntime` holds what all runs of an open store share: who renews leases, the live feeds, and caches.
Closing it waits for runs in the background and for tools that still run: once the process has given up its
mark in the store it counts as gone, and must not be doing anything.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from perdure.engines.contract import LedgerOf
from perdure.engines.news import LiveChannel
from perdure.history.space import Space, TimelineContext
from perdure.memory import OwnerMemory
from perdure.model.digest import Digest
from perdure.model.effect import Effect, lower
from perdure.model.fork_safety import renew_in_child
from perdure.model.run import ParentCall, RunRecord
from perdure.model.ticket import ChildRef
from perdure.providers.catalog import Catalog, shipped
from perdure.providers.profile import BackendRef
from perdure.runtime.agent.agent import Agent
from perdure.runtime.session.broadcast import Feeds, NewsThread
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.runtime.session.live_text import ChannelCarrier, LiveCarrier, SpoolCarrier
from perdure.runtime.session.prompt_cache import PromptCache
from perdure.runtime.tools.waiting import ChildRequest
from perdure.switching.current_backend import RecordedBackend, recorded_at

if TYPE_CHECKING:
    from perdure.runtime.session.throttle import Throttle
else:
    Throttle = object  # only the run of a worker loads its module

__all__ = ["RunEnvironment", "StoreRuntime", "BackendCache", "BlockingRunner", "WorkerPool", "inline"]

_TOOLS_MAX = 64  # tools that run side by side
_TIMELINES_MAX = 1_024  # whose backends are cached
_SPACES_MAX = 1_024
_STARTED_MAX = 16_384
_NOTHING_CLEAR: tuple[int, frozenset[str]] = (-1, frozenset())

_T = TypeVar("_T")


class BlockingRunner(Protocol):
    """Does blocking work for a coroutine."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """Return what `work` returns."""
        ...


async def inline(work: Callable[[], _T], /) -> _T:
    """Do the work in this thread, on whose event loop nothing but the run goes on."""
    return work()


class CancelChildren(Protocol):
    """Cancels the child runs of a run."""

    def __call__(self, run: str, why: str, *, call: str | None = None) -> None:
        """Ask the children to stop: those of one call, or of all."""
        ...


class RunEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline of a thread, and everything that a run on it needs from outside."""

    standing: TimelineContext
    agent: Agent
    store_runtime: StoreRuntime
    open_store: Callable[
        [], Space
    ]  # opens the store's own space, for keys that are unique in the whole store
    finish: Callable[[], None]  # applies what commits have left to be done in the agent's map
    run_blocking: BlockingRunner = inline
    owns_thread: bool = True  # True: a tool may block this thread, whose loop runs nothing else
    effect_max: Effect | None = None  # of calls on this timeline; None: any effect
    handed: Mapping[RecordedBackend, BackendRef] = {}  # objects that were given to a switch on this handle
    models: Callable[[], Catalog] = shipped  # what is known of models
    memory: OwnerMemory | None = None  # of the thread's owner; None: it has none
    parent_run: str | None = None  # the run whose tool is running here; None: no tool is
    parent: ParentCall | None = None  # the call that the run is a child of; None: it is no child
    # None: the tools of a run here cannot run other agents.
    run_child: Callable[[RunEnvironment, str, ChildRequest], Awaitable[tuple[Any, ChildRef]]] | None = None
    cancel_children: CancelChildren | None = None
    throttle: Throttle | None = None  # what the steps of a worker's run wait for; None: they wait for nothing
    # Those of `standing`, as fields because a run reads them at every turn.
    space: Space = msgspec.UNSET  # pyright: ignore[reportAssignmentType]
    timeline: str = ""

    def __post_init__(self) -> None:
        """Fill the fields that follow from `standing`."""
        msgspec.structs.force_setattr(self, "space", self.standing.space)
        msgspec.structs.force_setattr(self, "timeline", self.standing.timeline)

    def as_child_of(self, parent: ParentCall) -> RunEnvironment:
        """Return the same for a child run: no call there reaches further than the parent's timeline allows."""
        return msgspec.structs.replace(self.bounded(parent.effect_max), parent=parent)

    def bounded(self, most: Effect | None) -> RunEnvironment:
        """Return the same with a bound on the effects of calls, unless it has a lower one; None: no further bound."""
        return (
            self if most is None else msgspec.structs.replace(self, effect_max=lower(most, self.effect_max))
        )

    def without_expectation(self) -> RunEnvironment:
        """Return the same for a run that has begun: it moves the head that its caller had read."""
        if self.space.expects is None:
            return self
        space = msgspec.structs.replace(self.space, expects=None)
        return msgspec.structs.replace(self, standing=msgspec.structs.replace(self.standing, space=space))

    def of_run(self, record: RunRecord) -> RunEnvironment:
        """Return the same for a run: its record has its parent and its bound, so every process keeps them."""
        env = self.bounded(record.effect_max)
        return env if record.parent is None else env.as_child_of(record.parent)

    # Not fields: in a forked child the same store runtime has others.

    @property
    def owners(self) -> LeaseKeeper:
        return self.store_runtime.owners

    @property
    def feeds(self) -> Feeds:
        return self.store_runtime.feeds

    @property
    def prompt_cache(self) -> PromptCache:
        return self.store_runtime.prompt_cache

    @property
    def lines(self) -> BackendCache:
        """The backend of each timeline, as it was found last."""
        return self.store_runtime.lines

    @property
    def tool_threads(self) -> Executor:
        """The threads on which tools run that are plain functions."""
        return self.store_runtime.tool_threads

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts unless it is renewed."""
        return self.store_runtime.owners.ttl


class WorkerPool(ThreadPoolExecutor):
    """A pool of threads that is empty in a forked child, which inherits neither threads nor queued work."""

    def __init__(self, workers_max: int, name: str) -> None:
        """Start up to `workers_max` threads, whose names begin with `name`, as they are needed."""
        super().__init__(workers_max, thread_name_prefix=name)
        self._options = workers_max, name
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Start again with no thread; a pool that was shut down stays so."""
        was_shut_down = self._shutdown
        super().__init__(self._options[0], thread_name_prefix=self._options[1])
        self._shutdown = was_shut_down


class StoreRuntime:
    """What the runs of one open store share.  In a forked child it has no run, no watcher and no thread."""

    def __init__(
        self,
        owners: LeaseKeeper | None = None,
        *,
        spool: Path | None = None,
        channel: LiveChannel | None = None,
    ) -> None:
        """Start with no run; `owners` renews leases, None: with the usual times.

        Processes tell each other what live runs say through the directory `spool` and through the engine's `channel`;
        None: there is none.
        """
        self.owners = owners or LeaseKeeper()
        self._spool, self._channel = spool, channel
        self.news = NewsThread()
        self._tool_threads: WorkerPool | None = None
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        carriers: list[LiveCarrier] = []
        if self._spool is not None:
            carriers.append(SpoolCarrier(self._spool))
        if self._channel is not None:
            carriers.append(ChannelCarrier(self._channel))
        self.feeds, self.prompt_cache, self.lines = Feeds(carriers), PromptCache(), BackendCache()
        self.imports, self.started = IdentifiedImports(), StartedCalls()
        self._lock = threading.Lock()
        self._background: set[threading.Thread] = set()
        self.workers = set[threading.Event]()  # set when this process has work for one: each worker's here

    def wake_workers(self) -> None:
        """Let the workers of this opening look for work at once."""
        for woken in tuple(self.workers):
            woken.set()

    def after_fork_in_child(self) -> None:
        """Leave runs, watchers and threads to the parent."""
        self._begin()

    @property
    def tool_threads(self) -> ThreadPoolExecutor:
        """The threads on which tools run that are plain functions."""
        with self._lock:
            if self._tool_threads is None:
                self._tool_threads = WorkerPool(_TOOLS_MAX, "perdure-tool")
            return self._tool_threads

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` in a thread of its own, which the interpreter waits for at its exit."""

        def finish_work() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._background.discard(threading.current_thread())

        thread = threading.Thread(target=finish_work, name="perdure-run")
        with self._lock:
            self._background.add(thread)
        thread.start()

    def close(self) -> None:
        """Wait for runs in the background, and for tools that still run."""
        with self._lock:
            background, tool_threads = tuple(self._background), self._tool_threads
            self._tool_threads = None
        for thread in background:
            if thread is not threading.current_thread():
                thread.join()
        if tool_threads is not None:
            tool_threads.shutdown(wait=True)


class IdentifiedImports:
    """The tools of which a space has no imported call without a fingerprint, up to a position of its ledger.

    Every import adds entries to the ledger.  So as long as only runs of this process add any, nothing has to be read.
    """

    def __init__(self) -> None:
        self._clear: dict[
            str, tuple[int, frozenset[str]]
        ] = {}  # by space: the position, and the names of tools

    def are_all(self, space: Space, tool: str) -> bool:
        """True if no call to that tool was imported without a fingerprint, for certain."""
        position, tools = self._clear.get(space.name, _NOTHING_CLEAR)
        return tool in tools and space.ask(LedgerOf(space.name))[0].position == position

    def note(self, space: Space, tool: str, position: int) -> None:
        """Note that there was none when the ledger was at that position."""
        known, tools = self._clear.get(space.name, _NOTHING_CLEAR)
        if len(self._clear) >= _SPACES_MAX:
            self._clear = {}
        self._clear[space.name] = position, (tools if known == position else frozenset()) | {tool}

    def advance(self, space: Space, position: int, entries: int) -> None:
        """Take in that a run of this process has added so many entries, and the ledger is at that position now."""
        known, tools = self._clear.get(space.name, _NOTHING_CLEAR)
        if known + entries == position:
            self._clear[space.name] = position, tools


class StartedCalls:
    """The fingerprints whose calls this process has started, or found to be started; for each space."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def is_known(self, space: str, fingerprint: str) -> bool:
        """True if a call of that fingerprint was noted; False says nothing about other processes."""
        return (space, fingerprint) in self._known

    def note(self, space: str, fingerprint: str) -> None:
        """Note that a call of that fingerprint may have been started."""
        if len(self._known) >= _STARTED_MAX:
            self._known = set()
        self._known.add((space, fingerprint))


class BackendCache:
    """The backend of each timeline with the commit it was found at, so that only newer commits are read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked: set[str] = set()  # backends whose end of service was looked up
        self._found: OrderedDict[tuple[str, str], tuple[Digest | None, RecordedBackend | None]] = (
            OrderedDict()
        )

    def is_first_run(self, backend: str) -> bool:
        """True if this is asked for that backend for the first time."""
        with self._lock:
            is_first = backend not in self._checked
            self._checked.add(backend)
            return is_first

    def backend(self, space: Space, timeline: str, at: Digest | None) -> RecordedBackend | None:
        """Return the backend of a timeline whose head is at `at`; None if its history names none."""
        known = self.last(space, timeline)
        if known is not None and known[0] == at:
            return known[1]
        found = None if at is None else recorded_at(space, at, known)
        self.note(space, timeline, at, found)
        return found

    def last(self, space: Space, timeline: str) -> tuple[Digest | None, RecordedBackend | None] | None:
        """Return the commit and the backend that were found last; None if nothing is cached."""
        with self._lock:
            return self._found.get((space.name, timeline))

    def note(self, space: Space, timeline: str, at: Digest | None, backend: RecordedBackend | None) -> None:
        """Cache the backend of a timeline at a commit."""
        with self._lock:
            self._found[space.name, timeline] = at, backend
            self._found.move_to_end((space.name, timeline))
            while len(self._found) > _TIMELINES_MAX:
                self._found.popitem(last=False)
