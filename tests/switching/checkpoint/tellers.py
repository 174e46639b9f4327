"""Models that are asked for a summary, honest ones and others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.model.context import Context
from perdure.model.message import Message, Text
from perdure.providers.contract import Finished, ModelEvent, TextChunk

__all__ = ["Teller", "messages_in"]


def messages_in(context: Context) -> list[dict[str, str]]:
    """The messages that a summariser was shown."""
    (shown,) = context.messages
    return [json.loads(line) for line in shown.text.splitlines()[1:]]


class Teller:
    """A model that answers with what `tell` makes of the messages that it is shown."""

    def __init__(self, tell: Callable[[list[dict[str, str]]], Any], backend: str = "teller:one") -> None:
        """Answer so; text is given as it is, anything else as JSON."""
        self.backend = backend
        self.contexts: list[Context] = []
        self._tell = tell

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer."""
        self.contexts.append(context)
        told = self._tell(messages_in(context))
        text = told if isinstance(told, str) else json.dumps(told)
        for start in range(0, len(text), 4_096):
            yield TextChunk(text[start : start + 4_096])
        yield Finished(message=Message("assistant", (Text(text),)))
