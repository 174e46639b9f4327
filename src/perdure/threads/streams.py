"""Streams on an event loop: the same events, without anybody waiting for a disk there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from perdure.runtime.ended import Result
from perdure.runtime.happening import Happening
from perdure.runtime.streaming import Following, Watching

__all__ = ["begin", "followed", "waker", "watched"]

_T = TypeVar("_T")
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
