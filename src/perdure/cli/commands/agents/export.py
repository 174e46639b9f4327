"""`perdure agents export`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.commands.agents.ls import AgentWord
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import agent_names, guessing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import NotFound
from perdure.runtime.agent.file import API_VERSION, write_definition
from perdure.store.agents import Definitions, Kept

__all__ = ["AgentExportAnswer", "export"]


class AgentExportAnswer(Answer, frozen=True, kw_only=True):
    """One version of an agent, as the file that would apply it."""

    api_version: str
    kind: str
    name: str
    version: str
    spec: dict[str, Any]
    text: str

    def show(self, screen: Screen) -> None:
        """Print the file."""
        screen.say(self.text.rstrip("\n"))


def export(
    name: AgentWord,
    /,
    *,
    version: Annotated[
        str | None, Parameter(metavar="DIGEST", help="A version by its first digits; the newest if left out")
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> AgentExportAnswer:
    """Write the definition of an agent as a file"""
    with reading(everywhere) as store, guessing(name, lambda: agent_names(store)):
        kept = _version(store.definitions, name, version)
    return AgentExportAnswer(
        api_version=API_VERSION,
        kind="Agent",
        name=name,
        version=kept.digest,
        spec=kept.definition.fields,
        text=write_definition(name, kept.definition),
    )


def _version(definitions: Definitions, name: str, version: str | None) -> Kept:
    newest = definitions.get(name)
    if version is None:
        return newest
    found = next(
        (kept for kept in definitions.versions(name) if version and kept.digest.startswith(version)), None
    )
    if found is None:
        raise NotFound(
            f"agent '{name}' has no version '{version}'; nothing was written.",
            code="version_not_found",
            advice=f"See them: perdure agents show {name}",
            agent=name,
            version=version,
        )
    return found
