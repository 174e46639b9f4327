"""Sending generateContent by Google's SDK, to the Gemini API or to Vertex.

The SDK's typed methods leave out of an answer what they do not know, so the request goes through the
client's own request function below them, which has the same authentication and the same errors.
What the SDK finds of keys and credentials goes to Google alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any, cast

from holdfast.errors import HoldfastError, Invalid, Unsupported
from holdfast.providers.transport.contract import Request
from holdfast.providers.transport.faults import (
    AccessRefused,
    Trouble,
    fault,
    retry_after,
    unreached,
    words_of,
)
from holdfast.providers.transport.finding import missing
from holdfast.providers.transport.holding import held, settings
from holdfast.providers.transport.keys import NO_KEY, is_home

__all__ = ["send"]

_DELAY = re.compile(r"([\d.]+)s")
_ENVIRONMENT = ("GOOGLE_", "GEMINI_")


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `generateContent`, or to `streamGenerateContent`."""
    api = _api_of(await _client_of(request), request)
    import httpx2
    from google.genai import errors

    begun = False
    try:
        async for piece in _answer(api, request):
            begun = True
            yield piece
    except (errors.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise _translated(request, error, begun=begun, secret=api.api_key) from error
    except errors.UnknownApiResponseError as error:
        raise Invalid(f"{request.backend} answered with no JSON; nothing of it was kept.") from error


async def _answer(api: Any, request: Request) -> AsyncGenerator[bytes]:
    options: dict[str, Any] = {"timeout": int(request.timeout * 1000)}
    if not request.client_retries:
        options["retry_options"] = {"attempts": 1}
    path, body = _path(request.model, vertex=bool(api.vertexai)), dict(request.body)
    if not request.stream:
        whole = await api.async_request("post", f"{path}:generateContent", body, options)
        yield str(whole.body).encode()
        return
    streamed = await api.async_request_streamed(
        "post", f"{path}:streamGenerateContent?alt=sse", body, options
    )
    async for chunk in streamed:
        yield b"data: " + str(chunk.body).encode() + b"\n\n"


def _path(model: str, *, vertex: bool) -> str:
    if "/" in model:
        return model
    return f"publishers/google/models/{model}" if vertex else f"models/{model}"


def _api_of(client: Any, request: Request) -> Any:
    api = getattr(client, "_api_client", None)
    if api is None or not hasattr(api, "async_request_streamed"):
        raise Unsupported(f"{request.backend} is sent by a google.genai.Client; nothing was sent.")
    return api


async def _client_of(request: Request) -> Any:
    if request.client is not None:
        return request.client
    try:
        from google import genai
    except ImportError as error:
        raise missing(request.backend, "google-genai", "google") from error
    vertex = True if request.provider == "google-vertex" else None
    ours = is_home(request, "google-vertex" if vertex else "google", "googleapis.com")
    # A key that is given keeps the SDK from looking for one, and for credentials of Google Cloud.
    api_key = request.api_key or (None if ours else NO_KEY)

    def made() -> Any:
        options = genai.types.HttpOptions(base_url=request.base_url) if request.base_url else None
        return genai.Client(vertexai=vertex, api_key=api_key, http_options=options)

    async def close(client: Any) -> None:
        await client.aio.aclose()
        client.close()

    key = ("google", vertex, request.base_url, api_key, settings(*_ENVIRONMENT))
    try:
        return await held(key, made, close)
    except ValueError as error:
        raise AccessRefused(
            f"{request.backend} needs a key, and there is none; set GEMINI_API_KEY, or give api_key="
        ) from error


def _translated(request: Request, error: Exception, *, begun: bool, secret: object) -> HoldfastError:
    status = getattr(error, "code", None)
    if not isinstance(status, int):
        return unreached(request.backend, error, begun=begun, secret=secret)
    details: Any = getattr(error, "details", None)
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or cast("dict[str, Any]", {})
    wait = retry_after(headers)
    trouble = Trouble(status, words_of(details), _delay(details) if wait is None else wait)
    return fault(request.backend, trouble, secret=secret)


def _delay(details: Any) -> float | None:
    """The wait that the body of an error names."""
    found = _DELAY.fullmatch(str(_named(details, "retryDelay") or ""))
    return None if found is None else float(found[1])


def _named(value: Any, name: str) -> Any:
    """The first value by that name, at any depth."""
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        return record[name] if name in record else _named(list(record.values()), name)
    if isinstance(value, list):
        found = (_named(each, name) for each in cast("list[Any]", value))
        return next((each for each in found if each is not None), None)
    return None
