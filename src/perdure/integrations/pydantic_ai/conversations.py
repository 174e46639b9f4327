"""A conversation store of pydantic-ai: every save is a commit, and its messages are the thread's transcript.

**Where things are.**  A conversation is a thread of the same id, on `main`.  A save is one write: the entries that are new, the
record, and the messages of the transcript.  The write is refused if the record has another revision than the one that was
loaded; the comparison is part of the write.  Going back to an earlier entry takes the messages after it back from the
transcript; going on from one that was left says its messages again.

**A fork** is a conversation that points at an entry of another one.  Entries belong to a thread, so the fork is a timeline of
that thread, which begins where the entry was stored, and the thread of the fork's own id says where it is.  Whether a
conversation exists is decided in its own thread alone: of two that begin the same id, one is refused.

**Deleting** takes the timeline back to before its first commit.  Entries that a fork needs are on the fork's timeline; no
conversation finds the others from then on, and `gc` frees their bytes.  The ledger stays: what was paid is not paid again.

An entry is looked for where this process last saw it, else in all threads, or in those of the agent that is named, with one call of the engine.
"""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from hashlib import sha256
from threading import Lock
from typing import TypeVar
from uuid import uuid4

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelResponse

from perdure import aio
from perdure.engines.contract import LabelOf
from perdure.errors import Busy, Conflict, Invalid, NotFound, StaleHead
from perdure.integrations.door import Door
from perdure.integrations.framework_threads import FrameworkThreads
from perdure.integrations.pydantic_ai.records import (
    ENTRIES,
    FRAMEWORK,
    RECORD,
    ROOT,
    EntryDocument,
    RecordDocument,
    documents_of,
    entries_of,
    entry_path,
    message_document,
    moment_of,
    read_entry,
    read_record,
    record_document,
    record_of,
    stored,
)
from perdure.integrations.pydantic_ai.transcript import model_message, said_by, tool_names
from perdure.model import names
from perdure.model.head import Head
from perdure.model.message import Message, Text
from perdure.projections.transcript import TranscriptEntry
from perdure.store.change import Change
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["Conversations"]

_T = TypeVar("_T")

_ATTEMPTS_MAX = 256
_PLACES_MAX = 50_000
_SAID_MAX = 200  # entries that one write says; each is a few events
_BYTES_MAX = 2**20  # of their messages, which a write holds twice
_RETRACTIONS_MAX = 200  # in one write; beyond that, all of the transcript is said again
_FOREIGN = "perdure:"  # begins the ids of entries that another framework or a run of ours has said
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}\Z")


class Conversations(ConversationStore):
    """Stores the conversations of pydantic-ai as threads.

    `agent` is whose threads they are; None: of any agent, new ones of `pydantic-ai`.
    """

    def __init__(self, store: Store | aio.Store, *, agent: str | None = None) -> None:
        """Use an open store."""
        if agent is not None:
            names.check_name("agent", agent)
        self._door = Door(store)
        self._threads = FrameworkThreads(self._door.store, agent, framework=FRAMEWORK)
        self._places: OrderedDict[str, tuple[str, str]] = OrderedDict()  # thread and timeline, by entry
        self._lock = Lock()

    def thread(self, conversation_id: str) -> Thread:
        """Return the thread of a conversation, on its timeline; raises `NotFound` if there is none."""
        found = self._door.call(partial(self._current, conversation_id))
        if found is None:
            raise NotFound(
                f"there is no conversation '{conversation_id}'; nothing was read.",
                code="thread_not_found",
                thread=conversation_id,
            )
        return found.line

    def losses(self, conversation_id: str) -> dict[str, list[str]]:
        """Return what the transcript has no place for, by entry: it is whole in the entry."""
        found = self._door.call(partial(self._current, conversation_id))
        if found is None or found.record is None:
            return {}
        history = self._door.call(partial(found.history, found.record.head_id))
        return {each.id: each.unplaced for each in history if each.unplaced}

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation; None if there is none."""
        found = await self._door.acall(partial(self._current, conversation_id))
        return None if found is None else found.record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, the newest first; a thread with a transcript of any writer counts as a conversation."""
        return await self._door.acall(partial(self._list, scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record, its new entries and their messages in one write; raises `ConversationConflict`, writing nothing."""
        await self._door.acall(partial(self._write, record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, and the entries that no other one reaches; `gc` then frees their bytes."""
        await self._door.acall(partial(self._delete, conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry of any conversation; raises `KeyError` if there is none."""
        return (await self._door.acall(partial(self._history, entry_id, 1)))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, in one read; raises `KeyError` if one is missing."""
        if head_id is None or limit == 0:
            return []
        return await self._door.acall(partial(self._history, head_id, limit))

    # Reading.

    def _current(self, conversation_id: str) -> StoredConversation | None:
        return self._find(conversation_id)[1]

    def _find(self, conversation_id: str) -> tuple[StoredConversation | None, StoredConversation | None]:
        """Return what a conversation's own thread says, and the conversation, which may be elsewhere; None: there is none."""
        home = self._opened(conversation_id, partial(self._at_home, conversation_id))
        if home is None:
            return None, None
        place = home.document and home.document.elsewhere
        if not place:
            there = home
        else:
            line = self._line(*place)
            there = None if line is None else StoredConversation(line, conversation_id)
        if there is None or there.record is None:
            return home, None
        self._note(there, there.record.head_id, *there.record.branches)
        return home, there

    def _at_home(self, conversation_id: str) -> StoredConversation | None:
        thread = self._threads.find(conversation_id)
        return None if thread is None else StoredConversation(thread, conversation_id)

    def _opened(self, id: str, read: Callable[[], _T]) -> _T:
        """Return what `read` returns, also if the thread was removed and perhaps begun again by another process."""
        try:
            return read()
        except NotFound as gone:
            if gone.code != "thread_removed":
                raise
            self._threads.forget(id)
            return read()

    def _line(self, thread: str, timeline: str) -> Thread | None:
        try:
            return self._threads.open(thread).on(timeline)
        except NotFound:
            return None

    def _history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        found = self._located(head_id)
        if found is None:
            raise KeyError(head_id)
        history = found.history(head_id, limit=limit)
        self._note(found, *(each.id for each in history))
        return entries_of(history)

    def _located(self, entry_id: str) -> StoredConversation | None:
        """Return a timeline that has an entry; None if no conversation has it."""
        place = self._places.get(entry_id)
        line = None if place is None else self._line(*place)
        found = None if line is None else StoredConversation(line)
        if found is not None and found.entry(entry_id) is not None:
            return found
        for thread in self._threads_with(entry_id):
            for hold in thread.timelines():
                line = thread.on(hold.head.timeline)
                found = None if hold.head.commit is None else StoredConversation(line)
                if found is not None and found.entry(entry_id) is not None:
                    return found
        return None

    def _threads_with(self, entry_id: str) -> Iterator[Thread]:
        """Yield the threads in which an entry was ever stored."""
        is_foreign = entry_id.startswith(_FOREIGN)
        label = entry_id.removeprefix(_FOREIGN) if is_foreign else names.moment_label(moment_of(entry_id))
        threads = list(self._threads.every())
        asked = [LabelOf(each._space.name, label) for each in threads]  # pyright: ignore[reportPrivateUsage]
        engine = self._threads.store._resources.engine  # pyright: ignore[reportPrivateUsage]
        for thread, commits in zip(threads, engine.answers(asked), strict=True):
            if commits:
                yield thread

    def _note(self, standing: StoredConversation, *entries: str | None) -> None:
        """Remember where entries are."""
        place = standing.line.id, standing.line.timeline
        with self._lock:
            for each in entries:
                if each is not None:
                    self._places[each] = place
                    self._places.move_to_end(each)
            while len(self._places) > _PLACES_MAX:
                self._places.popitem(last=False)

    def _list(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        found: list[ConversationRecord] = []
        for thread in self._threads.every():
            home = StoredConversation(thread)
            place = home.document and home.document.elsewhere
            try:
                line = self._line(*place) if place else None
            except Conflict:  # a fork of a conversation of another agent
                continue
            there = home if line is None else StoredConversation(line)
            if there.record is not None and (scope is None or there.record.scope == scope):
                found.append(there.record)
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return found[:limit]

    # Writing.

    def _write(
        self, record: ConversationRecord, new: Sequence[ConversationEntry], expected: str | None
    ) -> None:
        id = record.conversation_id
        for _ in range(_ATTEMPTS_MAX):
            home, there = self._find(id)
            current = there.record.revision if there is not None and there.record is not None else None
            if current != expected:
                raise ConversationConflict(id)
            try:
                if there is not None:
                    self._commit(there, record, new)
                else:
                    self._create(home, record, new)
            except StaleHead:
                self._threads.forget(id)  # it may have been removed and begun again
                continue
            return
        raise Busy(f"the head of thread '{id}'", "other writers are done")

    def _create(
        self, home: StoredConversation | None, record: ConversationRecord, new: Sequence[ConversationEntry]
    ) -> None:
        """Begin a conversation in its own thread, or on a timeline of the thread that has the entry below."""
        id, parents, below = record.conversation_id, {each.id: each.parent_id for each in new}, record.head_id
        while below is not None and below in parents:
            below = parents[below]
        source = None if below is None else self._located(below)
        if source is None:
            own = home or StoredConversation(self._threads.begin(id), id)
            self._commit(own, record, new)
            return
        assert below is not None
        line = _forked(source, below, id)
        self._commit(StoredConversation(line, id), record, new, drops_others=True)
        own = home or StoredConversation(self._threads.begin(id), id)
        try:
            with own.line.change("fork", head=own.head) as change:
                change.put(RECORD, stored(RecordDocument(elsewhere=[line.id, line.timeline])))
        except StaleHead:
            line.undo(to=None)
            raise

    def _commit(
        self,
        on: StoredConversation,
        record: ConversationRecord,
        new: Sequence[ConversationEntry],
        *,
        drops_others: bool = False,
    ) -> None:
        """Write a record and its entries; the transcript then says what the history up to its head says.

        What is too long for one write is written in parts: after each, the conversation ends with the last entry so far, and
        its revision is neither the one before nor the new one.
        """
        left = documents_of(new)
        while True:
            history = _SaveView(on, left, self._located)
            if record.head_id is not None and history.entry(record.head_id) is None:
                raise ConversationConflict(record.conversation_id)
            plan = history.plan(record.head_id)
            part = plan.first_part()
            if part is None:
                break
            ids = {each.id for each in plan.say}
            now = _SaveView(on, {id: each for id, each in left.items() if id in ids}, self._located)
            interim = dataclasses.replace(record, head_id=part, revision=f"{record.revision}+{part}")
            self._write_part(on, interim, now, plan, drops_others=False)
            left = {id: each for id, each in left.items() if id not in ids}
            on = StoredConversation(on.line, record.conversation_id)
        self._write_part(on, record, history, plan, drops_others=drops_others)
        self._note(on, record.head_id, *(each.id for each in new))

    def _write_part(
        self,
        on: StoredConversation,
        record: ConversationRecord,
        history: _SaveView,
        plan: _Plan,
        *,
        drops_others: bool,
    ) -> None:
        with on.line.change("save", head=on.head) as change:
            last = _say(change, plan)
            unstored = history.unstored
            for each in unstored.values():
                change.put(entry_path(each.id), stored(each))
                if each.id not in on.foreign:  # its message has the id already
                    change.name(moment_of(each.id))
            for each in plan.say:
                if each.id not in unstored:
                    change.put(entry_path(each.id), stored(each))
            if drops_others:
                needed = {each.id for each in history.chain(record.head_id)}
                for id in on.stored.keys() - needed:
                    change.delete(entry_path(id))
            change.put(RECORD, stored(RecordDocument(record=record_document(record), said=last)))

    # Deleting.

    def _delete(self, conversation_id: str, expected: str) -> None:
        for _ in range(_ATTEMPTS_MAX):
            found = self._current(conversation_id)
            if found is None or found.record is None or found.record.revision != expected:
                raise ConversationConflict(conversation_id)
            try:
                self._clear(found)
            except StaleHead:
                continue
            return
        raise Busy(f"the head of thread '{conversation_id}'", "other writers are done")

    def _clear(self, found: StoredConversation) -> None:
        line = found.line
        if any(not names.under(path, ROOT) for path in found.view.paths()):  # what others wrote stays
            with line.change("delete", head=found.head) as change:
                change.clear(ROOT)
                if found.last is not None:
                    change.retract_all()
            return
        line.expecting(found.head).undo(to=None)
        line.put(f"{ROOT}/deleted.json", value=True)  # a commit, so that no redo leads back


class _Plan:
    """What happens to the transcript in one save."""

    def __init__(self, last: str | None) -> None:
        self.take_back: list[str] = []
        self.begins_anew = False  # all messages are taken back
        self.say: list[EntryDocument] = []
        self.last = last  # the message that is then before those that are said

    def first_part(self) -> str | None:
        """Cut what is said to what one write can hold, and return the last entry of it; None: it is all of it."""
        size = 0
        for at, each in enumerate(self.say[:-1]):
            size += len(str(each.message))
            if at + 1 == _SAID_MAX or size > _BYTES_MAX:
                del self.say[at + 1 :]
                return each.id
        return None


class _SaveView:
    """The entries that one save can see: of its timeline, those that it adds, and those of other timelines that it needs."""

    def __init__(
        self,
        on: StoredConversation,
        added: dict[str, EntryDocument],
        locate: Callable[[str], StoredConversation | None],
    ) -> None:
        self._on, self._added, self._locate = on, added, locate
        self._brought: dict[str, EntryDocument] = {}

    @property
    def unstored(self) -> dict[str, EntryDocument]:
        """The entries that the timeline does not have yet, by their ids."""
        return {**self._on.foreign, **self._brought, **self._added}

    def entry(self, id: str) -> EntryDocument | None:
        """Return an entry; one of another timeline is copied."""
        found = self._added.get(id) or self._brought.get(id) or self._on.entry(id)
        if found is not None:
            return found
        elsewhere = self._locate(id)
        if elsewhere is None:
            return None
        for each in _chain(elsewhere.entry, id):
            self._brought.setdefault(
                each.id, EntryDocument(id=each.id, parent=each.parent, message=each.message)
            )
        return self._brought[id]

    def chain(self, head_id: str | None) -> list[EntryDocument]:
        """Return the entries up to one; an unknown parent ends it."""
        return _chain(self.entry, head_id)

    def plan(self, head_id: str | None) -> _Plan:
        """Return what happens to the transcript if the history ends with `head_id`."""
        on = self._on
        old = on.record.head_id if on.record is not None else None
        plan, below = _Plan(on.last), head_id
        while below is not None and below != old and below in self._added:
            plan.say.insert(0, self._added[below])
            below = self._added[below].parent
        if below == old:
            return plan
        before, after = self.chain(old), self.chain(head_id)
        shared = next(
            (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a.id != b.id),
            min(len(before), len(after)),
        )
        present = {each.id for each in on.view.transcript()}
        plan.take_back = [id for each in before[shared:] for id in each.said if id in present]
        plan.begins_anew = len(plan.take_back) > _RETRACTIONS_MAX
        shared = 0 if plan.begins_anew else shared
        plan.say = after[shared:]
        plan.last = next((each.said[-1] for each in reversed(after[:shared]) if each.said), None)
        return plan


def _chain(entry: Callable[[str], EntryDocument | None], head_id: str | None) -> list[EntryDocument]:
    found: list[EntryDocument] = []
    each = None if head_id is None else entry(head_id)
    while each is not None:
        found.append(each)
        each = None if each.parent is None else entry(each.parent)
    found.reverse()
    return found


def _say(change: Change, plan: _Plan) -> str | None:
    """Take messages back and say others; each entry then has the ids of its messages.  Returns the last message's id."""
    if plan.begins_anew:
        change.retract_all()
    else:
        for id in reversed(plan.take_back):
            change.retract(id)
    last = plan.last
    for document, entry in zip(plan.say, entries_of(plan.say), strict=True):
        messages, losses = said_by(entry.message)
        document.unplaced = [f"{each.where}: {each.what}" for each in losses]
        provider, model = None, None
        if isinstance(entry.message, ModelResponse):
            provider, model = entry.message.provider_name, entry.message.model_name
        document.said = [_add(change, each, provider, model) for each in messages]
        last = document.said[-1] if document.said else last
    return last


def _add(change: Change, message: Message, provider: str | None, model: str | None) -> str:
    named = {"provider": provider, "model": model} if provider and model else {}
    try:
        return change.add(message, **named)
    except Invalid:  # what no provider would accept is in the entry; its words are in the transcript
        texts = tuple(each for each in message.content if isinstance(each, Text))
        role = "user" if message.role == "tool" else message.role
        return change.add(Message(role, texts or (Text("[no text]"),)))


def _forked(source: StoredConversation, entry_id: str, conversation_id: str) -> Thread:
    """Begin a timeline where an entry was stored."""
    digest = sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    label = conversation_id if _PLAIN.match(conversation_id) else digest
    name = f"{FRAMEWORK}/{label}-{uuid4().hex[:12]}"
    moment = entry_id.removeprefix(_FOREIGN) if entry_id.startswith(_FOREIGN) else moment_of(entry_id)
    try:
        return source.line.fork(name, at=moment)
    except (NotFound, Conflict) as error:
        if error.code == "timeline_exists":
            raise
        return source.line.fork(name, at=source.head)


class StoredConversation:
    """What a timeline says of a conversation; nothing here changes when the timeline moves on.

    The transcript of the timeline and the history of the conversation say the same, as long as only pydantic-ai writes.
    Other frameworks and runs of ours may write to the same thread; then the transcript is right.  The entries whose
    messages it still has are kept, and each further message of it is an entry whose id is `perdure:` and the id of the
    message.  It is stored as an entry with the next save.  The revision names the last such message, so that a save that
    has not read it is a conflict.
    """

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
            id = _FOREIGN + each.id
            self.foreign[id] = EntryDocument(
                id=id, parent=parent, message=message_document(message), said=[each.id]
            )
            parent = id

    def _fetch(self, reference: str) -> bytes:
        return b"".join(self.line.artifacts.get(reference))
