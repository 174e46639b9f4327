"""`perdure agents ls`.

An agent as these commands list it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import ago
from perdure.cli.output.screen import Column, Screen
from perdure.shapes.store import AgentPage
from perdure.shapes.text import now

__all__ = ["AgentWord", "Agents", "ls"]


_COLUMNS = (
    Column("agent", "name", is_id=True),
    Column("backend", gives_way=True),
    Column("tools", right=True, leaves=2),
    Column("threads", right=True),
    Column("applied", "when", leaves=1),
    Column("version", "digest"),
)


class Agents(AgentPage, Answer, frozen=True, kw_only=True):
    """The agents of a store, by name."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.agents:
            screen.suggest("There is no agent here. Keep one: ", "agents", "apply", "-f", "agent.yaml")
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    each.name,
                    each.backend or ("in code" if each.applied_at is None else "none", "quiet"),
                    f"{len(each.tools)}" if each.applied_at else "",
                    f"{each.threads:,}",
                    ago(each.applied_at, at_now) if each.applied_at else "",
                    (each.version or "")[:12],
                )
                for each in self.agents
            ],
        )


def ls(*, everywhere: Everywhere = EVERYWHERE) -> Agents:
    """List agents by name, with their backends, versions and threads"""
    with reading(everywhere) as store:
        return Agents.of(store)


AgentWord: TypeAlias = Annotated[str, Parameter(name="NAME", completer=in_store, help="The agent's name")]
