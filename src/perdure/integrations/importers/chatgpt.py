"""Reads ChatGPT's export of a person's data: `conversations.json`, a list of conversations.

A conversation is a tree of nodes.  The line to `current_node` is the first path, and every other end of the tree is a
path of its own, because ChatGPT keeps each edited question and each answer that was made again.

A message of the assistant whose recipient is a tool is a call to that tool, and the tool's next message is the result.
Messages of the system, messages that ChatGPT hides from its user, and other kinds of content are counted.  The export has
the names of files and not the files: each is a loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from perdure.errors import Invalid
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
from perdure.model.message import Block, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.text import well_formed_json
from perdure.providers.contract import Loss

__all__ = ["read_sessions", "recognises"]

FORMAT = "chatgpt"
_SIGNS = (b'"mapping"', b'"author"')
_FACTS = ("title", "create_time", "update_time", "default_model_slug", "gizmo_id", "current_node")
_TEXTS = ("text", "multimodal_text", "code", "execution_output", "tether_quote", "tether_browsing_display")
_FIELDS = ("text", "result", "content")  # of a content without parts


def recognises(file: Candidate) -> bool:
    """True if a JSON document has conversations as trees of nodes."""
    return file.has_documents(*_SIGNS) and any(map(_is_one, _conversations(read_file(file.place))))


def read_sessions(place: str) -> Iterator[ForeignSession | Invalid]:
    """Yield one session for each conversation, and the reason in place of one that cannot be read."""
    found = _conversations(read_file(place))
    if not any(map(_is_one, found)):
        raise no_such_format(place, (FORMAT,))
    return (_read(place, number, each) for number, each in enumerate(found, 1))


def _conversations(content: bytes) -> list[object]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return as_list(value) or [value]


def _is_one(conversation: object) -> bool:
    """True if it has a tree of nodes."""
    return isinstance(as_object(conversation).get("mapping"), dict)


def _read(place: str, number: int, conversation: object) -> ForeignSession | Invalid:
    """Return a conversation, or why it cannot be read."""
    whole = as_object(conversation)
    name = as_text(whole.get("conversation_id")) or as_text(whole.get("id")) or as_text(whole.get("title"))
    shown = f"conversation {number}" + (f" ('{name[:80]}')" if name else "")
    if not _is_one(whole):
        return _unreadable(place, f"{shown} in {place} has no tree of messages")
    try:
        session = _session(place, whole)
    except Invalid as error:
        return error
    if not session.paths and session.losses:
        return _unreadable(place, f"no message of {shown} in {place} can be read")
    return session


def _unreadable(place: str, why: str) -> Invalid:
    return Invalid(f"{why}; nothing was imported from it.", code="import_unreadable", source=place)


def _session(place: str, conversation: Json) -> ForeignSession:
    whole = well_formed_json(conversation)
    nodes = {id: as_object(node) for id, node in as_object(whole["mapping"]).items()}
    first = next(iter(nodes), "")
    id = as_text(whole.get("conversation_id")) or as_text(whole.get("id")) or first
    if not id:
        raise _unreadable(place, f"a conversation in {place} has no id and no message")
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=place)
    session.facts = {"session": id} | {field: whole[field] for field in _FACTS if whole.get(field)}
    content = json.dumps(conversation, separators=(",", ":")).encode()
    session.originals = [Original(name=Path(place).name, content=content, media_type="application/json")]
    for node in (id for id, held in as_object(whole["mapping"]).items() if not isinstance(held, dict)):
        session.losses.append(_no_message(node))
    session.losses += _holes(nodes)
    reading = _Tree(session, nodes, as_text(whole.get("default_model_slug")))
    session.paths = reading.paths(as_text(whole.get("current_node")))
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

    def __init__(self, session: ForeignSession, nodes: dict[str, Json], model: str | None) -> None:
        self._session, self._nodes, self._model = session, nodes, model
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
        blocks = tuple(self._blocks(content, f"node {id}"))
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
            return self._count("message of a tool that answers no call")
        return Message("tool", (), (), (ToolResult(call.id, "success", tuple(blocks)),))

    def _blocks(self, content: Json, where: str) -> Iterator[Block]:
        parts = (
            as_list(content.get("parts"))
            or [content.get(field) for field in _FIELDS if content.get(field)][:1]
        )
        for part in parts:
            held = as_object(part)
            words = part if isinstance(part, str) else as_text(held.get("text"))
            if words:
                yield Text(words)
            elif held:
                why = "the export has no files, only their names; it is kept in the original"
                kind = as_text(held.get("content_type")) or "part"
                self._session.losses.append(Loss(kind="dropped", where=where, what=kind[:80], why=why))

    def _count(self, kind: str) -> None:
        self._session.unmapped[kind[:80]] += 1


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
