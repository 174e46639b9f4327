"""Sends Chat by Mistral's SDK.

The SDK takes a request field by field and checks each against its types.  A streamed answer is read
raw; of a whole one the SDK keeps the fields that it knows.  What it finds of keys and tokens goes to
Mistral alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from perdure.errors import PerdureError
from perdure.providers.transport.address import check_address, guard_redirects, redirection
from perdure.providers.transport.client_cache import held, settings
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, is_home
from perdure.providers.transport.errors import (
    RequestRejected,
    Trouble,
    fault,
    retry_after,
    unknown_to_sdk,
    unreached,
    words_of,
)
from perdure.providers.transport.registry import missing
from perdure.providers.wire.fields.vendor_items import json_or_text

__all__ = ["SDK", "address", "send"]

SDK = (
    "mistralai.client",
    "mistralai.client.chat",
    "mistralai.client.errors",
    "pydantic",
    "httpx2",
)  # the modules that a request needs

_OWN = "https://api.mistral.ai"


def address(request: Request) -> str:
    """Return the address of a request."""
    return request.base_url or _OWN


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/v1/chat/completions`."""
    client = await _client_of(request)
    import httpx2
    from mistralai.client import errors
    from pydantic import ValidationError

    check_address(request, client)
    begun = False
    try:
        async for piece in _answer(client, request):
            begun = True
            yield piece
    except (errors.MistralError, errors.NoResponseError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise _translated(request, error, begun=begun) from error
    except (TypeError, ValidationError) as error:
        raise RequestRejected(
            f"the SDK does not take the request: {error}; nothing was sent.",
            code="request_rejected",
            backend=request.backend,
        ) from error


async def _answer(client: Any, request: Request) -> AsyncGenerator[bytes]:
    fields = {**request.body, "model": request.model, "timeout_ms": int(request.timeout * 1000)}
    fields.pop("stream", None)
    if not request.client_retries:
        fields["retries"] = None
    http_client = getattr(getattr(client, "sdk_configuration", None), "async_client", None)
    if not request.stream:
        with guard_redirects(request, http_client):
            whole = await client.chat.complete_async(**fields)
        yield whole.model_dump_json(by_alias=True, warnings=False).encode()
        return
    with guard_redirects(request, http_client):
        opened = await client.chat.stream_async(**fields)
    async with opened as events:
        async for piece in events.response.aiter_bytes():
            yield piece


async def _client_of(request: Request) -> Any:
    if request.client is not None:
        return request.client
    try:
        from mistralai.client import Mistral
    except ImportError as error:
        raise missing(request.backend, "mistralai", "mistral") from error

    api_key = _key_of(request)

    def made() -> Any:
        return Mistral(api_key=api_key, server_url=request.base_url)

    async def close(client: Any) -> None:
        await client.__aexit__(None, None, None)
        client.__exit__(None, None, None)

    key = ("mistral", request.base_url, api_key, settings("MISTRAL_"))
    return await held(key, made, close)


def _key_of(request: Request) -> str | None:
    """Return the key; None: where the SDK looks for it."""
    # A key that is given keeps the SDK from looking for one, and for the token of a service account.
    return request.api_key or (None if is_home(request, "mistral", "mistral.ai") else NO_KEY)


def _translated(request: Request, error: Exception, *, begun: bool) -> PerdureError:
    refused = redirection(error)
    if refused is not None:
        return refused
    status, secret = getattr(error, "status_code", None), _key_of(request)
    if not isinstance(status, int):
        return unreached(request.backend, error, begun=begun, server=request.server, secret=secret)
    if status < 400:
        return unknown_to_sdk(request.backend, error, secret=secret)
    headers: Any = getattr(error, "headers", {})
    said = words_of(json_or_text(getattr(error, "body", "")))
    trouble = Trouble(status, said, retry_after(headers))
    return fault(request.backend, trouble, secret=secret, doubled=request.base_url)
