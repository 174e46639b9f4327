"""Providers: what a backend is to a run, and the translators for each vendor's wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.providers.contract import Adapter

__all__ = ["Adapter", "adapter"]


def adapter(api: str) -> Adapter:
    """Return the adapter for a wire format, such as `openai-chat`; raises `NotFound` if there is none of that name."""
    from perdure.providers import registry

    return registry.adapter(api)


# What is told of adapters and lives elsewhere is found here too, without anything being loaded before.
_HOMES = {
    "Adapter": "perdure.providers.contract",
    "CanonicalAgentState": "perdure.projections.state",
    "Context": "perdure.model.context",
    "Loss": "perdure.providers.contract",
    "Rendered": "perdure.providers.contract",
    "Reply": "perdure.providers.contract",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        found: object = getattr(import_module(_HOMES[name]), name)
        return found
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
