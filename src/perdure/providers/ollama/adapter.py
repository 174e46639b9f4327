"""The adapter for Ollama's native chat: Chat's own rules, in other words on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Image, Text
from perdure.providers.capabilities import Level
from perdure.providers.contract import Asked, Loss, Rendered, Reply, StreamParser, losses_of
from perdure.providers.ollama.capabilities import CAPABILITIES, SERVERS
from perdure.providers.ollama.settings import APART, native_settings
from perdure.providers.ollama.stream import NativeStream
from perdure.providers.ollama.translate import chat_answer, chat_request, native_request
from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.wire.depth import GuardedStream, check_depth, too_deep
from perdure.providers.wire.sending import detached, sendable

__all__ = ["ADAPTER", "OllamaAdapter"]

_API = "ollama-chat"
_CHAT = ChatAdapter(api=_API, vendor="ollama", provider="ollama", servers=SERVERS, capabilities=CAPABILITIES)


class OllamaAdapter(msgspec.Struct, frozen=True):
    """Ollama's `/api/chat`."""

    @property
    def api(self) -> str:
        """Its name."""
        return _API

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """A request that the server takes, whatever the history looks like."""
        try:
            shown, early = detached(context)
            plain = {name: value for name, value in shown.options.items() if name not in APART}
            rest = msgspec.structs.replace(shown, options=plain)
            rendered = _CHAT.render(rest, model=model, provider=provider)
            fields, late = native_settings(shown.options, model)
            late += _moved_images(context)
            body = {**native_request(rendered.body), **fields}
        except RecursionError as error:
            raise too_deep("the context", "nothing was rendered") from error
        losses = losses_of(early, rendered.losses, late)
        return sendable(msgspec.structs.replace(rendered, body=body, losses=losses))

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Asked:
        """The context that a request shows; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"a request is an object, not {type(body).__name__}; nothing was read.")
        check_depth(body, "the request", "nothing was read")
        return _CHAT.read_request(chat_request(body), model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """The answer; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"this is no {_API} answer but {type(body).__name__}; nothing was read.")
        check_depth(body, "the answer", "nothing was read")
        return _CHAT.parse(chat_answer(body), provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """A parser for a streamed answer."""
        return GuardedStream(NativeStream(_CHAT.stream(provider=provider)))

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """The same as `stream`, fed with all chunks."""
        stream = self.stream(provider=provider)
        for chunk in chunks:
            stream.feed(chunk)
        return stream.close()

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """How well the format, or that model on that server, does one thing."""
        return _CHAT.supports(capability, model=model, provider=provider)


def _moved_images(context: Context) -> list[Loss]:
    """The images that stood before words: a message has its images behind all of its words."""
    why = "the images of a message stand behind its words here"
    losses: list[Loss] = []
    for at, message in enumerate(context.messages):
        texts = [number for number, block in enumerate(message.content) if isinstance(block, Text)]
        losses.extend(
            Loss(kind="converted", where=f"messages[{at}].content[{number}]", what="media", why=why)
            for number, block in enumerate(message.content)
            if message.role == "user" and isinstance(block, Image) and texts and number < texts[-1]
            if block.uri.startswith("data:")
        )
    return losses


ADAPTER = OllamaAdapter()
