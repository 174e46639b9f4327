"""Runs coroutines from synchronous code, on an event loop of the calling thread's own.

Nothing else runs on such a loop, so a run may block it, and its tools may use the synchronous
interface: a tool can write to a thread, or run another one.  Ctrl-C cancels the run, waits until that is
recorded, and is raised then; Ctrl-C once more does not wait.

Where another loop runs on the calling thread, as in a notebook, a call can be made beside it: `run_beside` makes it on a
thread of its own and waits, with the loop, until it has ended.  That is done in an IPython kernel, whose loop has
nothing else to do while a cell runs, and where a program asked for it; anywhere else it would stall other work.

A forked child makes loops of its own and never closes those of its parent.  Both share the epoll
descriptor, so closing such a loop would remove the parent's wake-up descriptor from it: the parent would
not notice any more that a worker thread has ended.  Nor does a child go on with a run in whose middle it was
forked: the run is the parent's, and `drive` raises `Unavailable` in the child.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from perdure.errors import Unavailable
from perdure.model.fork_safety import keep_forever

__all__ = ["close_ended_loops", "drive", "let_wait", "may_block", "may_wait", "run_beside"]

# Without a handler of the program nothing is printed.  This module is loaded with asyncio, which loads logging.
logging.getLogger("perdure").addHandler(logging.NullHandler())

_T = TypeVar("_T")

_CLOSING_SECONDS_MAX = 2.0  # a server that does not answer the end of a connection is not waited for

_local = threading.local()
_own: set[asyncio.AbstractEventLoop] = set()  # the open loops that this process made
_ended: deque[asyncio.AbstractEventLoop] = deque()  # those whose thread has ended
_waiting: WeakSet[asyncio.AbstractEventLoop] = WeakSet()  # loops of programs that wait for blocking calls


def drive(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end and return its result."""
    try:
        close_ended_loops()
    except BaseException:
        work.close()  # interrupted before it began
        raise
    loop = _loop()
    whole = _stopping(loop, work)
    task = loop.create_task(whole)
    outer = asyncio.events._get_running_loop()  # of a run of this thread, which is paused meanwhile
    asyncio.events._set_running_loop(None)
    try:
        _run(loop, task)
        return task.result()
    except BaseException:  # Ctrl-C, or what a signal handler or another task raises out of the loop
        if task.done():
            if not task.cancelled():
                task.exception()  # it is raised here, so asyncio has nothing to report
            raise
        task.cancel()
        _end(loop, task, whole)
        raise
    finally:
        try:
            if loop is not _local.loop[1]:
                _close(loop)
        finally:
            asyncio.events._set_running_loop(outer)


async def _stopping(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    """Do `work` and stop its loop, which takes fewer turns of the loop than a callback."""
    try:
        return await work
    finally:
        if loop in _own and loop.is_running():  # a forked child goes on, and its loop raises `Unavailable`
            loop.stop()


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Run a loop until the task of `_stopping` is done."""
    while not task.done():  # a tool may stop the loop too
        loop.run_forever()


def close_ended_loops() -> None:
    """Close the loops of threads that have ended, with the connections on them."""
    if not _ended:
        return
    until = time.monotonic() + _CLOSING_SECONDS_MAX
    outer = asyncio.events._get_running_loop()
    asyncio.events._set_running_loop(None)
    try:
        while _ended:
            try:
                loop = _ended.popleft()
            except IndexError:  # another thread was faster
                return
            _close(loop, seconds=max(0.0, until - time.monotonic()))
    finally:
        asyncio.events._set_running_loop(outer)


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], work: Coroutine[Any, Any, Any]) -> None:
    """Wait until a cancelled task has recorded its end; a second Ctrl-C leaves the task as it is."""
    try:
        _run(loop, task)
    except BaseException:
        if not task.done():
            work.close()  # stops renewing the lease: the run counts as interrupted, and another process may finish it
            _close(loop)
        raise


def may_block(loop: asyncio.AbstractEventLoop) -> bool:
    """True if only a run uses that loop, so that a blocking call delays nothing else."""
    return loop in _own


def let_wait(loop: asyncio.AbstractEventLoop) -> None:
    """Let blocking calls be made beside a loop of the program, from now on."""
    _waiting.add(loop)


def may_wait(loop: asyncio.AbstractEventLoop) -> bool:
    """True if blocking calls may be made beside that loop: the program said so, or it is that of an IPython kernel."""
    if loop not in _waiting and _is_in_kernel():
        _waiting.add(loop)
    return loop in _waiting


def run_beside(work: Callable[[], _T]) -> _T:
    """Call `work` on a thread that belongs to this one, and wait for it together with the loop that runs here.

    Ctrl-C stops a run there as it would here, and is raised once that is recorded; once more, it is raised at once.
    """
    kept: tuple[int, ThreadPoolExecutor] | None = getattr(_local, "beside", None)
    if kept is None or kept[0] != os.getpid():
        kept = _local.beside = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="perdure-beside"))
    done = kept[1].submit(copy_context().run, work)  # the context says which cell of a notebook prints
    try:
        return done.result()
    except KeyboardInterrupt:
        if done.done():
            raise
        _interrupt(kept[1])
        with suppress(Exception):
            done.result()
        raise


def _interrupt(executor: ThreadPoolExecutor) -> None:
    """Raise `KeyboardInterrupt` out of the loop that a thread of `executor` runs; without a loop it just ends its work."""

    def stop() -> NoReturn:
        raise KeyboardInterrupt

    threads = {thread.ident for thread in executor._threads}  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]
    for loop in list(_own):
        if loop.is_running() and getattr(loop, "_thread_id", None) in threads:
            loop.call_soon_threadsafe(stop)


def _is_in_kernel() -> bool:
    """True if this process is an IPython kernel: a shell with a kernel, not one at a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this thread; a new one after a fork, and inside a run of this thread."""
    kept: tuple[int, asyncio.AbstractEventLoop] | None = getattr(_local, "loop", None)
    if kept is not None and kept[0] == os.getpid() and not kept[1].is_running() and not kept[1].is_closed():
        return kept[1]
    loop = asyncio.new_event_loop()
    _own.add(loop)
    if kept is None or kept[0] != os.getpid() or kept[1].is_closed():
        _local.loop = (os.getpid(), loop)
        _local.end = _End(loop)
    return loop


class _End:
    """Gives the loop up when its thread ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._pid = loop, os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid() and not self._loop.is_running():
            # A thread that is ending cannot run its loop any more.  The next run closes it, or the end of a store does.
            _ended.append(self._loop)


def _close(loop: asyncio.AbstractEventLoop, *, seconds: float = _CLOSING_SECONDS_MAX) -> None:
    """Close a loop that this process made, and the connections that clients keep on it.

    An inherited loop is left as it is.
    """
    if loop in _own:
        _own.discard(loop)
        with suppress(Exception):  # at the end of the interpreter a loop may not run any more
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), seconds))
            loop.run_until_complete(asyncio.sleep(0))  # a closed connection leaves its socket one step later
        loop.close()


class _InheritedSelector:
    """Replaces the selector of an inherited loop: waiting there would consume the parent's wake-ups."""

    def select(self, timeout: float | None = None) -> NoReturn:
        """Raise `Unavailable`, which ends the loop."""
        raise Unavailable(
            "this process was forked in the middle of a run, which goes on in the parent; nothing was done here.",
            code="forked_in_run",
            advice="End the child with os._exit, or read the run's events with follow().",
        )


def _leave_inherited_loops() -> None:
    for loop in _own:
        keep_forever(loop)  # else it would close itself once nothing refers to it
        if isinstance(loop, asyncio.SelectorEventLoop):
            loop._selector = _InheritedSelector()  # pyright: ignore[reportAttributeAccessIssue]
    _own.clear()
    _ended.clear()


os.register_at_fork(after_in_child=_leave_inherited_loops)
