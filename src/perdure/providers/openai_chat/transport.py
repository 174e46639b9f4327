"""Sends Chat Completions by OpenAI's SDK, to OpenAI or to any server that speaks the same.

Each server has its address and the name of the variable that holds its key; the key in a variable
goes only to its owner's address, unless the user gives it (`api_key=`).  What the
SDK itself finds, of keys, organizations and headers, goes to OpenAI alone.  The body is sent
exactly as it was rendered, and the bytes of the answer are returned unchanged.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from perdure.errors import Invalid
from perdure.providers.transport.address import LOCAL, check_address, guard_redirects
from perdure.providers.transport.client_cache import held, settings
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import NO_KEY, host_of, is_under, is_vouched
from perdure.providers.transport.errors import key_missing
from perdure.providers.transport.raw_responses import answer_of, estranged, patient, translated
from perdure.providers.transport.registry import missing

__all__ = ["AZURE", "PLACES", "SDK", "ServerPlace", "address", "client_of", "created", "send", "sent"]

SDK = ("openai", "openai.resources.chat.completions", "httpx2")  # the modules that a request needs


class ServerPlace(NamedTuple):
    """The address of a server and the variable of its key."""

    base_url: str | None  # None: OpenAI's own; "": one has to be given
    key: str = ""  # the variable that holds the key; "": it needs none


PLACES: dict[str, ServerPlace] = {
    "openai": ServerPlace(None, "OPENAI_API_KEY"),
    "azure-openai": ServerPlace("", "AZURE_OPENAI_API_KEY"),
    "groq": ServerPlace("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": ServerPlace("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "openrouter": ServerPlace("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vercel-gateway": ServerPlace("https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY"),
    "ollama": ServerPlace("http://localhost:11434/v1"),
    "ollama-cloud": ServerPlace("https://ollama.com/v1", "OLLAMA_API_KEY"),
    "llama.cpp": ServerPlace("http://localhost:8080/v1"),
    "vllm": ServerPlace("http://localhost:8000/v1"),
    "lmstudio": ServerPlace("http://localhost:1234/v1"),
    "xai": ServerPlace("https://api.x.ai/v1", "XAI_API_KEY"),
    "together": ServerPlace("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "cerebras": ServerPlace("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "zai": ServerPlace("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "moonshotai": ServerPlace("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "alibaba": ServerPlace("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "huggingface": ServerPlace("https://router.huggingface.co/v1", "HF_TOKEN"),
    "perplexity": ServerPlace("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "fireworks": ServerPlace("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "nvidia": ServerPlace("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
}
_OWN = "https://api.openai.com/v1"
_ELSEWHERE = ServerPlace("")  # an address from the user, whose owner is unknown
_OPENAI = "openai.com"
_SERVICES = ("openai", "services.ai", "models.ai", "inference.ai", "cognitiveservices")
# Where Microsoft serves models itself, in its three clouds; other names under azure.com are its customers' machines.
AZURE = (
    *(f"{service}.azure.{cloud}" for cloud in ("com", "us", "cn") for service in _SERVICES),
    "api.cognitive.microsoft.com",
)


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/chat/completions`."""
    if request.provider == "local":
        from perdure.providers.local.serving import addressed

        request = await addressed(request)
    client = await client_of(request)
    async with aclosing(sent(request, client, created)) as pieces:
        async for piece in pieces:
            yield piece


def address(request: Request) -> str:
    """Return the address of a request; raises `Invalid` if the server has none."""
    if request.provider == "local" and request.base_url is None:
        return LOCAL
    return _base_url(request) or os.environ.get("OPENAI_BASE_URL") or _OWN


async def sent(request: Request, client: Any, create: Callable[[Any, Request], Any]) -> AsyncGenerator[bytes]:
    """Send by one of the SDK's methods; the bytes of the answer."""
    import httpx2
    import openai

    check_address(request, client)
    begun = False
    try:
        opening = create(patient(client, request), request)
        guard = partial(guard_redirects, request, getattr(client, "_client", None))
        async with aclosing(answer_of(opening, guard)) as pieces:
            async for piece in pieces:
                begun = True
                yield piece
    except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError) as error:
        secret = getattr(client, "api_key", None)
        raise translated(request, error, begun=begun, secret=secret) from error


async def client_of(request: Request) -> Any:
    """Return the user's client, or one for the address and the key of the request."""
    if request.client is not None:
        return request.client
    try:
        import openai
    except ImportError as error:
        raise missing(request.backend, "openai", "openai") from error
    base_url, api_key = _whereabouts(request)
    ours = base_url is None or is_under(host_of(base_url), _OPENAI) or is_vouched(request, "openai")

    def made() -> Any:
        client = openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key, timeout=request.timeout, max_retries=0
        )
        return client if ours else estranged(client)

    key = ("openai", base_url, api_key, ours, request.timeout, settings("OPENAI_"))
    try:
        return await held(key, made, openai.AsyncOpenAI.close)
    except openai.OpenAIError as error:
        raise key_missing(request.backend, "OPENAI_API_KEY") from error


def _base_url(request: Request) -> str | None:
    """Return the given address, or the server's known one; None: the SDK finds it."""
    base_url = request.base_url or PLACES.get(request.provider, _ELSEWHERE).base_url
    if base_url == "":
        raise Invalid(
            f"{request.backend} has no address of its own; nothing was sent.",
            code="address_missing",
            advice="Give one: Backend(…, base_url=…).",
            backend=request.backend,
        )
    return base_url


def _whereabouts(request: Request) -> tuple[str | None, str | None]:
    """Return the address and the key; None: where the SDK looks for it."""
    base_url, place = _base_url(request), PLACES.get(request.provider, _ELSEWHERE)
    if request.api_key or base_url is None:
        return base_url, request.api_key or None
    key = _key(base_url, request, place)
    if key is None and place.key and request.base_url is None:
        raise key_missing(request.backend, place.key)
    return base_url, key or NO_KEY


def _key(base_url: str, request: Request, place: ServerPlace) -> str | None:
    """Return the key in the variable of the address's owner; None if the owner is unknown."""
    host = host_of(base_url)
    if is_under(host, _OPENAI):
        return os.environ.get("OPENAI_API_KEY")
    domains = AZURE if request.provider == "azure-openai" else (host_of(place.base_url or ""),)
    own = is_vouched(request, "openai", "azure-openai") or is_under(host, *domains)
    return os.environ.get(place.key) if place.key and own else None


def created(client: Any, request: Request) -> Any:
    """Return a request to `/chat/completions` that is not sent yet."""
    body = request.body
    return client.chat.completions.with_streaming_response.create(
        model=request.model,
        messages=body.get("messages", []),
        stream=request.stream,
        extra_body=body,
        timeout=request.timeout,
    )
