"""Reads ChatGPT's export of a person's data: `conversations.json`, a list of conversations.

A conversation is a tree of nodes.  The line to `current_node` is the first path, and every other end of the tree is a
path of its own, because ChatGPT keeps each edited question and each answer that was made again.

A message of the assistant whose recipient is a tool is a call to that tool, and the tool's next message is the result.
Messages of the system, messages that ChatGPT hides from its user, and other kinds of content are counted.

A message names pictures, sound and uploaded files by their ids.  An export has most of them beside the conversations, as
`file-<id>-name.png`, in `dalle-generations/`, or lately as `file-<id>.dat` with their names in an index; one that it does
not have is a loss.  A picture that a tool returned in a further message is one of the assistant, which showed it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from mimetypes import MimeTypes
from pathlib import Path
from typing import Any

from perdure.errors import Invalid
from perdure.integrations.importers.exports.documents import conversations_in, read_each, unreadable
from perdure.integrations.importers.exports.files import ExportFiles
from perdure.integrations.importers.session import (
    ForeignSession,
    Json,
    Original,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    moment_name,
    no_such_format,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, read_file
from perdure.model.limits import Limits
from perdure.model.message import Block, File, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.text import well_formed_json
from perdure.providers.contract import Loss

__all__ = ["read_sessions", "recognises"]

FORMAT = "chatgpt"
_SIGNS = (b'"mapping"', b'"author"')
_FACTS = ("title", "create_time", "update_time", "default_model_slug", "gizmo_id", "current_node")
_TEXTS = ("text", "multimodal_text", "code", "execution_output", "tether_quote", "tether_browsing_display")
_FIELDS = ("text", "result", "content")  # of a content without parts
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_FILE_BYTES_MAX = Limits().artifact_bytes_max
_TYPES = MimeTypes()  # without those of the machine
_TYPES.add_type("audio/wav", ".wav")


def recognises(file: Candidate) -> bool:
    """True if a JSON document has conversations as trees of nodes."""
    return file.has_documents(*_SIGNS) and any(map(_is_one, conversations_in(read_file(file.place))))


def read_sessions(place: str) -> Iterator[ForeignSession | Invalid]:
    """Yield one session for each conversation, and the reason in place of one that cannot be read."""
    found = conversations_in(read_file(place))
    if not any(map(_is_one, found)):
        raise no_such_format(place, (FORMAT,))
    return _each(place, found)


def _each(place: str, found: list[object]) -> Iterator[ForeignSession | Invalid]:
    files = ExportFiles(place)
    try:
        yield from read_each(place, found, lambda whole: _session(place, whole, files), has_messages=_is_one)
    finally:
        files.close()


def _is_one(conversation: object) -> bool:
    """True if it has a tree of nodes."""
    return isinstance(as_object(conversation).get("mapping"), dict)


def _session(place: str, conversation: Json, files: ExportFiles) -> ForeignSession:
    whole = well_formed_json(conversation)
    nodes = {id: as_object(node) for id, node in as_object(whole["mapping"]).items()}
    first = next(iter(nodes), "")
    id = as_text(whole.get("conversation_id")) or as_text(whole.get("id")) or first
    if not id:
        raise unreadable(place, f"a conversation in {place} has no id and no message")
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=files.source)
    session.facts = {"session": id} | {field: whole[field] for field in _FACTS if whole.get(field)}
    content = json.dumps(conversation, separators=(",", ":")).encode()
    session.originals = [Original(name=Path(place).name, content=content, media_type="application/json")]
    for node in (id for id, held in as_object(whole["mapping"]).items() if not isinstance(held, dict)):
        session.losses.append(_no_message(node))
    session.losses += _holes(nodes)
    reading = _Tree(session, nodes, as_text(whole.get("default_model_slug")), files)
    session.paths = reading.paths(as_text(whole.get("current_node")))
    if session.files:
        index = [files.index] if files.index else []
        session.kept = frozenset([*index, *(file.place for file in session.files.values())])
    return session


def _no_message(node: str) -> Loss:
    why = "it is no message as ChatGPT writes them; it is kept in the original"
    return Loss(kind="dropped", where=f"node {node}", what="message", why=why)


def _holes(nodes: dict[str, Json]) -> Iterator[Loss]:
    """Yield a loss for each node whose parent the export does not have: its line begins there."""
    for id, node in nodes.items():
        parent = as_text(node.get("parent"))
        if parent and parent not in nodes:
            why = f"the node {parent[:80]} before it is not in the export, so the line that it is on begins with it"
            yield Loss(kind="dropped", where=f"node {id}", what="messages before", why=why)


class _Tree:
    """The nodes of one conversation."""

    def __init__(
        self, session: ForeignSession, nodes: dict[str, Json], model: str | None, files: ExportFiles
    ) -> None:
        self._session, self._nodes, self._model, self._files = session, nodes, model, files
        self._lacking: set[str] = set()  # nodes with files that the export does not have
        self._entries: dict[str, SessionEntry | None] = {}  # by node
        self._calls: dict[str, ToolCall] = {}  # by node

    def paths(self, current: str | None) -> list[tuple[SessionEntry, ...]]:
        """Return the line to the current node, and then each other one that is no part of a line before it."""
        parents = {as_text(node.get("parent")) for node in self._nodes.values()}
        ends = [id for id in self._nodes if id not in parents]
        if current in self._nodes:
            ends = [current, *(id for id in ends if id != current)]
        found: list[tuple[SessionEntry, ...]] = []
        known: set[str] = set()  # a node has one line, so its last message names it
        for end in ends:
            line = reversed(list(self._upward(end)))
            entries = tuple(entry for id in line if (entry := self._entry(id)) is not None)
            names = [entry.parts[0].name for entry in entries]
            if names and names[-1] not in known:
                found.append(entries)
                known.update(names)
        return found

    def _upward(self, id: str | None) -> Iterator[str]:
        """Yield a node and those above it, each once, also if they form a cycle."""
        seen: set[str] = set()
        while id is not None and id in self._nodes and id not in seen:
            seen.add(id)
            yield id
            id = as_text(self._nodes[id].get("parent"))

    def _entry(self, id: str) -> SessionEntry | None:
        """Return the message of a node; None, and it is counted, if it is no message of the conversation."""
        if id not in self._entries:
            value = self._nodes[id].get("message")
            source = as_object(value)
            self._entries[id] = None  # in a cycle a result asks for it again
            is_sound = value is None or (value == source and isinstance(source.get("content", {}), dict))
            if not is_sound:
                self._session.losses.append(_no_message(id))
            message = self._converted(id, source) if source and is_sound else None
            self._entries[id] = None if message is None else self._session_entry(id, source, message)
        return self._entries[id]

    def _session_entry(self, id: str, source: Json, message: Message) -> SessionEntry:
        facts: Json = {"id": id}
        if names := [self._session.files[block.uri].name for block in _files_in(message)]:
            facts["files"] = names
        at = source.get("create_time")
        if isinstance(at, int | float) and 0 < at < 1e11:
            facts["timestamp"] = datetime.fromtimestamp(at, UTC).isoformat()
        is_reply = message.role == "assistant"
        model = as_text(as_object(source.get("metadata")).get("model_slug")) or self._model
        return SessionEntry(
            parts=(
                SourcePart(
                    name=moment_name(FORMAT, id),
                    item=message,
                    where=f"node {id}",
                    facts=facts,
                    is_named_by_tool=True,
                    lacks_files=id in self._lacking,
                ),
            ),
            provider="openai" if is_reply else None,
            model=model if is_reply else None,
            begins_turn=message.role == "user",
        )

    def _converted(self, id: str, source: Json) -> Message | None:
        """Return the message of a node as a thread has it; None, and it is counted, if a thread has none of its kind."""
        content = as_object(source.get("content"))
        role = as_text(as_object(source.get("author")).get("role")) or "unknown role"
        kind = as_text(content.get("content_type")) or "none"
        if as_object(source.get("metadata")).get("is_visually_hidden_from_conversation"):
            return self._count(f"hidden message of the {role}")
        if kind == "thoughts" and role == "assistant":
            blocks = tuple(_thoughts(content))
            return Message("assistant", blocks) if blocks else self._count("message without words")
        if role not in ("user", "assistant", "tool") or kind not in _TEXTS:
            return self._count(f"{kind} of the {role}" if role != "system" else "message of the system")
        blocks = (*self._blocks(content, id), *self._attachments(source, id))
        if role == "tool":
            return self._result(id, blocks)
        if not blocks:
            return self._count("message without words")
        recipient = as_text(source.get("recipient")) or "all"
        if role == "assistant" and recipient != "all":
            self._calls[id] = ToolCall(id, recipient, _arguments(blocks))
            return Message("assistant", (), (self._calls[id],))
        return Message("user" if role == "user" else "assistant", blocks)

    def _result(self, id: str, blocks: Sequence[Block]) -> Message | None:
        """Return the result of the call before it; a further message of the tool is counted."""
        above = islice(self._upward(id), 1, None)
        messages = (each for each in above if self._entry(each) is not None)  # counted ones may be in between
        call = self._calls.get(next(messages, ""))
        if call is None:
            shown = tuple(block for block in blocks if isinstance(block, File))
            if len(shown) < len(blocks) or not shown:
                self._count("message of a tool that answers no call")
            return Message("assistant", shown) if shown else None
        return Message("tool", (), (), (ToolResult(call.id, "success", tuple(blocks)),))

    def _blocks(self, content: Json, id: str) -> Iterator[Block]:
        parts = (
            as_list(content.get("parts"))
            or [content.get(field) for field in _FIELDS if content.get(field)][:1]
        )
        for part in parts:
            held = as_object(part)
            words = part if isinstance(part, str) else as_text(held.get("text"))
            kind = as_text(held.get("content_type")) or "part"
            pointers = list(_pointers(held))
            if words:
                yield Text(words)
            for pointer in pointers:
                yield from self._file(pointer, id, kind)
            if held and not words and not pointers:
                self._lose(id, kind, "this kind of content is not known; it is kept in the original")

    def _attachments(self, source: Json, id: str) -> Iterator[Block]:
        """Yield the files that a message has in its metadata alone, as those that the user uploaded."""
        parts = map(as_object, as_list(as_object(source.get("content")).get("parts")))
        shown = [_id_in(pointer) for part in parts for pointer in _pointers(part)]
        for each in map(as_object, as_list(as_object(source.get("metadata")).get("attachments"))):
            file, name = as_text(each.get("id")) or "", as_text(each.get("name")) or "attachment"
            if _id_in(file) not in shown:
                declared = as_text(each.get("mime_type")) or as_text(each.get("mimeType"))
                yield from self._file(file, id, name, declared)

    def _file(self, pointer: str, id: str, what: str, declared: str | None = None) -> Iterator[Block]:
        """Yield a block for a file of the export; none, and it is a loss, if the export does not have it."""
        named = _id_in(pointer)
        file = self._files.find(named)
        if file is None:
            self._lacking.add(id)
            self._lose(
                id, what, f"the export does not have the file {named[:80]}; its name is kept in the original"
            )
        elif file.size > _FILE_BYTES_MAX:
            why = f"{file.name[:80]} has {file.size:,} bytes, and an artifact has at most {_FILE_BYTES_MAX:,}"
            self._lose(id, what, why)
        else:
            uri = f"export:{named}"
            self._session.files[uri] = file
            yield File(uri, declared or _TYPES.guess_type(file.name)[0] or "application/octet-stream")

    def _lose(self, id: str, what: str, why: str) -> None:
        self._session.losses.append(Loss(kind="dropped", where=f"node {id}", what=what[:80], why=why))

    def _count(self, kind: str) -> None:
        self._session.unmapped[kind[:80]] += 1


def _pointers(part: Json) -> Iterator[str]:
    """Yield the names of the files of a part; sound and film of a conversation in real time are one part."""
    for field, value in part.items():
        if field == "asset_pointer" and as_text(value):
            yield value
        elif field.endswith("_asset_pointer"):
            yield from _pointers(as_object(value))
        elif field.endswith("_asset_pointers"):
            for each in as_list(value):
                yield from [each] if isinstance(each, str) and each else _pointers(as_object(each))


def _id_in(pointer: str) -> str:
    """Return the id of a file in the address that a message has for it; the address, if there is none."""
    name = pointer.rpartition("://")[2]
    found = _FILE_ID.search(name)
    return name if found is None else found[0]


def _files_in(message: Message) -> Iterator[File]:
    """Yield the files that a message names."""
    blocks = [*message.content, *(block for result in message.tool_results for block in result.content)]
    return (block for block in blocks if isinstance(block, File))


def _thoughts(content: Json) -> Iterator[Block]:
    for each in map(as_object, as_list(content.get("thoughts"))):
        words = [text for field in ("summary", "content") if (text := as_text(each.get(field)))]
        if words:
            yield ReasoningSummary("\n\n".join(words))


def _arguments(blocks: Sequence[Block]) -> str:
    """Return what a call says as JSON: itself if it is an object, else under `input`."""
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return text if isinstance(value, dict) else json.dumps({"input": text}, ensure_ascii=False)
