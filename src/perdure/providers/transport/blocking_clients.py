"""Reads blocking clients from an event loop, each answer on a thread of its own.

The thread reads only as fast as the loop consumes, and ends when the loop stops reading; how long it may
still wait is bounded by the client's own time-outs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

__all__ = ["drawn"]

_T = TypeVar("_T")
_AHEAD_MAX = 64  # items that may wait for the loop


class _Stopped(Exception):
    """The loop has stopped reading."""


async def drawn(begin: Callable[[], Iterator[_T]]) -> AsyncGenerator[_T]:
    """Yield the items of the iterator that `begin` returns; both run on another thread, and their errors are raised here."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[_T] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD_MAX)
    over = threading.Event()

    def tell(what: tuple[_T] | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed, and no reader is left
            loop.call_soon_threadsafe(arrived.put_nowait, what)

    def work() -> None:
        try:
            for item in begin():
                room.acquire()
                if over.is_set():
                    raise _Stopped
                tell((item,))
        except BaseException as error:  # noqa: BLE001  # it is raised again where it is waited for
            tell(error)
        else:
            tell(None)

    threading.Thread(target=work, name="perdure-transport", daemon=True).start()
    try:
        while (what := await arrived.get()) is not None:
            if isinstance(what, BaseException):
                raise what
            room.release()
            yield what[0]
    finally:
        over.set()
        room.release()
