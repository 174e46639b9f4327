"""What is known of a model, as it is shown, and where the user's own file of models is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from perdure.cli.output.screen import Screen, console
from perdure.errors import NotFound
from perdure.providers import registry
from perdure.providers.catalog import Card, Catalog, chosen
from perdure.providers.profile import backend_profile, check_model

__all__ = [
    "ModelShape",
    "PricesShape",
    "abilities",
    "dollars",
    "known_backend",
    "known_models",
    "meant_backend",
    "previewed_backend",
    "tokens",
]


class PricesShape(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens, at list price and for short prompts."""

    input: float
    output: float
    cache_read: float | None
    cache_write: float | None


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider: its limits in tokens, what it takes, gives and can do, and its prices."""

    backend: str
    provider: str
    name: str
    known: bool  # false: these are defaults
    described_as: str | None  # the entry of the catalog, where it has another name
    maker: str
    context_window: int
    input_limit: int
    output_limit: int | None
    input: list[str]
    output: list[str]
    tools: bool
    strict: bool
    reasoning: bool
    computer_use: bool
    prices: PricesShape | None
    released: str | None
    deprecated: bool
    ends: str | None  # the day on which the vendor stops serving it; null: not announced
    note: str | None
    sources: list[str]
    unconfirmed: list[str]  # fields that only one source says

    @classmethod
    def of(cls, card: Card) -> ModelShape:
        """Return the card in the shape of --json."""
        prices = card.prices
        return cls(
            backend=card.backend,
            provider=card.provider,
            name=card.name,
            known=card.known,
            described_as=card.described_as,
            maker=card.maker or card.provider,
            context_window=card.context_window,
            input_limit=card.input_max,
            output_limit=card.output_limit,
            input=list(card.input),
            output=list(card.output),
            tools=card.tools,
            strict=card.strict,
            reasoning=card.reasoning,
            computer_use=card.computer_use,
            prices=None if prices is None else PricesShape(**msgspec.structs.asdict(prices)),
            released=card.released,
            deprecated=card.deprecated,
            ends=card.ends,
            note=card.note,
            sources=list(card.sources),
            unconfirmed=list(card.unconfirmed),
        )


def known_models() -> Catalog:
    """Return the catalog, overlaid with the user's own file if there is one."""
    return chosen(os.environ, Path.home())


def known_backend(name: str) -> str:
    """Return `provider:model` for a name; raises `NotFound` or `Invalid`, with names that are close."""
    name, models = meant_backend(name), known_models()
    check_model(name, backend_profile(name, models), models)
    return name


def meant_backend(name: str) -> str:
    """Return `provider:model` for a name; for a family its newest model, which is printed on the error stream."""
    models = known_models()
    provider, colon, model = name.partition(":")
    is_known = models.card(provider, model).known if colon else models.resolve(name) is not None
    current = None if is_known else models.current(name)
    if current is None:
        return registry.in_full(name, lambda: models)
    note = f"{name} is {current} here: the newest of its family in the catalog of {models.date}."
    Screen(console(stderr=True)).say((note, "quiet"))
    return current


def previewed_backend(name: str) -> str:
    """Return as `meant_backend` does; of a model that is not known, the error stream has what it may have meant."""
    name, models = meant_backend(name), known_models()
    try:
        check_model(name, backend_profile(name, models), models, undone="its provider's defaults are taken")
    except NotFound as error:
        if error.code != "model_not_found":
            raise
        Screen(console(stderr=True)).say((f"! {error.message}", "warn"))
    return name


def abilities(model: ModelShape) -> str:
    """Return the names of the model's abilities."""
    able = {
        "tools": model.tools,
        "strict": model.strict,
        "reasoning": model.reasoning,
        "computer": model.computer_use,
    }
    return " ".join(name for name, can in able.items() if can)


def tokens(limit: int | None) -> str:
    """Return a number of tokens, short: 128k, 1M."""
    if limit is None:
        return ""
    if limit >= 1_000_000:
        return f"{limit / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"
    return f"{limit / 1_000:.0f}k" if limit >= 10_000 else str(limit)


def dollars(price: float | None) -> str:
    """Return a price for a million tokens."""
    if price is None:
        return ""
    return f"${price:.2f}" if round(price, 2) == price else f"${price:.4f}".rstrip("0")
