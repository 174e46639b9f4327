"""The calls of one run, found by its commits and not by reading the ledger from its beginning.

A run's calls are asked for in its own commits, so its line tells which they are; what became of them is
in the ledger.  A run whose end is on no line that can be looked at, because it was undone long ago or
ended without a commit, or whose line may not hold all of it, has its calls looked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.engines.contract import Step
from perdure.history.ancestry import of_run
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.model.call import CallRecord
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.event import RunFinished, ToolCallRequested, ToolCallSuspended
from perdure.model.run import ENDED, RunRecord
from perdure.runtime.calls.direct_call import BY_HAND
from perdure.runtime.run.finish import own_timelines_prefix
from perdure.runtime.session import records

__all__ = ["calls_of"]


_PAGE = 200
_MOVES_MAX = 200  # of a line, that are looked at
_LINES_MAX = 50  # of a run's own


def calls_of(space: Space, run: str) -> list[CallRecord]:
    """The calls of a run, by id; none if the thread has no such run."""
    kept = records.find(space, run)
    if kept is None and not run.startswith(BY_HAND):
        return []
    steps = _commits(space, kept.record) if kept is not None else None
    ids = [run.removeprefix(BY_HAND)] if kept is None else _requested(steps or [])
    found = [held.record for id in ids if (held := calls.find(space, id)) is not None]
    if steps is None and not found:
        found = list(_all(space))
    return sorted([record for record in found if record.run == run], key=lambda record: record.id)


def _commits(space: Space, record: RunRecord) -> list[Step] | None:
    """All commits of a run; None if they are not where one would look for them.

    Where the last one stands, all of them do: a run goes on only on top of what it has done.  One that
    failed apart may have ended on the line, and then what it did is on its own.
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
    """Commits at the end of lines that may hold the run, the likely ones first."""
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
    """Whether the commits hold a question for each time that the run waited.

    Stores were written in which a run went on although its line had been cut before its last question.
    """
    waits = (record.waited + 1) // 2
    return waits <= sum(_has(step, ToolCallSuspended) for step in steps)


def _was_turned_back(space: Space, record: RunRecord) -> bool:
    """Whether a line of the run's own was moved by anybody else than the run, as nobody is kept from doing."""
    if record.head_policy == "each_step":
        return False
    own = own_timelines_prefix(record.id)
    for hold in space.engine.holds(space.name, after=own, limit=_LINES_MAX):
        if not hold.head.timeline.startswith(own):
            return False
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
    after = ""
    while page := calls.listing(space, after=after, limit=_PAGE):
        yield from (held.record for held in page)
        after = page[-1].record.id
