"""Makes one attempt at a call: runs the tool's code once, and returns the outcome as data.

Async tools run on the event loop, plain ones on worker threads, or directly if `inline` is set.  No exception
of a tool escapes.  A call that was never begun is `not_done`, which is proof that nothing happened.  After a
timeout or a cancellation the code of a plain tool may still run, because a thread cannot be stopped: then `over`
is False, and `later` will hold the outcome.

An interrupt (a cancellation of the task that awaits the attempt, Ctrl-C, an exit) does not escape either.  It is
in `interrupt`, to be raised again once the attempt is recorded.

A process that a tool forks ends where the tool's code ends: the run, its lease and its event loop belong to the
parent, so the child has nothing to return to.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from perdure.errors import NotDone
from perdure.model.names import with_article
from perdure.model.text import said_by, told_by, well_formed
from perdure.runtime.tools.call import Call, Outcome, Suspended, Suspension
from perdure.runtime.tools.signature import Arguments
from perdure.runtime.tools.tool import Tool, is_async
from perdure.runtime.tools.waiting import AWAITED

__all__ = ["GRACE_S", "ToolOutcome", "AttemptKind", "ask_reconcile", "attempt", "running_inside"]

AttemptKind: TypeAlias = Literal["returned", "not_done", "raised", "timed_out", "cancelled", "suspended"]

GRACE_S = 1.0  # how long an async tool may take to stop after its cancellation

_Start: TypeAlias = Callable[[], Any]

_NEVER_AWAITED: frozenset[type] = frozenset({str, bytes, int, float, bool, dict, list, tuple, type(None)})

_RUN: contextvars.ContextVar[str | None] = contextvars.ContextVar("perdure_run", default=None)


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt."""

    kind: AttemptKind
    value: Any = None  # what the tool returned
    why: str = ""  # in words, where it did not return
    error: BaseException | None = None  # what it raised
    suspension: Suspension | None = None  # what it asks for, where it suspended its call
    over: bool = True  # False: its code may still be running
    later: Future[ToolOutcome] | None = None  # the outcome of code that still runs; any thread may set it
    interrupt: BaseException | None = None  # to be raised again once this is recorded


async def attempt(
    tool: Tool,
    arguments: Arguments,
    call: Call,
    *,
    tool_threads: Executor,
    inline: bool = False,
    run: str | None = None,
) -> ToolOutcome:
    """Run `tool` once.  Afterwards its `call` is closed, also to code of it that still runs.

    `inline` runs a plain tool without a timeout directly, in this thread, instead of on `tool_threads`.
    A run that the tool starts has `run` as its parent.
    """
    outer = _RUN.set(run)
    try:
        return await _run(
            lambda: tool.run(arguments, call),
            runs_async=tool.runs_async,
            timeout=tool.timeout,
            tool_threads=tool_threads,
            inline=inline,
        )
    finally:
        _RUN.reset(outer)
        call.close()


def running_inside() -> str | None:
    """Return the run whose tool calls this code; None: no tool of a run calls it."""
    return _RUN.get()


async def ask_reconcile(tool: Tool, call: Call, *, tool_threads: Executor, inline: bool = False) -> Outcome:
    """Ask the tool's reconcile hook about `call`; `dont_know`, with the reason, if the hook does not answer.

    The tool's timeout is also the hook's.  Unlike an attempt, an interrupt is raised at once:
    a question that was not answered leaves nothing to record.
    """
    hook = tool.reconciler
    if hook is None:
        return Outcome("dont_know", why=f"{tool.name} has no reconcile hook")
    asked = await _run(
        lambda: hook.function(call),
        runs_async=is_async(hook.function),
        timeout=tool.timeout,
        tool_threads=tool_threads,
        inline=inline,
    )
    if asked.interrupt is not None:
        raise asked.interrupt
    if asked.kind == "returned" and isinstance(asked.value, Outcome):
        return asked.value
    if asked.kind == "returned":
        why = f"returned {with_article(type(asked.value).__qualname__)}, not an Outcome"
    else:
        why = f"did not answer: {asked.why}"
    return Outcome("dont_know", why=f"the reconcile hook of {tool.name} {why}")


async def _run(
    start: _Start, *, runs_async: bool, timeout: float | None, tool_threads: Executor, inline: bool
) -> ToolOutcome:
    if runs_async:
        return await _on_loop(start, timeout)
    if inline and timeout is None:
        done = _now(start, here=True)
    else:
        done = await _on_thread(start, timeout, tool_threads)
    if type(done.value) in _NEVER_AWAITED:  # as most results are; to look at it costs more
        return done
    if done.kind == "returned" and done.interrupt is None and inspect.isawaitable(done.value):
        return await _on_loop(lambda: done.value, timeout)
    return done


async def _on_loop(start: _Start, timeout: float | None) -> ToolOutcome:
    task = asyncio.create_task(_awaited(start))
    cancelled = await _waited(task, timeout)
    if task.done():
        return _result(task, cancelled)
    task.cancel()
    cancelled = await _waited(task, GRACE_S) or cancelled
    if not task.done():
        return _cut_off(timeout, cancelled, later=_later(task))
    ended = _result(task, cancelled)
    match ended.kind:
        case "cancelled":
            return _cut_off(timeout, cancelled)
        case "not_done":
            return ended  # the tool's own proof that nothing happened counts, however late
        case _:
            return _cut_off(timeout, cancelled, later=_later(task), over=True)


async def _on_thread(start: _Start, timeout: float | None, tool_threads: Executor) -> ToolOutcome:
    try:
        work = tool_threads.submit(contextvars.copy_context().run, _now, start)
    except RuntimeError as error:
        return ToolOutcome(kind="not_done", why=f"it was never begun: {said_by(error)}", error=error)
    cancelled = await _waited(asyncio.wrap_future(work), timeout)
    if work.done():
        return _also(work.result(), cancelled)
    if work.cancel():
        waited = "it was cancelled" if cancelled else f"no worker was free for {timeout:g} s"
        return ToolOutcome(kind="not_done", why=f"it was never begun: {waited}", interrupt=cancelled)
    return _cut_off(timeout, cancelled, later=work)


async def _awaited(start: _Start) -> ToolOutcome:
    AWAITED.set(True)  # in the context of this task alone
    pid = os.getpid()
    try:
        ended = ToolOutcome(kind="returned", value=await start())
    except BaseException as error:  # noqa: BLE001  # a tool's own code: what it raises is its outcome
        ended = _outcome_of(error, here=True)
    if os.getpid() != pid:
        _end_child(ended)
    return ended


def _now(start: _Start, *, here: bool = False) -> ToolOutcome:
    # Caught here rather than taken from the future: one that holds a StopIteration is never done for a loop.
    pid = os.getpid()
    try:
        ended = ToolOutcome(kind="returned", value=start())
    except BaseException as error:  # noqa: BLE001  # a tool's own code: what it raises is its outcome
        ended = _outcome_of(error, here=here)
    if os.getpid() != pid:
        _end_child(ended)
    return ended


def _end_child(ended: ToolOutcome) -> NoReturn:
    """End this process, which a tool forked, without the parent's exit handlers, as children of a fork usually do."""
    code = 0
    if isinstance(ended.error, SystemExit):
        if isinstance(ended.error.code, int):
            code = ended.error.code
        elif ended.error.code is not None:
            code = 1
            sys.stderr.write(f"{ended.error.code}\n")
    elif ended.error is not None:
        code = 1
        traceback.print_exception(ended.error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed, or be no file
            stream.flush()
    os._exit(code)


def _outcome_of(error: BaseException, *, here: bool) -> ToolOutcome:
    """Return the outcome that an error means; `here`: in this thread an interrupt is meant for the run."""
    match error:
        case Suspended():
            return ToolOutcome(kind="suspended", suspension=error.suspension)
        case NotDone():
            return ToolOutcome(kind="not_done", why=well_formed(str(error)), error=error)
        case asyncio.CancelledError():
            return ToolOutcome(kind="cancelled", why="it was cancelled", error=error)
        case KeyboardInterrupt() | SystemExit() if here:
            return ToolOutcome(kind="cancelled", why=told_by(error), error=error, interrupt=error)
        case _:
            return ToolOutcome(kind="raised", why=told_by(error), error=error)


async def _waited(running: Awaitable[object], seconds: float | None) -> asyncio.CancelledError | None:
    """Wait for a future without cancelling it; return the cancellation that ended the waiting, if one did."""
    try:
        await asyncio.wait((asyncio.ensure_future(running),), timeout=seconds)
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None


def _result(task: asyncio.Task[ToolOutcome], cancelled: asyncio.CancelledError | None) -> ToolOutcome:
    if task.cancelled():  # before its first line
        return ToolOutcome(kind="not_done", why="it was cancelled before it was begun", interrupt=cancelled)
    return _also(task.result(), cancelled)


def _also(ended: ToolOutcome, cancelled: asyncio.CancelledError | None) -> ToolOutcome:
    """Return the outcome with a cancellation that arrived just when it ended."""
    if cancelled is None or ended.interrupt is not None:
        return ended
    return msgspec.structs.replace(ended, interrupt=cancelled)


def _cut_off(
    timeout: float | None,
    cancelled: asyncio.CancelledError | None,
    *,
    later: Future[ToolOutcome] | None = None,
    over: bool | None = None,
) -> ToolOutcome:
    over = later is None if over is None else over
    if cancelled is not None:
        return ToolOutcome(
            kind="cancelled", why="it was cancelled", over=over, later=later, interrupt=cancelled
        )
    return ToolOutcome(kind="timed_out", why=f"it did not end within {timeout:g} s", over=over, later=later)


def _later(task: asyncio.Task[ToolOutcome]) -> Future[ToolOutcome]:
    """Return the outcome of `task` for any thread; cancelled if the loop ends first."""
    later: Future[ToolOutcome] = Future()

    def copy_outcome(ended: asyncio.Task[ToolOutcome]) -> None:
        if ended.cancelled():
            later.cancel()
        else:
            later.set_result(ended.result())

    if task.done():
        copy_outcome(task)
    else:
        task.add_done_callback(copy_outcome)
    return later
