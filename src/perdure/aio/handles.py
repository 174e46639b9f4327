"""The awaitable store, thread and view: each method runs the synchronous one off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import msgspec
from msgspec import UNSET

from perdure.aio.change import Change
from perdure.aio.proxy import (
    AsyncIteratorMethod,
    AsyncMethod,
    AsyncProperty,
    AsyncWrappedMethod,
    HeldProxy,
    as_it_is,
    begins_first,
    handed,
    seen_through,
)
from perdure.aio.streaming import begin_run, events_of, followed, runs_under_way
from perdure.errors import Busy, Conflict, NotFound, RunFailed, Sealed
from perdure.history.changes.values import Given as GivenValue
from perdure.history.writer import OnConflict
from perdure.memory.embedding import Embed
from perdure.model.call import CallRecord
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.effect import Effect
from perdure.model.head import Head
from perdure.model.limits import Limits
from perdure.model.run import HeadPolicy, OnFailure, RunRecord
from perdure.runtime.agent.agent import Agent, RunLimits
from perdure.runtime.calls import direct_call, reconcile
from perdure.runtime.calls.direct_call import CallResult
from perdure.runtime.events import Happening
from perdure.runtime.run import control, queue
from perdure.runtime.run import replay as replays
from perdure.runtime.run.replay import ReplayReport
from perdure.runtime.session.broadcast import waker
from perdure.runtime.session.environment import RunEnvironment, WorkerPool
from perdure.runtime.session.inputs import Input
from perdure.runtime.session.result import Result
from perdure.runtime.streaming import Following, Watching
from perdure.runtime.tools.execution import running_inside
from perdure.runtime.tools.tool import Tool
from perdure.store import agents, artifacts, memory, open_store, store, thread, timeline, view
from perdure.store.plumbing.revisions import Wanted
from perdure.store.plumbing.run_fence import Chain

if TYPE_CHECKING:
    from perdure.store.copy import CopyReport
    from perdure.store.upkeep.compare import StoreComparison
    from perdure.store.upkeep.restore import RestoreReport
    from perdure.store.worker import Worked

__all__ = [
    "Store",
    "Thread",
    "View",
    "AgentMap",
    "Artifacts",
    "Definitions",
    "Memory",
    "open",
]

_WORKERS = 16

_T = TypeVar("_T")
_R = TypeVar("_R")
_H = TypeVar("_H")
_V = TypeVar("_V", bound=view.View)
_L = TypeVar("_L", bound=timeline.Line)


def _as_view(tool_threads: ThreadPoolExecutor, found: view.View) -> View:
    return View(tool_threads, found)


def _as_thread(tool_threads: ThreadPoolExecutor, found: thread.Thread) -> Thread:
    return Thread(tool_threads, found)


class _View(HeldProxy[_V]):
    """The reading half."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: _V) -> None:
        super().__init__(tool_threads, held)
        self.timeline = held.timeline

    head = AsyncProperty[Head]("head")
    digest = AsyncProperty["Digest | None"]("digest")
    cursor = AsyncProperty[str]("cursor")
    root = AsyncProperty[Digest]("root")
    backend = AsyncProperty["str | None"]("backend")
    server = AsyncProperty["str | None"]("server")
    entry = AsyncMethod(view.View.entry)
    entries = AsyncIteratorMethod(view.View.entries, as_it_is)
    paths = AsyncMethod(view.View.paths)
    values = AsyncMethod(view.View.values)
    transcript = AsyncMethod(view.View.transcript)
    losses = AsyncMethod(view.View.losses)
    log = AsyncMethod(view.View.log)
    named = AsyncMethod(view.View.named)
    turns = AsyncMethod(view.View.turns)
    context = AsyncMethod(view.View.context)
    checkpoint = AsyncMethod(view.View.checkpoint)
    checkpoints = AsyncMethod(view.View.checkpoints)
    layers = AsyncMethod(view.View.layers)
    at = AsyncWrappedMethod(view.View.at, _as_view)
    diff = AsyncMethod(view.View.diff)
    blame = AsyncMethod(view.View.blame)
    bisect = AsyncMethod(view.View.bisect)
    agent_map = AsyncWrappedMethod(view.View.agent_map, _as_view)

    @overload
    async def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    async def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    async def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Return the value at `path`; `default` if there is none, else `NotFound`.  `type` checks and converts it."""
        return await self.off_loop(lambda: self._held.get(path, type=type, default=default))


class View(_View[view.View]):
    """State, conversation and history as they were at one commit."""


class _TimelineProxy(_View[_L]):
    """A timeline that can be read and written."""

    put = AsyncMethod(timeline.Line.put)
    delete = AsyncMethod(timeline.Line.delete)
    undo = AsyncMethod(timeline.Line.undo)
    redo = AsyncMethod(timeline.Line.redo)

    def change(
        self,
        reason: str,
        *,
        on_conflict: OnConflict = "raise",
        op_id: str | None = None,
        author: str | None = None,
        run: str | None = None,
        head: Head | None = None,
        chain: Chain = False,
    ) -> Change:
        """Return a block of changes that becomes one commit, or nothing; for `async with`."""
        make = partial(
            self._held.change,
            reason,
            on_conflict=on_conflict,
            op_id=op_id,
            author=author,
            run=run,
            head=head,
            chain=chain,
        )
        return Change(self.tool_threads, make)


class Artifacts(HeldProxy[artifacts.Artifacts]):
    """What a thread keeps beside its state: content of any size, named by digest."""

    put = AsyncMethod(artifacts.Artifacts.put)
    get = AsyncIteratorMethod(artifacts.Artifacts.get, as_it_is)
    show = AsyncMethod(artifacts.Artifacts.show)
    ls = AsyncIteratorMethod(artifacts.Artifacts.ls, as_it_is)
    names = AsyncMethod(artifacts.Artifacts.names)
    resolve = AsyncMethod(artifacts.Artifacts.resolve)
    preview = AsyncMethod(artifacts.Artifacts.preview)


class Memory(HeldProxy[memory.Memory]):
    """What is remembered for one owner, across all threads and agents of that owner."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: memory.Memory) -> None:
        """Hold a memory; `store.memory` is the way to get one."""
        super().__init__(tool_threads, held)
        self.owner = held.owner

    head = AsyncProperty[Head]("head")
    add = AsyncMethod(memory.Memory.add)
    edit = AsyncMethod(memory.Memory.edit)
    search = AsyncMethod(memory.Memory.search)
    get = AsyncMethod(memory.Memory.get)
    items = AsyncIteratorMethod(memory.Memory.items, as_it_is)
    ls = items
    forget = AsyncMethod(memory.Memory.forget)
    forget_all = AsyncMethod(memory.Memory.forget_all)
    erase = AsyncMethod(memory.Memory.erase)
    erase_all = AsyncMethod(memory.Memory.erase_all)
    keep = AsyncMethod(memory.Memory.keep)
    pin = AsyncMethod(memory.Memory.pin)
    unpin = AsyncMethod(memory.Memory.unpin)
    restore = AsyncMethod(memory.Memory.restore)
    resolve = AsyncMethod(memory.Memory.resolve)
    log = AsyncMethod(memory.Memory.log)
    changes_of = AsyncMethod(memory.Memory.changes_of)
    moves = AsyncMethod(memory.Memory.moves)
    ids_ever = AsyncMethod(memory.Memory.ids_ever)
    at = AsyncMethod(memory.Memory.at)
    undo = AsyncMethod(memory.Memory.undo)
    redo = AsyncMethod(memory.Memory.redo)


class AgentMap(_TimelineProxy[agents.AgentMap]):
    """The map of one agent.  Only this agent and its threads see it."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: agents.AgentMap) -> None:
        """Hold an agent's map; `store.agent` is the way to get one."""
        super().__init__(tool_threads, held)
        self.name = held.name


class Thread(_TimelineProxy[thread.Thread]):
    """One timeline of a thread, `main` unless another was asked for."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: thread.Thread) -> None:
        """Hold a thread; `store.thread` is the way to get one."""
        super().__init__(tool_threads, held)
        self.id, self.agent, self.owner, self.begun_at = held.id, held.agent, held.owner, held.begun_at
        self.artifacts = Artifacts(tool_threads, held.artifacts)

    on = AsyncWrappedMethod(thread.Thread.on, _as_thread)
    expecting = AsyncWrappedMethod(thread.Thread.expecting, _as_thread)
    with_agent = AsyncWrappedMethod(thread.Thread.with_agent, _as_thread)
    moves = AsyncMethod(thread.Thread.moves)
    stored = AsyncMethod(thread.Thread.stored)
    timelines = AsyncMethod(thread.Thread.timelines)
    fork = AsyncWrappedMethod(thread.Thread.fork, _as_thread)
    promote = AsyncMethod(thread.Thread.promote)
    seal = AsyncMethod(thread.Thread.seal)
    drop = AsyncMethod(thread.Thread.drop)
    removal_state = AsyncMethod(thread.Thread.removal_state)
    merge = AsyncMethod(thread.Thread.merge)
    cherry_pick = AsyncMethod(thread.Thread.cherry_pick)
    add = AsyncMethod(thread.Thread.add)
    render = AsyncMethod(thread.Thread.render)
    export = AsyncMethod(thread.Thread.export)
    plan = AsyncMethod(thread.Thread.plan)
    shown = AsyncMethod(thread.Thread.shown)
    rm = AsyncMethod(thread.Thread.rm)
    redact = AsyncMethod(thread.Thread.redact)
    check_switch = AsyncMethod(thread.Thread.check_switch)
    switch = AsyncMethod(thread.Thread.switch)
    switches = AsyncMethod(thread.Thread.switches)
    hand_off = AsyncWrappedMethod(thread.Thread.hand_off, _as_thread)
    start = AsyncMethod(thread.Thread.start)
    schedule = AsyncMethod(thread.Thread.schedule)
    release = AsyncMethod(thread.Thread.release)
    steer = AsyncMethod(thread.Thread.steer)
    decide = AsyncMethod(thread.Thread.decide)
    resolve = AsyncMethod(thread.Thread.resolve)
    trace = AsyncMethod(thread.Thread.trace)
    given = AsyncMethod(thread.Thread.given)
    find_run = AsyncMethod(thread.Thread.find_run)
    cursor_before = AsyncMethod(thread.Thread.cursor_before)
    interrupted = AsyncMethod(thread.Thread.interrupted)
    decided = AsyncMethod(thread.Thread.decided)
    calls = AsyncMethod(thread.Thread.calls)
    approvals = AsyncMethod(thread.Thread.approvals)
    runs = AsyncMethod(thread.Thread.runs)
    children = AsyncMethod(thread.Thread.children)
    cost = AsyncMethod(thread.Thread.cost)
    costs = AsyncMethod(thread.Thread.costs)

    async def run(
        self,
        input: Input = None,
        *,
        id: str | None = None,
        state: Mapping[str, GivenValue] | None = None,
        output: Any = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
        retry: bool = True,
    ) -> Result:
        """Run the agent on this event loop with an input, to its end or until it waits for an approval.

        If the task that awaits it is cancelled, the run ends as failed, and the same input and id go on with it.
        Raises `RunFailed` if it fails, `Busy` if another run lives on this line, `Conflict` if the id came with
        other words or names a failed run that cannot be retried.  If the store is closed before
        the end, the run is interrupted: the error says so.
        """
        return await control.run(
            await self._env(),
            input,
            id=id,
            state=state,
            output=output,
            head_policy=head_policy,
            on_failure=on_failure,
            retry=retry,
        )

    @begins_first
    async def stream(
        self,
        input: Input = None,
        *,
        id: str | None = None,
        state: Mapping[str, GivenValue] | None = None,
        output: Any = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
        retry: bool = True,
    ) -> AsyncGenerator[Happening | None]:
        """Run the agent and yield events as they happen.  Leaving the loop does not stop the run; `cancel` does.

        The same `id` while its run lives joins that run.  Raises, where the stream is read, what `run` raises.
        """
        env = await self._env()

        def work(watching: Watching) -> Coroutine[Any, Any, Result]:
            return control.run(
                env,
                input,
                id=id,
                state=state,
                output=output,
                head_policy=head_policy,
                on_failure=on_failure,
                retry=retry,
                begun=watching.begun,
                joined=watching.joins,
            )

        async for event in self._watched(env, work):
            yield event

    @begins_first
    async def follow(
        self, after: str | None = None, *, wait: bool = False
    ) -> AsyncGenerator[Happening | None]:
        """Yield the events of this timeline after a cursor or a commit, from any process; None begins with the live run.

        Ends when no run lives here; with `wait` it goes on for the next one.  Raises `Invalid` for what
        is no cursor, `NotFound` for one of another thread.
        """
        env = await self._env()
        news = asyncio.Event()
        wake = waker(asyncio.get_running_loop(), news)
        following = await self.off_loop(lambda: Following(env, after, wait=wait, wake=wake))
        yield None  # it has begun, although no event may come for long
        async for event in followed(env, self.off_loop, following, news):
            yield event

    async def wait(self, run: str, seconds: float | None = None) -> Result:
        """Wait for a run of this thread, wherever it is carried on, and return its result; nothing is run here.

        Returns what `run` returns, when the run has ended or waits for a decision.  Raises `RunFailed` if it failed,
        `NotFound` if there is none or it was undone while it waited, and `Unavailable` if it goes on after `seconds`; None
        waits as long as it takes.
        Cancelling the task that awaits it leaves the run alone.
        """
        return await queue.wait(await self._env(), run, seconds)

    async def resume(self, run: str | None = None, *, retry: bool = False) -> Result:
        """Resume a run that was interrupted, or whose approval was decided; None: the one on this timeline.

        With `retry` a run that failed is retried from its last step.  Raises `NotFound` if there is nothing to go on
        with, `Busy` if a run lives on the line, `RunFailed` if it fails.
        """
        return await control.resume(await self._env(), run, retry=retry)

    @begins_first
    async def resume_stream(
        self, run: str | None = None, *, retry: bool = False
    ) -> AsyncGenerator[Happening | None]:
        """Resume a run and yield its events from here on; the last one has the result, unless the run fails.

        Leaving the loop does not stop the run; `cancel` does.  Raises, where it is read, what `resume` raises.
        """
        own = await self._env()
        env = await self.off_loop(lambda: control.line_of(own, run))

        def work(watching: Watching) -> Coroutine[Any, Any, Result]:
            return control.resume(env, run, retry=retry, begun=watching.begun)

        async for event in self._watched(env, work):
            yield event

    async def cancel(
        self, run: str | None = None, *, why: str = "cancelled", by: str | None = None
    ) -> RunRecord:
        """Ask a run to stop, None: the one on this line.  Durable at once; a live run stops as soon as it can.

        A run that waits or was interrupted ends at once.  `by` is who asks, for the record.  Raises
        `NotFound` if there is none.
        """
        env = await self._env()
        record = await self.off_loop(lambda: control.cancel(env, run, why, by))
        return await control.end_cancelled(env, record)

    async def replay(
        self,
        *,
        onto: str | thread.OnTimeline,
        since: Wanted = UNSET,
        effect_max: Effect = "local_write",
        dry_run: bool = False,
    ) -> ReplayReport:
        """Give the later inputs of this timeline to another timeline again, one run each, and report what happened.

        Later means after the two parted, or after the moment `since`.  Calls beyond `effect_max`, and those that would
        need an approval, are denied and listed.  With `dry_run` nothing is run.
        """
        name = onto if isinstance(onto, str) else onto.timeline
        env, turns = await self.off_loop(lambda: self._held._replaying(name, since))  # pyright: ignore[reportPrivateUsage]
        env, source = self._awaiting(env), self.timeline
        if dry_run:
            return await self.off_loop(
                lambda: replays.would_replay(env, turns, source=source, effect_max=effect_max)
            )
        return await replays.replay(env, turns, source=source, effect_max=effect_max)

    async def reconcile(self, call: str, *, by: str | None = None) -> CallRecord:
        """Ask a call's tool for the outcome, and settle the call by the answer; the call is not made again.

        `by` is who asks, for the record.  Raises `Conflict` if its outcome is known, `Busy` if a process may
        still make the call, `Unsupported` if its tool has no hook.
        """
        return await reconcile.reconcile(await self._env(), call, by=by)

    async def call(
        self, tool: Tool | Callable[..., Any], arguments: Mapping[str, Json] | str, *, id: str
    ) -> CallResult:
        """Take one call through the ledger without an agent; the same id and arguments give the first result.

        Raises `Conflict` if the id was used with other arguments, `Busy` while another process makes the
        call, `StaleHead` if the timeline moved back since: the ledger has the result of the call then.
        """
        return await direct_call.call(await self._env(), tool, arguments, id=id)

    async def _watched(
        self, env: RunEnvironment, work: Callable[[Watching], Coroutine[Any, Any, Result]]
    ) -> AsyncIterator[Happening]:
        """Yield the events of the run that `work` begins or joins, of which it tells the watcher."""
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        watching = await self.off_loop(lambda: Watching(env, waker(loop, news)))
        task = begin_run(work(watching), watching, self.tool_threads)
        async for event in events_of(env, self.off_loop, watching, news, task):
            yield event

    async def _env(self) -> RunEnvironment:
        """Return the environment of a run on this event loop, whose blocking work is done by workers."""
        return self._awaiting(await self.off_loop(self._held._env))  # pyright: ignore[reportPrivateUsage]

    def _awaiting(self, env: RunEnvironment) -> RunEnvironment:
        """Return the environment for runs on this event loop."""
        # The worker does not see the context of the tool that may be asking.
        parent = running_inside()
        return msgspec.structs.replace(
            env, run_blocking=partial(seen_through, self.tool_threads), owns_thread=False, parent_run=parent
        )


class Definitions(HeldProxy[agents.Definitions]):
    """The agents whose definitions are kept in a store."""

    apply = AsyncMethod(agents.Definitions.apply)
    find = AsyncMethod(agents.Definitions.find)
    get = AsyncMethod(agents.Definitions.get)
    versions = AsyncIteratorMethod(agents.Definitions.versions, as_it_is)


class Store(HeldProxy[store.Store]):
    """Everything that one database holds.  Use it in an `async with` statement, or close it."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: store.Store) -> None:
        """Hold an open store; `aio.open` is the way to get one."""
        super().__init__(tool_threads, held)
        self.url, self.read_only = held.url, held.read_only
        self.definitions = Definitions(tool_threads, held.definitions)
        self._closed = False

    thread = AsyncWrappedMethod(store.Store.thread, _as_thread)
    threads = AsyncIteratorMethod(store.Store.threads, _as_thread)
    agents = AsyncIteratorMethod(store.Store.agents, as_it_is)
    verify = AsyncMethod(store.Store.verify)
    gc_plan = AsyncMethod(store.Store.gc_plan)
    gc = AsyncMethod(store.Store.gc)
    repair = AsyncMethod(store.Store.repair)
    backup = AsyncMethod(store.Store.backup)
    held = AsyncMethod(store.Store.held)
    release = AsyncMethod(store.Store.release)
    facts = AsyncMethod(store.Store.facts)
    counters = AsyncMethod(store.Store.counters)
    agent = AsyncWrappedMethod(store.Store.agent, AgentMap)
    memory = AsyncWrappedMethod(store.Store.memory, Memory)
    owners = AsyncIteratorMethod(store.Store.owners, as_it_is)
    approvals = AsyncMethod(store.Store.approvals)
    open_runs = AsyncMethod(store.Store.open_runs)
    unclear_calls = AsyncMethod(store.Store.unclear_calls)
    news = AsyncMethod(store.Store.news)
    costs = AsyncMethod(store.Store.costs)
    evaluate = AsyncMethod(store.Store.evaluate)

    async def compare(self, other: Store) -> StoreComparison:
        """Compare this store with another by their heads: which threads, maps and memories differ, and which has more."""
        return await self.off_loop(lambda: self._held.compare(other._held))

    async def copy_to(
        self,
        target: str | PathLike[str] | Store,
        *,
        threads: Sequence[str] | None = None,
        sound: bool = False,
    ) -> CopyReport:
        """Copy everything, or these threads, into another store, verify the copy, and hold it there."""
        into = target._held if isinstance(target, Store) else target
        return await self.off_loop(lambda: self._held.copy_to(into, threads=threads, sound=sound))

    async def resume(self, agent: Agent) -> list[Result]:
        """Resume every run of this agent that was interrupted, or whose approval was decided, one after another.

        A run that lives in another process is left alone; one that fails is in the list.  Cancelling the task that
        awaits it lets it take no further run; the cancellation takes effect when its run has ended or waits.  Raises
        `Invalid` if `agent` is not an Agent.
        """
        found: list[Result] = []
        for id, record in await self.off_loop(partial(self._held._interrupted, agent)):  # pyright: ignore[reportPrivateUsage]
            try:
                one = await self.thread(id, agent=agent, timeline=record.timeline)
                going_on = asyncio.ensure_future(one.resume(record.id))
                try:
                    found.append(await asyncio.shield(going_on))
                except asyncio.CancelledError:  # no caller would give the input of this run again
                    await asyncio.wait((going_on,))
                    raise
            except RunFailed as failed:
                found += (failed.run,) if isinstance(failed.run, Result) else ()
            except (Busy, NotFound, Sealed):
                continue  # another process has it, it was undone, or its timeline takes no more writes
            except Conflict as conflict:
                if conflict.code != "thread_of_another_agent":
                    raise
        return found

    async def work(
        self,
        agents: Agent | Sequence[Agent],
        *,
        at_once: int = 8,
        limits: Mapping[str, RunLimits] | None = None,
        until_idle: bool = False,
        stop: Event | None = None,
        report: Callable[[Worked], None] | None = None,
    ) -> int:
        """Run what is due of these agents, as it comes, in threads beside this event loop, until `stop` is set.

        Cancelling the task that awaits it lets it take nothing more; the cancellation takes effect when its runs have
        ended or wait.  `report` is called from those threads.
        """
        ends = stop or Event()
        begin = partial(
            self._held.work,
            agents,
            at_once=at_once,
            limits=limits,
            until_idle=until_idle,
            stop=ends,
            report=report,
        )
        working = asyncio.ensure_future(asyncio.to_thread(begin))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            ends.set()
            await asyncio.wait((working,))
            raise

    async def close(self) -> None:
        """Wait for the runs that streams began here, then release everything.  Closing again is no error.

        A block that is left by an exception does not wait: these runs count as interrupted, as after a crash.
        """
        while under_way := runs_under_way(self.tool_threads):
            await asyncio.wait(under_way)
        await self._release()

    async def _release(self) -> None:
        if not self._closed:
            self._closed = True
            await self.off_loop(self._held.close)
            self.tool_threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        """Give the store itself; leaving the block closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await (self.close() if kind is None else self._release())


class _Opening:
    """A store on its way: await it, or use it in an `async with` statement."""

    def __init__(self, make: Callable[[], store.Store]) -> None:
        self._make = make
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, Any, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._store is not None, "a block that is left was entered"
        await self._store.__aexit__(kind, error, trace)

    async def _open(self) -> Store:
        tool_threads = WorkerPool(_WORKERS, "perdure")
        try:
            return Store(tool_threads, await handed(tool_threads, self._make))
        except BaseException:
            tool_threads.shutdown(wait=False)
            raise


async def restore(
    backup: str | PathLike[str],
    target: str | PathLike[str],
    *,
    replace: bool = False,
    set_aside_newer: bool = False,
) -> RestoreReport:
    """Restore a store as `perdure.restore` does, on a thread of its own."""
    restoring = partial(open_store.restore, backup, target, replace=replace, set_aside_newer=set_aside_newer)
    return await asyncio.to_thread(restoring)


def open(
    url: str | PathLike[str],
    *,
    read_only: bool = False,
    durability: Literal["power_loss", "process_crash"] = "power_loss",
    clock: Callable[[], int] | None = None,
    ids: Callable[[], str] | None = None,
    limits: Limits | None = None,
    create: bool = True,
    embed: Embed | Literal["minilm", "auto"] | None = None,
) -> _Opening:
    """Open a store as `perdure.open` does: `async with aio.open(…) as store`, or `await aio.open(…)`."""
    return _Opening(
        partial(
            open_store.open,
            url,
            read_only=read_only,
            durability=durability,
            clock=clock,
            ids=ids,
            limits=limits,
            create=create,
            embed=embed,
        )
    )
