"""Reads claude.ai's export of a person's data: `conversations.json`, a list of conversations with `chat_messages`.

Later exports name the message before each (`parent_message_uuid`), so that a conversation with an edited question or
another answer is a tree: the line to its newest message is the first path, and each other end is a path of its own.
Earlier ones have a list.

A message of the assistant holds its calls with their results, which are entries of their own here: what it said up to a
result, the results, and what it said then.  Calls of claude.ai's own tools may have no ids, and are answered in order.
The export has the text of attached documents, and of pictures only the names: each is a loss.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.errors import Invalid
from perdure.integrations.importers.exports.documents import conversations_in, read_each, unreadable
from perdure.integrations.importers.exports.files import source_of
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
from perdure.model.message import Block, File, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.text import well_formed_json
from perdure.providers.contract import Loss
from perdure.providers.wire.media import data_url

__all__ = ["read_sessions", "recognises"]

FORMAT = "claude-ai"
_SIGNS = (b'"chat_messages"',)
_FACTS = ("summary", "created_at", "updated_at", "project")


def recognises(file: Candidate) -> bool:
    """True if a JSON document has conversations as claude.ai writes them."""
    return file.has_documents(*_SIGNS) and any(map(_is_one, conversations_in(read_file(file.place))))


def read_sessions(place: str) -> Iterator[ForeignSession | Invalid]:
    """Yield one session for each conversation, and the reason in place of one that cannot be read."""
    found = conversations_in(read_file(place))
    if not any(map(_is_one, found)):
        raise no_such_format(place, (FORMAT,))
    return read_each(place, found, lambda whole: _session(place, whole), has_messages=_is_one)


def _is_one(conversation: object) -> bool:
    """True if it has a list of messages that name their senders."""
    found = as_object(conversation).get("chat_messages")
    messages = as_list(found)
    return isinstance(found, list) and (not messages or any("sender" in as_object(each) for each in messages))


def _session(place: str, conversation: Json) -> ForeignSession:
    whole = well_formed_json(conversation)
    id = as_text(whole.get("uuid"))
    if not id:
        raise unreadable(place, f"a conversation in {place} has no uuid")
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=source_of(place))
    session.facts = {"session": id} | {field: whole[field] for field in _FACTS if whole.get(field)}
    if as_text(whole.get("name")):
        session.facts["title"] = whole["name"]
    content = json.dumps(conversation, separators=(",", ":")).encode()
    session.originals = [Original(name=Path(place).name, content=content, media_type="application/json")]
    messages = [as_object(each) for each in as_list(whole["chat_messages"])]
    ids = [as_text(each.get("uuid")) or f"{id}-{number}" for number, each in enumerate(messages)]
    model = as_text(whole.get("model"))
    entries = [
        list(_Entries(session, own, message, model).read())
        for own, message in zip(ids, messages, strict=True)
    ]
    lines = _lines(ids, messages, as_text(whole.get("current_leaf_message_uuid")))
    paths = [tuple(entry for at in line for entry in entries[at]) for line in lines]
    session.paths = [path for path in paths if path]
    return session


def _lines(ids: Sequence[str], messages: Sequence[Json], leaf: str | None) -> list[list[int]]:
    """Return the line to the current message, or to the newest, and then that to each other end."""
    places = {id: at for at, id in enumerate(ids)}
    parents: list[int | None] = []
    for at, message in enumerate(messages):
        named = places.get(as_text(message.get("parent_message_uuid")) or "")
        before = at - 1 if at and "parent_message_uuid" not in message else None
        parents.append(before if named is None else named)
    inner = set(parents)
    ends = [at for at in range(len(messages)) if at not in inner]
    ends.sort(key=lambda at: (ids[at] == leaf, as_text(messages[at].get("created_at")) or "", at))
    return [_upward(end, parents) for end in [*ends[-1:], *ends[:-1]]]


def _upward(end: int, parents: Sequence[int | None]) -> list[int]:
    line, at = [end], parents[end]
    while at is not None and at not in line:
        line.append(at)
        at = parents[at]
    return line[::-1]


class _Entries:
    """The entries of one message: what the user or the model said, and the results of its calls."""

    def __init__(self, session: ForeignSession, id: str, message: Json, model: str | None) -> None:
        self._session, self._id, self._message, self._model = session, id, message, model
        self._unnamed: list[str] = []  # calls without ids that have no result yet
        self._number = 0

    def read(self) -> Iterator[SessionEntry]:
        """Yield the entries in order; what has no place in them is counted, or a loss."""
        match self._message.get("sender"):
            case "human":
                yield from self._said("user", [*self._texts(), *self._attached()])
            case "assistant":
                yield from self._replies()
            case sender:
                self._count(f"message of the {sender if isinstance(sender, str) else 'unknown sender'}")

    def _content(self) -> list[Json]:
        """Return the blocks of a message; early exports have its text alone."""
        blocks = [as_object(each) for each in as_list(self._message.get("content"))]
        return blocks or [{"type": "text", "text": self._message.get("text")}]

    def _texts(self) -> Iterator[Block]:
        for block in self._content():
            yield from self._block(block)

    def _block(self, block: Json) -> Iterator[Block]:
        words = as_text(block.get("text"))
        match block.get("type"):
            case "text" | "voice_note":
                if words and words.strip():
                    yield Text(words)
            case "thinking":
                if thought := as_text(block.get("thinking")):
                    yield ReasoningSummary(thought)
            case kind:
                self._count(f"{kind if isinstance(kind, str) else 'block'} of the {self._message['sender']}")

    def _attached(self) -> Iterator[Block]:
        """Yield the texts of attached documents; one without a name is words that the user pasted."""
        for each in map(as_object, as_list(self._message.get("attachments"))):
            name, text = as_text(each.get("file_name")), as_text(each.get("extracted_content"))
            if text and not name:
                yield Text(text)
            elif text:
                body = base64.b64encode(text.encode("utf-8", "replace")).decode()
                yield File(data_url("text/plain", body), "text/plain")
            else:
                self._lose(name or "attachment")
        for each in map(as_object, as_list(self._message.get("files"))):
            self._lose(as_text(each.get("file_name")) or "file")

    def _replies(self) -> Iterator[SessionEntry]:
        blocks: list[Block] = []
        calls: list[ToolCall] = []
        results: list[ToolResult] = []
        for at, block in enumerate(self._content()):
            if block.get("type") == "tool_result":
                yield from self._said("assistant", blocks, calls)
                blocks, calls = [], []
                results += self._result(block)
                continue
            yield from self._answered(results)
            results = []
            if block.get("type") == "tool_use":
                calls.append(self._call(block, at))
            else:
                blocks += self._block(block)
        yield from self._answered(results)
        yield from self._said("assistant", [*blocks, *self._attached()], calls)

    def _call(self, block: Json, at: int) -> ToolCall:
        id = as_text(block.get("id"))
        if id is None:
            id = f"{self._id}-{at}"
            self._unnamed.append(id)
        arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
        return ToolCall(id, as_text(block.get("name")) or "unknown", arguments)

    def _result(self, block: Json) -> list[ToolResult]:
        call = as_text(block.get("tool_use_id"))
        if call is None and self._unnamed:
            call = self._unnamed.pop(0)
        if call is None:
            self._count("result that answers no call")
            return []
        content = block.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        told: list[Block] = []
        for part in map(as_object, parts):
            if words := as_text(part.get("text")):
                told.append(Text(words))
            else:
                self._lose(as_text(part.get("type")) or "part of a result")
        return [ToolResult(call, "error" if block.get("is_error") is True else "success", tuple(told))]

    def _said(
        self, role: str, blocks: Sequence[Block], calls: Sequence[ToolCall] = ()
    ) -> Iterator[SessionEntry]:
        if role == "user" and blocks:
            yield self._entry(Message("user", tuple(blocks)))
        elif blocks or calls:
            yield self._entry(Message("assistant", tuple(blocks), tuple(calls)))
        elif not self._number:
            self._count("message without words")

    def _answered(self, results: Sequence[ToolResult]) -> Iterator[SessionEntry]:
        if results:
            yield self._entry(Message("tool", (), (), tuple(results)))

    def _entry(self, message: Message) -> SessionEntry:
        name = f"{self._id}-{self._number}" if self._number else self._id
        facts: Json = {"uuid": self._id}
        if at := as_text(self._message.get("created_at")):
            facts["timestamp"] = at
        self._number += 1
        where = f"message {self._id}"
        part = SourcePart(
            name=moment_name(FORMAT, name), item=message, where=where, facts=facts, is_named_by_tool=True
        )
        is_reply = message.role == "assistant"
        return SessionEntry(
            parts=(part,),
            provider="anthropic" if is_reply else None,
            model=self._model if is_reply else None,
            begins_turn=message.role == "user",
        )

    def _lose(self, what: str) -> None:
        why = "the export does not have it; its name is kept in the original"
        loss = Loss(kind="dropped", where=f"message {self._id}", what=what[:80], why=why)
        self._session.losses.append(loss)

    def _count(self, kind: str) -> None:
        self._session.unmapped[kind[:80]] += 1
