"""Lists the calls of one run, by its commits and without reading the whole ledger, and ends those that it never starts.

The commits of a run request its calls, so its timeline says which they are; the ledger has their records.
If the end of the run is on no timeline that can be read, because it was undone long ago or ended without a
commit, or if its timeline may not hold all of it, the whole ledger is searched.

A failed run may be retried unless that could repeat one of its external writes, or later turns rest on the failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Conflict
from perdure.history import reader
from perdure.history.ancestry import of_run, stands_on
from perdure.history.space import Space
from perdure.ledger import calls, decisions, repeat_guard
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended, RunFinished, ToolCallRequested, ToolCallSuspended
from perdure.model.run import ENDED, RunRecord
from perdure.runtime.calls import reconcile
from perdure.runtime.calls.direct_call import BY_HAND
from perdure.runtime.run.finish import own_timelines
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.tools.tool import Tool

__all__ = ["calls_of", "cancel_unstarted", "check_retry", "reconcile_left"]

_MOVES_MAX = 200  # of a timeline, that are read
_TIMELINES_MAX = 50  # of a run's own


def calls_of(space: Space, run: str) -> list[CallRecord]:
    """Return the calls of a run, by id; none if the thread has no such run."""
    kept = records.find(space, run)
    if kept is None and not run.startswith(BY_HAND):
        return []
    steps = _commits(space, kept.record) if kept is not None else None
    ids = [run.removeprefix(BY_HAND)] if kept is None else _requested(steps or [])
    found = [held.record for held in calls.find_many(space, ids) if held is not None]
    if steps is None and not found:
        found = list(_all(space))
    return sorted([record for record in found if record.run == run], key=lambda record: record.id)


def cancel_unstarted(space: Space, record: RunRecord, why: str) -> None:
    """Cancel the calls of a run, and the copies that it continues on its timeline, that no process has started."""
    ids = [each.id for each in calls_of(space, record.id)]
    if record.continues is not None:
        ids += [each.id for each in calls_of(space, record.continues)]
    for id in ids:
        found = decisions.standing(space, id, record.timeline)
        is_ours = found is not None and found.record.timeline == record.timeline
        if found is not None and is_ours and found.record.state in ("approved", "requested"):
            step = calls.advance(found, "cancelled", at=space.clock(), why=why, status="error")
            calls.post_first(space, step)  # None: another process was first


def _commits(space: Space, record: RunRecord) -> list[Step] | None:
    """Return all commits of a run; None if they are not on a timeline where they should be.

    A timeline with the last commit of a run has all of them, because a run goes on only on top of its own
    commits.  A run that failed on a timeline of its own may have its last commit on the target timeline.
    """
    apart: list[Step] = []
    for tip in _tips(space, record):
        steps = of_run(space, record.id, tip)
        if record.state not in ENDED or any(_has(step, RunFinished) for step in steps):
            whole = _is_whole(record, apart + steps) and not _was_turned_back(space, record)
            return apart + steps if whole else None
        if not apart and record.line is not None:
            apart = steps
    return None


def _tips(space: Space, record: RunRecord) -> Iterator[Digest]:
    """Yield the last commits of timelines that may hold the run, the likely ones first."""
    if record.state == "waiting" and record.after is not None:
        yield record.after
        return
    for line in (record.line, record.timeline):
        hold = space.engine.hold(space.name, line) if line is not None else None
        if hold is not None and hold.head.commit is not None:
            yield hold.head.commit
    for move in space.engine.moves(space.name, record.timeline, limit=_MOVES_MAX):
        if move.to is not None and space.step(move.to).commit.run == record.id:
            yield move.to


def _is_whole(record: RunRecord, steps: list[Step]) -> bool:
    """True if the commits hold a suspended call for each time that the run waited.

    Older stores have runs that went on although their timeline had been cut before the last suspended call.
    """
    waits = (record.waited + 1) // 2
    return waits <= sum(_has(step, ToolCallSuspended) for step in steps)


def _was_turned_back(space: Space, record: RunRecord) -> bool:
    """True if another writer moved a timeline of the run's own, which no rule forbids while the run waits or has ended."""
    if record.head_policy == "each_step":
        return False
    for hold in own_timelines(space, record.id, limit=_TIMELINES_MAX):
        moves = space.engine.moves(space.name, hold.head.timeline, limit=_MOVES_MAX)
        if len(moves) == _MOVES_MAX or any(move.act not in (Act.FORK, Act.COMMIT) for move in moves):
            return True
    return False


def _has(step: Step, kind: type[RunFinished | ToolCallSuspended]) -> bool:
    return any(isinstance(event, kind) for event in step.changeset.events)


def _requested(steps: list[Step]) -> list[str]:
    events = [event for step in steps for event in step.changeset.events]
    return list(dict.fromkeys(event.call for event in events if isinstance(event, ToolCallRequested)))


def _all(space: Space) -> Iterator[CallRecord]:
    found = loops.pages(
        lambda after, limit: calls.listing(space, after=after, limit=limit), "", lambda call: call.record.id
    )
    return (call.record for call in found)


def check_retry(space: Space, record: RunRecord, *, asked: Mapping[str, Tool] | None = None) -> None:
    """Raise `Conflict` if later turns follow the run on its timeline, or a retry may repeat an external write.

    `asked` are the tools that a worker asks about such writes before the retry, as far as they are known here.
    """
    head = reader.head_of(space, record.timeline).commit
    if not stands_on(space, record.id, head):
        made = _writes_made(space, record)
        raise Conflict(
            f"run '{record.id}' failed{_after(made)}, and '{record.timeline}' does not have its turn, which was undone "
            "or never taken; nothing was run.",
            code="failed_run_undone",
            advice="Look at its calls with calls() first: what they did stays done. Then take an undo back with redo(), "
            "or give the input another id.",
            run=record.id,
            calls=made,
        )
    for step in reader.recent(space, head):
        if step.commit.run == record.id:
            break
        has_message = any(isinstance(event, MessageAppended) for event in step.changeset.events)
        if has_message or step.commit.run is not None:
            made = _writes_made(space, record)
            raise Conflict(
                f"run '{record.id}' failed{_after(made)}, and later turns follow it on '{record.timeline}'; nothing was "
                "run.",
                code="failed_run_followed",
                advice="Look at its calls with calls() first: what they did stays done. Then give the input another id, "
                "or undo() those turns.",
                run=record.id,
                timeline=record.timeline,
                calls=made,
            )
    for call in calls_of(space, record.id):
        tool = None if asked is None else asked.get(call.tool)
        if asked is not None and call.state in UNCLEAR and (tool is None or tool.reconciler is not None):
            continue
        if call.reach.guarded and (call.state == "started" or call.state in UNCLEAR):
            raise Conflict(
                f"run '{record.id}' failed while call '{call.id}' to {call.tool} is {call.state}: it may have "
                "happened; nothing was run.",
                code="failed_run_call_unclear",
                advice="Settle it with reconcile() or resolve(), then give the input again.",
                run=record.id,
                call=call.id,
                state=call.state,
            )


def _writes_made(space: Space, record: RunRecord) -> tuple[str, ...]:
    """Return the external writes of a run that were made, or may have been."""
    return tuple(
        call.id
        for call in calls_of(space, record.id)
        if call.reach.guarded
        and (repeat_guard.done(call) or call.state == "started" or call.state in UNCLEAR)
    )


def _after(made: tuple[str, ...]) -> str:
    return f" after {len(made)} external write{'s' if len(made) > 1 else ''}" if made else ""


async def reconcile_left(env: RunEnvironment, record: RunRecord) -> None:
    """Ask the tools of a failed run about its external writes of unknown outcome; without a hook they stay unknown."""
    for call in await env.run_blocking(partial(calls_of, env.space, record.id)):
        tool = env.agent.toolbox.get(call.tool)
        if call.reach.guarded and call.state in UNCLEAR and tool is not None and tool.reconciler is not None:
            with suppress(Conflict):  # settled by another process just now
                await reconcile.reconcile(env, call.id)
