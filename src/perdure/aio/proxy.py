"""Descriptors that make a blocking class awaitable, one line per method.

Each descriptor wraps a method or property of the blocking class and runs it on a
worker thread that the store owns.  What was handed to a worker is finished there, also if
the task that waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from perdure.errors import Unavailable

__all__ = [
    "AsyncMethod",
    "AsyncIteratorMethod",
    "AsyncWrappedMethod",
    "AsyncProperty",
    "AsyncProxy",
    "EventIterator",
    "HeldProxy",
    "as_it_is",
    "begins_first",
    "hand_over",
    "handed",
    "report_to_loop",
    "seen_through",
]

_PAGE = 64

_P = ParamSpec("_P")
_R = TypeVar("_R")
_A = TypeVar("_A")
_H = TypeVar("_H")


class AsyncProxy(ABC):
    """An awaitable proxy of a blocking object."""

    def __init__(self, tool_threads: ThreadPoolExecutor) -> None:
        """Run what there is to do on `tool_threads`."""
        self.tool_threads = tool_threads

    @abstractmethod
    def target(self) -> Any:
        """Return the blocking object; a worker calls this."""

    def off_loop(self, work: Callable[[], _R]) -> Coroutine[Any, Any, _R]:
        """Do `work` on a worker, once it is awaited."""
        return handed(self.tool_threads, work)


class HeldProxy(AsyncProxy, Generic[_H]):
    """A proxy of an object that exists from the start."""

    def __init__(self, tool_threads: ThreadPoolExecutor, held: _H) -> None:
        """Hold `held`, and do what it does on `tool_threads`."""
        super().__init__(tool_threads)
        self._held = held

    def __repr__(self) -> str:
        """Name it by what it holds."""
        return f"<aio {self._held!r}>"

    def target(self) -> _H:
        """Return the blocking object."""
        return self._held


async def handed(tool_threads: ThreadPoolExecutor, work: Callable[[], _R]) -> _R:
    """Return the result of `work`, which a worker does; the worker finishes it even if the caller is cancelled."""
    return await hand_over(tool_threads, work)


def hand_over(tool_threads: ThreadPoolExecutor, work: Callable[[], _R]) -> asyncio.Future[_R]:
    """Let a worker do `work`, and return its result as a future of the running loop; cancelling it stops nothing.

    `run_in_executor` chains two futures, which costs as much as a short read.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_R] = loop.create_future()
    try:
        tool_threads.submit(report_to_loop, work, loop, done)
    except RuntimeError as error:
        raise Unavailable(
            "this store was closed; nothing was done.",
            code="store_closed",
            advice="Open it again.",
        ) from error
    return done


def report_to_loop(work: Callable[[], _R], loop: asyncio.AbstractEventLoop, done: asyncio.Future[_R]) -> None:
    """Do `work` on a worker, and give its result to the loop."""
    with suppress(RuntimeError):  # the loop was closed: there is no caller
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # the caller gets it
            loop.call_soon_threadsafe(_settle, done, None, error)
        else:
            loop.call_soon_threadsafe(_settle, done, result, None)


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():  # the caller was cancelled
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


async def seen_through(tool_threads: ThreadPoolExecutor, work: Callable[[], _R]) -> _R:
    """Return the result of `work`, which a worker does; a cancellation takes effect after it.

    For a run: nothing else may touch what it writes while it is being written.
    """
    try:
        doing = asyncio.get_running_loop().run_in_executor(tool_threads, work)
    except RuntimeError as error:
        raise Unavailable(
            "this store was closed; nothing was done.",
            code="store_closed",
            advice="Open it again.",
        ) from error
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        await _done(doing, task)
        task.cancel()
        return doing.result()


async def _done(doing: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
    """Wait for the end of `doing`, however often `task` is cancelled; the caller cancels it again."""
    while True:
        task.uncancel()
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError:
            continue
        return


class AsyncMethod(Generic[_P, _R]):
    """A method, awaited."""

    def __init__(self, method: Callable[Concatenate[Any, _P], _R]) -> None:
        """Call `method`, or what a subclass has in its place, on a worker."""
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> Self: ...
    @overload
    def __get__(self, twin: AsyncProxy, owner: type) -> Callable[_P, Coroutine[Any, Any, _R]]: ...
    def __get__(self, twin: AsyncProxy | None, owner: type) -> Any:
        """Return the method, bound to a proxy."""
        if twin is None:
            return self

        name = self._method.__name__

        def call(*args: _P.args, **options: _P.kwargs) -> Coroutine[Any, Any, _R]:
            asked = twin.off_loop(lambda: getattr(twin.target(), name)(*args, **options))
            asked.__qualname__ = name  # an error, and Python's warning, say what was not awaited
            return asked

        return call


class AsyncWrappedMethod(Generic[_P, _R, _A]):
    """A method, awaited, whose result gets an awaitable proxy as well."""

    def __init__(
        self, method: Callable[Concatenate[Any, _P], _R], wrap: Callable[[ThreadPoolExecutor, _R], _A]
    ) -> None:
        """Call `method`, or what a subclass has in its place, on a worker, and `wrap` its result."""
        self._method, self._wrap = method, wrap
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> Self: ...
    @overload
    def __get__(self, twin: AsyncProxy, owner: type) -> Callable[_P, Coroutine[Any, Any, _A]]: ...
    def __get__(self, twin: AsyncProxy | None, owner: type) -> Any:
        """Return the method, bound to a proxy."""
        if twin is None:
            return self

        async def call(*args: _P.args, **options: _P.kwargs) -> _A:
            found = await twin.off_loop(
                lambda: getattr(twin.target(), self._method.__name__)(*args, **options)
            )
            return self._wrap(twin.tool_threads, found)

        return call


class AsyncIteratorMethod(Generic[_P, _R, _A]):
    """A method that gives an iterator, as an asynchronous one that reads a page ahead."""

    def __init__(
        self,
        method: Callable[Concatenate[Any, _P], Iterator[_R]],
        wrap: Callable[[ThreadPoolExecutor, _R], _A],
    ) -> None:
        """Call `method`, or what a subclass has in its place, on a worker, and `wrap` each item."""
        self._method, self._wrap = method, wrap
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> Self: ...
    @overload
    def __get__(self, twin: AsyncProxy, owner: type) -> Callable[_P, AsyncIterator[_A]]: ...
    def __get__(self, twin: AsyncProxy | None, owner: type) -> Any:
        """Return the method, bound to a proxy."""
        if twin is None:
            return self

        async def call(*args: _P.args, **options: _P.kwargs) -> AsyncIterator[_A]:
            items: Iterator[_R] = await twin.off_loop(
                lambda: getattr(twin.target(), self._method.__name__)(*args, **options)
            )
            while page := await twin.off_loop(lambda: list(islice(items, _PAGE))):
                for item in page:
                    yield self._wrap(twin.tool_threads, item)

        return call


class AsyncProperty(Generic[_R]):
    """A property, awaited."""

    def __init__(self, name: str) -> None:
        """Read the property of that name on a worker."""
        self._name = name

    @overload
    def __get__(self, twin: None, owner: type) -> Self: ...
    @overload
    def __get__(self, twin: AsyncProxy, owner: type) -> Coroutine[Any, Any, _R]: ...
    def __get__(self, twin: AsyncProxy | None, owner: type) -> Any:
        """Return the property, to be awaited."""
        return self if twin is None else twin.off_loop(lambda: getattr(twin.target(), self._name))


def as_it_is(tool_threads: ThreadPoolExecutor, found: _R) -> _R:
    """Return `found`, which needs no proxy."""
    return found


class EventIterator(AsyncIterator[_R]):
    """Events as they happen; `begin` raises what keeps the first of them from coming."""

    def __init__(self, items: AsyncGenerator[_R | None], *, is_endless: bool = False) -> None:
        """Yield `items`; a None among them only says that it has begun.  `is_endless`: they do not end with a run."""
        self._items, self.is_endless = items, is_endless
        self._first: list[_R] = []
        self._has_begun = False

    async def begin(self) -> None:
        """Wait until it has begun; raise what reading it would raise then."""
        if self._has_begun:
            return
        self._has_begun = True
        with suppress(StopAsyncIteration):
            first = await anext(self._items)
            self._first += [] if first is None else [first]

    async def __anext__(self) -> _R:
        """Return the next event."""
        self._has_begun = True
        if self._first:
            return self._first.pop()
        while (item := await anext(self._items)) is None:
            pass
        return item

    async def aclose(self) -> None:
        """Stop reading; a run goes on."""
        await self._items.aclose()


def begins_first(method: Callable[_P, AsyncGenerator[_R | None]]) -> Callable[_P, EventIterator[_R]]:
    """Return a method that gives what a generator yields as an `EventIterator`."""

    @wraps(method)
    def begun(*args: _P.args, **options: _P.kwargs) -> EventIterator[_R]:
        return EventIterator(method(*args, **options), is_endless=options.get("wait") is True)

    return begun
