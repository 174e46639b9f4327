"""Returns the events of a reply, and joins texts that a stream sends in pieces.

Adding each piece to the text so far would copy the text with every piece, and a long answer would cost the
square of its length.  So `GrowingTexts` keeps the pieces apart, and `settle` joins them once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers.contract import CallDelta, Finished, ModelEvent, ReasoningChunk, Reply, TextChunk

__all__ = ["count_of", "events_of", "with_events", "GrowingTexts"]


def events_of(message: Message) -> list[ModelEvent]:
    """Return the events of a stream of the same message, without the last."""
    events: list[ModelEvent] = []
    for block in message.content:
        if isinstance(block, Text) and block.text:
            events.append(TextChunk(block.text))
        elif isinstance(block, ReasoningSummary) and block.text:
            events.append(ReasoningChunk(block.text))
    calls = enumerate(message.tool_calls)
    return [*events, *(CallDelta(at, call.name, call.args) for at, call in calls)]


def with_events(reply: Reply, events: Iterable[ModelEvent] | None = None) -> Reply:
    """Return the reply with the events of its stream, and the last; None: it came whole."""
    before = events_of(reply.message) if events is None else events
    last = Finished(message=reply.message, usage=reply.usage, stop=reply.stop, stop_kind=reply.stop_kind)
    return msgspec.structs.replace(reply, events=(*before, last))


def count_of(value: object) -> int:
    """Return a number of tokens; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):  # NaN, and what has no end
        return 0


class GrowingTexts:
    """The texts of one stream that are still growing, by the container that holds each and its key there."""

    __slots__ = ("_growing",)

    def __init__(self) -> None:
        self._growing: dict[tuple[int, str | int], tuple[Any, list[str]]] = {}

    def add(self, container: Any, key: str | int, piece: str) -> None:
        """Append `piece` to the text at `key` of `container`, which is a text or missing."""
        place = (id(container), key)
        held = self._growing.get(place)
        if held is None:
            try:
                before: Any = container[key]
            except KeyError:
                before = ""
            held = self._growing[place] = (container, [str(before or "")])
        held[1].append(piece)
        container[key] = ""  # a text as before; what it says is in the pieces

    def put(self, container: Any, key: str | int, value: object) -> None:
        """Let `key` of `container` hold `value` in place of a text that was growing there."""
        self._growing.pop((id(container), key), None)
        container[key] = value

    def settle(self) -> None:
        """Put the whole texts where they belong."""
        for (_, key), (container, pieces) in self._growing.items():
            container[key] = "".join(pieces)
        self._growing.clear()
