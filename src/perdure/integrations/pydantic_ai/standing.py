"""A conversation on its timeline at one moment: the record, its entries, and what others have said there since.

The transcript of the timeline and the history of the conversation say the same, as long as only pydantic-ai writes.  Other
frameworks and runs of ours may write to the same thread; then the transcript is right.  The entries whose messages it still
has are kept, and each further message of it is an entry whose id is `perdure:` and the id of the message.  It is stored as
an entry with the next save.  The revision names the last such message, so that a save that has not read it is a conflict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property

from pydantic_ai.conversation_store import ConversationRecord

from perdure.integrations.pydantic_ai.records import (
    ENTRIES,
    RECORD,
    EntryDocument,
    RecordDocument,
    entry_path,
    message_document,
    read_entry,
    read_record,
    record_of,
)
from perdure.integrations.pydantic_ai.transcript import model_message, tool_names
from perdure.model.head import Head
from perdure.projections.transcript import TranscriptEntry
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["FOREIGN", "Standing"]

FOREIGN = "perdure:"


class Standing:
    """What a timeline says of a conversation; nothing here changes when the timeline moves on."""

    def __init__(self, line: Thread, conversation_id: str | None = None) -> None:
        """Read the head of a timeline and the record there; None: the conversation that the record names."""
        self.line, self._conversation_id = line, conversation_id
        self.head: Head = line.head
        self.view: View = line.at(self.head)
        value = self.view.get(RECORD, default=None)
        self.document: RecordDocument | None = None if value is None else read_record(value)
        last = self.view.transcript(limit=1)
        self.last: str | None = last[-1].id if last else None  # the last message of the transcript
        self.record: ConversationRecord | None = None  # None: there is no conversation
        self.foreign: dict[str, EntryDocument] = {}  # entries that are not stored yet, in their order
        document = self.document
        if document is not None and document.elsewhere is not None:
            return
        if document is not None and document.said == self.last:
            self.record = self._own(document)
        elif self.last is not None or document is not None:
            self._follow(document)

    def entry(self, id: str) -> EntryDocument | None:
        """Return an entry; None if the timeline has none of that id."""
        if id in self.foreign:
            return self.foreign[id]
        value = self.view.get(entry_path(id), default=None)
        found = None if value is None else read_entry(value)
        return found if found is not None and found.id == id else None

    @cached_property
    def stored(self) -> dict[str, EntryDocument]:
        """The entries that the timeline has, by their ids, in one read."""
        found = [read_entry(each) for each in self.view.values(ENTRIES).values()]
        return {each.id: each for each in found}

    def history(self, head_id: str | None, *, limit: int | None = None) -> list[EntryDocument]:
        """Return the entries up to `head_id`, or the last `limit` of them; raises `KeyError` for one that is missing."""
        found: list[EntryDocument] = []
        id = head_id
        while id is not None and (limit is None or len(found) < limit):
            entry = self.foreign.get(id) or (self.stored.get(id) if limit is None else self.entry(id))
            if entry is None:
                raise KeyError(id)
            found.append(entry)
            id = entry.parent
        found.reverse()
        return found

    @property
    def _id(self) -> str:
        return self.line.id if self._conversation_id is None else self._conversation_id

    def _own(self, document: RecordDocument) -> ConversationRecord:
        """Return a stored record; a timeline that was promoted has the record of a fork."""
        record = record_of(document)
        if self._conversation_id is not None:
            record.conversation_id = self._conversation_id
        return record

    def _follow(self, document: RecordDocument | None) -> None:
        """Let the record say what the transcript says."""
        transcript = [each for each in self.view.transcript() if each.words is not None]
        record = ConversationRecord(conversation_id=self._id, head_id=None, revision="perdure")
        if document is not None:
            record = self._own(document)
        base, shared = self._shared(record.head_id, [each.id for each in transcript])
        self._add_foreign(transcript, shared, base)
        head_id = next(reversed(self.foreign)) if self.foreign else base
        branches = record.branches
        if record.head_id is not None and base != record.head_id:
            branches = [*(each for each in branches if each != record.head_id), record.head_id]
        at = [datetime.fromtimestamp(each.at / 1e6, UTC) for each in transcript[-1:]]
        self.record = dataclasses.replace(
            record,
            head_id=head_id,
            branches=branches,
            revision=f"{record.revision}+{self.last or ''}",
            updated_at=max([record.updated_at, *at])
            if document is not None
            else (at or [record.updated_at])[0],
        )

    def _shared(self, head_id: str | None, said: Sequence[str]) -> tuple[str | None, int]:
        """Return the last entry that the transcript still has, and how many messages it has of such entries."""
        base, count = None, 0
        for entry in self.history(head_id):
            end = count + len(entry.said)
            if list(said[count:end]) != entry.said:
                break
            base, count = entry.id, end
        return base, count

    def _add_foreign(self, transcript: Sequence[TranscriptEntry], start: int, base: str | None) -> None:
        tools, parent = tool_names(transcript), base
        for each in transcript[start:]:
            message = model_message(each, tools, self._fetch, conversation_id=self._id)
            id = FOREIGN + each.id
            self.foreign[id] = EntryDocument(
                id=id, parent=parent, message=message_document(message), said=[each.id]
            )
            parent = id

    def _fetch(self, reference: str) -> bytes:
        return b"".join(self.line.artifacts.get(reference))
