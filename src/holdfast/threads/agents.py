"""An agent's own map: state that lives across its threads, read and written like a thread's."""

from __future__ import annotations

from holdfast.history.writer import OnConflict
from holdfast.model.head import Head
from holdfast.threads import directory
from holdfast.threads.agent import Agent
from holdfast.threads.change import Change
from holdfast.threads.line import Line
from holdfast.threads.loops import blocking
from holdfast.threads.shelf import Shelf
from holdfast.threads.standing import Standing

__all__ = ["AgentMap"]


@blocking
class AgentMap(Line):
    """The map of one agent.  Nobody but this agent and its threads sees it."""

    def __init__(self, shelf: Shelf, agent: Agent, *, declared: bool) -> None:
        """Hold the map of an agent; reading it begins nothing."""
        super().__init__(Standing(space=shelf.agent(agent.name), defaults=agent.defaults))
        self._shelf, self._agent, self._declared, self._recorded = shelf, agent, declared, False
        self.name = agent.name

    def change(
        self,
        reason: str,
        *,
        on_conflict: OnConflict = "raise",
        op_id: str | None = None,
        author: str | None = None,
        run: str | None = None,
        head: Head | None = None,
    ) -> Change:
        """A block of changes that becomes one commit, or nothing; as on a thread."""
        if not self._recorded:
            directory.record_agent(self._shelf.store, self._agent, declared=self._declared)
            self._recorded = True
        return super().change(reason, on_conflict=on_conflict, op_id=op_id, author=author, run=run, head=head)
