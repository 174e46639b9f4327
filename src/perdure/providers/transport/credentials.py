"""Whose address it is: what the environment holds for a vendor goes to that vendor alone.

The vendors' SDKs look for keys, tokens, profiles and headers in variables and files, and send them to
whatever address they are told.  At an address that is not the vendor's own they are given `NO_KEY`
instead, unless the user named a key (`api_key=`) or said that the address is a way to the vendor
(`provider=`).  An address that the SDK itself finds beside the key, in a variable such as
`ANTHROPIC_BASE_URL`, is where the user sent that key.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.providers.transport.contract import Request

__all__ = ["NO_KEY", "host_of", "is_home", "is_under", "is_vouched"]

NO_KEY = "none"  # an SDK wants a key, a server that is not the vendor's may not


def is_home(request: Request, provider: str, *domains: str) -> bool:
    """True if the request goes to that provider: to its domains, as its SDK finds it, or as the user said."""
    if request.base_url is None or is_vouched(request, provider):
        return True
    return is_under(host_of(request.base_url), *domains)


def is_vouched(request: Request, *providers: str) -> bool:
    """True if the user said that the address is a way to one of those."""
    return request.is_vouched and request.provider in providers


def is_under(host: str, *domains: str) -> bool:
    """True if a host is one of those domains, or in one; by whole labels, not by how it looks."""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains if domain)


def host_of(address: str) -> str:
    """Return the host of an address; "" for one without encryption, where a key could be read on the way, or for none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return (parts.hostname or "") if parts.scheme == "https" else ""
