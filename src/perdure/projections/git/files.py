"""The files of a commit: messages as text for people, and state as it is.

`messages/00/00/000012-user-<id>.md` is a message; its number is the sequence number of its event
on the line.  A hundred stand in a directory, so that the next costs the same however many there
are.  Where a message is more than words, the same name with `.json` has all of it, as it is stored.

`state/<path>` is a value.  A JSON document of ordinary size stands one value a line, so that git
compares it line by line; everything else byte for byte as it is stored.
"""

from __future__ import annotations

import json
import re

import msgspec

from perdure.model.digest import Digest
from perdure.model.message import (
    Block,
    File,
    Image,
    Message,
    ReasoningSummary,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.projections.git.escaping import path_of, segment_of
from perdure.projections.transcript import TranscriptEntry

__all__ = [
    "STATE",
    "PutFile",
    "indented",
    "is_indented",
    "lost_state",
    "lost_value",
    "message_files",
    "state_file",
]

STATE = "state"
_MESSAGES = "messages"
_LOST_STATE = f"{STATE}/%forgotten.md"  # a name that no path can have
_INDENTED_MAX = 1 << 20  # bytes of a JSON document

_FENCE = re.compile("`{3,}")


class PutFile(msgspec.Struct, frozen=True):
    """A file and its content."""

    path: str
    content: bytes


def message_files(entry: TranscriptEntry, sequence: int) -> list[PutFile]:
    """The files of the message that is the event number `sequence` of its line."""
    number = f"{sequence:06}"
    name = f"{_MESSAGES}/{number[:-4]}/{number[-4:-2]}/{number}-{entry.role}-{segment_of(entry.id)}"
    if entry.words is None:
        why = entry.forgotten or "no reason is recorded"
        return [PutFile(f"{name}.md", _encoded(f"*This message was forgotten: {why}.*\n"))]
    files = [PutFile(f"{name}.md", _encoded(_markdown(entry.words)))]
    if _is_more_than_words(entry.words):
        files.append(PutFile(f"{name}.json", _encoded(_whole(entry, entry.words))))
    return files


def state_file(key: str, *, above: bool) -> str:
    """The file that holds the value at a path of the state; `above`: there are paths below that one."""
    return f"{STATE}/{path_of(key, above=above)}"


def indented(body: bytes) -> bytes:
    """A JSON document, one value a line."""
    return msgspec.json.format(body, indent=2) + b"\n"


def is_indented(form: str, size: int) -> bool:
    """Whether a value is written one value a line."""
    return form == "json" and size <= _INDENTED_MAX


def lost_value(digest: Digest, size: int, why: str) -> bytes:
    """What stands in place of a value that was forgotten."""
    return _encoded(f"This value was forgotten: {why}.\nIt had {size} bytes and the digest {digest}.\n")


def lost_state(root: Digest, why: str) -> PutFile:
    """What stands in place of a state that cannot be listed any more, since a part of its map was forgotten."""
    text = f"The state at this commit was forgotten: {why}.\nIts root has the digest {root}.\n"
    return PutFile(_LOST_STATE, _encoded(text))


def _is_more_than_words(message: Message) -> bool:
    others = any(not isinstance(block, Text) for block in message.content)
    return bool(others or message.tool_calls or message.tool_results or message.vendor_metadata)


def _whole(entry: TranscriptEntry, words: Message) -> str:
    shape = {
        "id": entry.id,
        "provider": entry.provider,
        "model": entry.model,
        "usage": msgspec.to_builtins(entry.usage),
        "message": msgspec.to_builtins(words),
    }
    told = {name: value for name, value in shape.items() if value is not None}
    return json.dumps(told, ensure_ascii=False, indent=2) + "\n"


def _markdown(message: Message) -> str:
    parts = [_block(block) for block in message.content]
    parts += [_call(call) for call in message.tool_calls]
    parts += [_result(result) for result in message.tool_results]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _block(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ReasoningSummary():
            return "\n".join(f"> {line}" for line in block.text.split("\n"))
        case Image():
            return f"[image, {block.mime_type}]({block.uri})"
        case File():
            return f"[file, {block.mime_type}]({block.uri})"


def _call(call: ToolCall) -> str:
    return f"**Call** `{call.name}` (`{call.id}`)\n\n{_fenced(call.args, 'json')}"


def _result(result: ToolResult) -> str:
    blocks = "\n\n".join(_block(block) for block in result.content)
    return f"**Result** of `{result.call_id}`: {result.status}\n\n{_fenced(blocks, '')}"


def _fenced(text: str, language: str) -> str:
    """`text` between fences that are longer than any in it."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate, as JSON writes it too
