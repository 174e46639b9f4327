"""Turns the pure functions of a wire format into an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from perdure.model.context import Context
from perdure.providers.capabilities import Level
from perdure.providers.contract import Asked, Rendered, Reply, StreamParser
from perdure.providers.wire.fields.unknown import Known, asked
from perdure.providers.wire.fields.unsent import unsent
from perdure.providers.wire.nesting import GuardedStream, check_depth, too_deep
from perdure.providers.wire.sanitize import detached, sendable

__all__ = ["Format"]


class _Render(Protocol):
    def __call__(self, context: Context, *, model: str, provider: str | None = None) -> Rendered: ...


class _Read(Protocol):
    def __call__(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Context: ...


class _Parse(Protocol):
    def __call__(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply: ...


class _OpenStream(Protocol):
    def __call__(self, *, provider: str | None = None) -> StreamParser: ...


class _Supports(Protocol):
    def __call__(
        self, capability: str, *, model: str | None = None, provider: str | None = None
    ) -> Level: ...


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter made of a format's pure functions."""

    api: str
    vendor: str  # its key in vendorMetadata
    renders: _Render
    reads: _Read
    parses: _Parse
    opens: _OpenStream
    can: _Supports
    fields: Known = {}  # of requests, where the reader keeps no others

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """Return a request that the vendor takes, and what could not be carried over unchanged."""
        try:
            shown, losses = detached(context)
            rendered = self.renders(shown, model=model, provider=provider)
            losses += unsent(context.messages, rendered, vendor=self.vendor, endpoint=provider)
            return sendable(rendered, losses)
        except RecursionError as error:
            raise too_deep("the context", "nothing was rendered") from error

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Asked:
        """Return the context that a request shows, and what it does not hold; raises `Invalid` if it is none."""
        check_depth(body, "the request", "nothing was read")
        return asked(self.reads(body, model=model, provider=provider), body, self.fields)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """Return the answer; raises `Invalid` if it is none of this format."""
        check_depth(body, "the answer", "nothing was read")
        return self.parses(body, provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """Return a parser for a streamed answer."""
        return GuardedStream(self.opens(provider=provider))

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """Return a streamed answer, from all its chunks."""
        parser = self.stream(provider=provider)
        for chunk in chunks:
            parser.feed(chunk)
        return parser.close()

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """Return the level of a capability for the format, or for that model on that server."""
        return self.can(capability, model=model, provider=provider)
