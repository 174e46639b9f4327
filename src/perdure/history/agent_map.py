"""Standing: where a handle stands, and how the agent's own map looks from there.

`main` sees its agent's map as it is.  Any other line sees it as it was at the line's own
commit, and from its first change on as a line of its own in the agent's space.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from perdure.engines.contract import Step
from perdure.history.space import Space
from perdure.model.commit import NO_READS, Reads
from perdure.model.digest import Digest
from perdure.model.event import AgentChanged
from perdure.model.head import MAIN, Head

__all__ = ["AgentMapView", "TimelineContext", "agent_after", "applied_id"]


class TimelineContext(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline of one space, and what surrounds it."""

    space: Space
    timeline: str = MAIN
    agent: Space | None = None  # the agent's own space; None: this is it
    defaults: Mapping[str, bytes] = {}  # what absent paths are read as, in canonical JSON

    @property
    def agent_line(self) -> str:
        """The line of the agent's map that this timeline writes to."""
        if self.timeline == MAIN:
            return MAIN
        return "fork/" + sha256(f"{self.space.name}\n{self.timeline}".encode()).hexdigest()[:16]

    def sight(self, head: Head) -> AgentMapView:
        """The agent's map as seen from `head`."""
        agent = self.agent
        if agent is None:
            return AgentMapView(MAIN, None, NO_READS)
        line = self.agent_line
        hold = agent.engine.hold(agent.name, line)
        if hold is not None:
            commit = hold.head.commit
        elif head.commit is None:
            commit = self._at_first(agent)
        else:
            commit = agent_after(agent, self.space.step(head.commit))
        reads = Reads(agent_root=agent.root_at(commit), agent_commit=commit) if commit else NO_READS
        return AgentMapView(line, commit, reads)

    def _at_first(self, agent: Space) -> Digest | None:
        """The agent's commit as of the thread's first one, which a fork from before it sees; now if there is none."""
        space = self.space
        begun = space.engine.moves(space.name, MAIN, before=2, limit=1) if self.timeline != MAIN else ()
        to = begun[0].to if begun else None
        if to is None:
            hold = agent.engine.hold(agent.name, MAIN)
            return hold.head.commit if hold else None
        (first,) = space.back(to, skip=space.step(to).commit.depth, limit=1)
        return first.commit.reads.agent_commit


class AgentMapView(msgspec.Struct, frozen=True):
    """A moment of the agent's map, and the line that changes to it go to."""

    line: str
    commit: Digest | None
    reads: Reads


def agent_after(agent: Space, step: Step) -> Digest | None:
    """The agent's commit as of the thread's commit `step`, with what that commit itself changed."""
    if any(isinstance(event, AgentChanged) for event in step.changeset.events):
        applied = agent.engine.recorded(agent.name, applied_id(step.digest))
        if applied is not None:
            return applied.receipt.heads[0].commit
    return step.commit.reads.agent_commit


def applied_id(commit: Digest) -> str:
    """The op_id of the write that takes a thread's commit over to the agent's map."""
    return f"from:{commit}"
