"""Laying out: from chosen messages of a line to what a model is shown.

The leading note first, then older messages that are needed, then everything from one message on.
Calls before the last switch are told in sentences; what the window has no room for is cut, and says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from perdure.context.conversation import Conversation
from perdure.context.cuts import NO_CUTS, Cuts
from perdure.context.others import as_shown, unforged
from perdure.context.sentences import Known, is_note
from perdure.context.trace import Spoken, messages_of
from perdure.errors import Forgotten, NotFound
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.model.artifact import parse_reference
from perdure.model.message import Block, Message, ReasoningSummary, Text, ToolResult

__all__ = ["Laid", "Words", "lay", "noted"]

_CHUNK = 200  # messages that are read at a time


class Words:
    """The messages of a line as they are read, each once."""

    def __init__(self, space: Space) -> None:
        """Read from that space."""
        self._space = space
        self._read: dict[str, Message | None] = {}
        self._texts: dict[str, str | None] = {}  # of artifacts

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

    def expanded(self, message: Message, whole: Mapping[str, str]) -> Message:
        """The message with results read from artifacts, which are given by call, in place of what is kept short."""
        results = tuple(self._expanded(each, whole.get(each.call_id)) for each in message.tool_results)
        if results == message.tool_results:
            return message
        return msgspec.structs.replace(message, tool_results=results, vendor_metadata=None)

    def _expanded(self, result: ToolResult, reference: str | None) -> ToolResult:
        text = None if reference is None else self.artifact_text(reference)
        if text is None:
            return result
        others = [block for block in result.content if not isinstance(block, Text)]
        return ToolResult(result.call_id, result.status, (Text(unforged(text)), *others))

    def artifact_text(self, reference: str) -> str | None:
        """The text that an artifact holds; None: it holds none, or is gone."""
        if reference not in self._texts:
            self._texts[reference] = _text_of(self._space, reference)
        return self._texts[reference]


def _text_of(space: Space, reference: str) -> str | None:
    digest = parse_reference(reference)
    try:
        body = b"".join(artifacts.get(space, digest))
        return _words(body) or body.decode()
    except (Forgotten, NotFound, UnicodeDecodeError):
        return None


def _words(body: bytes) -> str:
    """The words of a result that is kept as blocks; empty for any other."""
    try:
        blocks = _blocks.decode(body) if body.startswith(b'[{"type":') else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return "\n".join(block.text for block in blocks if isinstance(block, Text | ReasoningSummary))


_blocks = msgspec.json.Decoder(list[Block])


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
    cuts: Cuts = NO_CUTS,
    harmless: Collection[str] = (),
) -> Laid:
    """The conversation that these messages make, in this order."""
    conversation = Conversation(harmless)
    if lead is not None:
        conversation.add(lead)
    spans: dict[str, tuple[int, int]] = {}
    history: list[Message] = []
    for each, message in zip(spoken, words.of(spoken), strict=True):
        if message is None:
            continue
        history.append(message)
        start = len(conversation)
        whole = words.expanded(message, cuts.whole) if cuts.whole and message.tool_results else message
        shown = cuts.apply(each.id, whole, told=each.told)
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
