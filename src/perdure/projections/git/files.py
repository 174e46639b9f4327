"""Renders the message and the files of a git commit.

A commit message has a subject, a line for each event, and trailers that lead back to Perdure.  The
trailers are the last paragraph and each is one line.  Text from data is before them, on lines of its
own that begin with `- ` or in the subject; every character that could begin another line or that a
terminal would obey is escaped.  So data cannot forge a trailer.

`messages/00/00/000012-user-<id>.md` is a message; its number is the sequence number of its event
on the line.  A directory has a hundred of them, so that the next costs the same however many there
are.  If a message is more than text, the same name with `.json` has all of it, as it is stored.

`state/<path>` is a value.  A JSON document of ordinary size has one value a line, so that git
compares it line by line; everything else is byte for byte as it is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from perdure.model.commit import Changeset, Commit
from perdure.model.digest import Digest
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.projections.git.names import path_of, segment_of
from perdure.projections.git.stream import Stamp
from perdure.projections.transcript import TranscriptEntry

__all__ = [
    "COMMITTER",
    "author_of",
    "message_of",
    "told_in",
    "STATE",
    "PutFile",
    "indented",
    "is_indented",
    "lost_state",
    "lost_value",
    "message_files",
    "state_file",
]


COMMITTER = "Perdure"

_EMAIL = "thread@perdure.invalid"  # a domain that can never exist
_SUBJECT_MAX = 72
_EVENTS_MAX = 50
_FIELD_MAX = 120
_SECONDS_MAX = 1 << 40

# As in the command line: controls, invisible characters, direction marks, separators, tags.  Also lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_BRACKETS = re.compile("[<>%]")
_SPACES = re.compile("[ \t-\r]+")

# The fields of an event that a line shows.
_SHOWN = (
    "role",
    "tool",
    "agent",
    "from_agent",
    "to_agent",
    "from_backend",
    "to_backend",
    "backend",
    "status",
    "decision",
    "by",
    "timeline",
)
_ALSO = ("path", "name", "owner", "item", "call", "side_effects", "why")


def author_of(commit: Commit) -> tuple[Stamp, Stamp]:
    """Return the author of a commit, and the committer: always Perdure, at the commit's own time."""
    seconds = min(max(commit.at // 1_000_000, 0), _SECONDS_MAX)
    named = _BRACKETS.sub(lambda found: f"%{ord(found[0]):02X}", _spelled(commit.author or "")).strip(" ")
    return Stamp(named or COMMITTER, _EMAIL, seconds), Stamp(COMMITTER, _EMAIL, seconds)


def message_of(digest: Digest, commit: Commit, changeset: Changeset, said: Sequence[TranscriptEntry]) -> str:
    """Return the message of a git commit: a subject, a line for each event, and the trailers."""
    events = _events(changeset)
    paragraphs = [_subject(commit, said), *(["\n".join(events)] if events else []), _trailers(digest, commit)]
    return "\n\n".join(paragraphs) + "\n"


def told_in(message: str) -> dict[str, str]:
    """Return the trailers of a git commit's message, by name; none if its last paragraph has no trailers."""
    lines = message.rstrip("\n").rpartition("\n\n")[2].split("\n")
    pairs = [line.partition(": ") for line in lines]
    return {name: value for name, _, value in pairs} if all(colon for _, colon, _ in pairs) else {}


def _subject(commit: Commit, said: Sequence[TranscriptEntry]) -> str:
    words = next((entry.text for entry in said if entry.text.strip()), "")
    excerpt = _spelled(_SPACES.sub(" ", words[: 4 * _SUBJECT_MAX]).strip())
    reason = _spelled(commit.reason)
    return _cut(f"{reason}: {excerpt}" if excerpt else reason, _SUBJECT_MAX)


def _trailers(digest: Digest, commit: Commit) -> str:
    pairs = {
        "Thread": commit.thread,
        "Run": commit.run,
        "Reason": commit.reason,
        "State": commit.root,
        "Commit": digest,
    }
    return "\n".join(f"{name}: {_spelled(value)}" for name, value in pairs.items() if value is not None)


def _events(changeset: Changeset) -> list[str]:
    """Return a line for each event, up to a limit."""
    lines: list[str] = []
    for event in changeset.events[:_EVENTS_MAX]:
        shape = msgspec.to_builtins(event)
        fields = [str(shape[name]) for name in (*_SHOWN, *_ALSO) if shape.get(name)]
        words = [str(shape["type"]), *fields, *([event.id] if shape["type"] == "message.appended" else [])]
        lines.append("- " + " ".join(_cut(_spelled(word), _FIELD_MAX) for word in words))
    left = len(changeset.events) - len(lines)
    return [*lines, f"- and {left} more"] if left else lines


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _spelled(text: str) -> str:
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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
    """Return the files of the message that is the event number `sequence` of its line."""
    number = f"{sequence:06}"
    name = f"{_MESSAGES}/{number[:-4]}/{number[-4:-2]}/{number}-{entry.role}-{segment_of(entry.id)}"
    if entry.words is None:
        why = entry.forgotten or "no reason is recorded"
        return [PutFile(f"{name}.md", _encoded(f"*This message was forgotten: {why}.*\n"))]
    redacted = f"\n*In this message: {entry.redaction.reason}.*\n" if entry.redaction else ""
    files = [PutFile(f"{name}.md", _encoded(_markdown(entry.words) + redacted))]
    if _is_more_than_words(entry.words):
        files.append(PutFile(f"{name}.json", _encoded(_whole(entry, entry.words))))
    return files


def state_file(key: str, *, above: bool) -> str:
    """Return the file that holds the value at a path of the state; `above`: there are paths below that one."""
    return f"{STATE}/{path_of(key, above=above)}"


def indented(body: bytes) -> bytes:
    """Return a JSON document with one value a line."""
    return msgspec.json.format(body, indent=2) + b"\n"


def is_indented(form: str, size: int) -> bool:
    """True if the file of a value has one value a line."""
    return form == "json" and size <= _INDENTED_MAX


def lost_value(digest: Digest, size: int, why: str) -> bytes:
    """Return the file content for a value that was forgotten."""
    return _encoded(f"This value was forgotten: {why}.\nIt had {size} bytes and the digest {digest}.\n")


def lost_state(root: Digest, why: str) -> PutFile:
    """Return the file for a state that cannot be listed any more, since a part of its map was forgotten."""
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
    present = {name: value for name, value in shape.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, indent=2) + "\n"


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
    """Return `text` between fences that are longer than any in it."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate, as JSON writes it too
