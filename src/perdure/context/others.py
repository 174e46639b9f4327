"""Others' words as they are shown: what users, tools and models say is never taken for a note of ours.

Our notes begin with a mark, and the system words vouch for it.  Where somebody else begins a line with that
mark, or with what a reader would take for it, `(quoted)` stands before it.  The history keeps what was said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from perdure.context.media import taken_out
from perdure.context.sentences import QUOTED
from perdure.history.space import Space
from perdure.model.message import Block, Message, Text, ToolResult

__all__ = ["as_shown", "unforged"]

_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_UNSEEN = "[\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]*"
_BETWEEN = "[\\s\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]{0,16}"
_MARK = re.compile(
    f"(?:^|[{_BREAKS}])(?:[^\\w{_BREAKS}]|_)*?(?=[\\[\\(\\{{<［【〔]{_BETWEEN}"
    f"{_UNSEEN.join('perdure')}{_BETWEEN}[-_]?{_BETWEEN}{_UNSEEN.join('note')})",
    re.IGNORECASE,
)


def as_shown(space: Space, message: Message) -> Message:
    """The message of somebody else as a model is shown it: with the bytes of its artifacts, and not like a note."""
    return _unlike_a_note(taken_out(space, message))


def unforged(text: str) -> str:
    """The text with no line that begins like a note; itself if there is none."""
    return _MARK.sub(lambda found: f"{found[0]}{QUOTED} ", text)


def _unlike_a_note(message: Message) -> Message:
    content = _blocks(message.content)
    results = tuple(
        ToolResult(each.call_id, each.status, _blocks(each.content)) for each in message.tool_results
    )
    if content == message.content and results == message.tool_results:
        return message
    # What a vendor keeps beside the words of a user or a tool may hold these words once more.
    raw = message.vendor_metadata if message.role == "assistant" else None
    return msgspec.structs.replace(message, content=content, tool_results=results, vendor_metadata=raw)


def _blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks, none of them like a note; those that only together would be are joined."""
    found = tuple(Text(unforged(block.text)) if isinstance(block, Text) else block for block in blocks)
    texts = [block.text for block in found if isinstance(block, Text)]
    whole = "".join(texts)
    if len(texts) < 2 or unforged(whole) == whole:
        return found
    return (Text(unforged(whole)), *(block for block in found if not isinstance(block, Text)))
