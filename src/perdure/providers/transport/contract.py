"""Defines a transport: the request that it takes and the bytes that it yields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from perdure.providers.contract import Loss

__all__ = ["Request", "Send"]


@dataclass(frozen=True)
class Request:
    """A rendered request and its destination.  Its `repr` shows neither key nor content."""

    backend: str  # provider:model, for the words of errors
    _: KW_ONLY
    provider: str  # whose server it goes to
    model: str
    body: dict[str, Any] = field(repr=False)
    losses: tuple[Loss, ...] = field(default=(), repr=False)  # what it could not carry over unchanged
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # of tools, from theirs to ours
    stream: bool = True  # whether the answer comes in pieces
    pending: str | None = None  # fetch the answer of this id from the server; None: send a new request
    base_url: str | None = None  # None: the vendor's own
    address: str | None = None  # the only server that the conversation may go to; None: not checked
    server: str | None = None  # the same as it is recorded and named in errors; None: not known
    client: Any = field(default=None, repr=False)  # the user's; None: one is made for this request
    api_key: str | None = field(default=None, repr=False)  # None: where the SDK looks, for its own vendor
    is_vouched: bool = False  # True if the user named the provider of `base_url`
    timeout: float = 600.0  # seconds of silence after which it is given up
    calls_servers: bool = (
        False  # the vendor may call MCP servers for it: it is repeated only after it was refused
    )
    client_retries: bool = False  # whether a client of the user's may repeat the request by itself


class Send(Protocol):
    """A transport."""

    def __call__(self, request: Request, /) -> AsyncIterator[bytes]:
        """Send the request; the bytes of the answer as they come.

        A whole answer is the JSON of its body.  Raises one of the errors in `faults` if there is none.
        """
        ...
