"""`perdure models ls`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.models.shapes import ModelShape, abilities, dollars, known_models, tokens
from perdure.cli.options import EVERYWHERE, Everywhere, Limit
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Cell, Column, Screen

__all__ = ["Models", "ls"]

_COLUMNS = (
    Column("model", "name"),
    Column("window", right=True, leaves=5),
    Column("output", right=True, leaves=3),
    Column("takes", gives_way=True, leaves=1),
    Column("can", gives_way=True, leaves=2),
    Column("in", right=True),
    Column("out", right=True),
    Column("", leaves=4),
)
_MAIN = {"context_window", "output_limit", "prices"}


class Models(Answer, frozen=True, kw_only=True):
    """The models that are known, by provider, and the day of the data."""

    date: str
    models: list[ModelShape]
    more: bool  # whether there are others beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table, and what its marks mean."""
        if not self.models:
            screen.say("No such model is known.")
            return
        screen.table(_COLUMNS, [_row(each) for each in self.models])
        said = f"Dollars for a million tokens, as of {self.date}; ? where only one source gives a limit or a price"
        screen.say((f"{said}; until: the day on which the vendor stops serving it.", "quiet"))
        if self.more:
            screen.say((f"The first {count(len(self.models), 'model')}; --limit 0 lists all.", "quiet"))


def ls(
    provider: Annotated[
        str | None, Parameter(name="PROVIDER", help="Only the models of this provider", show_default=False)
    ] = None,
    /,
    *,
    all: Annotated[
        bool, Parameter(name="--all", negative=(), show_default=False, help="List deprecated models, too")
    ] = False,
    limit: Limit = 100,
    everywhere: Everywhere = EVERYWHERE,
) -> Models:
    """List the known models, their abilities and their end dates

    No store is needed. The data comes with Perdure; a file of your own, `$PERDURE_MODELS` or
    `~/.config/perdure/models.json`, is laid over it.
    """
    catalog = known_models()
    listed = [each for each in catalog.cards(provider) if all or not each.deprecated]
    found, more = cut_off(listed, limit)
    return Models(date=catalog.date, models=[ModelShape.of(each) for each in found], more=more)


def _row(model: ModelShape) -> tuple[Cell, ...]:
    doubt = "?" if _MAIN & set(model.unconfirmed) else ""
    mark = f"until {model.ends}" if model.ends else "deprecated" if model.deprecated else doubt
    prices = model.prices
    return (
        model.backend,
        tokens(model.context_window),
        tokens(model.output_limit),
        " ".join(each for each in model.input if each != "text"),
        abilities(model),
        dollars(prices.input) if prices else "",
        dollars(prices.output) if prices else "",
        (mark, "quiet"),
    )
