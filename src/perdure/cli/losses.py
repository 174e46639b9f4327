"""What could not be carried over unchanged, as programs and people read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.cli.screen import Column, Screen
from perdure.cli.wording import count
from perdure.providers.contract import Loss

__all__ = ["LossShape", "StepLossShape", "losses_of", "show_losses", "step_losses"]

_COLUMNS = (
    Column("loss"),
    Column("where", "name", gives_way=True),
    Column("what", gives_way=True),
    Column("why", "quiet", gives_way=True),
)


class LossShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was converted, repaired or dropped: where in the conversation, what, and why."""

    kind: str
    where: str
    what: str
    why: str


class StepLossShape(LossShape, frozen=True, kw_only=True):
    """One thing of that kind in a step of a run; `message` is what the model said in the step."""

    message: str


def step_losses(message: str, losses: Iterable[Loss]) -> list[StepLossShape]:
    """The losses of the step that said a message, as programs read them."""
    return [
        StepLossShape(kind=each.kind, where=each.where, what=each.what, why=each.why, message=message)
        for each in losses
    ]


def losses_of(losses: Iterable[Loss]) -> list[LossShape]:
    """The losses as programs read them."""
    return [LossShape(kind=each.kind, where=each.where, what=each.what, why=each.why) for each in losses]


def show_losses(screen: Screen, losses: Sequence[LossShape]) -> None:
    """Print how many there are, and a table of them."""
    if not losses:
        screen.say(("✓ ", "good"), "nothing is lost")
        return
    screen.say(("! ", "warn"), f"{count(len(losses), 'thing')} could not be carried over unchanged:")
    screen.table(_COLUMNS, [(each.kind, each.where, each.what, each.why) for each in losses], indent=2)
