"""Sends interactions by Google's SDK; addresses, keys and clients are as for generateContent.

The SDK's typed methods drop unknown fields of a request, so the body is sent as their `extra_body`, and the bytes of the
answer are returned unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from perdure.errors import PerdureError, Unsupported
from perdure.providers.gemini.transport import address, client_of, delay_in
from perdure.providers.transport.address import check_address, guard_redirects, redirection
from perdure.providers.transport.contract import Request
from perdure.providers.transport.errors import Trouble, fault, retry_after, unreached, words_of
from perdure.providers.transport.raw_responses import answer_of

__all__ = ["SDK", "address", "send"]

SDK = (
    "google.genai",
    "google.genai._gaos.lib.compat_errors",
    "google.genai._gaos.utils",
    "httpx2",
)  # the modules that a request needs


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/interactions`, or fetch from there the answer that the server has worked on."""
    client = await client_of(request)
    api = getattr(client, "_api_client", None)
    if api is None or not hasattr(getattr(client, "aio", None), "interactions"):
        raise Unsupported(
            f"{request.backend} is sent by a google.genai.Client; nothing was sent.",
            code="client_unsupported",
            backend=request.backend,
            wanted="google.genai.Client",
        )
    check_address(request, client)
    import httpx2
    from google.genai._gaos.lib.compat_errors import (  # pyright: ignore[reportMissingTypeStubs]
        GeminiNextGenAPIClientError,
    )

    begun = False
    try:
        guard = partial(guard_redirects, request, getattr(api, "_async_httpx_client", None))
        async with aclosing(answer_of(_created(client, request), guard)) as pieces:
            async for piece in pieces:
                begun = True
                yield piece
    except (GeminiNextGenAPIClientError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise _translated(request, error, begun=begun, secret=api.api_key) from error


def _created(client: Any, request: Request) -> Any:
    """Return a request that is not sent yet."""
    interactions = client.aio.interactions if request.client_retries else _without_retries(client)
    if request.pending is not None:
        return interactions.with_streaming_response.get(request.pending, timeout=request.timeout)
    agent = request.body.get("agent")
    return interactions.with_streaming_response.create(
        **({"agent": agent} if agent else {"model": request.model}),
        input="",
        stream=request.stream,
        extra_body={**request.body, "stream": request.stream},
        timeout=request.timeout,
        automatic_continuation=False,
    )


def _without_retries(client: Any) -> Any:
    """Return the client's interactions, set to send each request once; the client itself stays as it is."""
    from google.genai._gaos.utils import BackoffStrategy, RetryConfig

    interactions = type(client.aio.interactions)(client._api_client)
    once = RetryConfig("attempt-count-backoff", BackoffStrategy(1, 1, 1, 1), False, max_retries=0)
    interactions.sdk_configuration.retry_config = once
    return interactions


def _translated(request: Request, error: Exception, *, begun: bool, secret: object) -> PerdureError:
    refused = redirection(error)
    if refused is not None:
        return refused
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return unreached(request.backend, error, begun=begun, server=request.server, secret=secret)
    body: Any = getattr(error, "body", None)
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    wait = None if headers is None else retry_after(headers)
    trouble = Trouble(status, words_of(body) or str(error), delay_in(body) if wait is None else wait)
    return fault(request.backend, trouble, secret=secret)
