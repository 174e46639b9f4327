"""Awaitable faces of what a thread holds: a block of changes, artifacts, an owner's memory.

`perdure.aio` has the faces of stores, threads and views; these are the ones that need none of them.

Streams on an event loop: the same events, without anybody waiting for a disk there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from threading import Event
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from msgspec import UNSET

from perdure.aio.proxy import AsyncIteratorMethod, AsyncMethod, AsyncProperty, AsyncProxy, as_it_is
from perdure.engines.contract import Receipt
from perdure.errors import Invalid
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.runtime.events import Happening
from perdure.runtime.session.result import Result
from perdure.runtime.streaming import Following, Watching
from perdure.store import artifacts, change, memory

__all__ = [
    "AgentChange",
    "Artifacts",
    "Change",
    "HeldProxy",
    "Memory",
    "begin",
    "followed",
    "waker",
    "watched",
]


_T = TypeVar("_T")
_R = TypeVar("_R")
_H = TypeVar("_H")


class HeldProxy(AsyncProxy, Generic[_H]):
    """The face of an object that is there from the start."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: _H) -> None:
        """Hold `held`, and do what it does on `tool_threads`."""
        super().__init__(tool_threads)
        self._held = held

    def __repr__(self) -> str:
        """Name it by what it holds."""
        return f"<aio {self._held!r}>"

    def target(self) -> _H:
        """The blocking object."""
        return self._held


class _Edits(AsyncProxy):
    """A map under change."""

    paths = AsyncMethod(change.Edits.paths)
    put = AsyncMethod(change.Edits.put)
    delete = AsyncMethod(change.Edits.delete)
    clear = AsyncMethod(change.Edits.clear)
    replace = AsyncMethod(change.Edits.replace)
    set = AsyncMethod(change.Edits.set)
    unset = AsyncMethod(change.Edits.unset)
    append = AsyncMethod(change.Edits.append)
    insert = AsyncMethod(change.Edits.insert)
    remove = AsyncMethod(change.Edits.remove)
    merge = AsyncMethod(change.Edits.merge)
    increment = AsyncMethod(change.Edits.increment)

    @overload
    async def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    async def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    async def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path`, with the block's own writes; `default` if there is none, else `NotFound`."""
        return await self.work(lambda: self.target().get(path, type=type, default=default))


class AgentChange(_Edits):
    """The changes that a block makes to the agent's own map."""

    def __init__(self, tool_threads: ThreadPoolExecutor, block: Change) -> None:
        """Change the map of the agent whose thread `block` changes."""
        super().__init__(tool_threads)
        self._block = block

    def target(self) -> change.AgentChange:
        """The blocking object."""
        return self._block.target().agent

    def work(self, work: Callable[[], _R]) -> Coroutine[Any, Any, _R]:
        """Do `work` on a worker, in its turn among everything that the block does."""
        return self._block.work(work)


class Change(_Edits):
    """A block of changes: a commit in the making.  What is asked of it at once is done in the order of asking."""

    def __init__(self, tool_threads: ThreadPoolExecutor, make: Callable[[], change.Change]) -> None:
        """Prepare a block; `thread.change` is the way to get one."""
        super().__init__(tool_threads)
        self._make = make
        self._made: change.Change | None = None
        self._last = Event()  # set when what was asked for last is done
        self._last.set()
        self._asked: list[
            Coroutine[Any, Any, Any]
        ] = []  # for; each is to be awaited before the block is left
        self.agent = AgentChange(tool_threads, self)

    say = AsyncMethod(change.Change.say)
    add = AsyncMethod(change.Change.add)

    @property
    def head(self) -> Head | None:
        """Where the timeline stood on entering; after leaving, where it stands."""
        return self._made.head if self._made else None

    @property
    def receipt(self) -> Receipt | None:
        """What the commit made true; None before it, or if there was nothing to write."""
        return self._made.receipt if self._made else None

    @property
    def commits(self) -> tuple[Digest, ...]:
        """The commits of a chain so far; of any other block its commit, once it is left."""
        made = self._made
        return made._commits if made else ()  # pyright: ignore[reportPrivateUsage]  # nothing is read from the store

    async def __aenter__(self) -> Self:
        """Read the head."""
        await self.work(self._enter)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless the block raised or changed nothing; raises `Invalid` if something was not awaited."""
        forgotten = [each for each in self._asked if getcoroutinestate(each) == CORO_CREATED]
        for each in forgotten:
            each.close()
        self._asked.clear()
        if forgotten and kind is None:
            unfit = Invalid(
                f"{len(forgotten)} of what this block asked for was not awaited; nothing was written."
            )
            await self.work(partial(self.target().__exit__, Invalid, unfit, None))
            raise unfit
        await self.work(partial(self.target().__exit__, kind, error, trace))

    def target(self) -> change.Change:
        """The blocking object."""
        if self._made is None:
            raise Invalid("this change is not open; nothing was done. Use it inside its `async with` block.")
        return self._made

    def work(self, work: Callable[[], _R]) -> Coroutine[Any, Any, _R]:
        """Do `work` on a worker, after everything that was asked of this block before."""
        asked = self._work(work)
        self._asked.append(asked)
        return asked

    async def _work(self, work: Callable[[], _R]) -> _R:
        before, done = self._last, Event()
        self._last = done

        def in_turn() -> _R:
            # The crew takes work in the order in which it is handed over, so what is waited for is under way.
            before.wait()
            try:
                return work()
            finally:
                done.set()

        return await super().work(in_turn)

    def _enter(self) -> None:
        self._made = self._made or self._make()
        self._made.__enter__()


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
    search = AsyncMethod(memory.Memory.search)
    get = AsyncMethod(memory.Memory.get)
    items = AsyncIteratorMethod(memory.Memory.items, as_it_is)
    ls = items
    forget = AsyncMethod(memory.Memory.forget)
    keep = AsyncMethod(memory.Memory.keep)
    resolve = AsyncMethod(memory.Memory.resolve)
    log = AsyncMethod(memory.Memory.log)
    at = AsyncMethod(memory.Memory.at)
    undo = AsyncMethod(memory.Memory.undo)
    redo = AsyncMethod(memory.Memory.redo)


_POLL_SECONDS = 0.05

_going_on: set[asyncio.Task[Result]] = set()  # a task that nobody holds may vanish


class Work(Protocol):
    """How blocking work is done."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """What comes of it."""
        ...


def begin(run: Coroutine[Any, Any, Result], watching: Watching) -> asyncio.Task[Result]:
    """Have `run` go on by itself, whoever watches."""
    task = asyncio.create_task(run)
    _going_on.add(task)

    def ended(task: asyncio.Task[Result]) -> None:
        _going_on.discard(task)
        if task.cancelled():
            watching.ended(None, asyncio.CancelledError())
        elif task.exception() is not None:
            watching.ended(None, task.exception())
        else:
            watching.ended(task.result(), None)

    task.add_done_callback(ended)
    return task


def waker(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> Callable[[], None]:
    """What tells the loop, from any thread, that there is something new."""

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed, and nobody watches any more
            loop.call_soon_threadsafe(news.set)

    return wake


async def watched(
    work: Work, watching: Watching, news: asyncio.Event, task: asyncio.Task[Result]
) -> AsyncIterator[Happening]:
    """The events of a run that goes on; leaving the iteration does not stop it."""
    try:
        while not watching.ready.is_set():
            await _next(news)
        while not watching.is_over:
            await _next(news)
            for event in await work(lambda: list(watching.news(0))):
                yield event
        await asyncio.wait((task,))
        await asyncio.sleep(0)  # until the task has told what came of it
        for event in await work(lambda: list(watching.rest())):
            yield event
        yield watching.end()
    finally:
        watching.leave()


async def followed(work: Work, following: Following) -> AsyncIterator[Happening]:
    """The events of a line, as they become known."""
    try:
        while (events := await work(lambda: following.step(0))) is not None:
            for event in events:
                yield event
            if not events:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        following.leave()


async def _next(news: asyncio.Event) -> None:
    await news.wait()
    news.clear()
