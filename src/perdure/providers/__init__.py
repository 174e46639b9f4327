"""Providers: the contract between a run and a backend, and an adapter for each vendor's wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.providers.contract import Adapter

__all__ = ["Adapter", "adapter"]


def adapter(api: str) -> Adapter:
    """Return the adapter for a wire format, such as `openai-chat`; raises `NotFound` if there is none of that name."""
    from perdure.providers import registry

    return registry.adapter(api)


# Types of the adapter contract that other modules define.  They are found here too, and loaded on first use.
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
