"""Finds adapters by name; the only module that knows which adapters exist.

    adapter("openai-chat")            by the name of the wire format
    target("openai:gpt-5.6")          by the name of a backend: wire format, whose server, model
    target("gpt-5.6")                 the same: the name is unique in the catalog

Other packages add wire formats by entry points in the group `perdure.adapters`, each an adapter
under the name of its format.  An adapter is imported when it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from perdure.errors import Invalid, NotFound, Unsupported
from perdure.model import names
from perdure.model.names import did_you_mean
from perdure.providers import catalog
from perdure.providers.catalog import Catalog
from perdure.providers.contract import Adapter

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

__all__ = ["APIS", "GROUP", "Target", "adapter", "find_target", "in_full", "providers", "target"]

GROUP = "perdure.adapters"

_MODULES = {
    "openai-chat": "perdure.providers.openai_chat.adapter",
    "openai-responses": "perdure.providers.openai_responses.adapter",
    "anthropic-messages": "perdure.providers.anthropic.adapter",
    "gemini-generate": "perdure.providers.gemini.adapter",
    "bedrock-converse": "perdure.providers.bedrock.adapter",
    "mistral-chat": "perdure.providers.mistral.adapter",
    "azure-inference-chat": "perdure.providers.foundry.adapter",
    "ollama-chat": "perdure.providers.ollama.adapter",
    "gemini-interactions": "perdure.providers.gemini_interactions.adapter",
}

APIS: tuple[str, ...] = tuple(_MODULES)

# By the part of a backend's name before the colon: the wire format, and the provider of the server.
_BACKENDS = {
    "openai": ("openai-responses", "openai"),
    "openai-responses": ("openai-responses", "openai"),
    "openai-chat": ("openai-chat", "openai"),
    "anthropic": ("anthropic-messages", "anthropic"),
    "google": ("gemini-generate", "google"),
    "gemini": ("gemini-generate", "google"),
    "vertex": ("gemini-generate", "google-vertex"),
    "bedrock": ("bedrock-converse", "bedrock"),
    "mistral": ("mistral-chat", "mistral"),
    "azure": ("azure-inference-chat", "azure"),
    "foundry": ("azure-inference-chat", "azure"),
    "ollama-chat": ("ollama-chat", "ollama"),
    "gemini-interactions": ("gemini-interactions", "google"),
}
_SCRIPTED = "script"  # the models of `perdure.testing`, for which no installed package is searched


class Target(NamedTuple):
    """The meaning of a backend's name."""

    api: str  # the wire format
    provider: str  # the provider of the server
    model: str


def adapter(api: str) -> Adapter:
    """Return the adapter for a wire format; raises `NotFound` if no package has one of that name."""
    module = _MODULES.get(names.check_label("api", api))
    return _shipped(api, module) if module is not None else _installed(api)


def target(backend: str, models: Catalog | None = None) -> Target:
    """Return the meaning of `provider:model`, or of a model's name that is unique in `models`; None: the shipped catalog.

    Raises `Invalid` if the text names no backend, `NotFound` for an unknown provider.
    """
    found = find_target(backend, models)
    if found is not None:
        return found
    name, colon, model = backend.partition(":")
    if not colon or not name or not model:
        raise Invalid(
            f"'{backend}' names no backend; nothing was done.",
            advice="Write provider:model, such as openai:gpt-5.6.",
            code="backend_name_invalid",
            backend=backend,
        )
    known = _known()
    raise NotFound(
        f"no provider is called '{name}'; nothing was done.",
        advice=f"{did_you_mean(name, known)}There are: {', '.join(known)}.",
        code="provider_not_found",
        provider=name,
        known=known,
    )


def find_target(backend: str, models: Catalog | None = None) -> Target | None:
    """Return the same, or None if the text names no backend that is known; raises `Invalid` if it could mean several."""
    name, colon, model = backend.partition(":")
    known = _provider(name) if colon and model else None
    if known is not None:
        return Target(*known, model)
    found = (models or catalog.shipped()).resolve(backend) if backend else None
    if found is None:
        return None
    provider, _, model = found.partition(":")
    return Target(*(_provider(provider) or ("openai-chat", provider)), model)


def in_full(backend: str, models: Callable[[], Catalog]) -> str:
    """Return `provider:model` for a model's name in that catalog; any other name unchanged."""
    provider, colon, _ = backend.partition(":")
    if not backend or (colon and _provider(provider) is not None):
        return backend
    return models().resolve(backend) or backend


def providers() -> dict[str, tuple[str, str]]:
    """Return every name that may be written before the colon: its wire format, and whose server it is."""
    return {name: found for name in _known() if (found := _provider(name)) is not None}


def _provider(name: str) -> tuple[str, str] | None:
    """Return the wire format and the server that the part before the colon means."""
    return _BACKENDS.get(name) or _compatible(name) or _third(name)


def _compatible(name: str) -> tuple[str, str] | None:
    """Return a server that speaks OpenAI's Chat Completions under a name of its own."""
    return ("openai-chat", name) if name in _servers() else None


def _third(name: str) -> tuple[str, str] | None:
    """Return a format of another package, which is also the name of its backend."""
    if name == _SCRIPTED:
        return None
    return (name, name) if name in _MODULES or _entry_points().select(name=name) else None


def _servers() -> frozenset[str]:
    from perdure.providers.openai_chat.servers import SERVERS

    return frozenset(SERVERS)


def _known() -> list[str]:
    return sorted({*_BACKENDS, *_servers(), *(point.name for point in _entry_points())})


@cache
def _shipped(api: str, module: str) -> Adapter:
    try:
        return cast("Adapter", import_module(module).ADAPTER)
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"the adapter for '{api}' cannot be loaded: {error}; nothing was done.",
            code="adapter_unloadable",
            api=api,
        ) from error


def _installed(api: str) -> Adapter:
    """Return the adapter that an installed package registers under that name."""
    found = sorted(_entry_points().select(name=api), key=lambda point: point.value)
    if not found:
        known = sorted({*APIS, *(point.name for point in _entry_points())})
        raise NotFound(
            f"no adapter is called '{api}'; nothing was done.",
            advice=f"{did_you_mean(api, known)}There are: {', '.join(known)}. "
            f"Others register in the entry point group '{GROUP}'.",
            code="adapter_not_found",
            api=api,
            known=known,
        )
    if len({point.value for point in found}) > 1:
        packages = ", ".join(point.value for point in found)
        raise Invalid(
            f"several packages serve '{api}' ({packages}); nothing was done.",
            advice="Uninstall all but one.",
            code="adapter_ambiguous",
            api=api,
        )
    return _loaded(found[0])


def _loaded(point: EntryPoint) -> Adapter:
    try:
        return cast("Adapter", point.load())
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"the adapter '{point.name}' ({point.value}) cannot be loaded: {error}; nothing was done.",
            code="adapter_unloadable",
            api=point.name,
        ) from error


def _entry_points() -> EntryPoints:
    return _entry_points_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _entry_points_on(path: tuple[str, ...]) -> EntryPoints:
    """Return what the installed packages register; reading them takes milliseconds, so it is done once for each path."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
