"""Streams of events on an event loop: a run goes on as a task of its own, and its readers may leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from typing import Any, Protocol, TypeVar

from perdure.runtime.events import Happening
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.result import Result
from perdure.runtime.streaming import Following, Watching

__all__ = ["begin_run", "events_of", "followed", "runs_under_way"]

_WAIT_SECONDS = 1.0  # a process that ends writes nothing: so often it is asked whether the run's still lives

# With the workers of its store; the event loop itself holds a task only weakly.
_running: dict[asyncio.Task[Result], Executor] = {}

_T = TypeVar("_T")


class _Work(Protocol):
    """How blocking work is done."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """Return the result of `work`."""
        ...


def runs_under_way(workers: Executor | None = None) -> set[asyncio.Task[Result]]:
    """Return the runs that streams began on this event loop and that have not ended; their readers may have left.

    With `workers` only those of the store that has these workers.
    """
    loop = asyncio.get_running_loop()
    return {task for task, own in _running.items() if task.get_loop() is loop and workers in (None, own)}


def begin_run(
    run: Coroutine[Any, Any, Result], watching: Watching, workers: Executor
) -> asyncio.Task[Result]:
    """Run `run` as a task of its own, which does not end with its watcher; `workers` are those of its store."""
    task = asyncio.create_task(run)
    _running[task] = workers

    def ended(task: asyncio.Task[Result]) -> None:
        _running.pop(task, None)
        if task.cancelled():
            watching.ended(None, asyncio.CancelledError())
        elif task.exception() is not None:
            watching.ended(None, task.exception())
        else:
            watching.ended(task.result(), None)

    task.add_done_callback(ended)
    return task


async def events_of(
    env: RunEnvironment,
    work: _Work,
    watching: Watching,
    news: asyncio.Event,
    task: asyncio.Task[Result],
) -> AsyncIterator[Happening]:
    """Yield the events of a run; leaving the iteration does not stop the run."""
    try:
        while not watching.ready.is_set():
            await _next(news)
        if watching.joined is not None:
            following = await work(watching.follow_joined)
            joined = followed(env, work, following, news, until=task.done)
            async with aclosing(joined):
                async for event in joined:
                    yield event
                    if watching.is_end(event):
                        break
        while not watching.is_over:
            # Words are handed on here; for a commit a worker reads the store.
            for event in watching.words() or await work(lambda: list(watching.news(0))):
                yield event
            while watching.is_quiet:  # the event may be set for words that were read already
                await _next(news)
        await asyncio.wait((task,))
        await asyncio.sleep(0)  # until the task's callback has run
        for event in await work(lambda: list(watching.rest())):
            yield event
        yield await work(watching.end)
    finally:
        watching.leave()


async def followed(
    env: RunEnvironment,
    work: _Work,
    following: Following,
    news: asyncio.Event,
    *,
    until: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[Happening]:
    """Yield the events of a timeline as they are committed, `until` that is true; `news` is set when it may be."""
    try:
        while (
            not until() and (events := following.words() or await work(lambda: following.step(0))) is not None
        ):
            for event in events:
                yield event
            if following.is_quiet:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WAIT_SECONDS):  # `wait_for` may lose a cancellation
                        while following.is_quiet:
                            await _next(news)
            elif events or following.is_watching:
                continue
            else:
                await env.store_runtime.news.wait(
                    env.space, following.seen, following.wait_seconds, event=news
                )
            news.clear()
    finally:
        following.close()


async def _next(news: asyncio.Event) -> None:
    await news.wait()
    news.clear()
