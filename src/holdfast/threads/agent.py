"""What a program declares: an agent, and the paths of state that it uses.

Plain values without I/O.  An agent's name is its identity; agents share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.errors import Invalid
from holdfast.model import canonical, names
from holdfast.model.joining import Rule, check_rules

__all__ = ["Agent", "Scope", "State", "state"]

Scope: TypeAlias = Literal["thread", "run", "call"]

SCOPES = ("thread", "run", "call")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A path of state with everything below it: how long it lives, what it is at first, how it merges."""

    prefix: str
    scope: Scope = "thread"
    default: Any = msgspec.UNSET  # unset: reading an absent path raises `NotFound`
    merge: Rule | None = None  # None: two lines that changed it differently are in conflict


def state(
    prefix: str, *, scope: Scope = "thread", default: Any = msgspec.UNSET, merge: Rule | None = None
) -> State:
    """Declare a path of state; raises `Invalid` for a prefix, scope, default or rule that cannot be."""
    names.check_prefix(prefix)
    if scope not in SCOPES:
        raise Invalid(f"{scope!r} (for {prefix}) is not a scope: use one of {', '.join(SCOPES)}.")
    if merge is not None:
        check_rules({prefix: merge})
    if default is not msgspec.UNSET:
        canonical.encode(default)
    return State(prefix=prefix, scope=scope, default=default, merge=merge)


@dataclass(frozen=True)
class Agent:
    """The program whose state is kept."""

    name: str
    _: KW_ONLY
    state: Sequence[State] = ()

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be."""
        names.check_name("agent", self.name)
        object.__setattr__(self, "state", tuple(self.state))

    @property
    def rules(self) -> dict[str, str]:
        """How its state merges: from path prefix to rule."""
        return {each.prefix: each.merge for each in self.state if each.merge is not None}

    @property
    def defaults(self) -> dict[str, Any]:
        """What absent paths are read as."""
        return {each.prefix: each.default for each in self.state if each.default is not msgspec.UNSET}
