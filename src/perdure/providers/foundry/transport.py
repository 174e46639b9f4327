"""Sends Chat to Microsoft Foundry's model inference by OpenAI's SDK, with the address of the resource.

The address and the key come from `base_url=` and `api_key=`, or from the variables that Microsoft's
own SDK uses.  The key in a variable goes to the address in its variable and to Microsoft's own, and
what OpenAI's SDK finds in the environment goes to neither.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from perdure.errors import Invalid
from perdure.providers.openai_chat.transport import AZURE, created, sent
from perdure.providers.transport.client_cache import held
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, is_home
from perdure.providers.transport.errors import key_missing
from perdure.providers.transport.raw_responses import estranged
from perdure.providers.transport.registry import missing

__all__ = ["API_VERSION", "SDK", "address", "send"]

SDK = ("openai", "openai.resources.chat.completions", "httpx2")  # the modules that a request needs

API_VERSION = "2024-05-01-preview"

_ADDRESSES = ("AZURE_INFERENCE_ENDPOINT", "AZURE_AI_CHAT_ENDPOINT")
_KEYS = ("AZURE_INFERENCE_CREDENTIAL", "AZURE_AI_CHAT_KEY")


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/chat/completions` of the resource."""
    client = await _client_of(request)
    async with aclosing(sent(request, client, created)) as pieces:
        async for piece in pieces:
            yield piece


def address(request: Request) -> str:
    """Return the address of a request; raises `Invalid` if none is given or in the environment."""
    return _base_url(request)


async def _client_of(request: Request) -> Any:
    if request.client is not None:
        return request.client
    try:
        import openai
    except ImportError as error:
        raise missing(request.backend, "openai", "foundry") from error
    base_url, api_key = _whereabouts(request)
    # The newer address, …/openai/v1, has no versions.
    query = {} if base_url.rstrip("/").endswith("/v1") else {"api-version": API_VERSION}

    def made() -> Any:
        client = openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key, default_query=query, timeout=request.timeout, max_retries=0
        )
        return estranged(client, {"api-key": api_key})

    return await held(("foundry", base_url, api_key, request.timeout), made, openai.AsyncOpenAI.close)


def _base_url(request: Request) -> str:
    base_url = request.base_url or _first(_ADDRESSES)
    if not base_url:
        raise Invalid(
            f"{request.backend} has no address; nothing was sent.",
            code="address_variable_missing",
            advice=f"Set {_ADDRESSES[0]}, or give Backend(…, base_url=…).",
            backend=request.backend,
            variable=_ADDRESSES[0],
        )
    return base_url


def _whereabouts(request: Request) -> tuple[str, str]:
    base_url, own = _base_url(request), _first(_ADDRESSES)
    if not request.api_key and base_url != own and not is_home(request, "azure", *AZURE):
        return base_url, NO_KEY
    api_key = request.api_key or _first(_KEYS)
    if not api_key:
        raise key_missing(request.backend, _KEYS[0])
    return base_url, api_key


def _first(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
