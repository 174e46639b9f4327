"""What every answer is told by: the events of a message that came whole, counts of tokens, the last event."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers.contract import CallDelta, Finished, ModelEvent, ReasoningDelta, Reply, TextDelta

__all__ = ["count_of", "told", "with_events"]


def told(message: Message) -> list[ModelEvent]:
    """The events that a stream of the same message would have told, all but the last."""
    events: list[ModelEvent] = []
    for block in message.content:
        if isinstance(block, Text) and block.text:
            events.append(TextDelta(block.text))
        elif isinstance(block, ReasoningSummary) and block.text:
            events.append(ReasoningDelta(block.text))
    calls = enumerate(message.tool_calls)
    return [*events, *(CallDelta(at, call.name, call.args) for at, call in calls)]


def with_events(reply: Reply, events: Iterable[ModelEvent] | None = None) -> Reply:
    """The reply with the events of its stream, and the last; None: it came whole."""
    before = told(reply.message) if events is None else events
    last = Finished(message=reply.message, usage=reply.usage, stop=reply.stop, stop_kind=reply.stop_kind)
    return msgspec.structs.replace(reply, events=(*before, last))


def count_of(value: object) -> int:
    """A number of tokens; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):  # NaN, and what has no end
        return 0
