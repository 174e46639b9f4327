"""Driving a run from plain code: an event loop of this thread's own, used again and again.

Nothing else runs on such a loop, so a run may block it.  Ctrl-C cancels the run, waits until
that is recorded, and is raised then.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["drive"]

_T = TypeVar("_T")

_local = threading.local()


def drive(work: Coroutine[Any, Any, _T]) -> _T:
    """What comes of `work`."""
    loop = _loop()
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        if task.done():
            raise
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        raise


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this thread; a new one after a fork, and inside a run of this very thread."""
    kept: tuple[int, asyncio.AbstractEventLoop] | None = getattr(_local, "loop", None)
    if kept is not None and kept[0] == os.getpid() and not kept[1].is_running() and not kept[1].is_closed():
        return kept[1]
    loop = asyncio.new_event_loop()
    if kept is None or kept[0] != os.getpid():
        _local.loop = (os.getpid(), loop)
        _local.end = _End(loop)
    return loop


class _End:
    """Closes the loop when its thread ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._pid = loop, os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid() and not self._loop.is_running():
            self._loop.close()
