"""Keeps writes and runs apart: what a run excludes raises `Busy`, and no run begins while it is written.

A thread is not removed under a run, nor while one of its runs waits or one of its calls is not settled: with the
thread its ledger is removed, and with the ledger the protection against making a call twice.

`How` says how a change is written, by hand or by a run; `check_how` refuses what a change by hand may not ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines.contract import Cell, CellOf, Fence, HeadOf, LedgerOf, Question
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved
from perdure.history import timelines
from perdure.history.reader import AGENTS_OF_THREAD, agents_in, check_agent
from perdure.history.space import ChangeQuestions, Space, TimelineContext
from perdure.history.writer import CommitOutcome, OnConflict, Proposal
from perdure.model import names
from perdure.model.call import UNCLEAR
from perdure.model.event import MessageAppended, MessageRetracted
from perdure.model.head import Head
from perdure.model.message import ToolResult
from perdure.model.run import QUEUE, QUEUES, REASONS
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.store.plumbing.handles import deferred

if TYPE_CHECKING:
    from perdure.ledger import calls
else:
    calls = deferred("perdure.ledger.calls")

__all__ = [
    "UNSETTLED",
    "Chain",
    "How",
    "chain_interrupted",
    "check_answers",
    "check_how",
    "check_removable",
    "check_whose",
    "commit_beside_run",
    "note_questions",
    "parts",
    "removed",
    "without_queue",
    "without_runs",
]


_T = TypeVar("_T")

Chain = bool | Literal["steps"]
"""Whether the writes of a block are commits of their own: none, each one, or as the block says by `step()`."""


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How a change is written."""

    reason: str
    on_conflict: OnConflict = "raise"
    op_id: str | None = None  # None: the caller does not repeat it
    author: str | None = None
    run: str | None = None  # the run that it is a step of; None: no run makes it
    head: Head | None = None  # the head that must still be the head; None: the head on entering
    chain: Chain = False
    at_once: bool = False  # the block is left as soon as it is entered, so everything is read on entering


def check_how(how: How, timeline: str) -> None:
    """Raise `Invalid` unless a change of that timeline can be written so."""
    if how.op_id is not None:
        names.check_op_id(how.op_id)
    names.check_id("reason", how.reason)
    if how.run is not None:
        names.check_id("run", how.run)
    elif how.reason in REASONS:
        raise Invalid(
            f"the reason '{how.reason}' is reserved for runs; nothing was written.",
            code="reason_reserved",
            advice="Give one of your own.",
            reason=how.reason,
        )
    if how.on_conflict not in ("raise", "rebase"):
        raise Invalid(
            f"on_conflict is 'raise' or 'rebase', not {how.on_conflict!r}; nothing was written.",
            code="on_conflict_unknown",
        )
    if how.chain not in (False, "steps"):
        names.check_flag("chain", how.chain)
    if how.author is not None:
        names.check_label("author", how.author)
    if how.chain and how.on_conflict != "raise":
        raise Invalid(
            "the commits of a chain are named while the block runs, so it cannot be rebased; nothing was written.",
            code="chain_not_rebased",
            advice="Leave on_conflict out, and make the change again after StaleHead.",
        )
    if how.head is not None:
        _check_head(how.head, timeline)


def _check_head(head: Head, timeline: str) -> None:
    if not isinstance(head, Head):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"head is a Head that was read earlier, not {head!r}; nothing was written.", code="not_a_head"
        )
    if head.timeline != timeline:
        raise Invalid(
            f"a head of timeline '{head.timeline}' cannot be written on '{timeline}'; nothing was written.",
            code="head_of_another_timeline",
            advice=f"Use on({head.timeline!r}), or the head of this one.",
            timeline=timeline,
            head_timeline=head.timeline,
        )


def without_runs(
    space: Space,
    lines: Sequence[str],
    what: str,
    act: Callable[[Space], _T],
    *,
    asking: Sequence[Question] = (),
) -> _T:
    """Call `act` with a space whose writes are refused if a run begins on one of the timelines `lines`.

    The space has the answers to `asking`, read in the same call as the leases.  Raises `Busy`, having done nothing, if a run holds one of them, be it live or interrupted.
    """
    attempts = Attempts(f"the runs of '{space.label}'", f"{what} of '{space.label}' was not done")
    questions = [each for line in lines for each in leases.lease_questions(space, line)]
    while True:
        attempts.begin()
        known = space.knowing(*questions, *asking)
        fences = tuple(leases.check_free(known, line, what) for line in lines)
        try:
            return act(msgspec.structs.replace(known, fences=(*space.fences, *fences)))
        except Moved:
            if all(_is_unchanged(space, each) for each in fences):
                raise


def commit_beside_run(
    space: Space,
    head: Head,
    proposals: Sequence[Proposal],
    commit: Callable[[Space, Head, Sequence[Proposal]], CommitOutcome],
    cell: Cell | UnsetType | None = UNSET,
) -> CommitOutcome:
    """Commit a change that no run makes; while a run holds the timeline the change belongs to that run's turn.

    `cell` is that of the timeline's lease, if the caller has just read it.  Raises `Busy`, having written nothing, if the change adds a message while a run holds the timeline.
    """
    line = head.timeline
    attempts: Attempts | None = None  # created at the first conflict, because most commits meet none
    while True:
        if cell is UNSET:
            cell = space.engine.cell(space.name, leases.LEASE + line)
        may_be_held = (cell is not None and cell.value is not None) or line.startswith(leases.OWN)
        held = leases.current(space, line) if may_be_held else None
        if held is not None and any(_changes_transcript(proposal) for proposal in proposals):
            raise leases.busy(space, held, "saying something")
        fence = Fence(leases.LEASE + line, cell.revision if cell else 0)
        run = held.run if held else None
        placed = [msgspec.structs.replace(each, run=run) if run else each for each in proposals]
        try:
            return commit(msgspec.structs.replace(space, fences=(*space.fences, fence)), head, placed)
        except Moved:
            if _is_unchanged(space, fence):
                raise
            attempts = attempts or Attempts(f"the lease on '{line}'", f"nothing was written to '{line}'")
            attempts.begin()
            cell = UNSET
            proposals = [msgspec.structs.replace(each, ledger=None) for each in proposals]


def _changes_transcript(proposal: Proposal) -> bool:
    return any(isinstance(event, (MessageAppended, MessageRetracted)) for event in proposal.events)


def _is_unchanged(space: Space, fence: Fence) -> bool:
    cell = space.engine.cell(space.name, fence.cell)
    return (cell.revision if cell else 0) == fence.revision


_SHOWN = 3
UNSETTLED = UNCLEAR | {"started", "awaiting_approval", "approved", "requested"}


def removed(space: Space, remove: Callable[[Space], None], *, force: bool) -> None:
    """Remove the thread of that space; raises `Busy` under a run, `Conflict` while a call, an input or a run is open.

    With `force` the thread is removed with its unsettled calls, its waiting runs and the inputs whose runs have not
    begun.
    """
    lines = [hold.head.timeline for hold in timelines.timelines(space)]

    def act(fenced: Space) -> None:
        if not force:
            _check_settled(fenced, lines)
        remove(fenced)

    without_queue(space, lines, "removing the thread", act)


def check_removable(space: Space) -> None:
    """Raise `Conflict` if `removed` would refuse without `force`, for a question that comes before it."""
    _check_settled(space, [hold.head.timeline for hold in timelines.timelines(space)])


def without_queue(space: Space, lines: Sequence[str], what: str, act: Callable[[Space], _T]) -> _T:
    """Call `act` as `without_runs` does, with a space whose writes are refused if an input is queued, too."""

    def fenced(space: Space) -> _T:
        attempts = Attempts(f"the queue of '{space.label}'", f"{what} of '{space.label}' was not done")
        while True:
            attempts.begin()
            count = space.engine.cell(space.name, QUEUES)
            queue = Fence(QUEUES, count.revision if count else 0)  # of the moment before `act` looks
            try:
                return act(msgspec.structs.replace(space, fences=(*space.fences, queue)))
            except Moved:
                if _is_unchanged(space, queue):
                    raise

    # The lease is checked before the calls: the unsettled calls of a live run are no error of their own.
    return without_runs(space, lines, what, fenced)


def _check_settled(space: Space, lines: Sequence[str]) -> None:
    """Raise `Conflict` if the thread has an unsettled call, an input without its run, or a run that waits."""
    left = [each.record for each in calls.every(space) if each.record.state in UNSETTLED]
    if left:
        shown = ", ".join(f"{each.tool} '{each.id}' is {each.state}" for each in left[:_SHOWN])
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise Conflict(
            f"'{space.label}' has calls that are not settled: {shown}{more}; it was not removed.",
            code="calls_not_settled",
            advice="Settle them (resume, decide, cancel, resolve), or give them up with force.",
            thread=space.label,
            calls=tuple(each.id for each in left),
        )
    queued = space.engine.cells(space.name, prefix=QUEUE, limit=_SHOWN)
    if queued:
        runs = tuple(each.name.partition(":")[2].partition(".")[2] for each in queued)
        raise Conflict(
            f"'{space.label}' has inputs whose runs have not begun: {', '.join(runs)}; it was not removed.",
            code="inputs_not_begun",
            advice="Let a worker run them, cancel() their runs, or give them up with force.",
            thread=space.label,
            runs=runs,
        )
    # A run also waits after its last call was decided, and while a backend works on its answer.
    waiting = tuple(each.id for line in lines for each in records.waiting(space, line))
    if waiting:
        raise Conflict(
            f"'{space.label}' has runs that wait to go on: {', '.join(waiting[:_SHOWN])}; it was not removed.",
            code="runs_waiting",
            advice="Let a worker or resume() finish them, cancel() them, or give them up with force.",
            thread=space.label,
            runs=waiting,
        )


def note_questions(standing: TimelineContext) -> ChangeQuestions:
    """Note what a block asks for: the head, and what its commit depends on beside it.

    That is the agent's map, the ledger, the lease, and the agents of a thread that was handed off.
    """
    name, timeline = standing.space.name, standing.timeline
    lease = CellOf(name, leases.LEASE + timeline)
    beside = (
        ()
        if standing.agent is None
        else (*standing.sight_questions, LedgerOf(name), lease, CellOf(name, AGENTS_OF_THREAD))
    )
    # Two threads may both append; both use the first.
    standing.asked.append(ChangeQuestions((HeadOf(name, timeline),), beside))
    return standing.asked[0]


def check_answers(space: Space, results: Sequence[ToolResult]) -> None:
    """Raise `Conflict` if the ledger has one of the calls and it is not settled: the message would pretend a result."""
    # As of the moment at which the block was entered: a call may begin after any look.
    (ledger,) = space.engine.answers((LedgerOf(space.name),), fresh=False)
    if not ledger.position:
        return  # a ledger without entries has no call
    for result in results:
        calls.check_answerable(calls.find(space, result.call_id))


def parts(what: str, given: Iterable[_T]) -> tuple[_T, ...]:
    """Return the parts of a list that was given; raises `Invalid` if it is none."""
    try:
        return tuple(given)
    except TypeError as error:
        raise Invalid(
            f"{what} cannot be a {type(given).__name__}; nothing was written.",
            code="not_a_list",
            advice="Give a list of its parts.",
            field=what,
        ) from error


def chain_interrupted(timeline: str) -> Conflict:
    """Return the error for a chain whose commits would have other digests than it has returned."""
    return Conflict(
        f"a run began or ended on '{timeline}' while a chain of commits was made there; nothing was written.",
        code="chain_interrupted",
        advice="Make the change again.",
        timeline=timeline,
    )


def check_whose(standing: TimelineContext, head: Head, agents: Cell | None) -> None:
    """Raise `Conflict` if the timeline is another agent's at `head`; `agents` is the cell of the thread's agents."""
    if agents is not None and standing.agent is not None:
        check_agent(standing.space, head.commit, agents_in(agents), standing.agent.label)
