"""Laying out: from chosen messages of a line to what a model is shown.

The leading note first, then older messages that are needed, then everything from one message on.
Calls before the last switch are told in sentences; a message that is too large is cut, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.context.conversation import Conversation
from holdfast.context.others import as_shown, unforged
from holdfast.context.sentences import Known, is_note
from holdfast.context.trace import Spoken, messages_of
from holdfast.history.space import Space
from holdfast.model.message import Block, Message, ReasoningSummary, Text, ToolCall, ToolResult

__all__ = ["Laid", "Words", "lay", "longest", "noted", "shortened"]

_CHUNK = 200  # messages that are read at a time


class Words:
    """The messages of a line as they are read, each once."""

    def __init__(self, space: Space) -> None:
        """Read from that space."""
        self._space = space
        self._read: dict[str, Message | None] = {}

    def of(self, spoken: Sequence[Spoken]) -> list[Message | None]:
        """What was said, with the bytes of media; None where it was forgotten."""
        missing = [each for each in spoken if each.id not in self._read]
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            found = messages_of(self._space, part)
            for each in part:
                message = found.get(each.id)
                self._read[each.id] = None if message is None else as_shown(self._space, message)
        return [self._read[each.id] for each in spoken]


class Laid(msgspec.Struct, frozen=True):
    """A conversation, and which of its messages each of the line's came to."""

    conversation: Conversation
    spans: Mapping[str, tuple[int, int]]  # by id: from one message of the conversation up to another
    history: tuple[Message, ...]  # what was laid out, as it was said


def lay(
    words: Words,
    spoken: Sequence[Spoken],
    *,
    lead: Message | None = None,
    known: Mapping[str, Known] | None = None,
    cut: Mapping[str, int] | None = None,
) -> Laid:
    """The conversation that these messages make, in this order."""
    conversation = Conversation()
    if lead is not None:
        conversation.add(lead)
    spans: dict[str, tuple[int, int]] = {}
    history: list[Message] = []
    for each, message in zip(spoken, words.of(spoken), strict=True):
        if message is None:
            continue
        history.append(message)
        most = cut.get(each.id) if cut else None
        start = len(conversation)
        shown = message if most is None else shortened(message, most)
        conversation.add(shown, told=(known or {}) if each.told else None)
        spans[each.id] = (start, len(conversation))
    return Laid(conversation, spans, tuple(history))


def noted(messages: Sequence[Message], note: Message | None) -> Sequence[Message]:
    """The messages with a note just before the current input: the last words of the user."""
    if note is None:
        return messages
    last = range(len(messages) - 1, -1, -1)
    place = next((at for at in last if _is_input(messages[at])), len(messages))
    while place > 0 and _is_input(messages[place - 1]):
        place -= 1
    return (*messages[:place], note, *messages[place:])


def _is_input(message: Message) -> bool:
    return message.role == "user" and not is_note(message)


def shortened(message: Message, most: int) -> Message:
    """The message with each text of more than `most` characters cut in its middle, and a mark that says so."""
    return msgspec.structs.replace(
        message,
        content=_blocks(message.content, most),
        tool_calls=tuple(_call(call, most) for call in message.tool_calls),
        tool_results=tuple(
            ToolResult(each.call_id, each.status, _blocks(each.content, most))
            for each in message.tool_results
        ),
        vendor_metadata=None,
    )


def longest(message: Message) -> int:
    """The characters of the longest text of a message, arguments of calls among them."""
    blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
    texts = [getattr(block, "text", "") for block in blocks] + [call.args for call in message.tool_calls]
    return max(map(len, texts), default=0)


def _blocks(blocks: Sequence[Block], most: int) -> tuple[Block, ...]:
    found: list[Block] = []
    for block in blocks:
        match block:
            case Text(text=text):
                found.append(Text(_middle_out(text, most)))
            case ReasoningSummary():
                pass
            case _:
                found.append(block)
    return tuple(found)


def _call(call: ToolCall, most: int) -> ToolCall:
    if len(call.args) <= most:
        return call
    return ToolCall(call.id, call.name, json.dumps({"holdfast_left_out": f"{len(call.args):,} characters"}))


def _middle_out(text: str, most: int) -> str:
    left = len(text) - most
    if left <= 0:
        return text
    head = most * 2 // 3
    # A line begins where it is cut, and nobody may have it begin like a note.
    return unforged(
        f"{text[:head]}\n[… {left:,} of {len(text):,} characters are left out here by Holdfast: the message is larger "
        f"than the model's window …]\n{text[len(text) - (most - head) :]}"
    )
