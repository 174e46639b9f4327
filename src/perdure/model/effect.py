"""Effects: how far a tool reaches, and what follows from it.

A level, in rising order, and whether a call may be repeated with the same key.  Everything
that decides whether a call may run again asks here, so that the rule stands in one place.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Invalid

__all__ = ["EFFECTS", "Effect", "Reach", "check_decider", "check_effect", "higher", "within"]

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
        """Whether it changes anything at all; then `started` is durable before the tool is called."""
        return _RANK[self.effect] >= _LOCAL

    @property
    def repeatable(self) -> bool:
        """Whether a call that was cut off may simply run again."""
        return self.idempotent or not self.writes

    @property
    def guarded(self) -> bool:
        """Whether it is an external write: the repeat guard watches it."""
        return _RANK[self.effect] >= _EXTERNAL and not self.idempotent


def higher(one: Reach, other: Reach) -> Reach:
    """What governs where two say how far a call reaches: the higher level, and repeatable only if both say so."""
    effect = one.effect if within(other.effect, one.effect) else other.effect
    return Reach(effect, one.idempotent and other.idempotent)


def within(effect: Effect, most: Effect | None) -> bool:
    """Whether `effect` is allowed where `most` is the highest that is; None allows all."""
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
    """`effect` if it is one; raises `Invalid`."""
    if effect not in EFFECTS:
        raise Invalid(f"{effect!r} is not an effect; nothing was declared. Use one of {', '.join(EFFECTS)}.")
    return effect
