"""What cannot be done to a line while a run is on it: it raises `Busy`, and no run begins meanwhile.

Removing a thread: not under a run, and not while nobody knows what became of a call.

With the thread its ledger goes, and with it what keeps a call from being made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from perdure.errors import Conflict, Moved
from perdure.history import timelines
from perdure.history.space import Space
from perdure.history.writer import CommitOutcome, Proposal
from perdure.ledger import calls
from perdure.model.call import UNCLEAR
from perdure.model.event import MessageAppended
from perdure.model.head import Head
from perdure.runtime.session import lease as leases

__all__ = ["commit_beside_run", "without_runs", "removed"]


_T = TypeVar("_T")
_TRIES_MAX = 16


def without_runs(space: Space, lines: Sequence[str], what: str, act: Callable[[Space], _T]) -> _T:
    """Do `act` on a space whose writes are refused if a run begins on one of `lines`.

    Raises `Busy`, having done nothing, if a run is on one, be it live or interrupted.
    """
    for _ in range(_TRIES_MAX):
        fences = tuple(leases.check_free(space, line, what) for line in lines)
        try:
            return act(msgspec.structs.replace(space, fences=(*space.fences, *fences)))
        except Moved:
            if all(_stands(space, each) for each in fences):
                raise
    raise Conflict(f"runs begin on '{space.label}' all the time; {what} was not done. Try again.")


def commit_beside_run(
    space: Space,
    head: Head,
    proposals: Sequence[Proposal],
    commit: Callable[[Space, Head, Sequence[Proposal]], CommitOutcome],
) -> CommitOutcome:
    """Commit a change by hand; while a run is on the line it belongs to that run's turn.

    Raises `Busy`, having written nothing, if it says something there.
    """
    line = head.timeline
    for _ in range(_TRIES_MAX):
        cell = space.engine.cell(space.name, leases.LEASE + line)
        held = None if cell is None or cell.value is None else leases.current(space, line)
        if held is not None and any(_says_something(proposal) for proposal in proposals):
            raise leases.busy(space, held, "saying something")
        fence = leases.Fence(leases.LEASE + line, cell.revision if cell else 0)
        run = held.run if held else None
        placed = [msgspec.structs.replace(each, run=run) if run else each for each in proposals]
        try:
            return commit(msgspec.structs.replace(space, fences=(*space.fences, fence)), head, placed)
        except Moved:
            if _stands(space, fence):
                raise
    raise Conflict(f"runs begin and end on '{line}' all the time; nothing was written. Try again.")


def _says_something(proposal: Proposal) -> bool:
    return any(isinstance(event, MessageAppended) for event in proposal.events)


def _stands(space: Space, fence: leases.Fence) -> bool:
    cell = space.engine.cell(space.name, fence.cell)
    return (cell.revision if cell else 0) == fence.revision


_PAGE = 200
_SHOWN = 3
_UNSETTLED = UNCLEAR | {"started", "awaiting_approval", "approved", "requested"}


def removed(space: Space, remove: Callable[[Space], None], *, force: bool) -> None:
    """Remove the thread of that space; raises `Busy` under a run, `Conflict` while a call is not settled.

    With `force` calls that are not settled are given up.
    """

    def act(fenced: Space) -> None:
        if not force:
            _check_settled(fenced)
        remove(fenced)

    # A live run comes first: it has calls that are not settled, and they are its own business.
    lines = [hold.head.timeline for hold in timelines.timelines(space)]
    without_runs(space, lines, "removing the thread", act)


def _check_settled(space: Space) -> None:
    after, left = "", list[str]()
    while page := calls.listing(space, after=after, limit=_PAGE):
        left += [
            f"{each.record.tool} '{each.record.id}' is {each.record.state}"
            for each in page
            if each.record.state in _UNSETTLED
        ]
        after = page[-1].record.id
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise Conflict(
            f"'{space.label}' has calls that are not settled: {', '.join(left[:_SHOWN])}{more}; it was not removed.",
            code="calls_not_settled",
            advice="Settle them (resume, decide, resolve), or give them up with force.",
            thread=space.label,
        )
