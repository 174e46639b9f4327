"""Sends Ollama's native chat, by the plain requests of OpenAI's SDK.

The SDK is used for its connection alone: the body goes to `/api/chat` as it was rendered.  The key in
`OLLAMA_API_KEY` goes to ollama.com, to the server in `OLLAMA_HOST`, and where the user says that the address is
Ollama's (`provider=`); a server on this machine needs none.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from perdure.providers.openai_chat.transport import sent
from perdure.providers.transport.client_cache import held
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, host_of, is_under, is_vouched
from perdure.providers.transport.raw_responses import estranged
from perdure.providers.transport.registry import missing

__all__ = ["SDK", "address", "send"]

SDK = ("openai", "openai.resources.chat.completions", "httpx2")  # the modules that a request needs

_LOCAL, _CLOUD = "http://localhost:11434", "https://ollama.com"


def address(request: Request) -> str:
    """Return the address of a request."""
    return request.base_url or (_CLOUD if request.provider == "ollama-cloud" else _host())


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/api/chat`."""
    client = await _client_of(request)
    async with aclosing(sent(request, client, _created)) as pieces:
        async for piece in pieces:
            yield piece


async def _client_of(request: Request) -> Any:
    if request.client is not None:
        return request.client
    try:
        import openai
    except ImportError as error:
        raise missing(request.backend, "openai", "openai") from error
    base_url = address(request)
    is_found = request.base_url is None and bool(os.environ.get("OLLAMA_HOST", "").strip())
    is_owner = is_found or is_vouched(request, "ollama", "ollama-cloud")
    own = is_owner or is_under(host_of(base_url), "ollama.com")
    api_key = request.api_key or (os.environ.get("OLLAMA_API_KEY") if own else None) or NO_KEY

    def made() -> Any:
        return estranged(
            openai.AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=request.timeout, max_retries=0)
        )

    return await held(("ollama", base_url, api_key, request.timeout), made, openai.AsyncOpenAI.close)


def _created(client: Any, request: Request) -> Any:
    """Return a request that is not sent yet."""
    from openai import AsyncOpenAI
    from openai._constants import RAW_RESPONSE_HEADER
    from openai._response import AsyncResponseContextManager, ResponseContextManager

    body = {**request.body, "model": request.model, "stream": request.stream}
    options = {"headers": {RAW_RESPONSE_HEADER: "stream"}, "timeout": request.timeout}
    ask = partial(client.post, "/api/chat", cast_to=object, body=body, options=options)
    if isinstance(client, AsyncOpenAI):
        return AsyncResponseContextManager(ask())
    return ResponseContextManager(ask)


def _host() -> str:
    """Return the address in `OLLAMA_HOST`, which may leave out scheme and port; the usual one if it is not set."""
    host = os.environ.get("OLLAMA_HOST", "").strip()
    if not host:
        return _LOCAL
    if "://" in host:
        return host
    return f"http://{host}" if ":" in host else f"http://{host}:11434"
