"""Decides which addresses receive a vendor's credentials from the environment: only the vendor's own.

The vendors' SDKs look for keys, tokens, profiles and headers in variables and files, and send them to
any address.  For an address that is not the vendor's own the SDK gets `NO_KEY` instead, unless the user gave
a key (`api_key=`) or named the provider of the address (`provider=`).  An address that the SDK itself finds beside the key, in a variable such as
`ANTHROPIC_BASE_URL`, is where the user sent that key.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.providers.transport.contract import Request

__all__ = ["NO_KEY", "host_of", "is_home", "is_under", "is_vouched"]

NO_KEY = "none"  # SDKs demand a key even for servers that need none


def is_home(request: Request, provider: str, *domains: str) -> bool:
    """True if the request goes to that provider: to one of its domains, to the address that its SDK finds, or by the user's word."""
    if request.base_url is None or is_vouched(request, provider):
        return True
    return is_under(host_of(request.base_url), *domains)


def is_vouched(request: Request, *providers: str) -> bool:
    """True if the user named one of these as the provider of the address."""
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
