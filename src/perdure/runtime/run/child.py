"""Runs another agent as a child of a run: what `call.run` does, and what happens to children when their parent ends.

The thread of a child and the id of its input follow from the parent's call and an ordinal.  So a tool that is repeated
after a crash or a decision gives the same input to the same thread, and the run that it started before answers: a
child that is over returns its result, one that was cut off or decided goes on, one that waits still waits.

A child on a named thread goes on with that thread's conversation.  Below a timeline with a bound on effects, as an
evaluation or a replay makes it, the child runs on a fork of the named thread with the same bound: what is tried out
there does not become part of the thread.  The fork is named after the root's timeline, so all children below it that
name the thread share it.

The parent's thread has a cell for each of its children, written before the child begins.  A cancellation of the parent
is written to its record first and then to the children that those cells name; a child looks at its parent's record
once it has begun.  So none that begins at that moment is missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Conflict, Invalid, Moved, NotFound, PerdureError, RunFailed
from perdure.history.space import STORE, THREAD, Space, read_record, removed
from perdure.model import canonical
from perdure.model.effect import Effect
from perdure.model.run import ENDED, ParentCall, RunRecord
from perdure.model.ticket import ChildRef
from perdure.runtime import event_loop
from perdure.runtime.agent.agent import Agent
from perdure.runtime.calls import root_ledger
from perdure.runtime.run import control
from perdure.runtime.run.calls_of_run import calls_of
from perdure.runtime.run.start import Started
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment, inline
from perdure.runtime.session.result import (
    CHILD,
    ChildNote,
    Result,
    allowance,
    begun_by,
    children_of,
    notes_of,
    read_note,
)
from perdure.runtime.tools.waiting import ChildRequest

__all__ = ["CHILD_DEPTH_MAX", "ChildFork", "OpenChild", "cancel_all", "children_of", "run"]

_log = logging.getLogger("perdure.runs")

CHILD_DEPTH_MAX = 8  # of children of children

_THREAD_BYTES_MAX = 200

OpenChild: TypeAlias = Callable[[Agent, str, "ChildFork | None"], RunEnvironment]
"""Opens, or begins, the thread of a child, for the owner of the parent's thread; on that fork of it, None: on `main`."""


class ChildFork(msgspec.Struct, frozen=True):
    """The fork of a named thread on which a child runs below a bounded timeline."""

    timeline: str
    effect_max: Effect


class _Home(msgspec.Struct, frozen=True):
    """What the directory says of the space of a thread."""

    space: str


_homes = msgspec.json.Decoder(_Home)


async def run(
    env: RunEnvironment, parent_run: str, request: ChildRequest, open_child: OpenChild
) -> tuple[Result, ChildRef]:
    """Run the agent of a request as a child of `parent_run` to its end, or until it waits.

    `env` is the parent's.  Raises `RunFailed` if the child fails, `Conflict` if its thread belongs to another agent or
    owner, if the tool gave this child another input before, or if the thread that it had is gone.
    """
    agent = request.agent
    if not isinstance(agent, Agent):
        raise Invalid(
            f"call.run takes an Agent, tools included, not {agent!r}; nothing was run.", code="not_an_agent"
        )
    parent = await env.run_blocking(partial(_parent_of, env, parent_run, request))
    name = sha256(f"{env.space.name}\n{request.call}\n{request.ordinal}".encode()).hexdigest()
    thread = request.thread or _thread_id(env.space.label, request.tool, name)
    await env.run_blocking(partial(_check_there, env.space, parent_run, request))
    fork = None
    if request.thread is not None and env.effect_max is not None:
        of_root = sha256(f"{parent.root_space}\n{parent.root_timeline}".encode()).hexdigest()
        fork = ChildFork(f"child/{of_root[:16]}", env.effect_max)
    child_env = await env.run_blocking(partial(open_child, agent, thread, fork))
    if request.is_awaited:
        child_env = msgspec.structs.replace(child_env, run_blocking=env.run_blocking, owns_thread=False)
    child_env = msgspec.structs.replace(child_env.as_child_of(parent), parent_run=parent_run)
    note = ChildNote(space=child_env.space.name, thread=thread, call=request.call, input=f"child-{name[:32]}")
    await env.run_blocking(partial(_note, env.space, parent_run, request, note))
    begun = partial(_cancel_if_parent_was, env, parent_run, child_env)
    try:
        result = await control.run(
            child_env, request.input, id=note.input, output=request.output, begun=begun
        )
    except RunFailed as failed:
        if isinstance(failed.run, Result):
            await env.run_blocking(partial(_settle_if_guarded, child_env, failed.run.run, parent))
        raise
    except Conflict as conflict:
        if conflict.code != "input_id_reused":
            raise
        raise Conflict(
            f"child run {request.ordinal} of call '{request.call}' was given another input before; nothing was run.",
            code="child_input_changed",
            advice="Let the inputs of call.run, and their order, depend on the call's arguments alone.",
            call=request.call,
            thread=thread,
        ) from conflict
    await env.run_blocking(partial(_settle_if_guarded, child_env, result.run, parent))
    return result, ChildRef(space=child_env.space.name, thread=thread, run=result.run)


def cancel_all(
    env: RunEnvironment,
    run: str,
    why: str,
    *,
    call: str | None,
    environment: Callable[[str, str], RunEnvironment],
) -> None:
    """Ask the children of a run to stop, those of one call or of all; end those that no process runs.

    `environment` opens the thread of a child by its id and its agent's name; a thread that is gone needs nothing.
    A child that cannot be cancelled is logged, and keeps no other from being cancelled.
    """
    for note in notes_of(env.space, run):
        if call is not None and note.call != call:
            continue
        try:
            _cancel_child(env, note, why, environment)
        except PerdureError as error:
            _log.warning(
                "the child run of call %s on thread %s was not cancelled (%s)",
                note.call,
                note.thread,
                error.code,
            )


def _cancel_child(
    env: RunEnvironment, note: ChildNote, why: str, environment: Callable[[str, str], RunEnvironment]
) -> None:
    child = env.space.beside(note.space, note.thread)
    found = begun_by(child, note)
    if found is None or found.state in ENDED:
        if found is not None and found.parent is not None:
            _settle_in_root(child, found.id, found.parent)
        return
    with suppress(NotFound, Conflict):  # its thread is gone, or it ended just now
        inside = environment(note.thread, found.agent)
        if inside.space.name == note.space:
            _end(inside, control.cancel(inside, found.id, why))


def _end(env: RunEnvironment, record: RunRecord) -> None:
    """End a cancelled run, unless a process runs it."""
    event_loop.drive(control.end_cancelled(env, record))


def _parent_of(env: RunEnvironment, parent_run: str, request: ChildRequest) -> ParentCall:
    """Return how a child is tied to the call that requests it; raise `Invalid` if it is too deep."""
    above = env.parent
    depth = 1 if above is None else above.depth + 1
    if depth > CHILD_DEPTH_MAX:
        raise Invalid(
            f"a child run of call '{request.call}' would be {depth} runs below its root; at most {CHILD_DEPTH_MAX} are "
            "allowed; nothing was run.",
            code="children_too_deep",
            advice="Let an agent higher up run it.",
            call=request.call,
            limit=CHILD_DEPTH_MAX,
        )
    space = env.space
    tokens_left, cost_left = allowance(space, env.agent.stop, parent_run)
    return ParentCall(
        space=space.name,
        thread=space.label,
        call=request.call,
        root_space=above.root_space if above else space.name,
        root_thread=above.root_thread if above else space.label,
        root_timeline=above.root_timeline if above else env.timeline,
        root_call=above.root_call if above else request.call,
        root_agent=above.root_agent if above else env.agent.name,
        depth=depth,
        effect_max=env.effect_max,
        tokens_left=tokens_left,
        cost_left=cost_left,
    )


def _thread_id(parent: str, tool: str, name: str) -> str:
    """Return the id of the thread of a child's own: it begins with its parent's, if there is room."""
    readable = f"{parent}/{tool}-{name[:12]}"
    return readable if len(readable.encode()) <= _THREAD_BYTES_MAX else f"child-{name[:32]}"


def _noted(space: Space, run: str, request: ChildRequest) -> ChildNote | None:
    """Return the child that an earlier attempt at the call has noted."""
    cell = space.engine.cell(space.name, _name(run, request))
    return None if cell is None or cell.value is None else read_note(cell)


def _name(run: str, request: ChildRequest) -> str:
    return f"{CHILD}{run}/{request.call}.{request.ordinal}"


def _check_there(space: Space, run: str, request: ChildRequest) -> None:
    """Raise `Conflict` if an earlier attempt began the child on a thread that is gone: what it did is not known."""
    before = _noted(space, run, request)
    if before is None:
        return
    cell = space.engine.cell(STORE, THREAD + before.thread)
    home = None if cell is None or cell.value is None else read_record(cell, _homes).space
    if home != before.space or removed(space.beside(before.space, before.thread)):
        raise _gone(request, before.thread)


def _gone(request: ChildRequest, thread: str) -> Conflict:
    return Conflict(
        f"thread '{thread}' of child run {request.ordinal} of call '{request.call}' was removed, or was not copied with "
        "its parent's; the child was not begun again, and what it did is not known.",
        code="child_gone",
        advice="Find out what it did, and record the outcome of the call with resolve().",
        call=request.call,
        thread=thread,
    )


def _note(space: Space, run: str, request: ChildRequest, child: ChildNote) -> None:
    """Write the cell by which the parent finds the child, unless an earlier attempt has."""
    name, value = _name(run, request), canonical.encode_struct(child)
    before = _noted(space, run, request)
    if before is not None:
        if before.thread != child.thread:
            raise Conflict(
                f"child run {request.ordinal} of call '{request.call}' was on another thread before; nothing was run.",
                code="child_input_changed",
                advice="Let the inputs of call.run, and their order, depend on the call's arguments alone.",
                call=request.call,
                thread=child.thread,
            )
        if before.space != child.space:
            raise _gone(request, child.thread)
        return
    with suppress(Moved):
        records.apply(space, "child", CellWrite(name=name, expected=0, value=value))


def _cancel_if_parent_was(
    env: RunEnvironment, parent_run: str, child: RunEnvironment, started: Started
) -> None:
    """Ask a child that has just begun to stop if its parent was asked while it began."""
    if env.run_blocking is inline:
        _cancel_with(env, parent_run, child, started.kept.record.id)
        return
    task = asyncio.ensure_future(
        env.run_blocking(partial(_cancel_with, env, parent_run, child, started.kept.record.id))
    )
    _looking.add(task)
    task.add_done_callback(_looking.discard)


_looking: set[asyncio.Future[Any]] = set()  # asyncio itself keeps no reference to a task


def _cancel_with(env: RunEnvironment, parent_run: str, child: RunEnvironment, run: str) -> None:
    parent = records.find(env.space, parent_run)
    if parent is not None and parent.record.cancel is not None:
        control.cancel(child, run, parent.record.cancel, parent.record.cancelled_by)


def _settle_in_root(child: Space, run: str, parent: ParentCall) -> None:
    """Copy the outcomes of the child's external writes to the root thread's ledger, where its own process did not."""
    with suppress(PerdureError):  # the guard reads the child's own ledger: this is for readers
        root_ledger.settle(child, parent, calls_of(child, run))


def _settle_if_guarded(child: RunEnvironment, run: str, parent: ParentCall) -> None:
    if any(tool.reach.guarded for tool in child.agent.toolbox.values()):
        _settle_in_root(child.space, run, parent)
