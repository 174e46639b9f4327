"""Plans: what a backend is shown of a conversation, what is left out, and why, tier by tier.

    1 system words, policy, personality, tools      5 relevant long-term memory
    2 the checkpoint                                6 artifacts by reference
    3 active task state                             7 older transcript, where it is needed
    4 the last turns

A plan is data that a user can look at.  Making one writes nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from perdure.context.render.cuts import CutText
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.model.recipe import Recipe
from perdure.providers.contract import Loss

__all__ = ["TIERS", "Item", "Plan", "Tier"]

Tier: TypeAlias = Literal[1, 2, 3, 4, 5, 6, 7]

TIERS: dict[Tier, str] = {
    1: "system, policy, tools",
    2: "checkpoint",
    3: "task state",
    4: "last turns",
    5: "memory",
    6: "artifacts",
    7: "older transcript",
}


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was weighed: a turn, a note, the tools."""

    tier: Tier
    what: str  # for a reader: `turn 12`, `tools (3)`, `mem://…`
    tokens: int
    included: bool
    why: str  # in words
    refs: tuple[str, ...] = ()  # ids of messages, references of memory and artifacts


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A context for one backend, and how it came about."""

    backend: str
    window: (
        int | None
    )  # tokens that the model takes in all; None: nobody knows, and nothing is left out for want of room
    reserved: int  # of these, kept free for the answer
    items: tuple[Item, ...]
    context: Context
    left_out: int = 0  # of the last turns, those that are not shown for want of room
    omitted: tuple[Message, ...] = ()  # of the last turn, the messages that are not shown for want of room
    margin: int = 0  # by how many tokens the count may be off
    recipe: Recipe | None = None  # from which the same context is made again
    history: tuple[
        Message, ...
    ] = ()  # the messages that are shown as they were said, before calls were told in words

    calls_in_words: tuple[str, ...] = ()  # calls before the last switch that are told in sentences
    calls_native: tuple[str, ...] = ()  # those that are shown as call and result

    cuts: tuple[CutText, ...] = ()  # what is shown in part, for want of room
    losses: tuple[
        Loss, ...
    ] = ()  # what is told in words, cut or left out of the last turn, before any adapter renders it

    @property
    def budget(self) -> int | None:
        """Tokens that a request may have; None: not known."""
        return None if self.window is None else self.window - self.reserved

    @property
    def fits(self) -> bool:
        """Whether the request is within the budget even if the count is off by its margin."""
        return self.budget is None or self.tokens + self.margin <= self.budget

    @property
    def tokens(self) -> int:
        """Tokens that are shown, as they were counted."""
        return sum(item.tokens for item in self.items if item.included)

    def of(self, tier: Tier) -> tuple[Item, ...]:
        """The items of one tier."""
        return tuple(item for item in self.items if item.tier == tier)
