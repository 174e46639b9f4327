"""The stored shapes of pydantic-ai's records and entries: documents of a thread's state.

An entry is a document under its own path, so a save writes what is new and a timeline shares the rest.  The record of a
conversation is one document of its timeline.  A conversation that was forked off another one lives on a timeline of the
other's thread; the record in its own thread then only says where.

pydantic writes and reads the messages, from data: nothing that is stored names a class or a function.  What is no canonical
JSON (an integer beyond 2^53, a list of a hundred levels, …) is stored as its text; half a character is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pydantic
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from perdure.errors import Corrupt, Invalid
from perdure.integrations import foreign_ids
from perdure.model import canonical
from perdure.model.canonical import Json, prepared

__all__ = [
    "ENTRIES",
    "FRAMEWORK",
    "RECORD",
    "ROOT",
    "EntryDocument",
    "RecordDocument",
    "documents_of",
    "entries_of",
    "entry_path",
    "message_document",
    "moment_of",
    "read_entry",
    "read_record",
    "record_document",
    "record_of",
    "stored",
]

FRAMEWORK = "pydantic-ai"
ROOT = "/pydantic_ai"
RECORD = f"{ROOT}/conversation.json"
ENTRIES = f"{ROOT}/entries"
_TEXT = "$json"

_records = pydantic.TypeAdapter(ConversationRecord)


class EntryDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An entry as it is stored."""

    id: str  # exactly as pydantic-ai has it, like every id here
    parent: str | None
    message: Any  # as pydantic writes it
    kind: str = "message"
    said: list[
        str
    ] = []  # the ids of its messages in the transcript; empty: it is not on the line of the head
    unplaced: list[str] = []  # what the transcript has no place for


class RecordDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The record of a conversation as it is stored, or where it is."""

    record: Any = None  # as pydantic writes it
    said: str | None = None  # the last message of the transcript after the save
    elsewhere: list[str] | None = None  # the thread and the timeline of a fork


def entry_path(id: str) -> str:
    """Return the path of an entry."""
    return f"{ENTRIES}/{foreign_ids.path_segment(id)}"


def moment_of(id: str) -> str:
    """Return the name of the commit that stored an entry."""
    return foreign_ids.moment_name(FRAMEWORK, id)


def message_document(message: ModelMessage) -> Json:
    """Return a message as it is stored."""
    return _canonical(ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])


def documents_of(entries: Sequence[ConversationEntry]) -> dict[str, EntryDocument]:
    """Return new entries as they are stored, by their ids."""
    return {
        each.id: EntryDocument(
            id=each.id, parent=each.parent_id, message=message_document(each.message), kind=each.kind
        )
        for each in entries
    }


def entries_of(documents: Sequence[EntryDocument]) -> list[ConversationEntry]:
    """Return stored entries; raises `Corrupt` for one whose message cannot be read."""
    texts = ",".join(_text(each.message) for each in documents)
    try:
        messages = ModelMessagesTypeAdapter.validate_json(f"[{texts}]")
    except ValueError as error:
        raise _damaged("a stored message of pydantic-ai", error) from error
    return [
        ConversationEntry(id=each.id, parent_id=each.parent, message=message, kind=cast("Any", each.kind))
        for each, message in zip(documents, messages, strict=True)
    ]


def record_document(record: ConversationRecord) -> Json:
    """Return a record as it is stored."""
    return _canonical(_records.dump_python(record, mode="json"))


def record_of(document: RecordDocument) -> ConversationRecord:
    """Return a stored record; raises `Corrupt` if it cannot be read."""
    try:
        return _records.validate_json(_text(document.record))
    except ValueError as error:
        raise _damaged("a stored record of pydantic-ai", error) from error


def stored(document: EntryDocument | RecordDocument) -> Json:
    """Return a document as a value of the state."""
    return cast("Json", msgspec.to_builtins(document))


def read_entry(value: object) -> EntryDocument:
    """Return the document of an entry; raises `Corrupt` if it is none."""
    try:
        return msgspec.convert(value, prepared(EntryDocument))
    except msgspec.ValidationError as error:
        raise _damaged("an entry of pydantic-ai", error) from error


def read_record(value: object) -> RecordDocument:
    """Return the document of a record; raises `Corrupt` if it is none."""
    try:
        return msgspec.convert(value, prepared(RecordDocument))
    except msgspec.ValidationError as error:
        raise _damaged(RECORD, error) from error


def _canonical(value: Any) -> Json:
    try:
        canonical.encode(value)
    except Invalid as refused:
        if refused.code == "lone_surrogate":  # pydantic could not read it back
            raise
        return {_TEXT: json.dumps(value)}
    return value


def _text(value: Any) -> str:
    if isinstance(value, dict) and _TEXT in value:
        return str(cast("dict[str, Any]", value)[_TEXT])
    return json.dumps(value)


def _damaged(what: str, error: Exception) -> Corrupt:
    return Corrupt(
        f"{what} cannot be read: {type(error).__name__}; nothing was changed.",
        code="foreign_value_damaged",
        why=str(error),
    )
