"""Providers: what a backend is to a run, and the translators for each vendor's wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.providers.contract import Adapter

__all__ = ["Adapter", "adapter"]


def adapter(api: str) -> Adapter:
    """The adapter for a wire format, such as `openai-chat`; raises `NotFound` if there is none of that name."""
    from holdfast.providers import registry

    return registry.adapter(api)


def __getattr__(name: str) -> object:
    if name == "Adapter":
        from holdfast.providers.contract import Adapter

        return Adapter
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
