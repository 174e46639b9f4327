"""Reads raw bytes from the SDKs of OpenAI and Anthropic, whose requests are context managers.

OpenAI's and Anthropic's SDKs give, from `with_streaming_response`, a manager of a response: one for
`async with` from their async clients, one for `with` from the others.  Both kinds are read here, and
the errors of both SDKs, which look alike, become ours.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from typing import Any, TypeAlias

from perdure.errors import PerdureError
from perdure.providers.transport.address import redirection
from perdure.providers.transport.blocking_clients import drawn
from perdure.providers.transport.contract import Request
from perdure.providers.transport.errors import Trouble, fault, retry_after, unreached, words_of

__all__ = ["Guard", "answer_of", "estranged", "patient", "translated"]

Guard: TypeAlias = Callable[[], AbstractContextManager[None]]
"""What a request is sent within."""

# What these SDKs take from the environment, beside the key, and put into headers.
_AMBIENT = ("organization", "project", "admin_api_key", "auth_token")


async def answer_of(opening: Any, guard: Guard = nullcontext) -> AsyncGenerator[bytes]:
    """Yield the bytes of the response that `opening` opens within `guard`, as they come."""
    if not hasattr(opening, "__aenter__"):
        async for piece in drawn(lambda: _pieces(opening, guard)):
            yield piece
        return
    async with AsyncExitStack() as stack:
        with guard():
            response = await stack.enter_async_context(opening)
        async for piece in response.iter_bytes():
            yield piece


def patient(client: Any, request: Request) -> Any:
    """Return the client without retries of its own, unless it is the user's and has them."""
    # One of ours repeats nothing, and a copy of it would read the environment once more.
    if request.client is None or request.client_retries or not hasattr(client, "with_options"):
        return client
    return client.with_options(max_retries=0)


def estranged(client: Any, headers: Mapping[str, str] | None = None) -> Any:
    """Return the client of ours without what it found in the environment; `headers` are sent with each request."""
    for name in _AMBIENT:
        if hasattr(client, name):
            setattr(client, name, None)
    client._custom_headers = dict(headers or {})  # the SDKs always add the headers of *_CUSTOM_HEADERS
    return client


def translated(
    request: Request, error: Exception, *, begun: bool, secret: object = None, adds_version: bool = False
) -> PerdureError:
    """Return our error for an error of such an SDK, or of its HTTP client; `adds_version`: it adds /v1 to addresses."""
    refused = redirection(error)
    if refused is not None:
        return refused
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return unreached(request.backend, error, begun=begun, server=request.server, secret=secret)
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    said = words_of(getattr(error, "body", None)) or str(error)
    wait = None if headers is None else retry_after(headers)
    doubled = request.base_url if adds_version else None
    return fault(request.backend, Trouble(status, said, wait), secret=secret, doubled=doubled)


def _pieces(opening: Any, guard: Guard) -> Iterator[bytes]:
    with ExitStack() as stack:
        with guard():
            response = stack.enter_context(opening)
        yield from response.iter_bytes()
