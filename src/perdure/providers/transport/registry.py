"""Finds the transport of a wire format, imports its SDK, and names the package to install for a missing one.

Other packages add transports by entry points in the group `perdure.transports`, each a function
under the name of its wire format.  Such a function may have an attribute `address`, which returns
the address of a request without sending it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from importlib import import_module
from typing import TypeAlias, cast

from perdure.errors import Unsupported
from perdure.providers.transport.blocking_clients import drawn
from perdure.providers.transport.contract import Request, Send

__all__ = ["GROUP", "Address", "address_of", "load_sdk", "missing", "transport"]

Address: TypeAlias = Callable[[Request], str]
"""Says where a request would go for which the user gave no client; raises a `PerdureError` if it would go nowhere."""

GROUP = "perdure.transports"

_MODULES = {
    "openai-chat": "perdure.providers.openai_chat.transport",
    "openai-responses": "perdure.providers.openai_responses.transport",
    "anthropic-messages": "perdure.providers.anthropic.transport",
    "gemini-generate": "perdure.providers.gemini.transport",
    "bedrock-converse": "perdure.providers.bedrock.transport",
    "mistral-chat": "perdure.providers.mistral.transport",
    "azure-inference-chat": "perdure.providers.foundry.transport",
    "ollama-chat": "perdure.providers.ollama.transport",
    "gemini-interactions": "perdure.providers.gemini_interactions.transport",
}


def transport(api: str) -> Send:
    """Return the transport for a wire format; raises `Unsupported` if no package has one."""
    module = _MODULES.get(api)
    if module is not None:
        return cast("Send", import_module(module).send)
    from importlib.metadata import entry_points  # it loads email, and only a format from elsewhere needs it

    for point in entry_points(group=GROUP, name=api):
        return cast("Send", point.load())
    raise Unsupported(
        f"no transport sends '{api}'; nothing was sent.",
        code="transport_not_found",
        advice=f"Give a backend= that takes steps itself, or register one in the entry point group '{GROUP}'.",
        api=api,
        group=GROUP,
    )


def address_of(api: str) -> Address | None:
    """Return the function that finds a format's address; None if its transport has none."""
    module = _MODULES.get(api)
    if module is not None:
        return cast("Address", import_module(module).address)
    return getattr(transport(api), "address", None)


async def load_sdk(api: str) -> None:
    """Import what the transport of a format sends by, on another thread: that takes seconds, and the loop goes on.

    A package that is not installed is left out: the transport reports it when it sends.
    """
    module = _MODULES.get(api)
    needed: tuple[str, ...] = () if module is None else import_module(module).SDK
    absent = [name for name in needed if name not in sys.modules]
    if absent:
        async with aclosing(drawn(lambda: map(_import, absent))) as imported:
            async for _ in imported:
                pass


def _import(name: str) -> None:
    with suppress(ImportError):
        import_module(name)


def missing(backend: str, package: str, extra: str) -> Unsupported:
    """Return the error for an SDK that is not installed."""
    return Unsupported(
        f"{backend} needs the package '{package}', which is not installed; nothing was sent. "
        f"pip install 'perdure[{extra}]'",
        code="package_missing",
        backend=backend,
        package=package,
        extra=extra,
    )
