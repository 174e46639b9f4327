"""Builds the adapter for Chat Completions, and for formats that are variants of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.model.context import Context
from perdure.providers.capabilities import Level, Levels
from perdure.providers.contract import Asked, Rendered, Reply, StreamParser
from perdure.providers.openai_chat.parse import ChatStream, parse
from perdure.providers.openai_chat.render import render
from perdure.providers.openai_chat.request import read_request
from perdure.providers.openai_chat.servers import CAPABILITIES, SERVERS, Server, at, server
from perdure.providers.openai_chat.vendor_fields import Origin
from perdure.providers.wire.fields.unsent import unsent
from perdure.providers.wire.malformed import unreadable
from perdure.providers.wire.nesting import GuardedStream, check_depth, too_deep
from perdure.providers.wire.sanitize import detached, sendable

__all__ = ["ADAPTER", "ChatAdapter"]


class ChatAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """One format of the family: its vendor, its servers and its capabilities."""

    api: str
    vendor: str  # its key in vendorMetadata
    provider: str  # the default provider of the server
    servers: Mapping[str, Server]
    capabilities: Levels

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """Return a request that the server accepts, for any history."""
        origin, place = self._origin(provider, model), self._server(provider)
        try:
            shown, losses = detached(context)
            rendered = render(shown, origin, place, self.api)
            server = {"vendor": self.vendor, "endpoint": origin.endpoint}
            losses += unsent(context.messages, rendered, **server, is_chat=True)
            return sendable(rendered, losses)
        except RecursionError as error:
            raise too_deep("the context", "nothing was rendered") from error

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Asked:
        """Return the context that a request shows, and what it does not hold; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unreadable("not_a_request", f"a request is an object, not {type(body).__name__}")
        check_depth(body, "the request", "nothing was read")
        named = body.get("model")
        origin = self._origin(provider, model or (named if isinstance(named, str) else None))
        return read_request(body, origin, self._server(provider), self.api)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """Return the answer; raises `Invalid` if it is none."""
        check_depth(body, "the answer", "nothing was read")
        return parse(body, self._origin(provider), self._server(provider), self.api)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """Return a parser for a streamed answer."""
        return GuardedStream(ChatStream(self._origin(provider), self._server(provider), self.api))

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """Return the same as `stream`, fed with all chunks."""
        stream = self.stream(provider=provider)
        for chunk in chunks:
            stream.feed(chunk)
        return stream.close()

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """Return the level of a capability for the format, or for that model on that server; unknown ones are `none`."""
        if provider is None and model is None:
            return self.capabilities.get(capability, "none")
        return at(self._server(provider), model, self.capabilities).get(capability, "none")

    def _origin(self, provider: str | None, model: str | None = None) -> Origin:
        return Origin(self.vendor, provider or self.provider, model)

    def _server(self, provider: str | None) -> Server:
        return server(provider, self.servers, self.provider)


ADAPTER = ChatAdapter(
    api="openai-chat", vendor="openai", provider="openai", servers=SERVERS, capabilities=CAPABILITIES
)
