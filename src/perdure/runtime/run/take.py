"""What a worker does with one run that is due: begins it, goes on with it, ends it, or sets it aside.

Each decision is one fenced write, so of several workers that see the same run one carries it on, and the others find it
busy or changed.  Which run is due is the store's clock to say; a worker gives its space that clock.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.engines.contract import CellWrite, HeadOf, LedgerOf, time_of_day
from perdure.engines.loops import Attempts
from perdure.errors import Busy, Held, Moved, PerdureError, RunFailed, Unavailable
from perdure.history import reader, timelines
from perdure.history.space import Space, removed
from perdure.ledger import calls, decisions, tickets
from perdure.ledger.held import check_released
from perdure.model.call import SETTLED, UNCLEAR
from perdure.model.head import MAIN
from perdure.model.run import ENDED, RunRecord, RunState
from perdure.model.text import said_by
from perdure.model.ticket import CHILD_RUN, Ticket
from perdure.runtime.agent.agent import is_hooked
from perdure.runtime.calls import recovery
from perdure.runtime.calls.recovery import is_present
from perdure.runtime.run import queue
from perdure.runtime.run.control import (
    UnaskedModel,
    begin_queued,
    continuation_of,
    continuing,
    end_undone,
    go_on,
    lives,
    on_timeline,
)
from perdure.runtime.run.loop import LiveRun
from perdure.runtime.run.start import Started, begin
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.lease import Lease, Lost
from perdure.runtime.session.records import VersionedRun
from perdure.runtime.session.result import Result

__all__ = ["above", "reached", "release", "take", "waking"]

_OLD_MAIN = re.compile(rf"{MAIN}\.v[0-9]+\Z")  # what `promote` keeps


async def take(env: RunEnvironment, id: str, *, deaths_max: int) -> Result | None:
    """Do for a worker what is due of a run: begin it, go on with it, or end it; None: there is nothing to do now.

    A run that was queued is not begun before those that were queued before it.  A run whose process ended `deaths_max`
    times one after another, and which made no progress in between, is set aside.  Raises `Busy` if a run lives on the
    timeline, `Held` if the thread is held, and `RunFailed` if the run fails; a queued run that cannot be begun fails.
    """
    kept = await env.run_blocking(partial(records.read, env.space, id))
    record = kept.record
    env = await env.run_blocking(partial(on_timeline, env, record.timeline))
    if record.state in ENDED:
        if record.due is not None:
            await env.run_blocking(partial(_end_due, env.space, kept))
        return None
    root = None if record.parent is None else await env.run_blocking(partial(above, env.space, record))
    if root is not None:
        if record.state == "waiting":
            await env.run_blocking(partial(check_released, env.space))
            can_go_on = await env.run_blocking(partial(_expired, env, kept))
            if can_go_on and await env.run_blocking(partial(_is_stuck_above, env.space, record, root)):
                await env.run_blocking(partial(_let_wait, env.space, kept))
        return None  # its parent's tool goes on with it
    if record.state != "created" and await env.run_blocking(partial(_is_sealed, env.space, record)):
        await env.run_blocking(partial(_leave_sealed, env, kept))
        return None
    if record.state in ("created", "waiting"):
        cut_off = await env.run_blocking(partial(_cut_off, env, record))
        if cut_off is not None:
            return await _take_first(env, cut_off, deaths_max)
    match record.state:
        case "created":
            return await _take_queued(env, kept)
        case "waiting":
            await env.run_blocking(partial(check_released, env.space))
            if not await env.run_blocking(partial(is_present, env.space, record)):
                await env.run_blocking(partial(end_undone, env.space, record, _UNDONE))
            elif await env.run_blocking(partial(_expired, env, kept)):
                return await go_on(env, kept)
        case "running" if record.aside_at is None and not await env.run_blocking(partial(lives, env, record)):
            await env.run_blocking(partial(check_released, env.space))
            deaths = await env.run_blocking(partial(_deaths, env, record))
            if deaths[0] < deaths_max:
                return await go_on(env, kept, deaths=deaths)
            write, _ = records.changed(
                kept, deaths=deaths[0], died_at=deaths[1], aside_at=time_of_day(env.space.engine)
            )
            await env.run_blocking(partial(records.apply, env.space, "set aside", write))
        case _:
            pass
    return None


def above(space: Space, record: RunRecord) -> tuple[str, RunRecord] | None:
    """Return the run whose tool goes on with a child run, and its space: the one at the root; None if there is none.

    A child is carried on by the tool that started it, so what makes the child due makes its root due.
    """
    found: tuple[str, RunRecord] | None = None
    while record.parent is not None and record.parent_run is not None:
        inside = space.beside(record.parent.space, record.parent.thread)
        kept = records.find(inside, record.parent_run)
        if kept is None or kept.record.state in ENDED or removed(inside):
            break  # nothing goes on with it but itself
        found, record = (inside.name, kept.record), kept.record
    return found


def _is_stuck_above(space: Space, child: RunRecord, root: tuple[str, RunRecord]) -> bool:
    """True if nothing goes on with a child run for now: its root is sealed, or a call above it is over or waits for a person.

    The decision of the person makes that call's run due, and a run cancels at its end what it has left of its children.
    """
    if _is_sealed(space.beside(root[0], root[0]), root[1]):
        return True
    record = child
    while record.parent is not None and record.parent_run is not None and record.id != root[1].id:
        space = space.beside(record.parent.space, record.parent.thread)
        call, kept = calls.find(space, record.parent.call), records.find(space, record.parent_run)
        if call is not None and call.record.state in SETTLED | UNCLEAR:
            return True
        if call is not None and call.record.state == "awaiting_approval" and call.record.ticket is not None:
            asked = tickets.find(space, call.record.ticket)
            if asked is not None and asked.ticket.action != CHILD_RUN:
                return True
        if kept is None:
            return False
        record = kept.record
    return False


def _is_sealed(space: Space, record: RunRecord) -> bool:
    """True if the run's timeline takes no more writes, so that the run cannot go on."""
    return reader.hold_of(space, record.timeline).sealed


def _leave_sealed(env: RunEnvironment, kept: VersionedRun) -> None:
    """End a run that was cut off on a sealed timeline; let one that waits there be due no longer.

    Who forks the timeline can still decide what the run waits for, on the fork.
    """
    if kept.record.state == "running" and not lives(env, kept.record):
        end_undone(env.space, kept.record, "its timeline is sealed")
    elif kept.record.state == "waiting":
        _let_wait(env.space, kept)


def _let_wait(space: Space, kept: VersionedRun) -> None:
    """Let a run that waits be due no longer."""
    if kept.record.due is not None:
        records.apply(space, "wait", *records.moved(kept, "waiting", at=kept.record.at)[0])


_UNDONE = "the turn that it belongs to was undone"


def _cut_off(env: RunEnvironment, record: RunRecord) -> Lease | None:
    """Return the lease of another run that was cut off on the run's timeline; None if there is none."""
    held = leases.current(env.space, record.timeline)
    if held is None or held.run == record.id:
        return None
    return None if leases.state(env.space, held, owners=env.owners) == "live" else held


async def _take_first(env: RunEnvironment, cut_off: Lease, deaths_max: int) -> Result | None:
    """Take a run that was cut off before what is queued behind it; raises `Busy` if it is left as it is.

    So the processes that it ends are counted, and nothing is begun behind a run that is set aside.
    """
    result = await take(env, cut_off.run, deaths_max=deaths_max)
    if (
        result is None
        and await env.run_blocking(partial(leases.current, env.space, cut_off.timeline)) == cut_off
    ):
        raise leases.busy(env.space, cut_off, owners=env.owners)
    return result


async def _take_queued(env: RunEnvironment, kept: VersionedRun) -> Result | None:
    space, record = env.space, kept.record
    await env.run_blocking(partial(check_released, space))
    first = await env.run_blocking(partial(queue.first_on, space, record.timeline))
    if first != record.id:
        return None
    if record.scheduled and not await env.run_blocking(partial(_is_based, space, record)):
        await env.run_blocking(partial(_end_unbegun, space, kept, "cancelled", _UNDONE))
        return None
    try:
        return await begin_queued(env, kept)
    except (Busy, Held, Lost, Moved, Unavailable, RunFailed):
        raise  # it may begin later, or has begun
    except PerdureError as error:
        now = await env.run_blocking(partial(records.read, space, record.id))
        if now != kept:
            raise
        raise RunFailed(await _fail_unbegun(env, kept, error)) from error


async def _fail_unbegun(env: RunEnvironment, kept: VersionedRun, error: PerdureError) -> Result:
    """Fail a queued run that no model can take; its input is committed first, so it is read and can be retried.

    One that had failed before, and cannot be retried now, has its input in the history.  If the timeline does not take the input, because it is sealed or another agent's, the record has the words.
    """
    space, why, kind = env.space, said_by(error), type(error).__name__
    if kept.record.again:
        await env.run_blocking(partial(_end_unbegun, space, kept, "failed", why, kind=kind))
        return Result(run=kept.record.id, status="failed", why=why, kind=kind)
    waiting = await env.run_blocking(partial(queue.queued, space, kept.record))
    if waiting is None:
        raise error  # another process has begun it just now
    hooked = is_hooked(env.agent, "run_start")
    beginning = partial(begin, env, waiting.request(kept.record), hooked=hooked, queued=kept)
    try:
        start = await env.run_blocking(beginning)
    except (Busy, Held, Lost, Moved, Unavailable):
        raise  # it fails later
    except PerdureError:
        why = f"{why} Its input was: {' '.join(message.text for _, message in waiting.inbound().messages)}"
        await env.run_blocking(partial(_end_unbegun, space, kept, "failed", why, kind=kind))
        return Result(run=kept.record.id, status="failed", why=why, kind=kind)
    if not isinstance(start, Started):
        raise error  # another run was cut off there just now, and is taken first
    return await LiveRun(env, start, UnaskedModel("none")).end_early("failed", why, kind)


def _is_based(space: Space, record: RunRecord) -> bool:
    """True if the timeline has the commit at which the run was scheduled; False after an undo.

    A promotion is no undo: what `main` had then is in the timeline that keeps the old one.
    """
    if record.before is None:
        return True
    kept = [reader.hold_of(space, record.timeline)]
    if record.timeline == MAIN:
        kept += [
            each for each in timelines.timelines(space) if each.sealed and _OLD_MAIN.match(each.head.timeline)
        ]
    return any(reader.is_ancestor(space, record.before, each.head.commit) for each in kept)


def _end_due(space: Space, kept: VersionedRun) -> None:
    """Let a run that has ended be due no longer."""
    writes, _ = records.moved(kept, kept.record.state, at=kept.record.at)
    records.apply(space, "end", *writes)


def _end_unbegun(space: Space, kept: VersionedRun, to: RunState, why: str, **fields: Any) -> None:
    """End a run that never began."""
    writes, _ = records.moved(kept, to, at=space.clock(), why=why, **fields)
    records.apply(space, "end", *writes)


def _expired(env: RunEnvironment, kept: VersionedRun) -> bool:
    """Close the overdue questions of a run that waits; True if it can go on, else set when it is due again."""
    space, record = env.space, kept.record
    decisions.expire_due(space)
    if recovery.is_decided(space, record, env.owners):
        return True
    asked = tickets.open_on(space, record.timeline)
    times = [each.expires_at for each in asked if decisions.is_of(space, each, record)]
    due = min((each for each in times if each is not None), default=None)
    if due != record.due:
        writes, _ = records.moved(kept, "waiting", at=record.at, due=due)
        records.apply(space, "wait", *writes)
    return False


def _deaths(env: RunEnvironment, record: RunRecord) -> tuple[int, str]:
    """Return how many processes have ended while they ran it, one after another and without progress, and how far it is."""
    now = reached(env.space, record)
    return (record.deaths + 1 if now == record.died_at else 1), now


def reached(space: Space, record: RunRecord) -> str:
    """Return how far a run is, as its record has it in `died_at`."""
    head, ledger = space.ask(HeadOf(space.name, record.line or record.timeline), LedgerOf(space.name))
    return f"{head.head.commit if head else None} {ledger.position}"


def release(env: RunEnvironment, id: str) -> bool:
    """Let workers take a run again that was set aside; False if it was not."""
    space = env.space
    attempts = Attempts(f"run '{id}'", f"run '{id}' was not released")
    while True:
        attempts.begin()
        kept = records.read(space, id)
        if kept.record.aside_at is None:
            return False
        write, _ = records.changed(kept, aside_at=None, deaths=0, died_at=None)
        with suppress(Moved):
            records.apply(space, "release", write)
            queue.ring(env)
            return True


def waking(space: Space, ticket: Ticket, line: str) -> tuple[CellWrite, ...]:
    """Return the cells by which a decision about `ticket` on the timeline `line` makes its run due, for the same write.

    On another timeline than the question's own that is a run which goes on with the call there; it is entered by the
    first decision.  A call that no run made has none.
    """
    if ticket.run is not None and ticket.timeline == line:
        kept = records.find(space, ticket.run)
        if kept is None:
            return ()
    else:
        first = decisions.run_of(space, ticket)
        origin = records.find(space, first) if first is not None else None
        if origin is None:
            return ()
        kept, cell = continuation_of(space, origin.record, line)
        if kept is None:
            due = records.at_once(space.engine, origin.record)
            return continuing(space, origin.record, line, cell, id=space.ids(), due=due)
    if kept.record.state == "running":
        return (records.changed(kept, decided=True)[0],)
    if kept.record.state != "waiting":
        return ()
    due = records.at_once(space.engine, kept.record)
    return records.moved(kept, "waiting", at=kept.record.at, due=due)[0]
