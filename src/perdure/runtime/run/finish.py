"""Where a run's commits are written, and how the run releases its timeline: to wait, or for good.

With the head policy `each_step` commits go to the target timeline itself.  With `on_success` they go to a
timeline of the run's own, which begins at the inbound commit.  When the run succeeds, or waits, the head of
the target timeline moves there in the same write as the last commit; if other writers have moved it, the
run's commits are put on top of theirs.  The commits of a failed run stay on its own timeline.

The run's record, its last commit and the release of its lease are one write.  If another process has asked
the run to stop, or has queued a message for it, the record has changed and that write is refused.  Then a
run that was to wait ends; one that was to succeed goes on; any other end takes the messages in first.

A run that ends early settles the calls that it leaves open, so that the conversation has their results.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from perdure.engines import loops
from perdure.engines.contract import CellWrite, Hold, Step
from perdure.errors import Corrupt, Moved, PerdureError, StaleHead
from perdure.history import reader
from perdure.history.space import Space, agent_after
from perdure.history.writer import Proposal
from perdure.model.commit import Reads, RunMeta
from perdure.model.digest import Digest
from perdure.model.event import AgentChanged, RunFinished
from perdure.model.head import Head
from perdure.model.message import Message
from perdure.model.run import CALLER_CANCELLED, RunState, StopReason
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.recovery import open_round, withdraw
from perdure.runtime.calls.round import RoundContext, commit_round
from perdure.runtime.run.start import Started, restore
from perdure.runtime.session import records, steering
from perdure.runtime.session.journal import CommitDraft, Journal
from perdure.runtime.session.lease import Lost, own_timelines_prefix, releasing
from perdure.switching.current_backend import RecordedBackend

__all__ = ["RunFinisher", "close_early", "own_timelines"]

_log = logging.getLogger("perdure.runs")

_UNKNOWN = -1

_LastWrite: TypeAlias = Literal["join", "stay", "record_only"]


class RunFinisher:
    """A run's record, and the writes by which the run releases its timeline."""

    def __init__(self, started: Started) -> None:
        self._journal, self._lease = started.journal, started.lease
        self._branch = RunBranch(started.journal, started.lease.epoch)
        self._run = started.kept
        self.record = started.kept.record  # as this process last read or wrote it
        self.source = self.record.continues or self.record.id  # the run whose calls are open
        self._heard = 0 if started.fresh else _UNKNOWN  # how many queued messages the run has taken in

    def leave_timeline(self) -> bool:
        """Write to a timeline of the run's own from here on; True if it is the one on which the run was cut off."""
        before = self.record.line
        line = self._branch.begin(before)
        if line != before:
            self.note(line=line)
        return line == before

    def note(self, **fields: Any) -> None:
        """Change the run's record."""
        while True:
            write, updated = records.changed(self._run, **fields)
            try:
                records.apply(self._journal.space, "note", write)
            except Moved:
                if not self._reread():
                    raise
            else:
                self._run, self.record = updated, updated.record
                return

    def hand_over(self, backend: RecordedBackend, cells: Sequence[CellWrite]) -> None:
        """Write what is staged, and in the same write the run's record: `backend` takes the steps from here on."""
        while True:
            write, updated = records.changed(self._run, backend=backend.name, server=backend.server)
            try:
                self._journal.write(cells=(*cells, write))
            except Moved:
                if not self._reread():
                    raise
            else:
                self._run, self.record = updated, updated.record
                return

    def is_steered(self, space: Space | None = None) -> bool:
        """True if a message is queued that the run has not taken in; `space` has the run's record, None: it is read."""
        self._reread(space)
        return self.record.steered != self._heard

    def hear(self) -> tuple[list[tuple[str, Message]], list[CellWrite]]:
        """Stage the queued messages; return them with their ids, and the writes that empty the queue."""
        if not self.is_steered():
            return [], []
        self._heard = self.record.steered
        waiting = steering.queued(self._journal.space, self._journal.run)
        draft = self._journal.draft("user_message")
        for each in waiting:
            draft.say(each.message, id=each.id)
        self._journal.stage(draft)
        return [(each.id, each.message) for each in waiting], [each.taken for each in waiting]

    def count_heard(self) -> None:
        """Find out after an interruption whether the run has taken in every message; leave the queue as it is."""
        self._reread()
        if self._heard == _UNKNOWN and not steering.queued(self._journal.space, self._journal.run):
            self._heard = self.record.steered

    def wait(self, deadline: int | None) -> bool:
        """Release the timeline until calls are decided; False if the run was asked to stop instead.

        `deadline` is when the first question expires; None: none does.  A worker looks at the run then, or at once if a
        call was decided after the run last looked.
        """
        how: _LastWrite = "join" if self._branch.is_apart else "record_only"
        return self._release("waiting", how, due=deadline, after=self._journal.head.commit, line=None)

    def finish(
        self,
        draft: CommitDraft,
        status: RunState,
        why: str | None,
        cells: Sequence[CellWrite],
        *,
        kind: str | None = None,
        stop: StopReason | None = None,
    ) -> bool:
        """Write the run's last commit; False, with nothing written, if a message was queued for it just now."""
        draft.events.append(RunFinished(id=self._journal.space.ids(), status=status, why=why))
        draft.meta = RunMeta(agent_version=self.record.agent_version, termination=status)
        self._journal.stage(draft)
        fields: dict[str, Any] = {"why": why, "kind": kind, "stop": stop, "pending": None}
        if status == "failed" or status == "cancelled":
            return self._release(status, "stay", *cells, **fields)
        return self._release(status, "join", *cells, **fields, line=None)

    def close(self, status: RunState, why: str, kind: str | None = None) -> bool:
        """End a run early, once its open calls are settled; False if that has to be done again first."""
        cells = self._take_in()
        draft = self._journal.draft("run_finished", forced=True)
        if status == "failed" and self.record.on_failure == "restore" and not self._branch.is_apart:
            restore(self._journal, draft, self._journal.env.agent.run_scoped_paths())
        return self.finish(draft, status, why, cells, kind=kind)

    def _release(self, status: RunState, how: _LastWrite, *cells: CellWrite, **fields: Any) -> bool:
        """Set the run's state and release the lease, in one write; False if something has to be done first."""
        while not self._is_hindered(status, fields.get("kind")):
            at = self._journal.space.clock()
            if status == "waiting" and self.record.decided:
                fields |= {"due": records.at_once(self._journal.space.engine, self.record), "decided": False}
            elif status != "waiting":
                fields["due"] = records.due_for_parent(self._journal.space, self.record)
            writes, updated = records.moved(self._run, status, at=at, **fields)
            try:
                self._write_last(how, (*cells, *writes, releasing(self._lease)))
            except Moved:
                if not self._reread():
                    raise
            else:
                self._run, self.record = updated, updated.record
                level = logging.WARNING if status == "failed" else logging.INFO
                kind = fields.get("kind")
                _log.log(
                    level,
                    "run %s of %s: %s",
                    updated.record.id,
                    self._journal.space.label,
                    status + (f" ({kind})" if kind else ""),
                )
                return True
        return False

    def _write_last(self, how: _LastWrite, cells: Sequence[CellWrite]) -> None:
        if how == "join":
            self._branch.join(cells)
        elif how == "stay":
            self._journal.write(cells=cells)
        else:
            records.apply(self._journal.space, "wait", *cells)

    def _is_hindered(self, status: RunState, kind: str | None) -> bool:
        """True if the record demands something else first: to stop, or to hear a message before the end."""
        if self.record.cancel is not None and (
            status in ("waiting", "succeeded") or kind == CALLER_CANCELLED
        ):
            return True
        return status != "waiting" and self.record.steered != self._heard

    def _reread(self, space: Space | None = None) -> bool:
        """Read the run's record again; True if it has changed.  Raises `Lost` if another process ended the run."""
        space = space or self._journal.space
        before, self._run = self._run, records.read(space, self._journal.run, known=self._run)
        self.record = self._run.record
        if self.record.state != "running":
            raise Lost(self._lease)
        return self._run.revision != before.revision

    def _take_in(self) -> list[CellWrite]:
        """Put queued messages into the conversation of the target timeline, also if the run is on its own."""
        self._heard = _UNKNOWN  # messages that were taken in may not have been written
        if not self._branch.is_apart:
            return self.hear()[1]
        own = self._journal.head.timeline
        self._journal.stand_on(self._journal.env.timeline)
        self._journal.write(cells=self.hear()[1])
        self._journal.stand_on(own)
        return []


def close_early(
    round_context: RoundContext, finisher: RunFinisher, status: RunState, why: str, kind: str | None
) -> None:
    """End a run early: because it failed, was asked to stop, or its caller was cancelled.

    Cancelling the caller, such as a request that a deploy ends, is no order to stop the run: the run fails, so its
    input given again goes on with it.  The caller of a child is a tool of its parent, whose call is recorded.
    """
    is_closed = False
    while not is_closed:
        round_context.journal.unstage()
        record = finisher.record
        if kind == CALLER_CANCELLED and (record.cancel is not None or record.parent is not None):
            status, why, kind = "cancelled", record.cancel or why, None
        over = why if status == "cancelled" else f"its parent has {status}"
        _settle_open_calls(round_context, finisher.source, why=over, by=record.cancelled_by)
        is_closed = finisher.close(status, why, kind)


def _settle_open_calls(round_context: RoundContext, source: str, *, why: str, by: str | None) -> None:
    """Commit results for the open calls that a run leaves behind, and cancel the child runs that they started.

    `why` is recorded as the reason for cancelling the children; `by` is the person who cancelled the run.
    """
    left = open_round(round_context, source, is_ending=True)
    executor = CallExecutor(round_context, round_context.journal.root, {}, message_id=left.message_id)
    for pending_call in left.pending_calls:
        if pending_call.stage == "suspended":
            undecided = "the run ended before it was decided"
            withdraw(round_context, pending_call, undecided, message_id=left.message_id, by=by)
        executor.abandon(pending_call)
    settled = [pending_call for pending_call in left.pending_calls if pending_call.stage == "settled"]
    if settled:
        draft = round_context.journal.draft("tool_results_committed")
        commit_round(round_context, settled, draft, message_id=left.message_id)
    if round_context.env.cancel_children is not None:
        with suppress(PerdureError):  # a child that goes on later finds that its parent has ended
            round_context.env.cancel_children(round_context.journal.run, why)


class RunBranch:
    """Where a run's commits are written, and how they reach the target timeline."""

    def __init__(self, journal: Journal, epoch: int) -> None:
        """Begin on the target timeline; `epoch` is that of the run's lease."""
        self._journal, self._epoch = journal, epoch
        self._main: Head | None = None  # of the target timeline when the run left it; None: it has not
        self._base: Digest | None = None

    @property
    def is_apart(self) -> bool:
        """True if commits go to a timeline of the run's own."""
        return self._main is not None

    def begin(self, line: str | None) -> str:
        """Leave the target timeline; return the name of the run's own, which commits go to from here on.

        `line` is the one on which the run was cut off; None: it has none yet.
        """
        main = self._main = self._journal.head
        self._base = main.commit
        if line is None:
            line = f"{own_timelines_prefix(self._journal.run)}{self._epoch}"
            self._journal.branch(line)
        else:
            self._journal.stand_on(line)
            self._base = self._shared(main)
            self._main = self._left_at(main)
        return line

    def join(self, cells: Sequence[CellWrite]) -> None:
        """Write what is staged, and move the head of the target timeline to it."""
        main = self._main
        if main is None:
            self._journal.write(cells=cells)
            return
        try:
            if self._journal.is_staged:
                self._journal.write(cells=cells, also=((main.timeline, main),))
            else:
                self._journal.lead(main, cells=cells)
            self._journal.stand_on(main.timeline)
        except StaleHead as stale:
            if stale.expected.timeline != main.timeline:
                raise
            self._journal.write_onto(main, self._proposals(), cells=cells)
        self._main = None

    def _shared(self, main: Head) -> Digest | None:
        """Return the last commit that the run's timeline and the target have in common."""
        space = self._journal.space
        own = reader.recent(space, self._journal.head.commit)
        return next(
            (step.digest for step in own if reader.is_ancestor(space, step.digest, main.commit)), None
        )

    def _left_at(self, main: Head) -> Head:
        """Return the head of the target timeline when the run left it; other writers may have moved it since."""
        if main.commit == self._base:
            return main
        space = self._journal.space
        moves = loops.moves(space.engine, space.name, main.timeline, before=main.version + 1)
        left = next((move for move in moves if move.to == self._base), None)
        if left is None:
            raise Corrupt(
                f"no move of timeline '{main.timeline}' leads to {self._base}, where run '{self._journal.run}' began; "
                "nothing was written.",
                code="move_missing",
                timeline=main.timeline,
            )
        return Head(main.timeline, left.version, left.to)

    def _proposals(self) -> list[Proposal]:
        """Return the run's own commits as proposals, to be written once more on top of others."""
        space = self._journal.space
        found: list[Step] = []
        for step in reader.recent(space, self._journal.head.commit):
            if step.digest == self._base:
                break
            found.append(step)
        return [_proposal(step, self._journal.env.standing.agent) for step in reversed(found)]


def own_timelines(space: Space, run: str, *, limit: int) -> list[Hold]:
    """Return the first timelines of a run's own, by name."""
    own = own_timelines_prefix(run)
    found = space.engine.holds(space.name, after=own, limit=limit)
    return [hold for hold in found if hold.head.timeline.startswith(own)]


def _proposal(step: Step, agent: Space | None) -> Proposal:
    changeset, commit = step.changeset, step.commit
    # The changes to the agent's map were applied when the commit was first written; they are not applied twice.
    events = tuple(event for event in changeset.events if not isinstance(event, AgentChanged))
    reads = commit.reads if agent is None or len(events) == len(changeset.events) else _after(agent, step)
    return Proposal(
        reason=changeset.reason,
        root=commit.root,
        patch=changeset.patch,
        events=events,
        outside=reads,
        ledger=commit.ledger,
        run=changeset.run_id,
        parent_run=changeset.parent_run_id,
        run_meta=changeset.run_meta,
        state_actions=changeset.state_actions,
    )


def _after(agent: Space, step: Step) -> Reads:
    """Return what a step reads outside the thread, with its own changes to the agent's map."""
    commit = agent_after(agent, step)
    seen = step.commit.reads.memory_root
    return Reads(agent_root=agent.root_at(commit), agent_commit=commit, memory_root=seen)
