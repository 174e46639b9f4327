"""`perdure agents show`."""

from __future__ import annotations

from itertools import islice

from perdure.cli.commands.agents.ls import AgentWord
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import no_agent
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import ago, count, moment
from perdure.cli.output.screen import Column, Part, Screen
from perdure.shapes.store import AgentDetail, VersionShape
from perdure.shapes.text import now, safe_json

__all__ = ["AgentShowAnswer", "show"]

_SHOWN = 10
_LONG = ("instructions", "personality")
_COLUMNS = (
    Column("version", "digest"),
    Column("applied", "when", leaves=1),
    Column("backend", gives_way=True),
    Column("commit", "digest"),
)


class AgentShowAnswer(AgentDetail, Answer, frozen=True, kw_only=True):
    """One agent: its definition, the last versions of it, and its threads."""

    def show(self, screen: Screen) -> None:
        """Print the newest definition, then the versions."""
        screen.say((self.name, "title"))
        if not self.versions:
            screen.say(("No definition is kept: this agent is declared in code.", "quiet"))
        else:
            self._show_definition(screen, self.versions[0])
        screen.gap()
        shown = ", ".join(self.threads[:_SHOWN]) + (", …" if len(self.threads) > _SHOWN else "")
        screen.say(count(len(self.threads), "thread"), (f": {shown}" if shown else "", "quiet"))
        if len(self.versions) > 1:
            self._show_versions(screen)

    def _show_definition(self, screen: Screen, version: VersionShape) -> None:
        fields = version.definition
        said: list[tuple[str, Part]] = [
            ("version", (version.digest[:12], "digest")),
            ("applied", moment(version.at)),
        ]
        said += [
            (name, each if isinstance(each, str) else safe_json(each, indent=None))
            for name, each in fields.items()
            if name not in _LONG
        ]
        screen.facts(said)
        for name in _LONG:
            if fields.get(name):
                screen.say((name, "quiet"))
                screen.wrap(fields[name].strip(), indent=2)

    def _show_versions(self, screen: Screen) -> None:
        screen.gap()
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (each.digest[:12], ago(each.at, at_now), each.definition.get("backend", ""), each.commit[:12])
                for each in self.versions
            ],
        )


def show(name: AgentWord, /, *, everywhere: Everywhere = EVERYWHERE) -> AgentShowAnswer:
    """Show one agent: its definition, its versions and its threads"""
    with reading(everywhere) as store:
        versions = [VersionShape.of(kept) for kept in islice(store.definitions.versions(name), _SHOWN)]
        threads = [thread.id for thread in store.threads(agent=name)]
        if not versions and name not in {*store.agents()} and not threads:
            raise no_agent(store, name, "nothing was read")
        return AgentShowAnswer(name=name, threads=threads, versions=versions)
