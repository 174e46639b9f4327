"""Branching: where a run's commits go, and how they come to the line whose head it is to move.

Under `each_step` they go to the line itself.  Under `on_success` they go to a timeline of the
run's own, begun at the inbound commit; when the run succeeds, or waits, the head moves there in the
same write as the last commit.  If others wrote to the line meanwhile, the run's commits are put
on top of that.  What a failed run wrote is kept on its own line, for a look.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from perdure.engines.contract import CellWrite, Step
from perdure.errors import StaleHead
from perdure.history import reader
from perdure.history.space import Space, agent_after
from perdure.history.writer import Proposal
from perdure.model.commit import Reads
from perdure.model.digest import Digest
from perdure.model.event import AgentChanged
from perdure.model.head import Head
from perdure.runtime.run.start import Started
from perdure.runtime.session.journal import Journal

__all__ = ["RunBranch", "lines_of"]

_PAGE = 100
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")


class RunBranch:
    """The way of one run's commits to the line that it is to move."""

    def __init__(self, journal: Journal, begun: Started) -> None:
        """Begin on the line itself."""
        self._journal, self._begun = journal, begun
        self._main: Head | None = None  # where the line stood when the run left it; None: it has not
        self._base: Digest | None = None

    @property
    def apart(self) -> bool:
        """Whether commits go to a line of the run's own."""
        return self._main is not None

    def begin(self, line: str | None) -> str:
        """Leave the line: from here on commits go to one of the run's own, whose name this gives.

        `line` is the one on which the run was cut off; None: it has none yet.
        """
        main = self._main = self._journal.head
        self._base = main.commit
        if line is None:
            line = self._name()
            self._journal.branch(line)
        else:
            self._journal.stand_on(line)
            self._base = self._shared(main)
            self._main = self._stood(main)
        return line

    def join(self, cells: Sequence[CellWrite]) -> None:
        """Write what is staged, and let the line's head come to it."""
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

    def leave(self, cells: Sequence[CellWrite]) -> None:
        """Write what is staged where the run is, and leave the line's head alone."""
        self._journal.write(cells=cells)

    def _shared(self, main: Head) -> Digest | None:
        """The last commit that the run's line and the other have in common."""
        space = self._journal.space
        own = reader.recent(space, self._journal.head.commit)
        return next(
            (step.digest for step in own if reader.is_ancestor(space, step.digest, main.commit)), None
        )

    def _stood(self, main: Head) -> Head:
        """The head of the line as it was when the run left it; others may have written there since."""
        space, before = self._journal.space, main.version + 1
        while main.commit != self._base:
            moves = space.engine.moves(space.name, main.timeline, before=before, limit=_PAGE)
            found = next((move for move in moves if move.to == self._base), moves[-1])
            main, before = Head(main.timeline, found.version, found.to), found.version
        return main

    def _proposals(self) -> list[Proposal]:
        """The run's own commits as steps that are still to be taken."""
        space = self._journal.space
        found: list[Step] = []
        for step in reader.recent(space, self._journal.head.commit):
            if step.digest == self._base:
                break
            found.append(step)
        return [_proposal(step, self._journal.env.standing.agent) for step in reversed(found)]

    def _name(self) -> str:
        return f"{lines_of(self._journal.run)}{self._begun.lease.epoch}"


def lines_of(run: str) -> str:
    """What the names of a run's own lines begin with."""
    plain = run if _PLAIN.match(run) else sha256(run.encode()).hexdigest()[:32]
    return f"run/{plain}/"


def _proposal(step: Step, agent: Space | None) -> Proposal:
    changeset, commit = step.changeset, step.commit
    # What a commit changes in the agent's map was done when it was written first; it is not done twice.
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
    """The agent's map with what `step` changed there."""
    commit = agent_after(agent, step)
    seen = step.commit.reads.memory_root
    return Reads(agent_root=agent.root_at(commit), agent_commit=commit, memory_root=seen)
