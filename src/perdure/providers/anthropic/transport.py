"""Sends Messages by Anthropic's SDK.

The body goes out exactly as it was rendered, and the bytes of the answer come back as they are.
What the SDK finds of keys, tokens, profiles and headers goes to Anthropic alone.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from perdure.providers.transport.address import check_address, guard_redirects
from perdure.providers.transport.client_cache import held, settings
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, is_home
from perdure.providers.transport.errors import AccessRefused, key_missing
from perdure.providers.transport.raw_responses import answer_of, estranged, patient, translated
from perdure.providers.transport.registry import missing

__all__ = ["SDK", "address", "send"]

SDK = ("anthropic", "anthropic.resources.messages", "httpx2")  # the modules that a request needs

_OWN = "https://api.anthropic.com"
_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def address(request: Request) -> str:
    """Return the address of a request."""
    found = request.base_url or os.environ.get("ANTHROPIC_BASE_URL")
    if found or request.api_key or any(os.environ.get(name) for name in _CREDENTIALS):
        return found or _OWN
    return _profile_address() or _OWN


def _profile_address() -> str | None:
    """Return the address in the profile that the SDK reads where no key is given; None if it has none."""
    try:
        import anthropic

        return str(anthropic.Anthropic().base_url)
    except Exception:  # noqa: BLE001  # the SDK is missing, or has no profile: sending says so
        return None


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/v1/messages`."""
    client = await _client_of(request)
    import anthropic
    import httpx2

    check_address(request, client)
    begun = False
    try:
        opening = _created(patient(client, request), request)
        guard = partial(guard_redirects, request, getattr(client, "_client", None))
        async with aclosing(answer_of(opening, guard)) as pieces:
            async for piece in pieces:
                begun = True
                yield piece
    except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError) as error:
        secret = getattr(client, "api_key", None)
        raise translated(request, error, begun=begun, secret=secret, adds_version=True) from error
    except TypeError as error:  # this SDK's report of a missing key
        if "authentication" not in str(error):
            raise
        raise _no_key(request) from error


async def _client_of(request: Request) -> Any:
    if request.client is not None:
        return request.client
    try:
        import anthropic
    except ImportError as error:
        raise missing(request.backend, "anthropic", "anthropic") from error

    ours = is_home(request, "anthropic", "anthropic.com")
    api_key = request.api_key or (None if ours else NO_KEY)  # a key that is given keeps the SDK from looking

    def made() -> Any:
        client = anthropic.AsyncAnthropic(
            base_url=request.base_url, api_key=api_key, timeout=request.timeout, max_retries=0
        )
        return client if ours else estranged(client)

    key = ("anthropic", request.base_url, api_key, ours, request.timeout, settings("ANTHROPIC_"))
    try:
        return await held(key, made, anthropic.AsyncAnthropic.close)
    except anthropic.AnthropicError as error:
        raise _no_key(request) from error


def _created(client: Any, request: Request) -> Any:
    body = dict(request.body)
    betas = body.pop("betas", None)
    return client.messages.with_streaming_response.create(
        model=request.model,
        messages=body.get("messages", []),
        max_tokens=body.get("max_tokens", 1),
        stream=request.stream,
        extra_headers={"anthropic-beta": ",".join(betas)} if betas else None,
        extra_body=body,
        timeout=request.timeout,
    )


def _no_key(request: Request) -> AccessRefused:
    return key_missing(request.backend, "ANTHROPIC_API_KEY")
