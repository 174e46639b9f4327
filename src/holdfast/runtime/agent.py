"""What a program declares: an agent, and the paths of state that it uses.

Plain values without I/O.  An agent's name is its identity; agents share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from holdfast.model import canonical, names
from holdfast.model.canonical import Json
from holdfast.runtime.declared import Scope, State, checked, state

__all__ = ["Agent", "Scope", "State", "encoded_defaults", "state"]


@dataclass(frozen=True)
class Agent:
    """The program whose state is kept."""

    name: str
    _: KW_ONLY
    state: Sequence[State] = ()

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be, or state that was not declared with `state`, or twice."""
        names.check_name("agent", self.name)
        object.__setattr__(self, "state", checked(self.name, self.state))

    @property
    def rules(self) -> dict[str, str]:
        """How its state merges: from path prefix to rule."""
        return {each.prefix: each.merge for each in self.state if each.merge is not None}

    @property
    def defaults(self) -> dict[str, Json]:
        """What absent paths are read as; new objects each time."""
        return {path: canonical.decode(body) for path, body in encoded_defaults(self).items()}


def encoded_defaults(agent: Agent) -> dict[str, bytes]:
    """What absent paths are read as, as canonical JSON."""
    return {each.prefix: each.default for each in agent.state if each.default is not None}
