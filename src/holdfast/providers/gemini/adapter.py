"""The adapter: the format's pure functions under the names that every adapter has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from holdfast.model.context import Context
from holdfast.providers.contract import Rendered, Reply
from holdfast.providers.gemini.capabilities import supports
from holdfast.providers.gemini.parse import parse
from holdfast.providers.gemini.render import render
from holdfast.providers.gemini.request import read_request
from holdfast.providers.gemini.stream import Stream
from holdfast.providers.wire.sending import sendable

__all__ = ["ADAPTER", "GeminiGenerate"]


class GeminiGenerate(msgspec.Struct, frozen=True):
    """The adapter for `gemini-generate`."""

    api: str = "gemini-generate"

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """A request that the vendor takes; without `provider` it goes where the history came from."""
        return sendable(render(context, model=model, provider=provider))

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Context:
        """The context that a request shows."""
        return read_request(body, model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """The answer."""
        return parse(body, provider=provider)

    def stream(self, *, provider: str | None = None) -> Stream:
        """A parser for a streamed answer."""
        return Stream(provider=provider)

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """The same as `stream`, fed with all chunks."""
        stream = Stream(provider=provider)
        for chunk in chunks:
            stream.feed(chunk)
        return stream.close()

    def supports(self, capability: str, *, model: str | None = None) -> Literal["full", "lossy", "none"]:
        """How well the format does one thing."""
        return supports(capability, model=model)


ADAPTER = GeminiGenerate()
