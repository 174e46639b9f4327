"""An agent's own map: state that lives across its threads, read and written like a thread's."""

from __future__ import annotations

from contextlib import suppress

from perdure.errors import PerdureError
from perdure.history.standing import Standing
from perdure.runtime.agent import Agent, encoded_defaults
from perdure.threads import directory
from perdure.threads.line import Line
from perdure.threads.loops import blocking
from perdure.threads.shelf import Shelf

__all__ = ["AgentMap"]


@blocking
class AgentMap(Line):
    """The map of one agent.  Nobody but this agent and its threads sees it."""

    def __init__(self, shelf: Shelf, agent: Agent, *, declared: bool) -> None:
        """Hold the map of an agent; reading it begins nothing, and nor does a change that comes to nothing."""
        super().__init__(Standing(space=shelf.agent(agent.name), defaults=encoded_defaults(agent)))
        self._shelf, self._agent, self._declared, self._recorded = shelf, agent, declared, False
        self.name = agent.name

    def _finish(self) -> None:
        """List the agent in the directory.  What was committed is durable; the next change tries it again."""
        if not self._recorded:
            with suppress(PerdureError):
                directory.record_agent(self._shelf.store, self._agent, declared=self._declared)
                self._recorded = True
