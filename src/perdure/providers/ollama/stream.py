"""A native stream: one JSON object a line, handed to Chat's stream as chunks of Chat."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import cast

from perdure.errors import Invalid
from perdure.providers.contract import ModelEvent, Reply, StreamParser
from perdure.providers.ollama.translate import chat_chunk
from perdure.providers.wire.shells import items_of, object_of

__all__ = ["NativeStream"]


class NativeStream:
    """An answer that is being streamed."""

    def __init__(self, chat: StreamParser) -> None:
        """Read into Chat's own parser."""
        self._chat = chat
        self._line = bytearray()
        self._calls = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        *whole, rest = data.split(b"\n")
        told: list[ModelEvent] = []
        for line in whole:
            told += self._take(bytes(self._line) + line)
            self._line.clear()
        self._line += rest
        return told

    def close(self) -> Reply:
        """The stream has ended; what was said in all."""
        with suppress(Invalid):  # the last line may have been cut off
            self._take(bytes(self._line))
        return self._chat.close()

    def _take(self, line: bytes) -> list[ModelEvent]:
        if not line.strip():
            return []
        try:
            chunk: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"a line of this ollama-chat stream is not JSON: {error}; nothing was read."
            ) from error
        if not isinstance(chunk, dict):
            raise Invalid("a line of this ollama-chat stream is no object; nothing was read.")
        known = object_of(cast("object", chunk))
        event = chat_chunk(known, self._calls)
        self._calls += len(items_of(object_of(known.get("message")).get("tool_calls")))
        told = self._chat.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        if known.get("done"):
            told += self._chat.feed(b"data: [DONE]\n\n")
        return told
