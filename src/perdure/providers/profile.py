"""Collects the facts about a backend before anything is sent to it: capabilities, window, wire format.

Capabilities come from the wire format, the server and the catalog.  An adapter knows its format, the servers
that speak it and the generations of models; the catalog knows single models.  The lower level of the two
counts.  A model object may describe itself with `supports` and `window`.  Unknown capabilities count as
supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.model.names import did_you_mean, near
from perdure.providers import registry
from perdure.providers.backend import Backend
from perdure.providers.capabilities import Capability, Level, least
from perdure.providers.catalog import Card, Catalog
from perdure.providers.contract import Model
from perdure.providers.registry import Target

__all__ = [
    "MEDIA",
    "STRICT",
    "SelfDescribedModel",
    "BackendProfile",
    "BackendRef",
    "check_backend",
    "check_model",
    "backend_profile",
    "name_of",
    "same",
    "of",
]


def of(target: Target, models: Catalog) -> dict[Capability, Level]:
    """Return the level of every capability at `target`; raises `NotFound` if there is no adapter for its format."""
    adapter = registry.adapter(target.api)
    card = models.card(target.provider, target.model)
    missing = frozenset(_missing(card)) if card.known else frozenset[Capability]()
    return {
        each: least(
            adapter.supports(each, model=target.model, provider=target.provider),
            "none" if each in missing else "full",
        )
        for each in Capability
    }


def _missing(card: Card) -> Iterator[Capability]:
    """Yield the capabilities that a model lacks by the catalog."""
    for modality, capabilities in _MODALITIES.items():
        if modality not in card.input:
            yield from capabilities
    if not card.tools:
        yield from _TOOLS
    if not card.reasoning:
        yield from (Capability.REASONING, Capability.REASONING_HISTORY)
    if not card.strict:
        yield from (Capability.STRICT_TOOLS, Capability.STRUCTURED_OUTPUT)
    if not card.computer_use:
        yield Capability.COMPUTER_USE


_MODALITIES = {
    "image": (Capability.IMAGES, Capability.IMAGE_URLS),
    "file": (Capability.DOCUMENTS, Capability.DOCUMENT_URLS),
    "audio": (Capability.AUDIO,),
    "video": (Capability.VIDEO,),
}
_TOOLS = (
    Capability.TOOLS,
    Capability.PARALLEL_TOOLS,
    Capability.TOOL_CHOICE,
    Capability.STRICT_TOOLS,
    Capability.TOOL_RESULT_MEDIA,
    Capability.TOOL_ERRORS,
)


STRICT = frozenset({"openai", "anthropic", "google", "mistral"})  # whose models the catalog knows

MEDIA = {
    "image": Capability.IMAGES,
    "file": Capability.DOCUMENTS,
    "audio": Capability.AUDIO,
    "video": Capability.VIDEO,
}

BackendRef: TypeAlias = str | Backend | Model
"""What may be handed in where a backend is wanted."""


@runtime_checkable
class SelfDescribedModel(Protocol):
    """A model that describes its own capabilities."""

    def supports(self, capability: str) -> Level | None:
        """Return the level of a capability; None: that of the backend it is named after."""
        ...

    @property
    def window(self) -> int | None:
        """Return the tokens that it takes in all; None: as what it is named after."""
        ...


class BackendProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a backend that a conversation may be sent to."""

    name: str  # provider:model, as it is recorded
    target: Target | None = None  # None: a model object of no known format
    levels: Mapping[Capability, Level] | None = None  # None: not known
    window: int | None = None  # tokens, in all; None: not known
    note: str | None = None  # what is to be known of what is known

    def does(self, capability: Capability) -> Level:
        """Return the level of a capability; an unknown one counts as supported."""
        return "full" if self.levels is None else self.levels.get(capability, "full")

    @property
    def unseen(self) -> tuple[str, ...]:
        """Return the kinds of media that it takes none of."""
        return tuple(kind for kind, capability in MEDIA.items() if self.does(capability) == "none")


def backend_profile(given: BackendRef, models: Catalog) -> BackendProfile:
    """Return the profile of a backend; raises `Invalid` or `NotFound` if the name means none."""
    check_backend(given)
    name = registry.in_full(given, lambda: models) if isinstance(given, str) else name_of(given)
    target = _format(given, models)
    if target is None:
        seen = BackendProfile(
            name=name, note=f"the capabilities of {name} are unknown; they count as supported"
        )
    else:
        card = models.card(target.provider, target.model)
        seen = BackendProfile(
            name=name,
            target=target,
            levels=of(target, models),
            window=card.context_window,
            note=card.note if not card.known else None,
        )
    if isinstance(given, str | Backend) or not isinstance(given, SelfDescribedModel):
        return seen
    return _described(seen, given)


def _described(seen: BackendProfile, model: SelfDescribedModel) -> BackendProfile:
    """Return the profile with the model's own description, which has precedence."""
    levels = {each: model.supports(each.value) or seen.does(each) for each in Capability}
    return msgspec.structs.replace(seen, levels=levels, window=model.window or seen.window, note=None)


def name_of(given: BackendRef) -> str:
    """Return the name under which a backend is recorded."""
    if isinstance(given, str):
        return given
    return given.name if isinstance(given, Backend) else given.backend


def same(one: str, other: str, models: Catalog) -> bool:
    """True if two names mean the same backend."""
    if one == other:
        return True
    try:
        return registry.in_full(one, lambda: models) == registry.in_full(other, lambda: models)
    except Invalid:  # one of them could mean several
        return False


def check_backend(given: object) -> None:
    """Raise `Invalid` for what cannot take a step."""
    takes_steps = not isinstance(given, type) and callable(getattr(given, "step", None))
    if isinstance(given, str | Backend) or (takes_steps and isinstance(getattr(given, "backend", None), str)):
        return
    raise Invalid(
        f"{given!r} is no backend; nothing was done.",
        code="not_a_backend",
        advice="Give a name such as 'anthropic:…', a Backend, or an object that takes steps, such as "
        "testing.Script(…).",
    )


def check_model(
    given: BackendRef, seen: BackendProfile, models: Catalog, *, undone: str = "nothing was done"
) -> None:
    """Raise `NotFound` for a name that its vendor's models do not have; a Backend is taken at its word."""
    if not isinstance(given, str) or seen.target is None or seen.target.provider not in STRICT:
        return
    provider, model = seen.target.provider, seen.target.model
    if models.card(provider, model).known:
        return
    hint = did_you_mean(model, (card.name for card in models.cards(provider)), likeness=0.5)
    raise NotFound(
        f"{provider} has no model '{model}' that is known; {undone}. {hint}".rstrip(),
        code="model_not_found",
        advice=f"If it is new, say so with Backend('{given}'), or add it to your models file.",
        provider=provider,
        model=model,
    )


def _format(given: BackendRef, models: Catalog) -> Target | None:
    """Return wire format, server and model; None for a model object under a name of its own."""
    if isinstance(given, Backend):
        return given.target
    if isinstance(given, str):
        return _named(given, models)
    try:
        return registry.find_target(given.backend, models)
    except Invalid:  # it could mean several
        return None


def _named(name: str, models: Catalog) -> Target:
    """Return the meaning of a name; the error for an unknown one suggests similar names."""
    try:
        return registry.target(name, models)
    except Invalid as error:
        known = {card.name: card.backend for card in reversed(models.cards())}
        meant = " or ".join(known[each] for each in near(name, known))
        if not meant:
            raise
        raise Invalid(
            f"'{name}' names no backend; nothing was done. Did you mean {meant}?",
            code="backend_name_invalid",
            backend=name,
        ) from error
