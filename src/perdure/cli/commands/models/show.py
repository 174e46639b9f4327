"""`perdure models show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.models.shapes import ModelShape, PricesShape, abilities, dollars, known_models
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Part, Screen
from perdure.errors import NotFound
from perdure.model.names import near
from perdure.providers import registry
from perdure.providers.catalog import Catalog

__all__ = ["ModelShown", "show"]


class ModelShown(Answer, frozen=True, kw_only=True):
    """What is known of one model, and the day of the data."""

    date: str
    model: ModelShape
    near: list[str]  # where it is not known: models that may have been meant

    def show(self, screen: Screen) -> None:
        """Print what is known, then what is doubtful."""
        screen.say((self.model.backend, "title"))
        screen.facts(_facts(self.model, self.date))
        if self.model.note:
            note = self.model.note[0].upper() + self.model.note[1:] + "."
            screen.wrap(note, indent=2, label=("! ", "warn"), whole_words=True)
        if self.near:
            meant = f"Did you mean {' or '.join(self.near)}?"
            screen.wrap(meant, indent=2, label=("? ", "warn"), whole_words=True)
        if self.model.unconfirmed:
            doubtful = f"Only one source says: {', '.join(self.model.unconfirmed)}."
            screen.wrap(doubtful, indent=2, label=("? ", "warn"), whole_words=True)


def show(
    model: Annotated[
        str, Parameter(name="MODEL", help="The model, as provider:model, or by its name if that is unique")
    ],
    /,
    *,
    everywhere: Everywhere = EVERYWHERE,
) -> ModelShown:
    """Show one model: its limits, abilities and prices

    A model that is not known is shown with the defaults of its provider, and a note; without a provider that is
    known it is not found. No store is needed.
    """
    catalog = known_models()
    card = catalog.of(model)
    known = {} if card.known else {each.name: each.backend for each in reversed(catalog.cards())}
    close = [known[each] for each in near(card.name, known)]
    if not card.known and not _has_defaults(card.provider, catalog):
        raise _not_found(model, close)
    return ModelShown(date=catalog.date, model=ModelShape.of(card), near=close)


def _has_defaults(provider: str, catalog: Catalog) -> bool:
    """True if a run could use the provider: its models get defaults."""
    return provider in catalog.models or provider in catalog.aliases or provider in registry.providers()


def _not_found(model: str, close: Sequence[str]) -> NotFound:
    hint = f"Did you mean {' or '.join(close)}?" if close else ""
    return NotFound(
        f"there is no model '{model}' that is known, and no provider was named whose defaults it would have; "
        f"nothing was shown. {hint}".rstrip(),
        code="model_not_found",
        advice="Write it as provider:model, or add it to your models file.",
        model=model,
        near=tuple(close),
    )


def _facts(model: ModelShape, date: str) -> Iterator[tuple[str, Part]]:
    if model.described_as:
        yield "described as", model.described_as
    yield "maker", model.maker
    if model.released:
        yield "released", model.released + (", deprecated" if model.deprecated else "")
    if model.ends:
        yield "served", f"until {model.ends}"
    yield "window", f"{model.context_window:,} tokens"
    if model.input_limit < model.context_window:
        yield "input", f"at most {model.input_limit:,} tokens"
    yield "output", "not known" if model.output_limit is None else f"at most {model.output_limit:,} tokens"
    yield "takes", ", ".join(model.input)
    yield "gives", ", ".join(model.output)
    yield "can", abilities(model).replace(" ", ", ") or "nothing beyond that"
    yield "prices", _prices(model.prices)
    if model.sources:
        yield "sources", f"{', '.join(model.sources)}, as of {date}"


def _prices(prices: PricesShape | None) -> str:
    if prices is None:
        return "not known"
    cached = [
        f"{dollars(price)} {what}"
        for price, what in ((prices.cache_read, "from the cache"), (prices.cache_write, "into the cache"))
        if price is not None
    ]
    plain = [f"{dollars(prices.input)} in", f"{dollars(prices.output)} out"]
    return f"{', '.join([*plain, *cached])} for a million tokens"
