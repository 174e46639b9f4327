"""Sends generateContent by Google's SDK, to the Gemini API or to Vertex.

The SDK's typed methods leave out of an answer what they do not know, so the request goes through the
client's own request function below them, which has the same authentication and the same errors.
What the SDK finds of keys and credentials goes to Google alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncGenerator
from typing import Any, cast

from perdure.errors import PerdureError, Unsupported
from perdure.providers.transport.address import check_address, guard_redirects, redirection
from perdure.providers.transport.client_cache import held, settings
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, is_home
from perdure.providers.transport.errors import (
    Trouble,
    fault,
    key_missing,
    retry_after,
    unknown_to_sdk,
    unreached,
    words_of,
)
from perdure.providers.transport.registry import missing

__all__ = ["SDK", "address", "client_of", "delay_in", "send"]

SDK = ("google.genai", "google.genai.errors", "httpx2")  # the modules that a request needs

_DELAY = re.compile(r"([\d.]+)s")
_ENVIRONMENT = ("GOOGLE_", "GEMINI_")
_OWN = "https://generativelanguage.googleapis.com"
_VERTEX = "https://aiplatform.googleapis.com"
_MULTI_REGIONS = ("us", "eu")  # locations that are served from several regions, under names of another form


def address(request: Request) -> str:
    """Return the address of a request, by the rules of Google's SDK."""
    if request.base_url is not None:
        return request.base_url
    vertex = request.provider == "google-vertex" or _is_vertex_set()
    custom = _sdk_default(vertex=vertex)
    if custom:
        return custom
    if not vertex:
        return _OWN
    location = None if request.api_key else os.environ.get("GOOGLE_CLOUD_LOCATION")
    if location is None or location == "global":
        return _VERTEX
    if location in _MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _is_vertex_set() -> bool:
    """True if the environment sends plain Gemini requests to Vertex."""
    for name in ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"):
        if name in os.environ:
            return os.environ[name].lower() in ("true", "1")
    return False


def _sdk_default(*, vertex: bool) -> str | None:
    """Return the address that a program or the environment set for all clients of the SDK; None: neither did."""
    loaded = sys.modules.get("google.genai._base_url")  # a module that is not loaded has no client
    told = getattr(loaded, "_default_base_vertex_url" if vertex else "_default_base_gemini_url", None)
    return told or os.environ.get("GOOGLE_VERTEX_BASE_URL" if vertex else "GOOGLE_GEMINI_BASE_URL")


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `generateContent`, or to `streamGenerateContent`."""
    client = await client_of(request)
    api = _api_of(client, request)
    check_address(request, client)
    import httpx2
    from google.genai import errors

    begun = False
    try:
        async for piece in _answer(api, request):
            begun = True
            yield piece
    except (errors.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise _translated(request, error, begun=begun, secret=api.api_key) from error
    except (errors.UnknownApiResponseError, TypeError, AttributeError) as error:
        # The SDK takes the shape of an error's body for granted.
        raise unknown_to_sdk(request.backend, error, secret=api.api_key) from error


async def _answer(api: Any, request: Request) -> AsyncGenerator[bytes]:
    options: dict[str, Any] = {"timeout": int(request.timeout * 1000)}
    if not request.client_retries:
        options["retry_options"] = {"attempts": 1}
    path, body = _path(request.model, vertex=bool(api.vertexai)), dict(request.body)
    http_client = getattr(api, "_async_httpx_client", None)
    if isinstance(aiohttp_arguments := getattr(api, "_async_client_session_request_args", None), dict):
        aiohttp_arguments["allow_redirects"] = False  # the SDK prefers aiohttp where it is installed
    if not request.stream:
        with guard_redirects(request, http_client):
            whole = await api.async_request("post", f"{path}:generateContent", body, options)
        yield str(whole.body).encode()
        return
    with guard_redirects(request, http_client):
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
        raise Unsupported(
            f"{request.backend} is sent by a google.genai.Client; nothing was sent.",
            code="client_unsupported",
            backend=request.backend,
            wanted="google.genai.Client",
        )
    return api


async def client_of(request: Request) -> Any:
    """Return the user's client, or one for the address and the key of the request."""
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
        raise key_missing(request.backend, "GEMINI_API_KEY") from error


def _translated(request: Request, error: Exception, *, begun: bool, secret: object) -> PerdureError:
    refused = redirection(error)
    if refused is not None:
        return refused
    status = getattr(error, "code", None)
    if not isinstance(status, int):
        return unreached(request.backend, error, begun=begun, server=request.server, secret=secret)
    details: Any = getattr(error, "details", None)
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or cast("dict[str, Any]", {})
    wait = retry_after(headers)
    trouble = Trouble(status, words_of(details), delay_in(details) if wait is None else wait)
    return fault(request.backend, trouble, secret=secret)


def delay_in(details: Any) -> float | None:
    """Return the wait that the body of an error names."""
    found = _DELAY.fullmatch(str(_named(details, "retryDelay") or ""))
    return None if found is None else float(found[1])


def _named(value: Any, name: str) -> Any:
    """Return the first value by that name, at any depth."""
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        return record[name] if name in record else _named(list(record.values()), name)
    if isinstance(value, list):
        found = (_named(each, name) for each in cast("list[Any]", value))
        return next((each for each in found if each is not None), None)
    return None
