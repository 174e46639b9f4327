"""`perdure providers ls`."""

from __future__ import annotations

import msgspec

from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Column, Screen
from perdure.providers import registry
from perdure.providers.validator import RULES

__all__ = ["ProviderShape", "Providers", "ls"]

_COLUMNS = (Column("provider", "name"), Column("format"), Column("server of"), Column("rules", right=True))


class ProviderShape(msgspec.Struct, frozen=True, kw_only=True):
    """One provider: how it is named in a backend, its wire format, whose server it is, and how many rules there are."""

    name: str
    format: str
    server: str
    rules: int


class Providers(Answer, frozen=True, kw_only=True):
    """The providers: the part of a backend's name before the colon."""

    providers: list[ProviderShape]

    def show(self, screen: Screen) -> None:
        """Print a table."""
        rows = [
            (each.name, each.format, each.server if each.server != each.name else "", f"{each.rules:,}")
            for each in self.providers
        ]
        screen.table(_COLUMNS, rows)


def ls(*, everywhere: Everywhere = EVERYWHERE) -> Providers:
    """List the providers that a backend can name, and their wire formats

    A backend is written provider:model, as openai:gpt-5.6. No store is needed.
    """
    return Providers(
        providers=[
            ProviderShape(name=name, format=api, server=server, rules=len(RULES.get(api, ())))
            for name, (api, server) in registry.providers().items()
        ]
    )
