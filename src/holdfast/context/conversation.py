"""The conversation as a model may see it: every call with its result, right after it.

The transcript is what happened, in the order in which it happened: a result may come long
after its call, twice, or never.  Here each call has exactly one result, the last that there
is, in one message right behind the one that asked; a call that is still open says so.  What
belongs to no call is left out, as is what says nothing.  So no orphan can reach a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from holdfast.model.message import Message, Text, ToolCall, ToolResult

__all__ = ["WAITING", "Conversation"]

WAITING = (
    "This call has not been carried out yet: it waits for somebody's decision. Do not repeat it; "
    "its result will stand here once there is one."
)

_Told = Callable[[ToolCall], str]


class Conversation:
    """Messages that grow one by one, in a shape that every backend accepts."""

    __slots__ = ("_messages", "_places", "_told")

    def __init__(self, told: _Told = lambda call: WAITING) -> None:
        """Begin with nothing; `told` is what a model is told of a call without a result."""
        self._messages: list[Message] = []
        self._places: dict[str, tuple[int, int]] = {}  # of each call's result: message and index
        self._told = told

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._messages)

    def add(self, message: Message) -> None:
        """Take one more message of the transcript."""
        if message.tool_results:
            for result in message.tool_results:
                self._answer(result)
            message = msgspec.structs.replace(message, tool_results=())
        if message.role == "tool" or not (message.content or message.tool_calls):
            return
        calls = tuple(call for call in message.tool_calls if call.id not in self._places)
        if len(calls) != len(message.tool_calls):  # an id that was there before names the first call
            message = msgspec.structs.replace(message, tool_calls=calls)
        self._messages.append(message)
        if calls:
            self._expect(calls)

    def extend(self, messages: Iterable[Message]) -> None:
        """Take several."""
        for message in messages:
            self.add(message)

    def messages(self) -> tuple[Message, ...]:
        """What a model is shown."""
        return tuple(self._messages)

    def _expect(self, calls: tuple[ToolCall, ...]) -> None:
        place = len(self._messages)
        for index, call in enumerate(calls):
            self._places[call.id] = (place, index)
        results = tuple(ToolResult(call.id, "error", (Text(self._told(call)),)) for call in calls)
        self._messages.append(Message("tool", (), (), results))

    def _answer(self, result: ToolResult) -> None:
        place = self._places.get(result.call_id)
        if place is None:
            return
        at, index = place
        results = list(self._messages[at].tool_results)
        results[index] = result
        self._messages[at] = Message("tool", (), (), tuple(results))
