"""What a program declares: an agent, and the paths of state that it uses.

Plain values without I/O.  An agent's name is its identity; agents share nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, cast

import msgspec

from holdfast.errors import Invalid
from holdfast.model import canonical, names
from holdfast.model.canonical import Json
from holdfast.model.joining import Rule, check_rules

__all__ = ["Agent", "Scope", "State", "encoded_defaults", "state"]

Scope: TypeAlias = Literal["thread", "run", "call"]

SCOPES = ("thread", "run", "call")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A path of state with everything below it: how long it lives, what it is at first, how it merges."""

    prefix: str
    scope: Scope = "thread"
    default: bytes | None = (
        None  # canonical JSON, so that nobody can alter it; None: an absent path is `NotFound`
    )
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
    kept = None if default is msgspec.UNSET else canonical.encode(default)
    return State(prefix=prefix, scope=scope, default=kept, merge=merge)


@dataclass(frozen=True)
class Agent:
    """The program whose state is kept."""

    name: str
    _: KW_ONLY
    state: Sequence[State] = ()

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be, or state that was not declared with `state`, or twice."""
        names.check_name("agent", self.name)
        object.__setattr__(self, "state", _checked(self.name, self.state))

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


def _checked(agent: str, declared: object) -> tuple[State, ...]:
    if not isinstance(declared, Iterable):
        raise Invalid(f"the state of agent '{agent}' is a list, not {declared!r}; nothing was declared.")
    found: dict[str, State] = {}
    for each in cast("Iterable[object]", declared):
        if not isinstance(each, State):
            raise Invalid(
                f"{each!r} does not declare state of agent '{agent}'; nothing was declared. Use holdfast.state(…)."
            )
        if each.prefix in found:
            raise Invalid(f"agent '{agent}' declares {each.prefix} twice; nothing was declared. Keep one.")
        found[each.prefix] = each
    return tuple(found.values())
