"""Declares a backend: which model on which server, and how a request reaches it.

    Agent("planner", backend="anthropic:claude-sonnet-5-5")
    Agent("planner", backend=Backend("openai-chat:qwen3", base_url="http://localhost:8000/v1"))

The server is recorded with each thread, so that a conversation moves to another one only by a
switch.  A backend is a plain value: nothing is imported, opened or sent before a run takes a step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import UnionType
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import Invalid
from perdure.model import names
from perdure.model.canonical import Json
from perdure.providers import registry
from perdure.providers.registry import Target
from perdure.providers.transport.address import LOCAL, UNKNOWN, UNRESOLVED, example_address, identity

__all__ = ["RETRIES", "Backend"]

RETRIES = 2

_SERVER = re.compile(r"[\w.-]{1,100}")

# Vendors that are also the names of their own servers; at another address it is another issuer.
_VENDORS = {
    "openai": "api.openai.com",
    "anthropic": "api.anthropic.com",
    "google": "generativelanguage.googleapis.com",
    "mistral": "api.mistral.ai",
}


@dataclass(frozen=True)
class Backend:
    """A model on a server, named `provider:model`.  For fields that are not given, the defaults of the vendor's SDK hold."""

    name: str
    _: KW_ONLY
    base_url: str | None = (
        None  # address of the server; None: the vendor's own, or the one that its SDK finds
    )
    client: Any = None  # of the vendor's SDK, sync or async; None: one is made
    api_key: str | None = None  # None: the SDK looks for one if the server is the vendor's own
    provider: str | None = None  # the server's provider, where the address does not show it
    server: str | None = None  # a name to record instead of the address; None: the address is recorded
    options: Mapping[str, Json] = field(default_factory=dict[str, Json], hash=False)  # over the agent's
    timeout: float = 600.0  # seconds of silence after which a request is given up
    retries: int | None = None  # further attempts; None: those of the given client, or 2

    def __post_init__(self) -> None:
        """Raise `Invalid` for what names no backend, `NotFound` for an unknown provider."""
        if not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"a backend is named provider:model, not {self.name!r}; nothing was declared.",
                code="backend_name_invalid",
                backend=self.name,
            )
        named = registry.target(self.name)
        self._check_types()
        if self.base_url is not None:
            _check_address(self.base_url, named.api)
        if self.server is not None:
            self._check_server(self.server)

    def _check_types(self) -> None:
        for what in ("base_url", "api_key", "provider", "server"):
            if not isinstance(getattr(self, what), str | None):
                raise Invalid(
                    f"{what} of a backend is text or None; nothing was declared.",
                    code="backend_field_invalid",
                    field=what,
                )
        if self.provider is not None:
            names.check_label("provider", self.provider)
        if not isinstance(self.options, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"options of a backend are a dict, not {self.options!r}; nothing was declared.",
                code="backend_options_invalid",
            )
        if not _is_number(self.timeout, int | float) or not self.timeout > 0:
            raise Invalid(
                f"a time-out is some seconds, not {self.timeout!r}; nothing was declared.",
                code="timeout_invalid",
                timeout=self.timeout,
            )
        if self.retries is not None and (not _is_number(self.retries, int) or self.retries < 0):
            raise Invalid(
                f"retries are counted from 0, not {self.retries!r}; nothing was declared.",
                code="retries_invalid",
                retries=self.retries,
            )

    def _check_server(self, server: str) -> None:
        """Raise `Invalid` for a name that could be an address, and for one that could lead to the vendor."""
        if not _SERVER.fullmatch(server) or server in (LOCAL, UNKNOWN, UNRESOLVED):
            raise Invalid(
                f"a server goes by a name of up to 100 letters, digits and ._-, not {server!r}; nothing was declared.",
                code="server_name_invalid",
                server=server,
            )
        if self.base_url is None and self.client is None:
            raise Invalid(
                f"no address leads to the server '{server}', so requests would go to the vendor; nothing was declared.",
                advice="Give its address or a client too.",
                code="server_without_address",
                server=server,
            )

    def __repr__(self) -> str:
        """Return the name and the server, without what may be secret: parts of the address, the key, the options."""
        server = "" if self.base_url is None else f", base_url={identity(self.base_url)!r}"
        return f"Backend({self.name!r}{server})"

    @property
    def target(self) -> Target:
        """Return the wire format, the provider of the server, and the model."""
        named = registry.target(self.name)
        return named._replace(provider=self.provider or self._elsewhere(named) or named.provider)

    def _elsewhere(self, named: Target) -> str | None:
        """Return the host, if it is none of the vendor's own: what one server signs another cannot read."""
        own = _VENDORS.get(named.provider)
        address = self.base_url or str(getattr(self.client, "base_url", "") or "")
        host = urlsplit(address).netloc.rpartition("@")[2]
        return None if own is None or not host or host == own else host


def _is_number(given: object, kind: type | UnionType) -> bool:
    return isinstance(given, kind) and not isinstance(given, bool)


def _check_address(address: str, api: str) -> None:
    try:
        is_address = urlsplit(address).scheme in ("http", "https") and "://" in identity(address)
    except (Invalid, ValueError):
        is_address = False
    if not is_address:
        raise Invalid(
            f"the address of a backend is one such as {example_address(api)}, and this one names no host; nothing was "
            "declared.",
            code="address_invalid",
        )
