"""Writes a session of another tool into a thread, and says what was added and what has no place there.

Each part of an entry has a name, which its commit carries, so the store knows what it has: a second import adds nothing,
one that was interrupted goes on, and a session that has grown adds the rest.  The rest goes to the timeline whose last
message it follows.  If the conversation went on here in the meantime, or the session itself forked, it goes to a new
timeline that begins at the entry before it.  So `main` may not have the line that is current in the source: the report
names the timeline that has it.  An older copy of a session, which has nothing new and lacks what an import had before, is
reported as one and changes nothing.  Entries that the source took back are undone here.  An entry that was edited in the
source after it was imported is reported, and what was imported stands.

Imported text becomes messages of the user, the assistant or a tool; a message of the system never does.  Calls enter
the ledger as made elsewhere, so none of them can be started here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, cast

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines.contract import LabelOf
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, NotFound, PerdureError, StaleHead
from perdure.history import reader
from perdure.history.space import Space
from perdure.integrations.checkpoint_layout import (
    RECORD,
    SESSION_PATH,
    WRITES,
    channel_path,
    line_of,
    name_of,
    write_path,
)
from perdure.integrations.importers.convert import converted, shown_error
from perdure.integrations.importers.foreign_data import plain
from perdure.integrations.importers.report import (
    CopyEnd,
    SessionReport,
    checkpoint_aside,
    reply_in_two,
    report_of,
)
from perdure.integrations.importers.session import (
    CarriedCheckpoint,
    ForeignSession,
    Json,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    said_at,
    shortened,
)
from perdure.model.digest import Digest
from perdure.model.event import Event, MessageAppended, MomentNamed
from perdure.model.head import MAIN, Head
from perdure.model.message import Message
from perdure.model.names import ID_BYTES_MAX, moment_label
from perdure.model.text import well_formed_json
from perdure.providers.contract import Loss
from perdure.runtime.import_commit import ImportStep
from perdure.runtime.import_overlap import said_by
from perdure.shapes.text import stamp
from perdure.store.change import Change
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["SESSION_PATH", "leaving_none_empty", "write_session"]

_LINKS = "/import/links"
_QUESTIONS_MAX = 500  # names that are looked up by one call of the engine
_STEPS_MAX = 200  # of one write
_STEP_BYTES_MAX = 1 << 20  # of the messages of one write, about
_ORIGINAL_BYTES_MAX = 64 << 20  # a larger original is stored in pieces


def write_session(
    store: Store, session: ForeignSession, *, agent: str | None, owner: str | None = None
) -> SessionReport:
    """Add what is new of a session to its thread, which is begun if there is none.

    `agent` None: the agent that the thread has since an earlier import, else one that is named like the format.  Raises `Conflict`, having written nothing, if the thread belongs to another agent or owner.
    """
    found = report_of(session)
    if not any(session.paths) and not session.carried:
        return found
    with leaving_none_empty(store, session.thread):
        return _written(_opened(store, session, agent, owner), session, found)


@contextmanager
def leaving_none_empty(store: Store, id: str) -> Generator[None]:
    """Remove the thread of this id if it was begun in the block, and the block fails before it has a commit."""
    is_new = False
    try:
        store.thread(id)
    except NotFound:
        is_new = True
    try:
        yield
    except PerdureError:
        with suppress(PerdureError):
            thread = store.thread(id)
            if is_new and all(hold.head.commit is None for hold in thread.timelines()):
                thread.rm()
        raise


def _written(thread: Thread, session: ForeignSession, found: SessionReport) -> SessionReport:
    """Add what is new of a session to its thread, and complete the report `found` of what was read."""
    found = msgspec.structs.replace(found, thread=thread.id)
    before = thread.get(SESSION_PATH, default=None)
    known = as_object(before).get("id", session.id)
    if known != session.id:
        raise Conflict(
            f"thread '{thread.id}' is session '{known}', not '{session.id}'; nothing was imported.",
            code="import_thread_taken",
            advice="Name another thread.",
            thread=thread.id,
        )
    if isinstance(before, dict) and cast("dict[str, Any]", before).get("digest") == session.digest:
        edited = as_list(cast("Json", before).get("edited"))
        current = _still_current(thread, as_text(cast("Json", before).get("current")))
        return msgspec.structs.replace(found, edited=tuple(map(str, edited)), current=current)
    writing = _Writing(thread, session)
    for path in session.paths:
        writing.place(path)
    if session.paths:
        writing.settle()
    older = writing.older_copy()
    if older is not None:
        return msgspec.structs.replace(found, edited=tuple(writing.edited.values()), older_copy=older)
    line = writing.carrying_line()
    writing.find_current(line)
    if session.carried and (line is None or line.timeline != MAIN):
        writing.losses.append(checkpoint_aside(line, tuple(writing.timelines)))
    try:
        writing.describe(line)
    except Invalid as error:
        if not session.carried:
            raise
        why = f"a graph cannot go on from it: {shown_error(error)}"
        writing.losses.append(Loss(kind="dropped", where="the newest checkpoint", what="checkpoint", why=why))
        writing.describe(None)
    return msgspec.structs.replace(
        found,
        timelines=tuple(writing.timelines),
        messages=writing.messages,
        calls=writing.calls,
        calls_unknown=max(0, writing.calls_open),
        losses=(*session.losses, *writing.losses),
        edited=tuple(writing.edited.values()),
        current=writing.current,
    )


def _opened(store: Store, session: ForeignSession, agent: str | None, owner: str | None) -> Thread:
    """Open the thread of a session; without an agent, for the agent that it has if it was imported before."""
    if agent is None:
        with suppress(NotFound):
            thread = store.thread(session.thread, owner=owner)
            if thread.get(SESSION_PATH, default=None) is not None:
                return thread
    return store.thread(session.thread, agent=agent or session.format, owner=owner)


def _still_current(thread: Thread, timeline: str | None) -> str | None:
    """Return the timeline that was current in the source at the import before; None if main has its line by now."""
    heads = {hold.head.timeline: hold.head.commit for hold in thread.timelines()}
    space: Space = thread._space  # pyright: ignore[reportPrivateUsage]
    if timeline not in heads or reader.is_ancestor(space, heads[timeline], heads[MAIN]):
        return None
    return timeline


class _Writing:
    """One session on its way into one thread."""

    def __init__(self, thread: Thread, session: ForeignSession) -> None:
        self._thread, self._session = thread, session
        self._space: Space = thread._space  # pyright: ignore[reportPrivateUsage]
        self._known: dict[str, Digest] = {}
        self._converted: dict[tuple[str, ...], tuple[Message, ...]] = {}
        self.timelines: dict[str, None] = {}
        self.current: str | None = (
            None  # the timeline with the source's current line, if main does not have it
        )
        self.messages = self.calls = self.calls_open = 0
        self.losses: list[Loss] = []
        self._look()
        edited = sorted(self._edited(), key=lambda part: (len(part.where), part.where))
        self.edited = {part.name: part.where for part in edited}  # places by name, in their order

    def place(self, path: Sequence[SessionEntry]) -> None:
        """Write what the thread does not have of a path."""
        attempts = Attempts(f"thread '{self._thread.id}'", "the rest of the session was not imported")
        while True:
            attempts.begin()
            last, steps = self._new(path)
            if not steps:
                return
            try:
                self._write(self._line(last, steps[0]), steps)
            except (StaleHead, Moved):  # another writer was first: look again
                self._look()
            else:
                return

    def settle(self) -> None:
        """Undo what the session took back and nothing follows."""
        last, _ = self._new(self._session.paths[-1])
        if last is not None or self._session.undone:
            self._take_back(last)

    def older_copy(self) -> CopyEnd | None:
        """Return where the source ends if it has nothing new, and lacks the end of what was imported before.

        None if it removed what it lacks: a message that was taken back is an act of the source.
        """
        if self._session.carried or self.timelines or not self._session.paths:
            return None
        last = self._new(self._current_path())[0]
        holds = self._thread.timelines()
        lacking = self._lacking([hold.head.commit for hold in holds]) if last is not None else set[str]()
        if not lacking or any(map(self._session.has_removed, lacking)):
            return None
        # Main is the first one.
        held = [hold.head for hold in holds if reader.is_ancestor(self._space, last, hold.head.commit)]
        if not held:
            return None
        there = len(reader.transcript(self._space, last))
        every = len(reader.transcript(self._space, held[0].commit))
        return CopyEnd(timeline=held[0].timeline, message=there, messages=every)

    def _lacking(self, heads: Sequence[Digest | None]) -> set[str]:
        """Return the names of imported parts that follow what the source has on the lines of `heads`."""
        known, seen = set(self._known.values()), set[Digest]()
        found: set[str] = set()
        for head in heads:
            for step in reader.recent(self._space, head):
                if step.digest in seen:
                    break
                seen.add(step.digest)
                if step.digest not in known:
                    found |= self._names_in(step.changeset.events)
                    continue
                if not self.edited:  # a part that was edited has another name
                    whole = (part for path in self._session.paths for entry in path for part in entry.parts)
                    found |= self._names_in(step.changeset.events) - _names(whole)
                break
        return found

    def _names_in(self, events: Sequence[Event]) -> set[str]:
        """Return the names of the source for messages of a commit; empty if it has none."""
        if not any(isinstance(event, MessageAppended) for event in events):
            return set()
        names = (event.name for event in events if isinstance(event, MomentNamed))
        return {name for name in names if name.startswith(f"{self._session.format}:")}

    def _current_path(self) -> Sequence[SessionEntry]:
        """Return the path that is current in the source: where turns were taken back, the last one."""
        return self._session.paths[-1 if self._session.undone else 0]

    def carrying_line(self) -> Thread | None:
        """Return the timeline that ends as the source does, where its graph can go on; None if there is none."""
        if not self._session.carried:
            return None
        last = self._new(self._session.paths[0])[0] if self._session.paths else None
        holds = sorted(self._thread.timelines(), key=lambda hold: hold.head.timeline != MAIN)
        for hold in holds if last is not None else holds[:1]:
            if not hold.sealed and self._is_tip(hold.head.commit, last):
                line = self._on(hold.head.timeline)
                if self._is_of_source(line):
                    return line
        return None

    def find_current(self, carrying: Thread | None) -> None:
        """Find the timeline with the line that is current in the source, if main does not have it.

        Where the source only took back the last messages of main, it is begun.  A line that was undone here has none.
        `carrying` is the timeline that takes the source's checkpoint; None: there is no checkpoint, or no such timeline.
        """
        if self._session.carried:
            self.current = carrying.timeline if carrying is not None and carrying.timeline != MAIN else None
            return
        last = self._new(self._current_path())[0] if self._session.paths else None
        if last is None:
            return
        main = reader.head_of(self._space, MAIN).commit
        has_line = reader.is_ancestor(self._space, last, main)
        if has_line and not self._is_left(last, main):
            return
        self.current = self._timeline_with(last)
        if self.current is None and has_line:
            name = next(name for name, commit in self._known.items() if commit == last)
            self.current = self._forked(name, last).timeline

    def _is_left(self, last: Digest, main: Digest | None) -> bool:
        """True if the message after `last` on main was imported: the source does not have it on its line any more."""
        after: Sequence[Event] = ()
        for step in reader.recent(self._space, main):
            if step.digest == last:
                break
            events = step.changeset.events
            after = events if any(isinstance(event, MessageAppended) for event in events) else after
        return bool(self._names_in(after))

    def _timeline_with(self, last: Digest) -> str | None:
        """Return the timeline that ends with the message in `last`, or a sealed one that has it, as the old main does.

        None if there is none, or it was dropped.
        """
        holds = [hold for hold in self._thread.timelines() if hold.head.timeline != MAIN]
        for head in (hold.head for hold in holds if not hold.sealed):
            if self._is_tip(head.commit, last):
                return head.timeline
        old = [hold.head for hold in reversed(holds) if hold.sealed]
        found = (head.timeline for head in old if reader.is_ancestor(self._space, last, head.commit))
        return next((name for name in found if self._thread.removal_state(name) is None), None)

    def _is_of_source(self, line: Thread) -> bool:
        """True if the checkpoint at the head of a timeline is of the source, or there is none: no graph went on here."""
        stored = line.get(RECORD, default=None)
        return stored is None or as_object(stored).get("id") in self._session.checkpoints

    def describe(self, line: Thread | None) -> None:
        """Keep the originals by digest, say in the state what was imported, and carry the checkpoints over to `line`.

        The root graph's comes last: once it is there, its graph finds everything.  None: none is carried over.
        """
        originals = self._originals()
        root = self._session.carried[-1] if line is not None else None
        if line is not None:
            for each in self._session.carried[:-1]:
                side = self._begun(line_of(each.namespace))
                if self._is_of_source(side):
                    self._carry_writes(each)
                    with side.change("import", on_conflict="rebase") as change:
                        _put_checkpoint(change, each, {})
            self._carry_writes(self._session.carried[-1])
        message_ids = self._message_ids(line) if line is not None else {}
        if line is not None and root is not None and line.timeline != MAIN:
            with line.change("import", on_conflict="rebase") as change:
                _put_checkpoint(change, root, message_ids)
        with self._thread.change("import", on_conflict="rebase") as change:
            self._put_description(change, originals)
            if root is None:
                for path, value in self._session.state.items():
                    _put(change, path, value)
            elif line is not None and line.timeline == MAIN:
                _put_checkpoint(change, root, message_ids)

        sealed = {hold.head.timeline for hold in self._thread.timelines() if hold.sealed}
        if self.current is not None and self.current not in sealed and root is None:
            # So that it is described when it is made main.
            with self._thread.on(self.current).change("import", on_conflict="rebase") as change:
                self._put_description(change, originals)

    def _put_description(self, change: Change, originals: list[Json]) -> None:
        session = self._session
        described: Json = {
            "format": session.format,
            "id": session.id,
            "source": session.source,
            "digest": session.digest,
            "originals": originals,
            "unmapped": dict(session.unmapped),
            "facts": session.facts,
        }
        described |= {"said_at": last} if (last := self._said_last_at()) else {}
        described |= {"edited": list(self.edited.values())} if self.edited else {}
        _put(change, SESSION_PATH, described | ({"current": self.current} if self.current else {}))
        if session.links:
            _put(change, _LINKS, [msgspec.to_builtins(link) for link in session.links])

    def _said_last_at(self) -> str | None:
        """Return when the newest message of the session was said; None if the source does not say it."""
        parts = (part for path in self._session.paths for entry in path for part in entry.parts)
        times = filter(None, (said_at({self._session.format: [part.facts]}) for part in parts))
        newest = max(map(datetime.fromisoformat, times), default=None)
        return None if newest is None else stamp(round(newest.timestamp() * 1_000_000))

    def _originals(self) -> list[Json]:
        """Keep the originals; where anything was redacted only those of before, because the files have the words."""
        if not self._space.has_redactions:
            return _keep_originals(self._thread, self._session)
        why = "words of this thread were redacted, and the original may hold them"
        self.losses.append(Loss(kind="dropped", where="the session", what="original", why=why))
        return as_list(as_object(self._thread.get(SESSION_PATH, default=None)).get("originals"))

    def _begun(self, timeline: str) -> Thread:
        try:
            return self._thread.on(timeline)
        except NotFound:
            return self._thread.fork(timeline, at=None)

    def _carry_writes(self, each: CarriedCheckpoint) -> None:
        if not each.writes:
            return
        with self._begun(WRITES).change("import", on_conflict="rebase") as change:
            for write in each.writes:
                path = write_path(each.namespace, each.record["id"], write)
                if change.get(path, default=None) is None:
                    change.put(path, write)

    def _message_ids(self, line: Thread) -> dict[str, str]:
        """Return the ids of the messages in the transcript by the names of their parts."""
        ids: dict[Digest, str] = {}
        for step in reader.steps(self._space, line.head.commit):
            for event in step.changeset.events:
                if isinstance(event, MessageAppended):
                    ids.setdefault(step.digest, event.id)
        return {name: ids[commit] for name, commit in self._known.items() if commit in ids}

    def _look(self) -> None:
        """Read which parts the thread has, and in which commits."""
        if reader.head_of(self._space, MAIN).commit is None:
            return
        wanted = {part.name for path in self._session.paths for entry in path for part in entry.parts}
        left = sorted(wanted - self._known.keys())
        for at in range(0, len(left), _QUESTIONS_MAX):
            some = left[at : at + _QUESTIONS_MAX]
            asked = [LabelOf(self._space.name, moment_label(name)) for name in some]
            for name, commits in zip(some, self._space.engine.answers(asked), strict=True):
                if commits:
                    self._known[name] = cast("Sequence[Digest]", commits)[-1]

    def _new(self, path: Sequence[SessionEntry]) -> tuple[Digest | None, list[ImportStep]]:
        """Return the commit of the last entry that the thread has, and the steps of what it does not have."""
        last: Digest | None = None
        late: list[ImportStep] = []  # parts that came after the entry they belong to was followed by others
        steps: list[ImportStep] = []
        for entry in path:
            known = [part for part in entry.parts if part.name in self._known]
            new = [
                part for part in entry.parts if part.name not in self._known and part.name not in self.edited
            ]
            if known:
                late += steps
                steps = []
                last = self._known[known[-1].name]
            step = self._step(entry, new) if new else None
            if step is not None:
                steps.append(step)
        return last, [*late, *steps]

    def _edited(self) -> Iterator[SourcePart]:
        """Yield the parts that say something else than what the thread has of their name or place."""
        whole = (entry for path in self._session.paths for entry in path)
        entries = {tuple(part.name for part in entry.parts): entry for entry in whole}.values()
        known = (p.place for e in entries for p in e.parts if p.place and p.name in self._known)
        last_place = max(known, default=0)
        there = self._stored()
        for entry in entries:
            imported: dict[Digest, list[SourcePart]] = {}
            for part in entry.parts:
                if part.name in self._known:
                    imported.setdefault(self._known[part.name], []).append(part)
                elif part.place and part.place < last_place and self._said(entry, [part]):
                    yield part
            for commit, parts in imported.items():
                said = there.get(commit)
                if said is not None and self._differs(entry, parts, said, commit):
                    yield from [part for part in parts if self._said(entry, [part]) - said] or parts[:1]

    def _differs(
        self, entry: SessionEntry, parts: Sequence[SourcePart], there: Counter[object], commit: Digest
    ) -> bool:
        """True if parts say something else than the thread has.

        Files that the source does not have any more do not count, nor does the rest of a reply that a copy cuts off.
        """
        said = self._said(entry, parts)
        if said == there:
            return False
        if not any(part.lacks_files for part in parts):
            step = next(reader.recent(self._space, commit))
            is_cut = not self._names_in(step.changeset.events) <= _names(parts)
            return not is_cut or bool(said - there)
        is_result = any(isinstance(part.item, Message) and part.item.tool_results for part in parts)
        return not is_result and bool(said - there)

    def _said(self, entry: SessionEntry, parts: Sequence[SourcePart]) -> Counter[object]:
        messages, _ = converted(self._session, parts, entry)
        return said_by([brought_in(self._space, message)[0] for message in messages])

    def _stored(self) -> dict[Digest, Counter[object]]:
        """Return what the thread has under the names of the tool, by commit; without what it has forgotten."""
        found: dict[Digest, list[Message | None]] = {}
        for path in self._session.paths:
            parts = [part for entry in path for part in entry.parts if part.is_named_by_tool]
            last = next((at for each in reversed(parts) if (at := self._known.get(each.name))), None)
            if last is None or last in found:
                continue
            new = [each for each in reader.transcript(self._space, last) if each.commit not in found]
            for entry in new:
                # One that was redacted says something else, and was not edited.
                found.setdefault(entry.commit, []).append(None if entry.redaction else entry.words)
        return {
            at: said_by([each for each in said if each is not None])
            for at, said in found.items()
            if None not in said
        }

    def _step(self, entry: SessionEntry, parts: Sequence[SourcePart]) -> ImportStep | None:
        """Return the commit of an entry; None if nothing of it can be a message."""
        key = tuple(part.name for part in parts)
        if key not in self._converted:
            found, losses = converted(self._session, parts, entry)
            self.losses += losses
            if len(parts) < len(entry.parts) and any(each.role == "assistant" for each in found):
                self.losses.append(reply_in_two(parts[0]))
            self._converted[key] = tuple(found)
        messages = self._converted[key]
        if not messages:
            return None
        backend = _backend(entry)
        also = (name for part in parts for name in part.also)
        return ImportStep(
            messages=messages,
            backend=backend,
            names=(*key, *also),
            begins_turn=entry.begins_turn,
            where=parts[0].where,
        )

    def _line(self, last: Digest | None, first: ImportStep) -> Thread:
        """Return the timeline whose last message is in the commit `last`; fork one there if there is none."""
        for hold in self._thread.timelines():
            if not hold.sealed and self._is_tip(hold.head.commit, last):
                return self._on(hold.head.timeline)
        if self._take_back(last):
            return self._thread
        return self._forked(first.names[0], last)

    def _forked(self, name: str, at: Digest | None) -> Thread:
        """Begin a timeline at a commit, named after a part."""
        stem = _branch_name(self._session.format, name)
        taken = {hold.head.timeline for hold in self._thread.timelines()}
        return self._thread.fork(next(each for each in _numbered(stem) if each not in taken), at=at)

    def _on(self, timeline: str) -> Thread:
        return self._thread if timeline == MAIN else self._thread.on(timeline)

    def _is_tip(self, head: Digest | None, last: Digest | None) -> bool:
        """True if no message follows the commit `last` on the line of `head`."""
        for step in reader.recent(self._space, head):
            if step.digest == last:
                return True
            if any(isinstance(event, MessageAppended) for event in step.changeset.events):
                return False
        return last is None

    def _take_back(self, last: Digest | None) -> bool:
        """Move main back to `last` if the session took back every message after it; True if it did."""
        if not self._session.undone:
            return False
        found = False
        for step in reader.recent(self._space, reader.head_of(self._space, MAIN).commit):
            if step.digest == last:
                last_found = True
                break
            events = step.changeset.events
            if not any(isinstance(event, MessageAppended) for event in events):
                continue
            told = {event.name for event in events if isinstance(event, MomentNamed)}
            if not told or not told <= self._session.undone:
                return False
            found = True
        else:
            last_found = last is None
        if not found or not last_found:
            return False
        self._thread.undo(to=None if last is None else str(last))
        return True

    def _write(self, line: Thread, steps: Sequence[ImportStep]) -> None:
        """Write the steps on top of a timeline, some hundred commits at a time."""
        head: Head = line.head
        for batch in _batches(steps):
            done = line._add_steps(batch, head=head)  # pyright: ignore[reportPrivateUsage]
            head = done.head
            self.messages += done.messages
            self.calls += done.calls
            self.calls_open += done.calls_open
            self.losses += done.losses
            self.timelines[line.timeline] = None
            self._remember(head, batch)

    def _remember(self, head: Head, batch: Sequence[ImportStep]) -> None:
        """Note the commits of a batch, the newest of which is the head."""
        for step, commit in zip(reversed(batch), reader.recent(self._space, head.commit), strict=False):
            self._known |= dict.fromkeys(step.names, commit.digest)


def _names(parts: Iterable[SourcePart]) -> set[str]:
    """Return all names of parts."""
    return {name for part in parts for name in (part.name, *part.also)}


def _batches(steps: Sequence[ImportStep]) -> Iterator[list[ImportStep]]:
    """Yield steps for one write each; a new one begins with a turn, unless a turn is very long."""
    batch: list[ImportStep] = []
    size = 0
    for step in steps:
        full = len(batch) >= _STEPS_MAX or size >= _STEP_BYTES_MAX
        if (
            batch
            and full
            and (step.begins_turn or len(batch) >= 2 * _STEPS_MAX or size >= 4 * _STEP_BYTES_MAX)
        ):
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += sum(len(str(message)) for message in step.messages)
    if batch:
        yield batch


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def _branch_name(format: str, name: str) -> str:
    """Return the name of a timeline for a branch, from the name of its first part."""
    short = "".join(sign for sign in name.partition(":")[2].lower() if sign.isascii() and sign.isalnum())[:12]
    return f"{format}/{short or 'branch'}"


def _backend(entry: SessionEntry) -> str | None:
    if not entry.model:
        return None
    provider, model = shortened(entry.provider or "unknown", 60), shortened(entry.model, 120)
    return f"{provider.replace(':', '-')}:{model}"


def _keep_originals(thread: Thread, session: ForeignSession) -> list[Json]:
    found: list[Json] = []
    for each in session.originals:
        for number, start in enumerate(range(0, max(1, len(each.content)), _ORIGINAL_BYTES_MAX)):
            piece = each.content[start : start + _ORIGINAL_BYTES_MAX]
            label = shortened(
                f"original {each.name}" + (f" part {number + 1}" if number else ""), ID_BYTES_MAX
            )
            digest = thread.artifacts.put(piece, media_type=each.media_type, name=label)
            found.append({"name": each.name, "artifact": str(digest), "size": len(piece)})
    return found


def _put_checkpoint(change: Change, carried: CarriedCheckpoint, said: Mapping[str, str]) -> None:
    """Write a checkpoint as the saver does; each message of its list names the one in the transcript."""
    before = as_object(change.get(RECORD, default=None))
    if before.get("id") == carried.record["id"]:
        return
    change.put(RECORD, carried.record)
    for channel, value in carried.channels.items():
        if channel == carried.messages:
            value = [
                {**each, "said": said[part]} if part in said and "$" in each else each
                for each, part in zip(value, carried.parts, strict=True)
            ]
        if change.get(channel_path(channel), default=None) != value:
            change.put(channel_path(channel), value)
    for channel in as_list(before.get("channels")):
        if channel not in carried.channels:
            change.delete(channel_path(channel))
    change.name(name_of(carried.namespace, carried.record["id"]))


def _put(change: Change, path: str, value: Any) -> None:
    """Write a value that is not there yet, as JSON that can be stored."""
    stored = well_formed_json(plain(value))
    if change.get(path, default=None) != stored:
        change.put(path, stored)
