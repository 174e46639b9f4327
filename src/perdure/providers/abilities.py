"""Abilities: what one backend does, by its wire format, its server and its model together.

    abilities.of(registry.target("openai:gpt-5.6"), catalog.shipped())[Capability.AUDIO]     "none"

An adapter knows its format, the servers that speak it and the generations of models; the catalog
knows single models.  Of the two the lower level counts.  What the catalog does not know narrows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.providers import registry
from perdure.providers.capabilities import Capability, Level, least
from perdure.providers.catalog import Card, Catalog
from perdure.providers.registry import Target

__all__ = ["of"]


def of(target: Target, models: Catalog) -> dict[Capability, Level]:
    """The level of every capability at `target`; raises `NotFound` if there is no adapter for its format."""
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
    """What the catalog says that a model does not do."""
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
