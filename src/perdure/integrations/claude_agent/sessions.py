"""A session store of the Claude Agent SDK: a session is a thread, and its lines are messages and a list of the state.

The lines of the main transcript are on the timeline `main`, those of a sub-agent on a timeline of their own.  A batch is one
durable write: the lines go to the end of a list, as they came; lines that are messages of the conversation also become
messages of the transcript; and the summary of the session is folded.  Lines that are no message are counted by kind.

**A batch may come twice.**  The `uuid` of a line is a name of its commit, `claude-agent:<uuid>`.  The writer looks up the
names of a batch in one call, leaves out the lines that the timeline has, and writes only if the head has not moved
since.  Lines without a `uuid` are appended each time, as the SDK asks for.

**Going back.**  A message of the user whose `parentUuid` is a line before an earlier message of the user begins another branch:
the messages of the branch that was left are taken back from the transcript.  They are in the history: the name of any
line is a moment, and shows the conversation as it was when that line came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, cast

import msgspec
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from perdure import aio
from perdure.engines.contract import LabelOf
from perdure.errors import Conflict, Invalid, NotFound
from perdure.history import reader
from perdure.integrations import foreign_ids, records
from perdure.integrations.door import Door
from perdure.integrations.framework_threads import FrameworkThreads
from perdure.integrations.importers import claude_code
from perdure.integrations.importers.convert import converted
from perdure.integrations.importers.session import Json as JsonObject
from perdure.integrations.importers.session import as_text, shortened
from perdure.model import names
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head
from perdure.model.message import Message
from perdure.providers.contract import Loss
from perdure.store.change import Change
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["ENTRIES", "RECORD", "Sessions", "key_of"]

RECORD = "/claude-agent/session.json"  # in the state: the key, the summary, and what is no message, by kind
ENTRIES = "/claude-agent/entries.json"  # the lines, oldest first
_DELETED = "/claude-agent/deleted.json"
_VERSION = 1
_AGENT = _NAMESPACE = "claude-agent"
_QUESTIONS_MAX = 500  # names that are looked up by one call of the engine
_KINDS_MAX = 100  # of lines that are no message; further ones are counted together
_SUBPATH = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,6}\Z")


class _Key(msgspec.Struct, frozen=True):
    """The key of a transcript, exactly as the SDK has it."""

    project: str
    session: str
    subpath: str = ""  # empty: the main transcript

    @property
    def prefix(self) -> str:
        """How the ids of the project's threads begin."""
        return f"{_NAMESPACE}:{_digest(self.project)[:32]}:"

    @property
    def thread(self) -> str:
        """The id of the session's thread."""
        return self.prefix + foreign_ids.path_segment(self.session)

    @property
    def line(self) -> str:
        """The timeline of the transcript."""
        if not self.subpath:
            return MAIN
        if _SUBPATH.match(self.subpath):
            return f"{_NAMESPACE}/{self.subpath}"
        return f"{_NAMESPACE}-hash/{_digest(self.subpath)[:48]}"

    def as_sdk(self) -> SessionKey:
        """Return the key as the SDK has it."""
        key: SessionKey = {"project_key": self.project, "session_id": self.session}
        return {**key, "subpath": self.subpath} if self.subpath else key


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a batch, ready to be written."""

    value: JsonObject
    stored: dict[str, Json]
    uuid: str | None
    messages: tuple[Message, ...] = ()
    model: str | None = None
    kind: str = ""  # of a line that is no message
    parent: str | None = None  # of a message of the user: the line that it follows


class Sessions(SessionStore):
    """Stores the sessions of the Claude Agent SDK as threads; for `ClaudeAgentOptions(session_store=…)`.

    `agent` is whose threads they are; None: of any agent, new ones of `claude-agent`.
    """

    def __init__(self, store: Store | aio.Store, *, agent: str | None = None) -> None:
        """Use an open store, of either interface."""
        if agent is not None:
            names.check_name("agent", agent)
        self.door, self._agent = Door(store), agent or _AGENT
        self._threads = FrameworkThreads(self.door.store, agent, framework=_AGENT)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add lines in one durable write; those whose `uuid` the transcript has are left out."""
        await self.door.acall(partial(self._append, key_of(key), cast("Any", entries)))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the lines, deep-equal to what was appended; None if there are none."""
        return cast("Any", await self.door.acall(partial(self._load, key_of(key))))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the ids of a project's sessions, each with the time of its last write in ms since 1970."""
        found = await self.door.acall(partial(self._sessions, project_key))
        return [{"session_id": key.session, "mtime": record["mtime"]} for key, record in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the folded summaries of a project's sessions."""
        found = await self.door.acall(partial(self._sessions, project_key))
        return [_summary(key, record) for key, record in found]

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with its sub-agents and its ledger, or with a `subpath` one sub-agent's transcript."""
        await self.door.acall(partial(self._delete, key_of(key)))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the `subpath` of each sub-agent's transcript."""
        return await self.door.acall(partial(self._subkeys, key_of(key)))

    def thread(self, key: SessionKey) -> Thread:
        """Return the thread of a session, on the timeline of the key; raises `NotFound` if there is none."""
        return self.door.call(partial(self.open, key_of(key)))

    def open(self, key: _Key, *, begin: bool = False) -> Thread:
        """Return the timeline of a key; raises `NotFound` if there is none, unless it is to `begin`."""
        thread = self._thread(key, begin=begin)
        if key.line == MAIN:
            return thread
        try:
            return thread.on(key.line)
        except NotFound:
            if not begin:
                raise
        try:
            return thread.fork(key.line, at=None)
        except Conflict as taken:
            if taken.code != "timeline_exists":
                raise
            return thread.on(key.line)  # another writer has begun it

    def _thread(self, key: _Key, *, begin: bool) -> Thread:
        try:
            return self._threads.open(key.thread)
        except NotFound:
            if not begin:
                raise
            return self.door.store.thread(key.thread, agent=self._agent)

    def _find(self, key: _Key) -> Thread | None:
        try:
            return self.open(key)
        except NotFound:
            return None

    # Reading.

    def _load(self, key: _Key) -> list[JsonObject] | None:
        line = self._find(key)
        view = None if line is None else line.at()
        if view is None or _read_record(view.get(RECORD, default=None)) is None:
            return None
        found: Any = view.get(ENTRIES, default=None)
        if not isinstance(found, list) or not all(map(records.is_stored, cast("list[Any]", found))):
            raise records.damaged(ENTRIES, "the lines of a session")
        return [records.restored(each) for each in cast("list[Any]", found)]

    def _sessions(self, project: str) -> list[tuple[_Key, JsonObject]]:
        """Return the keys and records of a project's sessions."""
        prefix = _Key(project, "").prefix
        found: list[tuple[_Key, JsonObject]] = []
        for thread in self._threads.every(after=prefix):
            if not thread.id.startswith(prefix):
                break
            try:
                record = _read_record(thread.get(RECORD, default=None))
            except NotFound:  # it was removed meanwhile
                continue
            if record is not None and record["key"].project == project:
                found.append((record["key"], record))
        return found

    def _subkeys(self, key: _Key) -> list[str]:
        main = self._find(_Key(key.project, key.session))
        found: list[str] = []
        for hold in main.timelines() if main is not None else ():
            if main is None or hold.head.commit is None or not hold.head.timeline.startswith(_NAMESPACE):
                continue
            record = _read_record(main.at(hold.head).get(RECORD, default=None))
            own: _Key | None = record["key"] if record is not None else None
            if own is not None and own.subpath and own.line == hold.head.timeline:
                found.append(own.subpath)
        return found

    # Writing.

    def _append(self, key: _Key, entries: Sequence[Any]) -> None:
        lines = [_read_line(each, at, is_agent=bool(key.subpath)) for at, each in enumerate(entries)]
        if lines:
            undone = "no line was added"
            records.until_written(
                key.thread, undone, lambda: self._write(self.open(key, begin=True), key, lines)
            )

    def _write(self, line: Thread, key: _Key, lines: Sequence[_Line]) -> None:
        head = line.head
        known = _known(line, head, lines)
        new: list[_Line] = []
        taken = set[str]()
        for each in lines:
            if each.uuid is None or not (each.uuid in taken or each.uuid in known):
                new.append(each)
            if each.uuid is not None:
                taken.add(each.uuid)
        if not new:
            return
        with line.change("append", head=head, chain="steps") as change:
            before = _read_record(change.get(RECORD, default=None))
            if before is None:
                change.put(ENTRIES, [])
            _put_record(change, key, before, new, line)
            batch = _BatchWriter(line, head, change, known)
            for each in new:
                batch.add(each)

    def _delete(self, key: _Key) -> None:
        line = self._find(key)
        if line is None:
            return
        if not key.subpath:
            line.rm(force=True)
            return

        def cut() -> None:
            head = line.head
            if head.commit is not None:
                line.expecting(head).undo(to=None)
                line.put(_DELETED, value=True)  # a commit, so that no redo leads back

        records.until_written(key.thread, "the transcript was not deleted", cut)


class _BatchWriter:
    """The lines of one write, as they are added to a change."""

    def __init__(self, line: Thread, head: Head, change: Change, known: Mapping[str, Digest]) -> None:
        self._space = line._space  # pyright: ignore[reportPrivateUsage]
        self._head, self._change, self._known = head, change, known
        self._messages: list[tuple[str, bool]] = []  # the ids of this write's messages; True: of the user
        self._after: dict[str, int] = {}  # by uuid: how many of these messages came up to that line
        self._gone: set[str] = set()  # the ids of messages that this write takes back
        self._is_open = False  # lines without a message wait for the end of their commit

    def add(self, line: _Line) -> None:
        """Add a line; a message is a commit of its own, so that the lines before and after it are other moments."""
        change, stored = self._change, line.stored
        if line.messages:
            if self._is_open:
                change.step()
            self._leave_branch(line.parent)
            said = [self._say(message, line.model) for message in line.messages]
            stored = {**stored, "said": said}
        change.append(ENTRIES, stored)
        if line.uuid is not None:
            change.name(foreign_ids.moment_name(_NAMESPACE, line.uuid))
            self._after[line.uuid] = len(self._messages)
        self._is_open = not line.messages
        if line.messages:
            change.step()

    def _say(self, message: Message, model: str | None) -> str:
        named: dict[str, Any] = {}
        if model is not None and message.role == "assistant":
            named = {"provider": "anthropic", "model": shortened(model, names.ID_BYTES_MAX)}
        id = self._change.add(message, **named)
        self._messages.append((id, message.role == "user"))
        return id

    def _leave_branch(self, parent: str | None) -> None:
        """Take back the messages after the line `parent` if the user has said something there since."""
        if parent is None:
            return
        if parent in self._after:
            later = self._messages[self._after[parent] :]
        elif parent in self._known:
            later = [*self._stored_after(self._known[parent]), *self._messages]
        else:
            return
        if any(is_user for _, is_user in later):
            for id, _ in later:
                self._change.retract(id)
            self._gone |= {id for id, _ in later}
            self._messages = [each for each in self._messages if each[0] not in self._gone]
            self._after = {uuid: min(at, len(self._messages)) for uuid, at in self._after.items()}

    def _stored_after(self, commit: Digest) -> list[tuple[str, bool]]:
        """Return the messages of the transcript that came after a commit, oldest first."""
        found: list[tuple[str, Digest, bool]] = []
        for step in reader.recent(self._space, self._head.commit):
            if step.digest == commit:
                break
            found += [
                (event.id, step.digest, event.role == "user")
                for event in reversed(step.changeset.events)
                if isinstance(event, MessageAppended)
            ]
        gone = reader.retracted(self._space, [(id, by) for id, by, _ in found], self._head.commit)
        return [(id, is_user) for id, _, is_user in reversed(found) if id not in gone | self._gone]


def key_of(key: Mapping[str, Any]) -> _Key:
    """Return a key; raises `Invalid` if it is none."""
    given = [key.get("project_key"), key.get("session_id"), key.get("subpath") or ""]
    if not all(isinstance(each, str) for each in given):
        raise Invalid(
            "the key of a session has a project_key and a session_id, which are text; nothing was done.",
            code="session_key_invalid",
        )
    return _Key(*cast("list[str]", given))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _known(line: Thread, head: Head, lines: Sequence[_Line]) -> dict[str, Digest]:
    """Return the commits of those lines, and of those before them, that the timeline has, by uuid; one call for all."""
    if head.commit is None:
        return {}
    space = line._space  # pyright: ignore[reportPrivateUsage]
    wanted = list(dict.fromkeys(uuid for each in lines for uuid in (each.uuid, each.parent) if uuid))
    found: dict[str, Digest] = {}
    for at in range(0, len(wanted), _QUESTIONS_MAX):
        some = wanted[at : at + _QUESTIONS_MAX]
        labels = [names.moment_label(foreign_ids.moment_name(_NAMESPACE, uuid)) for uuid in some]
        answers = space.engine.answers([LabelOf(space.name, label) for label in labels])
        for uuid, commits in zip(some, answers, strict=True):
            here = [each for each in commits if reader.is_ancestor(space, each, head.commit)]
            if here:
                found[uuid] = here[-1]
    return found


def _read_line(entry: object, at: int, *, is_agent: bool) -> _Line:
    """Read a line of a batch; raises `Invalid` if it is no JSON object."""
    stored = records.stored(entry, f"entry {at}")
    value = records.restored(stored)
    uuid = as_text(value.get("uuid"))
    if value.get("isSidechain") is True and not is_agent:
        return _Line(value=value, stored=stored, uuid=uuid, kind="line of a sub-agent")
    read = claude_code.read_entry(value)
    if not read.paths:
        kind = next(iter(read.unmapped), "line")
        return _Line(value=value, stored=stored, uuid=uuid, kind=kind)
    (said,) = read.paths[0]
    parts = [msgspec.structs.replace(part, facts={"uuid": uuid} if uuid else {}) for part in said.parts]
    messages, losses = converted(read, parts, said)
    lost = [_told(loss) for loss in (*read.losses, *losses)]
    return _Line(
        value=value,
        stored={**stored, "lost": lost} if lost else stored,
        uuid=uuid,
        messages=tuple(messages),
        model=said.model,
        kind="" if messages else "message that cannot be read",
        parent=as_text(value.get("parentUuid")) if said.begins_turn else None,
    )


def _told(loss: Loss) -> Json:
    return {"what": loss.what, "why": loss.why[:500]}


def _read_record(stored: Any) -> JsonObject | None:
    """Return the record of a transcript, with its key; None if there is none.  Raises `Corrupt` if it is none."""
    if stored is None:
        return None
    found = cast("JsonObject", stored) if isinstance(stored, dict) else {}
    records.check_version(found.get("v"), _VERSION, RECORD)
    parts = (found.get("key"), found.get("summary"))
    if not all(map(records.is_stored, parts)) or type(found.get("mtime")) is not int:
        raise records.damaged(RECORD, "the record of a session")
    unmapped: Any = found.get("unmapped")
    return {
        "key": key_of(records.restored(found["key"])),
        "mtime": found["mtime"],
        "summary": records.restored(found["summary"]),
        "unmapped": cast("JsonObject", unmapped) if isinstance(unmapped, dict) else {},
    }


def _summary(key: _Key, record: JsonObject) -> SessionSummaryEntry:
    return {"session_id": key.session, "mtime": record["mtime"], "data": record["summary"]}


def _put_record(
    change: Change, key: _Key, before: JsonObject | None, new: Sequence[_Line], line: Thread
) -> None:
    """Fold the summary, count what is no message, and note the time of the write, which only grows."""
    now = line._space.clock() // 1000  # pyright: ignore[reportPrivateUsage]
    mtime = now if before is None else max(now, int(before["mtime"]) + 1)
    summary: JsonObject = {}
    if not key.subpath:  # a sub-agent is no part of the session's summary
        earlier = None if before is None else _summary(key, before)
        values = [cast("SessionStoreEntry", each.value) for each in new]
        summary = fold_session_summary(earlier, key.as_sdk(), values)["data"]
    unmapped = Counter[str](before["unmapped"] if before else {})
    for each in new:
        if each.kind:
            kind = shortened(each.kind, 100)
            unmapped[kind if kind in unmapped or len(unmapped) < _KINDS_MAX else "other"] += 1
    record = {
        "v": _VERSION,
        "key": records.stored(key.as_sdk(), "the key"),
        "mtime": mtime,
        "summary": records.stored(summary, "the summary"),
        "unmapped": dict(unmapped),
    }
    change.put(RECORD, cast("Json", record))
