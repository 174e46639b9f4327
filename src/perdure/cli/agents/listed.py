"""An agent as these commands list it."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.wording import stamp
from perdure.threads.definitions import Kept

__all__ = ["AgentWord", "VersionShape"]

AgentWord: TypeAlias = Annotated[str, Parameter(name="NAME", help="The agent's name")]


class VersionShape(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent's definition."""

    digest: str
    commit: str  # of the agent's own map
    at: str
    definition: dict[str, Any]

    @classmethod
    def of(cls, kept: Kept) -> VersionShape:
        """The version as programs read it."""
        return cls(
            digest=kept.digest, commit=kept.commit, at=stamp(kept.at), definition=kept.definition.fields
        )
