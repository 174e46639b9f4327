"""`perdure agents ls`.

An agent as these commands list it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import ago, now, stamp
from perdure.cli.output.screen import Column, Screen
from perdure.store.agents import Kept

__all__ = ["AgentShape", "Agents", "ls", "AgentWord", "VersionShape"]


_COLUMNS = (
    Column("agent", "name", is_id=True),
    Column("backend", gives_way=True),
    Column("tools", right=True, leaves=2),
    Column("threads", right=True),
    Column("applied", "when", leaves=1),
    Column("version", "digest"),
)


class AgentShape(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: how many threads it has, and what is kept of its definition."""

    name: str
    threads: int
    backend: str | None  # null: it is declared in code, or only keeps state
    tools: list[str]
    applied_at: str | None  # null: no definition is kept
    version: str | None


class Agents(Answer, frozen=True, kw_only=True):
    """The agents of a store, by name."""

    agents: list[AgentShape]

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
        threads = Counter(thread.agent for thread in store.threads())
        names = sorted({*store.agents(), *threads})
        found = [(name, store.definitions.find(name)) for name in names]
        return Agents(
            agents=[
                AgentShape(
                    name=name,
                    threads=threads[name],
                    backend=kept.definition.backend if kept else None,
                    tools=list(kept.definition.tools) if kept else [],
                    applied_at=stamp(kept.at) if kept else None,
                    version=kept.digest if kept else None,
                )
                for name, kept in found
            ]
        )


AgentWord: TypeAlias = Annotated[str, Parameter(name="NAME", help="The agent's name")]


class VersionShape(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent's definition."""

    digest: str
    commit: str  # of the agent's own map
    at: str
    definition: dict[str, Any]

    @classmethod
    def of(cls, kept: Kept) -> VersionShape:
        """Return the version in the shape of --json."""
        return cls(
            digest=kept.digest, commit=kept.commit, at=stamp(kept.at), definition=kept.definition.fields
        )
