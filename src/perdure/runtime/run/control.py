"""Runs an agent, resumes and cancels runs: what a caller can ask of a timeline.

An input that was given before leads to the run that it started.  A run that was cut off is finished first.
A run that waits goes on once its calls are decided.  A run that failed is retried from its last step, unless
the outcome of an external write is unknown or later turns follow the failed run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import msgspec

from perdure.engines.contract import Cell, CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import (
    Busy,
    Decided,
    Invalid,
    Moved,
    NotFound,
    RunFailed,
    ServerChanged,
    Unsupported,
)
from perdure.history import reader
from perdure.history.changes.values import Given
from perdure.history.space import Space, read_record, removed
from perdure.ledger import calls, decisions, effect_limit, tickets
from perdure.ledger.held import check_released
from perdure.model import canonical, names
from perdure.model.call import SETTLED, UNCLEAR
from perdure.model.context import Context
from perdure.model.run import CALLER_CANCELLED, ENDED, HeadPolicy, OnFailure, RunRecord
from perdure.providers.contract import Model, ModelEvent, server_of
from perdure.runtime.agent.agent import is_hooked
from perdure.runtime.calls import recovery
from perdure.runtime.calls.recovery import check_present, is_present, open_calls
from perdure.runtime.inference.backend import current_model, model_for, warn_of_end
from perdure.runtime.run import queue
from perdure.runtime.run.calls_of_run import cancel_unstarted, check_retry, reconcile_left
from perdure.runtime.run.loop import LiveRun
from perdure.runtime.run.start import (
    AlreadyRan,
    BackendChanged,
    Interrupted,
    RunRequest,
    Started,
    begin,
    continued,
    given_before,
    retried,
)
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.inputs import Input, given_before_as, inbound
from perdure.runtime.session.lease import Lost
from perdure.runtime.session.records import VersionedRun
from perdure.runtime.session.result import Result, last_of, result_of
from perdure.switching.current_backend import RecordedBackend

__all__ = [
    "UnaskedModel",
    "begin_queued",
    "cancel",
    "continuation_of",
    "continuing",
    "earlier",
    "end_cancelled",
    "end_undone",
    "given",
    "go_on",
    "is_decided",
    "is_interrupted",
    "line_of",
    "lives",
    "on_timeline",
    "resume",
    "run",
]

CONTINUES = "continues/"  # cells: the run that continues another timeline's run, by timeline and that run

_WAIT_SECONDS = 0.5
_ids = msgspec.json.Decoder(str)
_HEAD_POLICIES, _ON_FAILURE = get_args(HeadPolicy), get_args(OnFailure)


async def run(
    env: RunEnvironment,
    given: Input,
    *,
    id: str | None = None,
    state: Mapping[str, Given] | None = None,
    head_policy: HeadPolicy = "each_step",
    on_failure: OnFailure = "restore",
    output: Any = None,
    retry: bool = True,
    begun: Callable[[Started], None] | None = None,
    joined: Callable[[str], None] | None = None,
) -> Result:
    """Run the agent on the timeline with an input; the same id again returns the first result.

    If that run waits and its calls are decided, it goes on; if it failed, it is retried from its last step, or
    without `retry` fails again.  `begun` is called once the run has begun, before anything else happens; `joined`,
    with the id of the run, if the input was given before and its run lives.

    Raises `Busy` if another run lives there, `RunFailed` if the run fails, `Conflict` if the id was
    given before with other words.
    """
    names.check_choice("head_policy", head_policy, _HEAD_POLICIES)
    names.check_choice("on_failure", on_failure, _ON_FAILURE)
    names.check_flag("retry", retry)
    request = RunRequest(
        inbound=inbound(env.space, env.timeline, given, id=id, state=state),
        backend="",
        head_policy=head_policy,
        on_failure=on_failure,
        parent_run=env.parent_run,
        parent=env.parent,
    )
    model: Model | None = None
    while True:
        start, model = await env.run_blocking(partial(_started, env, request, model))
        match start:
            case Started():
                assert model is not None, "a run begins with a model"
                if begun is not None:
                    begun(start)
                return await LiveRun(env.without_expectation(), start, model, shape=output).go()
            case AlreadyRan(earlier_run):
                begun_env = env.without_expectation()
                return await _given_again(
                    begun_env, earlier_run, shape=output, retry=retry, begun=begun, joined=joined
                )
            case Interrupted(cut_off):
                await _finish_first(env.without_expectation(), cut_off)
            case BackendChanged(backend):
                model = model_for(env, backend)


def given(env: RunEnvironment, input: Input, id: str) -> RunRecord | None:
    """Return the run that an input of this id started, was queued for or steered; None if the id is new.

    Raises `Conflict` if the id came with another input.
    """
    inputs = inbound(env.space, env.timeline, input, id=id, state=None)
    run = given_before_as(env.space, env.timeline, inputs)
    return None if run is None else records.read(env.space, run).record


def _started(
    env: RunEnvironment, request: RunRequest, model: Model | None, queued: VersionedRun | None = None
) -> tuple[Started | AlreadyRan | Interrupted | BackendChanged, Model | None]:
    """Start the run with a model; None: with the one that takes the steps of the timeline, which is found here.

    An input that was given before needs no model: its result is in the store.
    """
    try:
        model = model or current_model(env)
    except (Invalid, NotFound, ServerChanged, Unsupported):
        found = given_before(env, request)
        if found is None:
            raise
        return found, None
    warn_of_end(env, model)
    request = msgspec.structs.replace(request, backend=model.backend, server=server_of(model))
    return begin(env, request, hooked=is_hooked(env.agent, "run_start"), queued=queued), model


async def resume(
    env: RunEnvironment,
    id: str | None = None,
    *,
    shape: Any = None,
    retry: bool = False,
    begun: Callable[[Started], None] | None = None,
    is_own: bool = True,
) -> Result:
    """Go on with a run that was cut off, or that waits and has decided calls; None: the one on this timeline.

    A run with no decided call is left as it is.  With `retry` a failed run that is no child is retried, as `run` does
    for the same input.  A run that another process takes over and ends meanwhile gives its result.  Raises `NotFound`
    if there is no such run, `Busy` if a run lives on the timeline, `Sealed` if the timeline takes no more writes.
    """
    names.check_flag("retry", retry)
    kept = await env.run_blocking(partial(_to_resume, env, id))
    while True:
        try:
            return await _resumed(env, kept, shape=shape, retry=retry, begun=begun, is_own=is_own)
        except Moved:
            before, kept = kept, await env.run_blocking(partial(records.read, env.space, kept.record.id))
            if kept == before:
                raise


async def _resumed(
    env: RunEnvironment,
    kept: VersionedRun,
    *,
    shape: Any,
    retry: bool,
    begun: Callable[[Started], None] | None,
    is_own: bool,
) -> Result:
    """Do what `resume` does with a run as it was read; raise `Moved` if another process has changed it since."""
    if retry and kept.record.state == "failed" and kept.record.parent is None:
        env = await env.run_blocking(partial(on_timeline, env, kept.record.timeline))
        return await _given_again(env, kept.record.id, shape=shape, retry=True, begun=begun)
    if kept.record.state in ENDED:
        return await earlier(env, kept.record.id, shape=shape)
    if kept.record.state == "created":
        return await begin_queued(env, kept, shape=shape, begun=begun)
    return await go_on(env, kept, shape=shape, begun=begun, is_own=is_own)


async def go_on(
    env: RunEnvironment,
    kept: VersionedRun,
    *,
    shape: Any = None,
    begun: Callable[[Started], None] | None = None,
    deaths: tuple[int, str | None] = (0, None),
    is_own: bool = True,
) -> Result:
    """Go on with a run that has not ended, as `resume` does; `deaths` is recorded, as in `continued`.

    `is_own` is as in `LiveRun`.
    """
    await env.run_blocking(partial(check_present, env.space, kept.record))
    if kept.record.parent is not None:
        kept = await env.run_blocking(partial(_follow_parent, env, kept))
    env = await env.run_blocking(partial(on_timeline, env, kept.record.timeline))
    decided = partial(recovery.is_decided, env.space, kept.record, env.owners)
    if kept.record.state == "waiting" and not await env.run_blocking(decided):
        return await env.run_blocking(partial(_result, env, kept.record, shape))
    await env.run_blocking(partial(reader.unsealed_head, env.space, kept.record.timeline))
    start, model = await env.run_blocking(partial(_continued, env, kept, deaths))
    if begun is not None:
        begun(start)
    return await LiveRun(env, start, model, shape=shape, is_own=is_own).go()


async def begin_queued(
    env: RunEnvironment,
    kept: VersionedRun,
    *,
    shape: Any = None,
    begun: Callable[[Started], None] | None = None,
) -> Result:
    """Begin a run that was queued or scheduled, whatever its time is; retry it if it had failed before.

    Raises `Busy` if another run lives there, and `Held` if the thread came from another store and was not released.
    """
    env = await env.run_blocking(partial(on_timeline, env, kept.record.timeline))
    await env.run_blocking(partial(check_released, env.space))
    if kept.record.again:
        return await _retry(env, kept, shape=shape, begun=begun)
    waiting = await env.run_blocking(partial(queue.queued, env.space, kept.record))
    if waiting is None:
        return await earlier(env, kept.record.id, shape=shape)
    request = waiting.request(kept.record)
    model: Model | None = None
    while True:
        start, model = await env.run_blocking(partial(_started, env, request, model, kept))
        match start:
            case Started():
                assert model is not None, "a run begins with a model"
                if begun is not None:
                    begun(start)
                return await LiveRun(env, start, model, shape=shape).go()
            case AlreadyRan(run):
                return await earlier(env, run, shape=shape)
            case Interrupted(cut_off):
                await _finish_first(env, cut_off)
            case BackendChanged(backend):
                model = model_for(env, backend)


async def _given_again(
    env: RunEnvironment,
    id: str,
    *,
    shape: Any,
    retry: bool,
    begun: Callable[[Started], None] | None,
    joined: Callable[[str], None] | None = None,
) -> Result:
    """Return the result of a run whose input was given again; go on with it, or retry it, where it can be."""
    while True:
        kept = await env.run_blocking(partial(records.read, env.space, id))
        try:
            if kept.record.state == "created":
                await env.run_blocking(partial(queue.check_turn, env.space, kept.record))
                return await begin_queued(env, kept, shape=shape, begun=begun)
            if kept.record.state == "waiting" and await env.run_blocking(partial(is_decided, env, id)):
                return await resume(env, id, shape=shape, begun=begun)
            if kept.record.state == "failed" and retry:
                return await _retry(env, kept, shape=shape, begun=begun)
        except (Busy, Moved):
            if await env.run_blocking(partial(records.read, env.space, id)) == kept:
                raise
            continue
        try:
            return await earlier(env, id, shape=shape, joined=joined)
        except RunFailed:
            record = (await env.run_blocking(partial(records.read, env.space, id))).record
            if not retry or record.kind != CALLER_CANCELLED:
                raise
            # Only the other caller was cancelled: the one that waited here goes on with the run.


async def _retry(
    env: RunEnvironment, kept: VersionedRun, *, shape: Any, begun: Callable[[Started], None] | None
) -> Result:
    await reconcile_left(env, kept.record)
    start, model = await env.run_blocking(partial(_retaken, env, kept))
    if begun is not None:
        begun(start)
    return await LiveRun(env, start, model, shape=shape).go()


def _retaken(env: RunEnvironment, kept: VersionedRun) -> tuple[Started, Model]:
    """Take the timeline for a run that failed, if it may be retried, and find the model that goes on with it."""
    check_retry(env.space, kept.record)
    return _continued(env, kept)


def _continued(
    env: RunEnvironment, kept: VersionedRun, deaths: tuple[int, str | None] = (0, None)
) -> tuple[Started, Model]:
    """Take the timeline for a run, and find the model that goes on with it.

    The model is found before the timeline is taken: without one the run could not release it.  If the backend
    is switched in between, the lease's revision has moved, and the model is found again.  Raises `Held` if the
    thread came from another store and was not released.
    """
    check_released(env.space)
    record = kept.record
    attempts = Attempts(f"the lease on '{record.timeline}'", f"run '{record.id}' was not resumed")
    while True:
        attempts.begin()
        held, revision = leases.look(env.space, record.timeline)
        model = current_model(env, line=record.line, sure=True)
        try:
            backend = RecordedBackend(model.backend, server_of(model))
            if record.state == "failed" or record.again:
                return retried(env, kept, held, revision, backend=backend), model
            return continued(env, kept, held, revision, backend=backend, deaths=deaths), model
        except Moved:
            if leases.look(env.space, record.timeline)[1] == revision:
                raise


async def earlier(
    env: RunEnvironment, id: str, *, shape: Any = None, joined: Callable[[str], None] | None = None
) -> Result:
    """Return the result of a run; wait for it while it lives, and finish it first if it was cut off.

    `joined` is called before it is waited for.
    """
    seen = -1
    while True:
        kept = await env.run_blocking(partial(records.read, env.space, id))
        if kept.record.state not in ("created", "running"):
            result = await env.run_blocking(partial(_result, env, kept.record, shape))
            if result.status == "failed":
                raise RunFailed(result)
            return result
        held = await env.run_blocking(partial(leases.current, env.space, kept.record.timeline))
        if (
            held is not None
            and held.run == id
            and await env.run_blocking(partial(leases.state, env.space, held, owners=env.owners)) != "live"
        ):
            await _finish_first(env, id)
        elif joined is not None and kept.record.state == "running":
            joined(id)
            joined = None
        # A process that ends writes nothing, so it is also asked again after a while.
        seen = await env.store_runtime.news.wait(env.space, seen, _WAIT_SECONDS)


def cancel(env: RunEnvironment, id: str | None, why: str, by: str | None = None) -> RunRecord:
    """Ask a run to stop: the one on this timeline, or the one of that id; durable when this returns.

    `by` is the person who asks.  A live run stops as soon as it can, and records what is known of its calls.
    Raises `NotFound` if there is no such run.
    """
    names.check_person(by)
    names.check_words("why", why)
    while True:
        before = _to_resume(env, id)
        if before.record.state in ENDED:
            return before.record
        write, kept = records.changed(before, cancel=why or "cancelled", cancelled_by=by)
        try:
            records.apply(env.space, "cancel", write)
        except Moved:  # the run may have gone on, or ended, just now
            if records.read(env.space, before.record.id) == before:
                raise
        else:
            if env.cancel_children is not None:
                env.cancel_children(before.record.id, why or "cancelled")
            return kept.record


async def end_cancelled(env: RunEnvironment, record: RunRecord) -> RunRecord:
    """End a run that was asked to stop, unless a process runs it."""
    while record.state not in ENDED and not await env.run_blocking(partial(lives, env, record)):
        kept = await env.run_blocking(partial(records.read, env.space, record.id))
        try:
            if kept.record.state not in ENDED:  # else by its own process, since it was asked to stop
                return await _end_unrun(env, kept)
        except (Busy, Moved):  # another process has taken it over just now
            if await env.run_blocking(partial(records.read, env.space, record.id)) == kept:
                raise
        record = kept.record
    return record


async def _end_unrun(env: RunEnvironment, kept: VersionedRun) -> RunRecord:
    record = kept.record
    if not await env.run_blocking(partial(_can_commit, env.space, record)):
        return await env.run_blocking(partial(end_undone, env.space, record))
    env = await env.run_blocking(partial(on_timeline, env, record.timeline))
    held, revision = await env.run_blocking(partial(leases.look, env.space, record.timeline))
    start = await env.run_blocking(partial(continued, env, kept, held, revision))
    model = UnaskedModel(record.backend or "none")
    await LiveRun(env, start, model).end_early("cancelled", record.cancel or "cancelled")
    return (await env.run_blocking(partial(records.read, env.space, record.id))).record


def end_undone(space: Space, record: RunRecord, why: str = "cancelled") -> RunRecord:
    """End a run that cannot commit its end, because it was undone, never began, or its timeline is sealed.

    Its approvals are withdrawn, its calls that were approved and never started are cancelled, and nothing is written to
    a timeline.  No process may carry it on.
    """
    why = record.cancel or why
    for ticket in tickets.open_on(space, record.timeline):
        if decisions.is_of(space, ticket, record):
            with suppress(Decided):
                decisions.withdraw(space, ticket.call, by=record.cancelled_by, why=why)
    cancel_unstarted(space, record, why)
    due = records.due_for_parent(space, record)
    writes, kept = records.moved(
        records.read(space, record.id), "cancelled", at=space.clock(), why=why, due=due
    )
    held = leases.current(space, record.timeline)
    if held is not None and held.run == record.id:
        writes = (*writes, leases.releasing(held))
    records.apply(space, "end", *writes)
    return kept.record


def line_of(env: RunEnvironment, run: str | None) -> RunEnvironment:
    """Return the environment on the timeline of a run; None: as it is.  Raise `NotFound` if there is no such run."""
    if run is None:
        return env
    return on_timeline(env, records.read(env.space, names.check_id("run", run)).record.timeline)


def on_timeline(env: RunEnvironment, timeline: str) -> RunEnvironment:
    """Return the environment on another timeline of the thread."""
    if timeline == env.timeline:
        return env
    standing = msgspec.structs.replace(env.standing, timeline=timeline)
    return msgspec.structs.replace(env, standing=standing, effect_max=effect_limit.most(env.space, timeline))


def is_interrupted(env: RunEnvironment, id: str) -> bool:
    """True if a run was cut off: its record says that it runs, but no process runs it."""
    record = records.read(env.space, id).record
    return record.state == "running" and not lives(env, record)


def is_decided(env: RunEnvironment, id: str) -> bool:
    """True if a run waits and can go on."""
    record = records.read(env.space, id).record
    if record.state != "waiting" or not is_present(env.space, record):
        return False
    return recovery.is_decided(env.space, record, env.owners)


def lives(env: RunEnvironment, record: RunRecord) -> bool:
    """True if a process carries the run on."""
    held = leases.current(env.space, record.timeline)
    return (
        held is not None
        and held.run == record.id
        and leases.state(env.space, held, owners=env.owners) == "live"
    )


class UnaskedModel(msgspec.Struct, frozen=True):
    """The model of a run that only ends."""

    backend: str

    def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        raise AssertionError("a run that only ends asks no model")


async def _finish_first(env: RunEnvironment, id: str) -> None:
    """Finish a run that was cut off; raise only if it fails and even its end cannot be recorded."""
    env = await env.run_blocking(partial(_as_its_own, env, id))
    try:
        await resume(env, id, is_own=False)
    except RunFailed:
        if (await env.run_blocking(partial(records.read, env.space, id))).record.state not in ENDED:
            raise
    except (Lost, Busy):
        return  # another process has taken it over, and the caller looks again


def _as_its_own(env: RunEnvironment, id: str) -> RunEnvironment:
    """Return the environment with the parent and the bound of a run, not those of the run that waits for its end."""
    record = records.read(env.space, id).record
    env = on_timeline(env, record.timeline)
    bound = effect_limit.most(env.space, record.timeline)
    env = msgspec.structs.replace(env, parent=None, parent_run=record.parent_run, effect_max=bound)
    return env.of_run(record)


def _to_resume(env: RunEnvironment, id: str | None) -> VersionedRun:
    space, timeline = env.space, env.timeline
    if id is not None:
        return records.read(space, names.check_id("run", id))
    held = leases.current(space, timeline)
    if held is not None:
        return records.read(space, held.run)
    waiting = [record for record in records.waiting(space, timeline) if is_present(space, record)]
    decided = [record for record in waiting if recovery.is_decided(space, record, env.owners)]
    if not decided:
        origin = _decided_here(env)
        if origin is not None:
            return _continuation(env, origin)
    if waiting:
        return records.read(space, max(decided or waiting, key=lambda each: each.begun_at).id)
    why = f"no run on '{timeline}' of '{space.label}' was cut off or waits; nothing was done."
    last = next(iter(records.last(space, 1)), None)
    if last is None or last.state != "failed" or last.timeline != timeline:
        raise NotFound(
            why,
            code="open_run_missing",
            advice="Name the run: one that has ended gives its result again.",
            thread=space.label,
            timeline=timeline,
        )
    advice = f"The last one failed: try it again with resume('{last.id}', retry=True)."
    raise NotFound(
        why, code="last_run_failed", advice=advice, thread=space.label, timeline=timeline, run=last.id
    )


def _can_commit(space: Space, record: RunRecord) -> bool:
    """True if the run's timeline has its commits, and takes more."""
    return is_present(space, record) and not reader.hold_of(space, record.timeline).sealed


def _follow_parent(env: RunEnvironment, kept: VersionedRun) -> VersionedRun:
    """Return a child run as it may go on: cancelled if the call that started it, or a run above it, is over.

    Raises `NotFound` if its parent was undone.
    """
    over = _over_above(env.space, kept.record)
    if over is not None and kept.record.cancel is None:
        write, kept = records.changed(kept, cancel=over)
        records.apply(env.space, "cancel", write)
    return kept


def _over_above(space: Space, child: RunRecord) -> str | None:
    """Return why nothing takes the result of a child run any more; None: a call above waits for it, or is not known here.

    What a settled call did is told: a model or a person may have asked for it again since.
    """
    record = child
    while record.parent is not None and record.parent_run is not None:
        call, thread = record.parent.call, record.parent.thread
        space = space.beside(record.parent.space, thread)
        if removed(space):
            return f"thread '{thread}' of its parent was removed"
        found = records.find(space, record.parent_run)
        if found is None:  # the parent's thread is not in this store
            break
        record = found.record
        if record.cancel is not None:
            return record.cancel
        if record.state in ENDED:
            return (
                "its parent was cancelled"
                if record.state == "cancelled"
                else f"its parent has {record.state}"
            )
        started_by = calls.find(space, call)
        if started_by is not None and started_by.record.state in SETTLED | UNCLEAR:
            return f"the call that started it is {started_by.record.state}"
        if not is_present(space, record):
            raise NotFound(
                f"run '{child.id}' is a child of run '{record.id}' on '{thread}', which was undone; nothing was "
                "resumed.",
                code="parent_run_undone",
                advice="Take the undo back with redo() on that thread, or end the child with cancel().",
                run=child.id,
                parent_run=record.id,
                thread=thread,
            )
    return None


def _continuation(env: RunEnvironment, origin: RunRecord) -> VersionedRun:
    """Enter a run of this timeline that goes on with calls of another timeline's run, which were decided here."""
    attempts = Attempts(f"run '{origin.id}'", f"nothing was resumed on '{env.timeline}'")
    while True:
        attempts.begin()
        kept, cell = continuation_of(env.space, origin, env.timeline)
        if kept is not None:
            return kept
        id = env.space.ids()
        with suppress(Moved):  # a decision has just entered one
            records.apply(
                env.space, "continue", *continuing(env.space, origin, env.timeline, cell, id=id, due=None)
            )
            return records.read(env.space, id)


def continuation_of(space: Space, origin: RunRecord, line: str) -> tuple[VersionedRun | None, Cell | None]:
    """Return the run on `line` that goes on with the calls of another timeline's run, if it has not ended; and its cell."""
    cell = space.engine.cell(space.name, _continues_name(origin, line))
    kept = None if cell is None else records.find(space, read_record(cell, _ids))
    return (None if kept is None or kept.record.state in ENDED else kept), cell


def continuing(
    space: Space, origin: RunRecord, line: str, cell: Cell | None, *, id: str, due: int | None
) -> tuple[CellWrite, ...]:
    """Return the writes that enter a run on `line` which goes on with the calls of another timeline's run.

    `cell` is the one that names the run before it, as `continuation_of` read it: of two that enter one only one can.
    """
    now = space.clock()
    # The parent's call waits for the run on its own timeline, so workers of this run's own agent carry it on.
    parent = None if origin.parent is None else msgspec.structs.replace(origin.parent, root_agent=None)
    record = RunRecord(
        id=id,
        agent=origin.agent,
        timeline=line,
        state="waiting",
        at=now,
        begun_at=now,
        before=origin.before,
        on_failure=origin.on_failure,
        backend=origin.backend,
        server=origin.server,
        agent_version=origin.agent_version,
        parent_run=origin.id,
        parent=parent,
        continues=origin.id,
        stop=origin.stop,
        pending=origin.pending,
        effect_max=origin.effect_max,
        due=due,
        thread=origin.thread,
    )
    named = CellWrite(
        name=_continues_name(origin, line),
        expected=cell.revision if cell else 0,
        value=canonical.encode(id),
    )
    return (*records.new(record), named)


def _continues_name(origin: RunRecord, line: str) -> str:
    return f"{CONTINUES}{line}:{origin.id}"


def _decided_here(env: RunEnvironment) -> RunRecord | None:
    """Return the run of another timeline that left a call open which was decided on this one."""
    space, line = env.space, env.timeline
    head = reader.head_of(space, line)
    for call in decisions.decided_on(space, line):
        run = calls.read(space, call).record.run
        origin = records.find(space, run) if run is not None else None
        if origin is None or not recovery.goes_on(space, call, line, env.owners):
            continue
        left, _ = open_calls(space, origin.record.id, head.commit)
        if any(each.id == call for each in left):
            return origin.record
    return None


def _result(env: RunEnvironment, record: RunRecord, shape: Any) -> Result:
    return result_of(env.space, record, at=last_of(env.space, record), shape=shape)
