"""State as it is declared: a path with everything below it, and how long it lives.

Plain values without I/O, handed to an agent or a plug-in, never a global.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

import msgspec

from perdure.errors import Invalid
from perdure.model import canonical, names
from perdure.model.merge_rules import Rule, check_rules

__all__ = ["Scope", "State", "checked", "state"]

Scope: TypeAlias = Literal["thread", "run", "call"]

SCOPES = ("thread", "run", "call")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A path of state with everything below it: how long it lives, what it is at first, how it merges."""

    prefix: str
    scope: Scope = "thread"
    default: bytes | None = (
        None  # canonical JSON, which cannot be altered; None: an absent path is `NotFound`
    )
    merge: Rule | None = None  # None: two timelines that changed it differently are in conflict


def state(
    prefix: str, *, scope: Scope = "thread", default: Any = msgspec.UNSET, merge: Rule | None = None
) -> State:
    """Declare a path of state; raises `Invalid` for a prefix, scope, default or rule that cannot be."""
    names.check_prefix(prefix)
    if scope not in SCOPES:
        raise Invalid(
            f"{scope!r} (for {prefix}) is not a scope.",
            code="state_scope_invalid",
            advice=f"Use one of {', '.join(SCOPES)}.",
            scope=scope,
            prefix=prefix,
        )
    if merge is not None:
        check_rules({prefix: merge})
    kept = None if default is msgspec.UNSET else canonical.encode(default)
    return State(prefix=prefix, scope=scope, default=kept, merge=merge)


def checked(agent: str, declared: object) -> tuple[State, ...]:
    """Return what an agent declares; raise `Invalid` for anything else, and for a path that is declared twice."""
    if not isinstance(declared, Iterable):
        raise Invalid(
            f"the state of agent '{agent}' is a list, not {declared!r}; nothing was declared.",
            code="state_declaration_invalid",
            agent=agent,
        )
    found: dict[str, State] = {}
    for each in cast("Iterable[object]", declared):
        if not isinstance(each, State):
            raise Invalid(
                f"{each!r} does not declare state of agent '{agent}'; nothing was declared.",
                code="state_declaration_invalid",
                advice="Use perdure.state(…).",
                agent=agent,
            )
        if each.prefix in found:
            raise Invalid(
                f"agent '{agent}' declares {each.prefix} twice; nothing was declared.",
                code="state_declared_twice",
                advice="Keep one.",
                agent=agent,
                path=each.prefix,
            )
        found[each.prefix] = each
    return tuple(found.values())
