"""Closing: how a run lets its line go, to wait or for good, and what it owes others then.

Its record, its last commit and the end of its lease are one write.  Somebody may have asked the run to
stop, or said something to it, a moment before: the record says so, and the write is refused.  A run
that was to wait ends then; one that was to succeed goes on; any other end takes the words in first.

Where another backend takes over, the commit that says so and the record are one write too.

Whatever ends, the conversation is told what became of calls that are left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure.engines.contract import CellWrite
from perdure.errors import Moved
from perdure.model.commit import RunMeta
from perdure.model.event import RunFinished
from perdure.model.message import Message
from perdure.model.run import RunState, StopReason
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.recovery import open_round, withdraw
from perdure.runtime.calls.round import RoundContext, commit_round
from perdure.runtime.run.branch import RunBranch
from perdure.runtime.run.start import Started, restore
from perdure.runtime.session import records, steering
from perdure.runtime.session.journal import CommitDraft
from perdure.runtime.session.lease import Lost, releasing
from perdure.switching.current_backend import RecordedBackend

__all__ = ["RunFinisher"]

_UNKNOWN = -1


class RunFinisher:
    """A run's record, and the ways in which the run comes to an end."""

    def __init__(self, round_context: RoundContext, branch: RunBranch, begun: Started) -> None:
        """Begin with the record that was just written."""
        self._round_context, self._branch, self._lease = round_context, branch, begun.lease
        self._journal = round_context.journal
        self.kept = begun.kept
        self.source = begun.kept.record.continues or begun.kept.record.id  # whose calls are open
        self._heard = 0 if begun.fresh else _UNKNOWN  # how many messages the run knows of

    def note(self, **fields: Any) -> None:
        """Change the run's record."""
        while True:
            told, kept = records.changed(self.kept, **fields)
            try:
                records.apply(self._journal.space, "note", told)
            except Moved:
                if not self._is_changed():
                    raise
            else:
                self.kept = kept
                return

    def hand_over(self, backend: RecordedBackend, cells: Sequence[CellWrite]) -> None:
        """Write what is staged, and with it in the run's record that `backend` takes the steps from here on."""
        while True:
            told, kept = records.changed(self.kept, backend=backend.name, server=backend.server)
            try:
                self._journal.write(cells=(*cells, told))
            except Moved:
                if not self._is_changed():
                    raise
            else:
                self.kept = kept
                return

    def is_steered(self) -> bool:
        """Whether somebody has said something that the run does not know of."""
        self._is_changed()
        return self.kept.record.steered != self._heard

    def hear(self) -> tuple[list[Message], list[CellWrite]]:
        """Stage what was said to the run meanwhile; the words, and the cells that the next write empties."""
        if not self.is_steered():
            return [], []
        self._heard = self.kept.record.steered
        waiting = steering.queued(self._journal.space, self._journal.run)
        draft = self._journal.draft("user_message")
        for each in waiting:
            draft.say(each.message, id=each.id)
        self._journal.stage(draft)
        return [each.message for each in waiting], [each.taken for each in waiting]

    def count_heard(self) -> list[CellWrite]:
        """Find out after an interruption whether the run has heard everything; what waits for it is left waiting."""
        self._is_changed()
        if self._heard == _UNKNOWN and not steering.queued(self._journal.space, self._journal.run):
            self._heard = self.kept.record.steered
        return []

    def wait(self) -> bool:
        """Let the line go until somebody has decided; False: somebody has asked the run to stop instead."""
        leave = self._branch.join if self._branch.apart else self._leave_bare
        return self._let_go("waiting", leave, after=self._journal.head.commit, line=None)

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
        """Write the run's last commit; False, and nothing was written: somebody has said something to it just now."""
        draft.events.append(RunFinished(id=self._journal.space.ids(), status=status, why=why))
        draft.meta = RunMeta(agent_version=self.kept.record.agent_version, termination=status)
        self._journal.stage(draft)
        fields: dict[str, Any] = {"why": why, "kind": kind, "stop": stop, "pending": None}
        if status == "failed" or status == "cancelled":
            return self._let_go(status, self._branch.leave, *cells, **fields)
        return self._let_go(status, self._branch.join, *cells, **fields, line=None)

    def close(self, status: RunState, why: str, kind: str | None = None) -> None:
        """End a run that did not come to its own end."""
        while True:
            self._journal.unstage()
            self._settle_open()
            cells = self._take_in()
            draft = self._journal.draft("run_finished", forced=True)
            if status == "failed" and self.kept.record.on_failure == "restore" and not self._branch.apart:
                restore(self._journal, draft, self._round_context.env.agent.run_scoped_paths())
            if self.finish(draft, status, why, cells, kind=kind):
                return

    def _let_go(
        self, status: RunState, leave: Callable[[Sequence[CellWrite]], None], *cells: CellWrite, **fields: Any
    ) -> bool:
        """Take the run to `status` and let the line go, in one write; False: something has to be done first."""
        while not self._is_hindered(status):
            told, kept = records.moved(self.kept, status, at=self._round_context.now(), **fields)
            try:
                leave((*cells, *told, releasing(self._lease)))
            except Moved:
                if not self._is_changed():
                    raise
            else:
                self.kept = kept
                return True
        return False

    def _is_hindered(self, status: RunState) -> bool:
        """Whether what the record says comes first: to stop where it was to wait, to hear where it was to end."""
        record = self.kept.record
        return record.cancel is not None if status == "waiting" else record.steered != self._heard

    def _leave_bare(self, cells: Sequence[CellWrite]) -> None:
        records.apply(self._journal.space, "wait", *cells)

    def _is_changed(self) -> bool:
        """Read the run's record again; whether others have changed it.  Raises `Lost` if they have ended the run."""
        before, self.kept = self.kept, records.read(self._journal.space, self._journal.run)
        if self.kept.record.state != "running":
            raise Lost(self._lease)
        return self.kept.revision != before.revision

    def _take_in(self) -> list[CellWrite]:
        """Put what was said and never heard into the conversation of the line, also if the run leaves its own behind."""
        self._heard = _UNKNOWN  # what was heard may not have been written
        if not self._branch.apart:
            return self.hear()[1]
        own = self._journal.head.timeline
        self._journal.stand_on(self._round_context.env.timeline)
        self._journal.write(cells=self.hear()[1])
        self._journal.stand_on(own)
        return []

    def _settle_open(self) -> None:
        """Tell the conversation what became of calls that the run leaves behind."""
        left = open_round(self._round_context, self.source)
        executor = CallExecutor(self._round_context, self._journal.root, {}, message_id=left.message_id)
        for pending_call in left.pending_calls:
            if pending_call.stage == "suspended":
                withdraw(
                    self._round_context,
                    pending_call,
                    "the run ended before it was decided",
                    message_id=left.message_id,
                    by=self.kept.record.cancelled_by,
                )
            executor.abandon(pending_call)
        settled = [pending_call for pending_call in left.pending_calls if pending_call.stage == "settled"]
        if settled:
            draft = self._journal.draft("tool_results_committed")
            commit_round(self._round_context, settled, draft, message_id=left.message_id)
