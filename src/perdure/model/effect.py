"""Defines the effects of tools: how far a call reaches, and whether it may be repeated.

An effect is a level, in rising order.  Every decision whether a call may run again uses this module, so that the
rule is in one place.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Invalid

__all__ = ["EFFECTS", "Effect", "Reach", "check_decider", "check_effect", "higher", "lower", "within"]

Effect: TypeAlias = Literal[
    "none",
    "read_only",
    "local_write",
    "external_write",
    "communication",
    "financial",
    "code_execution",
    "privileged",
]

EFFECTS: tuple[Effect, ...] = get_args(Effect)

_RANK = {effect: rank for rank, effect in enumerate(EFFECTS)}
_LOCAL, _EXTERNAL, _FINANCIAL = _RANK["local_write"], _RANK["external_write"], _RANK["financial"]


class Reach(msgspec.Struct, frozen=True):
    """How far a call reaches, and whether it is safe to repeat with the same key."""

    effect: Effect = "external_write"
    idempotent: bool = False

    @property
    def writes(self) -> bool:
        """True if it can change anything; then `started` is durable before the tool is called."""
        return _RANK[self.effect] >= _LOCAL

    @property
    def is_external(self) -> bool:
        """True if it can change anything outside of the thread's own state and machine."""
        return _RANK[self.effect] >= _EXTERNAL

    @property
    def repeatable(self) -> bool:
        """True if an interrupted call may simply run again."""
        return self.idempotent or not self.writes

    @property
    def guarded(self) -> bool:
        """True if the repeat guard checks it: an external write that is not idempotent."""
        return self.is_external and not self.idempotent


def higher(one: Reach, other: Reach) -> Reach:
    """Return the stricter of two declarations: the higher level, and idempotent only if both are."""
    effect = one.effect if within(other.effect, one.effect) else other.effect
    return Reach(effect, one.idempotent and other.idempotent)


def lower(effect: Effect, most: Effect | None) -> Effect:
    """Return the weaker of two bounds; None is no bound."""
    return effect if most is None or within(effect, most) else most


def within(effect: Effect, most: Effect | None) -> bool:
    """True if `effect` is not above `most`, the highest that is allowed; None allows all."""
    return most is None or _RANK[effect] <= _RANK[most]


def check_decider(effect: Effect, by: str | None, what: str) -> None:
    """Raise `Invalid` if a decision about a call of this effect needs a name and has none; `what` names the call."""
    if by is None and _RANK[effect] >= _FINANCIAL:
        raise Invalid(
            f"{what} is {effect}: from financial up it is recorded who decided; nothing was recorded.",
            code="decider_missing",
            advice="Give the name of who decides with by=.",
            effect=effect,
        )


def check_effect(effect: str) -> Effect:
    """Return `effect` if it is one; raises `Invalid`."""
    if effect not in EFFECTS:
        raise Invalid(
            f"{effect!r} is not an effect; nothing was declared.",
            code="effect_unknown",
            advice=f"Use one of {', '.join(EFFECTS)}.",
            effect=effect,
        )
    return effect
