"""Reads the catalog: limits, prices and features of models, as data with a date and sources.

    catalog.shipped().card("openai", "gpt-5.6").context_window
    catalog.shipped().resolve("gpt-5.6")                       "openai:gpt-5.6"

The data is `models.json` beside this file.  A user's file of the same form overrides it, field by field;
the caller passes its path.  An unknown model gets its provider's defaults and a note that says so: asking
for a provider's model never fails.

A server may add a region, a date, a variant or the maker to a model's name.  The catalog also looks for the
name without them: `us.amazon.nova-pro-v1:0` is `amazon.nova-pro-v1:0`, `gpt-5.4-2026-03-05` is `gpt-5.4`,
`anthropic/claude-haiku-4.5` is Anthropic's `claude-haiku-4-5`.  A name without its version is that of a
family: `claude-sonnet-5-5` is one of `claude-sonnet`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.model.canonical import prepared
from perdure.model.names import did_you_mean
from perdure.model.run import Usage

__all__ = [
    "elsewhere",
    "family_of",
    "spellings",
    "Card",
    "Catalog",
    "Modality",
    "Prices",
    "chosen",
    "read",
    "shipped",
]


_REGION = re.compile(r"^(?:us-gov|us|eu|apac|global|jp|au|in|ca|sa)\.")
_PROFILE = re.compile(r"^arn:[^/]*/")
_VARIANT = re.compile(r":(?:free|thinking|nitro|floor|latest|cloud|groq)$")
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|\d{4}|00\d|latest|preview|exp)(?:-v\d+(?::\d+)?)?$")
_PREVIEW = re.compile(r"-(?:preview|exp)(?:-[\d-]+)?$")
_SIZE = re.compile(r":[\w.-]+$")
# A word of a name that tells the models of a family apart.
_VERSION = re.compile(r"v?\d+(?:\.\d+)*|latest|preview|exp")
_FIELDS_MAX = 8  # a name is cut so often at most


def spellings(name: str) -> Iterator[str]:
    """Return `name`, then the same without region, variant, date and size, each form once."""
    told: set[str] = set()
    for bare in (name, _PROFILE.sub("", name)):
        for each in _cut(_REGION.sub("", bare)):
            if each and each not in told:
                told.add(each)
                yield each


def elsewhere(name: str) -> Iterator[str]:
    """Yield names under which the model's maker may have it: without the folders before it, dots as dashes."""
    last = name.rpartition("/")[2]
    for each in spellings(last.lower()):
        yield each
        yield each.replace(".", "-")


def family_of(name: str) -> str:
    """Return the name of a model without its version and date: the name of its family."""
    return "-".join(word for word in name.split("-") if not _VERSION.fullmatch(word))


def _cut(name: str) -> Iterator[str]:
    yield name
    for _ in range(_FIELDS_MAX):
        shorter = _shorter(name)
        if shorter == name:
            return
        name = shorter
        yield name


def _shorter(name: str) -> str:
    for pattern in (_VARIANT, _DATE, _PREVIEW, _SIZE):
        if pattern.search(name):
            return pattern.sub("", name)
    return name


Modality: TypeAlias = Literal["text", "image", "file", "audio", "video"]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_BYTES_MAX = 8 * 1024 * 1024  # of a user's file


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """US dollars for a million tokens, at the vendor's list price for short prompts."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Return what a step costs in US dollars; tokens of a cache without a price cost as much as other input."""
        read, written = usage.cached_tokens, usage.cache_write_tokens
        plain = max(0, usage.input_tokens - read - written)
        return (
            plain * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        ) / 1_000_000


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of the data."""

    context_window: int = 32_768  # tokens, input and output together
    input_limit: int | None = None  # tokens; None: the whole window
    output_limit: int | None = None  # tokens; None: not known
    input: tuple[Modality, ...] = ("text",)
    output: tuple[Modality, ...] = ("text",)
    tools: bool = False
    strict: bool = False  # keeps to a JSON schema
    reasoning: bool = False
    computer_use: bool = False
    prices: Prices | None = None
    released: str | None = None
    deprecated: bool = False
    ends: str | None = None  # the day (YYYY-MM-DD) on which the vendor stops serving it; None: not announced
    maker: str | None = None  # whose model it is, where the provider serves another's
    also: tuple[str, ...] = ()  # other names for it
    note: str | None = None
    sources: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()  # fields that only one source says


class Card(Facts, frozen=True, kw_only=True):
    """The facts about one model on one server."""

    provider: str
    name: str  # as it was asked for
    known: bool = True  # False: these are defaults
    described_as: str | None = None  # the entry that this is, where it goes by another name

    @property
    def backend(self) -> str:
        """Return its name as a backend."""
        return f"{self.provider}:{self.name}" if self.provider else self.name

    @property
    def input_max(self) -> int:
        """Return the largest number of tokens in a request."""
        return min(self.input_limit or self.context_window, self.context_window)


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    date: str = ""
    sources: dict[str, str] = {}
    aliases: dict[str, str] = {}
    defaults: dict[str, dict[str, msgspec.Raw]] = {}
    models: dict[str, dict[str, dict[str, msgspec.Raw]]] = {}


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """All known models, by provider."""

    date: str  # of the shipped data
    sources: Mapping[str, str]  # what the short names of sources mean
    aliases: Mapping[str, str]  # providers that have the models of another
    defaults: Mapping[str, Facts]
    models: Mapping[str, Mapping[str, Facts]]

    def card(self, provider: str, model: str) -> Card:
        """Return the card of `model` on that provider's server; for an unknown model the defaults, with a note."""
        home = self.aliases.get(provider, provider)
        for spelled in spellings(model):
            if name := self._entry(home, spelled):
                return _card(provider, model, self.models[home][name], home, None if name == model else name)
        return self._made_elsewhere(provider, model) or self._unknown(provider, model, home)

    def of(self, backend: str) -> Card:
        """Return the card of `provider:model`, or of a model's name that is unique."""
        provider, colon, model = backend.partition(":")
        if colon and (provider in self.aliases or provider in self.models):
            return self.card(provider, model)
        found = self.resolve(backend)
        if found is not None:
            return self.card(*found.split(":", 1))
        return self.card(provider, model) if colon else self.card("", backend)

    def resolve(self, name: str) -> str | None:
        """Return `provider:name` for a model's name that names one model; None if it is unknown.

        If several providers serve it, its maker's is meant.  Raises `Invalid` if its maker is none of them.
        """
        for spelled in spellings(name):
            homes = self._homes(spelled)
            if len(homes) > 1:
                raise _ambiguous(name, homes)
            if homes:
                return f"{homes[0]}:{name}"
        return None

    def current(self, name: str) -> str | None:
        """Return `provider:model` for the newest model of a family, such as `claude-sonnet`; None if there is no such family.

        Deprecated models and those whose end is announced are not current.
        Raises `Invalid` if several makers have a family of that name.
        """
        provider, colon, family = name.partition(":")
        homes = [self.aliases.get(provider, provider)] if colon else list(self.models)
        found = [home for home in homes if self._newest(home, family if colon else name) is not None]
        own = [home for home in found if colon or self._is_maker(home, name)]
        if len(own or found) > 1:
            raise _ambiguous(name, own or found)
        for home in own or found:
            return f"{provider if colon else home}:{self._newest(home, family if colon else name)}"
        return None

    def _newest(self, home: str, family: str) -> str | None:
        """Return the name of the newest model of that family: the first in the data, unless another was released later."""
        newest: str | None = None
        released = "9999"  # of a model without a date: a vendor's models are listed newest first
        for name, facts in self.models.get(home, {}).items():
            if facts.deprecated or facts.ends is not None or family_of(name) != family:
                continue
            if newest is None or (facts.released or "") > released:
                newest, released = name, facts.released or "9999"
        return newest

    def _is_maker(self, home: str, family: str) -> bool:
        return self.models[home][self._newest(home, family) or ""].maker in (None, home)

    def cards(self, provider: str | None = None) -> list[Card]:
        """Return all that are known, or all of one provider; raises `NotFound` for one without models."""
        if provider is None:
            return [self.card(home, name) for home, entries in self.models.items() for name in entries]
        home = self.aliases.get(provider, provider)
        if home not in self.models:
            there = sorted({*self.models, *self.aliases})
            raise NotFound(
                f"the catalog has no models of '{provider}'; nothing was listed. {did_you_mean(provider, there)}"
                f"There are: {', '.join(there)}.",
                code="provider_not_found",
                provider=provider,
            )
        return [self.card(provider, name) for name in self.models[home]]

    def _entry(self, home: str, spelled: str) -> str | None:
        """Return the name of the entry that is meant."""
        entries = self.models.get(home, {})
        if spelled in entries:
            return spelled
        return next((name for name, facts in entries.items() if spelled in facts.also), None)

    def _homes(self, spelled: str) -> list[str]:
        """Return the providers of a model of that name; only its maker, if that is one of them."""
        homes = [home for home in self.models if self._entry(home, spelled) is not None]
        own = [home for home in homes if self._facts(home, spelled).maker in (None, home)]
        return own or homes

    def _facts(self, home: str, spelled: str) -> Facts:
        return self.models[home][self._entry(home, spelled) or ""]

    def _made_elsewhere(self, provider: str, model: str) -> Card | None:
        """Return the maker's facts about a model that this provider serves under a name like the maker's."""
        for spelled in elsewhere(model):
            for home in self._homes(spelled)[:1]:
                entry = self._entry(home, spelled) or ""
                return _served(provider, model, self.models[home][entry], home, entry)
        return None

    def _unknown(self, provider: str, model: str, home: str) -> Card:
        facts = self.defaults.get(home, self.defaults[""])
        whose = f"the defaults of {home}" if home and home in self.defaults else "careful defaults"
        note = f"'{model}' is not in the catalog: these are {whose}"
        card = _card(provider, model, facts, home, None)
        return msgspec.structs.replace(card, known=False, note=note)


@cache
def shipped() -> Catalog:
    """Return the catalog that comes with Perdure."""
    from importlib.resources import files  # few need it

    data = files("perdure.providers").joinpath("models.json").read_bytes()
    return _laid(_decoded(data, "models.json"), None, "models.json")


def read(path: Path) -> Catalog:
    """Return the shipped catalog with a user's file laid over it.

    Raises `NotFound` if there is no such file, `Invalid` if it is not of the form of `models.json`.
    """
    try:
        with path.open("rb") as file:
            body = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise NotFound(
            f"the models in '{path}' cannot be read: {error}; nothing was done.",
            code="catalog_not_found",
            path=str(path),
        ) from error
    if len(body) > _BYTES_MAX:
        raise Invalid(
            f"'{path}' has more than {_BYTES_MAX} bytes; nothing was done.",
            advice="Is it a list of models?",
            code="catalog_too_large",
            path=str(path),
        )
    return _laid(_decoded(body, str(path)), shipped(), str(path))


def chosen(environment: Mapping[str, str], home: Path) -> Catalog:
    """Return the catalog of this user: `$PERDURE_MODELS`, else `~/.config/perdure/models.json`, else what is shipped."""
    named = environment.get("PERDURE_MODELS")
    if named:
        return read(Path(named))
    usual = home / ".config" / "perdure" / "models.json"
    return read(usual) if usual.is_file() else shipped()


def _decoded(body: bytes, where: str) -> _Data:
    try:
        return msgspec.json.decode(body, type=prepared(_Data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(f"'{where}'", f"this is no catalog of models: {error}") from error


def _laid(data: _Data, under: Catalog | None, where: str) -> Catalog:
    """Return the catalog `under` with the fields of `data` over it."""
    defaults = dict(under.defaults) if under else {}
    for provider, fields in data.defaults.items():
        defaults[provider] = _over(defaults.get(provider), fields, f"{where}: defaults.{provider}")
    models = {provider: dict(entries) for provider, entries in under.models.items()} if under else {}
    for provider, entries in data.models.items():
        known = models.setdefault(provider, {})
        for name, fields in entries.items():
            first = known.get(name) or defaults.get(provider) or defaults[""]
            known[name] = _over(first if under else None, fields, f"{where}: models.{provider}.{name}")
    return Catalog(
        date=under.date if under else data.date,
        sources={**(under.sources if under else {}), **data.sources},
        aliases={**(under.aliases if under else {}), **data.aliases},
        defaults=defaults,
        models=models,
    )


def _over(facts: Facts | None, fields: dict[str, msgspec.Raw], where: str) -> Facts:
    shape: dict[str, Any] = msgspec.to_builtins(facts) if facts else {}
    try:
        made = msgspec.convert(
            shape | {key: msgspec.json.decode(raw) for key, raw in fields.items()}, prepared(Facts)
        )
    except (msgspec.ValidationError, RecursionError) as error:
        raise _invalid(where, str(error)) from error
    if made.ends is not None and not _DAY.fullmatch(made.ends):
        raise _invalid(where, f"ends is a day such as 2026-11-30, not {made.ends!r}")
    for name in ("context_window", "input_limit", "output_limit"):
        limit: int | None = getattr(made, name)
        if limit is not None and limit <= 0:
            raise _invalid(where, f"{name} is a number of tokens, not {limit}")
    return made


def _card(provider: str, model: str, facts: Facts, home: str, entry: str | None) -> Card:
    whose = msgspec.structs.replace(facts, maker=facts.maker or home)
    return Card(**msgspec.structs.asdict(whose), provider=provider, name=model, described_as=entry)


def _served(provider: str, model: str, facts: Facts, home: str, entry: str) -> Card:
    """Return the maker's card for what another serves."""
    server = provider or "this server"
    note = f"described as {home}:{entry}, as its maker serves it; the prices of {server} are not known"
    # Each service has its own prices, and stops serving a model on a day of its own.
    bare = msgspec.structs.replace(facts, prices=None, ends=None, note=note)
    return _card(provider, model, bare, home, f"{home}:{entry}")


def _invalid(where: str, fault: str) -> Invalid:
    return Invalid(f"{where}: {fault}; nothing was done.", code="catalog_invalid", where=where)


def _ambiguous(name: str, homes: Sequence[str]) -> Invalid:
    choices = [f"{home}:{name}" for home in homes]
    return Invalid(
        f"several providers have models '{name}'; nothing was done.",
        advice=f"Write {' or '.join(choices)}.",
        code="model_ambiguous",
        model=name,
        choices=choices,
    )
