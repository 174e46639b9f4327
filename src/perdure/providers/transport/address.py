"""Identifies servers: the address a request goes to, in a form that can be recorded and compared.

A server is identified by scheme, host, port and path, or by a name that the program declared
(`Backend(…, server="our-proxy")`).  User-info, query and headers never enter an identity: they may
hold secrets.

A redirect is an address too: `guard_redirects` stops an HTTP client before it sends a conversation
to a server that the request was not addressed to.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import Invalid, ServerChanged
from perdure.providers.transport.contract import Request

__all__ = [
    "LOCAL",
    "UNKNOWN",
    "UNRESOLVED",
    "address_for",
    "check_address",
    "client_address",
    "example_address",
    "guard_redirects",
    "identity",
    "is_vendor",
    "redirection",
]

LOCAL = "local"  # the server of a packaged model, which runs inside this process on any free port
UNKNOWN = "unknown"  # a client whose address cannot be read
UNRESOLVED = "unresolved"  # no address was found, so nothing can have been sent

_PORTS = {"http": 80, "https": 443}
_VENDORS = (
    "openai.com",
    "anthropic.com",
    "googleapis.com",
    "mistral.ai",
    "amazonaws.com",
    "amazonaws.com.cn",
    "api.aws",
    "azure.com",
    "microsoft.com",
    "groq.com",
    "deepseek.com",
    "openrouter.ai",
    "vercel.sh",
    "ollama.com",
    "x.ai",
    "together.xyz",
    "cerebras.ai",
    "z.ai",
    "moonshot.ai",
    "aliyuncs.com",
    "huggingface.co",
    "perplexity.ai",
    "fireworks.ai",
    "nvidia.com",
)


def identity(address: str) -> str:
    """Return the server at an address: `scheme://host[:port][/path]`; a declared name is returned unchanged.

    Raises `Invalid` for an address that names no host.
    """
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise Invalid(
            f"no server can be read from the address: {error}; nothing was sent.", code="address_invalid"
        ) from error
    if not host:
        raise Invalid("the address of a server has no host; nothing was sent.", code="address_invalid")
    scheme = parts.scheme.lower()
    shown = f"[{host}]" if ":" in host else host
    numbered = "" if port is None or port == _PORTS.get(scheme) else f":{port}"
    return f"{scheme}://{shown}{numbered}{parts.path.rstrip('/')}"


# What the SDK of a wire format adds to an address begins with the version of the API, except with these.
_WITH_VERSION = ("openai-chat", "openai-responses")
_AZURE = "azure-inference-chat"


def example_address(api: str) -> str:
    """Return an address as the SDK of a wire format takes it."""
    if api == _AZURE:
        return "https://NAME.services.ai.azure.com/models"
    return "http://localhost:8000/v1" if api in _WITH_VERSION else "http://localhost:8000"


def address_for(api: str, server: str, *, of: str) -> str:
    """Return the address for one wire format of a server that was recorded for another: the SDKs of some add `/v1`."""
    if (api in _WITH_VERSION) == (of in _WITH_VERSION) or _AZURE in (api, of) or not api or not of:
        return server
    return f"{server.removesuffix('/v1')}/v1" if api in _WITH_VERSION else server.removesuffix("/v1")


def is_vendor(server: str | None) -> bool:
    """True if a server is at a public address of one of the vendors that are known by name."""
    host = urlsplit(server).hostname or "" if server and "://" in server else ""
    return any(host == domain or host.endswith(f".{domain}") for domain in _VENDORS)


def client_address(client: Any) -> str | None:
    """Return the address that a client of a vendor's SDK sends to; None if it cannot be read."""
    found = getattr(client, "base_url", None)  # OpenAI, Anthropic
    if found is None:
        found = getattr(getattr(client, "meta", None), "endpoint_url", None)  # boto3
    if found is None:
        options = getattr(getattr(client, "_api_client", None), "_http_options", None)
        found = getattr(options, "base_url", None)  # Google
    if found is None and hasattr(client, "sdk_configuration"):
        found = client.sdk_configuration.get_server_details()[0]  # Mistral
    address = "" if found is None else str(found)
    return address if "://" in address else None


def check_address(request: Request, client: Any) -> None:
    """Raise `ServerChanged` if the client would send to another server than the request is addressed to."""
    actual = client_address(client)
    if request.address is None or request.address == UNKNOWN or actual is None:
        return
    if identity(actual) != identity(request.address):
        raise ServerChanged(request.backend, recorded=identity(request.address), resolved=identity(actual))


# The request that this task is sending.  A client of the user's keeps its redirects for all other requests.
_sending: ContextVar[Request | None] = ContextVar("_sending", default=None)


@contextmanager
def guard_redirects(request: Request, http_client: Any) -> Generator[None]:
    """Within the block, let an httpx client follow no redirect to another server: it raises `ServerChanged`."""
    hooks: dict[str, list[Any]] = getattr(http_client, "event_hooks", None) or {"response": []}
    hook = _check_redirect_async if _is_async(http_client) else _check_redirect
    if hook not in hooks["response"]:
        hooks["response"].append(hook)
    token = _sending.set(request)
    try:
        yield
    finally:
        _sending.reset(token)


def redirection(error: BaseException | None) -> ServerChanged | None:
    """Return the refused redirect among the causes of an SDK's error; None if there is none."""
    while error is not None and not isinstance(error, ServerChanged):
        error = error.__cause__ or error.__context__
    return error


def _is_async(http_client: Any) -> bool:
    return iscoroutinefunction(getattr(http_client, "send", None))


async def _check_redirect_async(response: Any) -> None:
    _check_redirect(response)


def _check_redirect(response: Any) -> None:
    request = _sending.get()
    if request is None or not response.has_redirect_location:
        return
    here = str(response.request.url)
    there = str(response.request.url.join(response.headers["location"]))
    if _origin(there) != _origin(here):
        raise ServerChanged(request.backend, recorded=_origin(here), resolved=_origin(there))


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return identity(f"{parts.scheme}://{parts.netloc}")
