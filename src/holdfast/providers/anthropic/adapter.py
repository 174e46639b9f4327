"""Anthropic Messages: `anthropic-messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from holdfast.model.context import Context
from holdfast.providers.anthropic.capabilities import supports
from holdfast.providers.anthropic.parse import parse
from holdfast.providers.anthropic.render import render
from holdfast.providers.anthropic.request import API, read_request
from holdfast.providers.anthropic.stream import Stream
from holdfast.providers.contract import Rendered, Reply, StreamParser
from holdfast.providers.wire.sending import sendable

__all__ = ["ADAPTER", "AnthropicMessages"]


class AnthropicMessages(msgspec.Struct, frozen=True):
    """The adapter."""

    api: str = API

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """A request that Anthropic takes, and what could not be carried over unchanged."""
        return sendable(render(context, model=model, provider=provider))

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Context:
        """The context that a request shows."""
        return read_request(body, model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """The answer."""
        return parse(body, provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """A parser for a streamed answer."""
        return Stream(provider=provider)

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """A streamed answer, from all its chunks."""
        parser = Stream(provider=provider)
        for chunk in chunks:
            parser.feed(chunk)
        return parser.close()

    def supports(self, capability: str, *, model: str | None = None) -> Literal["full", "lossy", "none"]:
        """How well the format, or that model, does one thing."""
        return supports(capability, model=model)


ADAPTER = AnthropicMessages()
