"""Where checkpoints are in a thread: each is a commit, and the state at that commit is the checkpoint.

A thread of LangGraph is a thread of Perdure.  The checkpoints of the root graph are commits of the timeline `main`, those of
another namespace commits of a timeline of their own.  Each commit has the checkpoint's id as its name, so a checkpoint is
found by one look-up, and the latest one is at the head.  A channel is a path: a put writes the channels whose versions are
new, and the tree shares the rest.  Channels that only say which node is next are in the record.

The writes of tasks are where `task_writes` says; the marks of checkpoints that were deleted are on the timeline
`langgraph/writes` too.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from secrets import token_hex
from sys import getrefcount
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, get_checkpoint_metadata

from perdure.errors import Conflict, Corrupt, Forgotten, Invalid, NotFound, PerdureError, Unsupported
from perdure.history import reader
from perdure.integrations.checkpoint_layout import (
    CHANNELS,
    RECORD,
    SESSION_PATH,
    WRITES,
    gone_path,
    has_work,
    is_trigger,
    line_of,
    name_of,
    write_path,
    writes_path,
)
from perdure.integrations.framework_threads import FrameworkThreads
from perdure.integrations.langgraph.task_writes import (
    CARRIED_PATH,
    PendingWrites,
    TaskWrite,
    carried_name,
    merge_writes,
    read_carried,
)
from perdure.integrations.langgraph.transcript import RememberedLists, full_at
from perdure.model.canonical import Json, prepared
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.fork_safety import ThreadLock
from perdure.model.head import MAIN, Head
from perdure.model.patch import Edit, Put
from perdure.model.recipe import without_credentials
from perdure.store.plumbing.revisions import LogEntry
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = [
    "CheckpointRecord",
    "FoundCheckpoint",
    "How",
    "SaverMemory",
    "GraphThreads",
    "config_of",
    "fork",
    "ids_of",
    "is_of_run",
    "side_line",
    "spoken",
    "thread_id_of",
]

_identity = id  # parameters here are called `id`, too
_SIDE, _EMPTIED, _PRUNED = "langgraph/side-", "/langgraph/emptied.json", "/langgraph/pruned.json"
_OF_ROOT, _OF_NAMESPACE = "langgraph", "langgraph-ns"
_KNOWN_MAX = 4096
_log = logging.getLogger("perdure.integrations")
_TIPS_MAX, _LINES_MAX = 256, 10_000
_REWRITTEN_MAX = 4  # paths for each commit that `gc` may then forget

How: TypeAlias = Literal["latest", "written", "by_id"]
"""How this process learned of a checkpoint: it read it as the latest, wrote it, or read it by its id."""


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a commit says of its checkpoint beside the channels."""

    thread_id: str  # exactly as LangGraph has it, like every id here
    namespace: str
    id: str
    parent: str | None
    v: int
    ts: str
    channels: list[str]  # those whose values are paths
    triggers: list[str] = []  # those with the value None that only say which node is next
    versions: Any  # of the channels
    seen: Any  # the versions that each node has seen
    updated: Any
    metadata: Any
    pending_sends: Any = None
    holder: str | None = None  # the opening of the store that wrote it
    has_work: bool = False  # nodes are to run next

    @classmethod
    def of(
        cls,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        encode: Callable[[Any], Json],
        holder: str,
    ) -> CheckpointRecord:
        """Return the record of a checkpoint that is put; `encode` makes its values JSON."""
        thread_id, namespace, parent = ids_of(config)
        given = cast("Mapping[str, Any]", checkpoint)
        values = given["channel_values"]
        triggers = sorted(channel for channel, value in values.items() if is_trigger(channel, value))
        return cls(
            thread_id=thread_id,
            namespace=namespace,
            id=str(given["id"]),
            parent=parent,
            v=given["v"],
            ts=str(given["ts"]),
            channels=sorted(values.keys() - triggers),
            triggers=triggers,
            versions=encode(given["channel_versions"]),
            seen=encode(given["versions_seen"]),
            updated=encode(given.get("updated_channels")),
            metadata=encode(_metadata(config, metadata)),
            pending_sends=encode(given["pending_sends"]) if given.get("pending_sends") else None,
            holder=holder,
            has_work=has_work(given),
        )

    def is_step_after(self, below: CheckpointRecord) -> bool:
        """True if a run has taken one step from the checkpoint below, and goes on."""
        about, before = self.metadata, below.metadata
        step = before.get("step")
        is_next = isinstance(step, int) and about.get("step") == step + 1
        return self.has_work and about.get("source") == "loop" and is_next


class FoundCheckpoint(NamedTuple):
    """A checkpoint in its thread."""

    record: CheckpointRecord
    source: View | tuple[Thread, Head]  # of its commit; a head is read when the view is needed
    commit: Digest
    messages: tuple[str, Digest] | None = None  # the channel with the messages and its list; None: look it up
    is_last: bool = (
        False  # this process has written it, and the head has not moved since: no commit carries its writes
    )

    @property
    def view(self) -> View:
        """The state at its commit."""
        if isinstance(self.source, View):
            return self.source
        thread, head = self.source
        return thread.at(head)

    @property
    def key(self) -> tuple[str, str]:
        """The namespace and the id."""
        return self.record.namespace, self.record.id


class GraphThreads(FrameworkThreads):
    """The threads of a store that hold checkpoints, by the ids that LangGraph has for them."""

    def __init__(self, store: Store, agent: str | None) -> None:
        """Use a store; `agent` is whose threads they are, None: those of any agent, new ones of `langgraph`."""
        super().__init__(store, agent, framework="langgraph")
        self._lines: dict[tuple[str, str], Thread] = {}

    def forget(self, id: str) -> None:
        """Forget the handles of a thread that was removed."""
        super().forget(id)
        with self._lock:
            self._lines = {key: each for key, each in self._lines.items() if key[0] != id}

    def line(self, thread_id: str, line: str, *, begin: bool = False) -> Thread | None:
        """Return a handle on a timeline; None if there is no such thread or timeline, unless it is to `begin`."""
        thread = self.begin(thread_id) if begin else self.find(thread_id)
        if thread is None or line == MAIN:
            return thread
        known = self._lines.get((thread_id, line))
        if known is not None:
            return known
        try:
            found = thread.on(line)
        except NotFound:
            if not begin:
                return None
            try:
                found = thread.fork(line, at=None)
            except Conflict as taken:
                if taken.code != "timeline_exists":
                    raise
                found = thread.on(line)  # another writer has begun it
        with self._lock:
            if len(self._lines) > _LINES_MAX:
                self._lines.clear()
            return self._lines.setdefault((thread_id, line), found)

    def line_with(self, thread: Thread, name: str) -> Thread:
        """Return the timeline that a named checkpoint is on: `thread` itself if it is there, or if there is none yet.

        A run that lost a race goes on beside the latest checkpoint, and its model sees nothing of what is on `thread`.
        """
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        commits = thread.named(name)
        if not commits or reader.is_ancestor(space, commits[-1].digest, thread.head.commit):
            return thread
        heads = (hold.head for hold in thread.timelines())
        beside = (each for each in heads if reader.is_ancestor(space, commits[-1].digest, each.commit))
        found = next(beside, None)
        return thread if found is None else thread.on(found.timeline)

    def latest(self, thread_id: str, namespace: str) -> FoundCheckpoint | None:
        """Return the checkpoint at the head of a namespace; None if there is none."""
        line = self.line(thread_id, line_of(namespace))
        if line is None:
            return None
        return self.at(line.at(), thread_id, namespace)

    def named(self, thread_id: str, namespace: str, id: str) -> FoundCheckpoint | None:
        """Return a checkpoint by its id; None if there is none, or it was deleted."""
        thread = self.find(thread_id)
        if thread is None:
            return None
        commits = thread.named(name_of(namespace, id))
        if not commits or self.is_gone(thread_id, namespace, id):
            return None
        found = self.at(thread.at(commits[-1]), thread_id, namespace)
        if found is None or found.record.id != id:  # an import named the commit of its last message
            raise _not_carried(thread_id, id)
        return found

    def check_carried(self, view: View, thread_id: str) -> None:
        """Raise `Unsupported` if a line without a checkpoint has messages of an imported graph: it would begin empty."""
        session: Any = view.get(SESSION_PATH, default=None) if view.digest else None
        is_of_graph = isinstance(session, dict) and cast("dict[str, Any]", session).get("format") == _OF_ROOT
        last = view.log(limit=1) if view.digest else ()
        if is_of_graph or any(name.startswith(f"{_OF_ROOT}:") for each in last for name in each.names):
            raise _not_carried(thread_id, None)

    def at(self, view: View, thread_id: str, namespace: str) -> FoundCheckpoint | None:
        """Return the last checkpoint of a line up to a moment; None if there is none."""
        stored = view.get(RECORD, default=None)
        commit = view.digest
        if stored is None or commit is None:
            return None
        record = read_record(stored)
        if (record.thread_id, record.namespace) != (thread_id, namespace):
            return None
        return FoundCheckpoint(record, view, commit)

    def is_gone(self, thread_id: str, namespace: str, id: str) -> bool:
        """True if a checkpoint was deleted."""
        writes = self.line(thread_id, WRITES)
        return writes is not None and writes.get(gone_path(namespace, id), default=None) is not None

    def writes(self, thread_id: str, namespace: str, id: str, *, is_last: bool = False) -> list[TaskWrite]:
        """Return the stored writes of a checkpoint, sorted; `is_last`: no commit carries any."""
        line = self.line(thread_id, WRITES)
        stored = {} if line is None else line.values(writes_path(namespace, id))
        found = [cast("TaskWrite", each) for each in stored.values()]
        carried = [] if is_last else self.carried(thread_id, namespace, id)
        return merge_writes((*found, *carried)) if found or carried else []

    def carried(self, thread_id: str, namespace: str, id: str) -> list[TaskWrite]:
        """Return the writes of a checkpoint that commits of later ones carry, as far as `gc` has not let them go."""
        thread = self.find(thread_id)
        commits = () if thread is None else thread.named(carried_name(namespace, id))
        found: list[TaskWrite] = []
        for commit in commits:
            assert thread is not None
            with suppress(Forgotten):
                found += read_carried(thread.at(commit).get(CARRIED_PATH))
        return found

    def commits(self, thread_id: str) -> Iterator[tuple[LogEntry, Thread]]:
        """Yield the commits of all checkpoints of a thread, each once, with its thread, in no order."""
        thread = self.find(thread_id)
        if thread is None:
            return
        seen: set[Digest] = set()
        for hold in thread.timelines():
            if hold.head.timeline == WRITES or hold.head.commit is None:
                continue
            for entry in thread.at(hold.head).log():
                if entry.digest in seen:
                    break  # the rest of this line is that of another
                seen.add(entry.digest)
                if any(name.partition(":")[0] in (_OF_ROOT, _OF_NAMESPACE) for name in entry.names):
                    yield entry, thread

    def sorted(self, thread_id: str) -> list[FoundCheckpoint]:
        """Return the checkpoints of a thread that were not deleted, the newest id first; each id once, as last written.

        Those whose records `gc` has let go are not among them.
        """
        found: dict[tuple[str, str], tuple[int, FoundCheckpoint]] = {}
        for entry, thread in self.commits(thread_id):
            view = thread.at(entry)
            try:
                stored = view.get(RECORD, default=None)
            except Forgotten:
                continue
            if stored is None:  # an imported message, before the checkpoint that was carried over
                continue
            record = read_record(stored)
            key = record.namespace, record.id
            if key not in found or found[key][0] < entry.at:
                found[key] = entry.at, FoundCheckpoint(record, view, entry.digest)
        line = self.line(thread_id, WRITES)
        gone = set[str]() if line is None else set(line.paths("/gone"))
        left = [
            each for _, each in found.values() if gone_path(each.record.namespace, each.record.id) not in gone
        ]
        return sorted(left, key=lambda each: each.record.id, reverse=True)

    def latest_of(
        self, thread_id: str, namespace: str, left: Sequence[FoundCheckpoint]
    ) -> FoundCheckpoint | None:
        """Return the latest of the checkpoints that are `left`: the head's, else the nearest below it, else the newest."""
        own = {each.record.id: each for each in left if each.record.namespace == namespace}
        latest = self.latest(thread_id, namespace)
        if latest is None or latest.record.id in own:
            return latest or next(iter(own.values()), None)
        commits = {each.commit: each for each in own.values()}
        below = [commits[each.digest] for each in latest.view.log() if each.digest in commits]
        return next(iter(below or own.values()), None)

    def heads(self, thread_id: str) -> dict[str, Head]:
        """Return the heads of a thread's timelines by their names."""
        thread = self.find(thread_id)
        return {} if thread is None else {hold.head.timeline: hold.head for hold in thread.timelines()}

    def delete(
        self,
        thread_id: str,
        gone: Sequence[FoundCheckpoint],
        left: Sequence[FoundCheckpoint],
        heads: Mapping[str, Head],
        namespaces: Collection[str],
    ) -> None:
        """Delete checkpoints: mark them, drop their writes, and take the timelines of `namespaces` back to what is left.

        Raises `StaleHead` if a timeline is not at the one of `heads` any more: then it was not moved.
        """
        line = self.line(thread_id, WRITES, begin=True)
        assert line is not None
        self._keep_writes(line, thread_id, gone, {each.key for each in left})
        _drop_writes(line, [each.key for each in gone])
        for namespace in sorted(namespaces):
            head = heads.get(line_of(namespace))
            if head is not None and head.commit is not None:
                self._cut(thread_id, namespace, head, left)
        for name, head in heads.items():
            side = self.line(thread_id, name) if name.startswith(_SIDE) and head.commit is not None else None
            if side is not None and side.get(_EMPTIED, default=None) is None:  # its process was killed
                _empty(side)

    def _keep_writes(
        self,
        line: Thread,
        thread_id: str,
        gone: Sequence[FoundCheckpoint],
        left: Collection[tuple[str, str]],
    ) -> None:
        """Store the writes of checkpoints that are left by themselves, where a commit that goes carries them."""
        below = {(each.record.namespace, each.record.parent) for each in gone if each.record.parent}
        kept = [
            (write_path(*key, each), each)
            for key in sorted(below & set(left))
            for each in self.carried(thread_id, *key)
        ]
        if kept:
            with line.change("delete", on_conflict="rebase") as change:
                for path, each in kept:
                    if change.get(path, default=None) is None:
                        change.put(path, cast("Json", dict(each)))

    def _cut(self, thread_id: str, namespace: str, head: Head, left: Sequence[FoundCheckpoint]) -> None:
        """Move the head of a namespace to the latest checkpoint that is left.

        If it is the only one, the timeline begins again, so that `gc` may forget the states before it, where that is worth it.
        """
        line = self.line(thread_id, line_of(namespace))
        assert line is not None
        planned = line.expecting(head)
        latest = self.latest_of(thread_id, namespace, left)
        if latest is None:
            _empty(line, planned)
            return
        log = line.at(head).log()
        is_only = sum(each.record.namespace == namespace for each in left) == 1
        if (is_only and _is_worth(log, latest)) or latest.commit not in {each.digest for each in log}:
            self._begin_anew(line, planned, latest)
        elif head.commit != latest.commit:
            planned.undo(to=latest.view.log(limit=1)[0])

    def _begin_anew(self, line: Thread, planned: Thread, latest: FoundCheckpoint) -> None:
        """Write a checkpoint again, as the first of its timeline, with what the transcript has until then."""
        record, view = latest.record, latest.view
        said = [each for each in view.transcript() if each.words is not None]
        sizes = enumerate([len(msgspec.json.encode(each.words)) for each in said])
        ends = full_at(sizes, line._space.limits)  # pyright: ignore[reportPrivateUsage]
        values = {
            entry.path: view.get(entry.path)
            for entry in view.entries("/")
            if entry.path not in (_PRUNED, CARRIED_PATH)
        }
        with side_line(line, None) as side:
            for start, end in pairwise((0, *ends, len(said))):
                with side.change("prune") as change:
                    for each in said[start:end]:
                        assert each.words is not None
                        change.add(each.words, id=each.id, provider=each.provider, model=each.model)
            with side.change("prune") as change:
                change.replace(values)
                change.name(name_of(record.namespace, record.id))
            planned.undo(to=side.at().log(limit=1)[0])
        line.put(_PRUNED, record.id)  # a commit, so that no redo leads back


def read_record(stored: Any) -> CheckpointRecord:
    """Return the record of a checkpoint; raises `Corrupt` if it is none."""
    try:
        return msgspec.convert(stored, prepared(CheckpointRecord))
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"{RECORD} is not the record of a checkpoint: {error}; nothing was read.",
            code="checkpoint_record_damaged",
        ) from error


def _not_carried(thread_id: str, id: str | None) -> Unsupported:
    which = f"checkpoint {id}" if id else "the newest checkpoint"
    return Unsupported(
        f"thread '{thread_id}' was imported without the channels of {which}; nothing was read or written.",
        code="checkpoint_not_imported",
        advice="Import its database again to carry the newest checkpoint over, or begin another thread with its messages: "
        "saver.missed_messages(config) returns them.",
        thread=thread_id,
        checkpoint=id,
    )


class _CountedReference:
    """What a weak reference is to other objects, to one that can have none: it is gone once no other code refers to it."""

    __slots__ = ("__weakref__", "_found")

    def __init__(self, found: object) -> None:
        self._found = found

    def __call__(self) -> object | None:
        return self._found if getrefcount(self._found) > _OWN_REFERENCES else None


_OWN_REFERENCES = 2  # of `_CountedReference` and of the question


class SaverMemory:
    """What savers of one store remember: how they learned of checkpoints, the runs of this process, lists of messages."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: OrderedDict[tuple[str, str, str | None], How] = OrderedDict()
        self._runs: OrderedDict[tuple[str, str, str], Callable[[], object | None]] = OrderedDict()
        self._counted: weakref.WeakValueDictionary[int, _CountedReference] = weakref.WeakValueDictionary()
        self._tips: OrderedDict[tuple[str, str], tuple[Head, FoundCheckpoint]] = OrderedDict()
        self._lock = Lock()
        self._writing: weakref.WeakValueDictionary[str, ThreadLock] = weakref.WeakValueDictionary()
        self.lists = RememberedLists()
        self.pending = PendingWrites()

    def writing(self, thread_id: str) -> ThreadLock:
        """Return the lock under which this process adds writes of tasks to a thread.

        Tasks end at once and all write to one timeline: without it, the later ones would do their work again.
        """
        with self._lock:
            return self._writing.setdefault(thread_id, ThreadLock())

    def note(self, thread_id: str, namespace: str, id: str | None, how: How) -> None:
        """Note how this process learned of a checkpoint; None: that there is none."""
        with self._lock:
            self._known[thread_id, namespace, id] = how
            self._known.move_to_end((thread_id, namespace, id))
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)

    def how(self, thread_id: str, namespace: str, id: str | None) -> How | None:
        """Return how this process last learned of a checkpoint; None: it has not."""
        return self._known.get((thread_id, namespace, id))

    def tip(self, thread: str, timeline: str) -> tuple[Head, FoundCheckpoint] | None:
        """Return the checkpoint that this process wrote last on a timeline, with the head that it left; None: it wrote none.

        Another process may have moved the head since.
        """
        return self._tips.get((thread, timeline))

    def wrote(self, thread: str, head: Head, found: FoundCheckpoint) -> None:
        """Note a checkpoint that this process has written, and the head that it left."""
        with self._lock:
            self._tips[thread, head.timeline] = head, found
            while len(self._tips) > _TIPS_MAX:
                self._tips.popitem(last=False)

    def began(self, thread_id: str, namespace: str, id: str, run: object) -> None:
        """Note which run writes a checkpoint, None: a program does; LangGraph has one object of metadata for each run.

        It is a plain dictionary, which can have no weak reference, if the program gives the run metadata of its own.
        """
        with self._lock:
            if type(run) is dict:
                counted = _CountedReference(cast("object", run))
                found = self._counted.setdefault(_identity(cast("object", run)), counted)
            elif run is not None:
                found = weakref.ref(run)
            else:
                return
            self._runs[thread_id, namespace, id] = found
            while len(self._runs) > _KNOWN_MAX:
                self._runs.popitem(last=False)

    def run_of(self, thread_id: str, namespace: str, id: str) -> object | None:
        """Return the object of the run that wrote a checkpoint; None if it has ended, or none is known."""
        found = self._runs.get((thread_id, namespace, id))
        return None if found is None else found()


def fork(line: Thread, name: str, at: Any) -> Thread:
    """Begin a timeline of that name, or of the first free name after it."""
    number = 0
    while True:
        try:
            return line.fork(name if number == 0 else f"{name}.{number}", at=at)
        except Conflict as taken:
            if taken.code != "timeline_exists":  # the thread was removed, say
                raise
            number += 1


@contextmanager
def side_line(line: Thread, at: Head | None) -> Generator[Thread]:
    """Begin a timeline at that head, None: empty, for commits that are to become visible at once; it is empty afterwards.

    Move the head of `line` to the last of them.  A process that dies before has changed nothing that LangGraph reads.
    """
    side = fork(line, f"{_SIDE}{token_hex(8)}", None if at is None or at.commit is None else at)
    try:
        yield side
    finally:
        try:
            _empty(side)
        except PerdureError:  # the next deletion does it: it frees bytes, and changes nothing that is read
            _log.warning("timeline '%s' was not emptied", side.timeline, exc_info=True)


def _is_worth(log: Sequence[LogEntry], latest: FoundCheckpoint) -> bool:
    """True if `gc` can forget more bytes of this history than it takes to say again what the latest checkpoint needs.

    What was said is stored once more by each timeline that says it, and what the list of messages shares with older ones
    is stored once; so a long conversation in which nothing else changes is smaller as it is.
    """
    view = latest.view
    needed = {each.value for each in view.entries(CHANNELS)}
    said = {each.id for each in view.transcript()}
    again = freed = 0
    seen = needed.copy()
    shared = {op.path for entry in log for op in entry.patch.ops if isinstance(op, Edit)}  # lists, by element
    for entry in log:
        sizes = [(event.id, event.size) for event in entry.events if isinstance(event, MessageAppended)]
        again += sum(size for id, size in sizes if id in said)
        freed += sum(size for id, size in sizes if id not in said)
        for op in entry.patch.ops:
            if not isinstance(op, Put) or op.path in shared or not op.path.startswith(CHANNELS):
                continue
            freed += 0 if op.value in seen else op.size
            seen.add(op.value)
    return freed > again


def _drop_writes(line: Thread, gone: Sequence[tuple[str, str]]) -> None:
    """Mark checkpoints as deleted and drop their writes.

    The history of the timeline still has the writes.  If it is long for what is left, the timeline begins again, so that
    `gc` may forget them.  Raises `StaleHead`, having changed nothing, if another writer adds writes meanwhile.
    """
    head = line.head
    dropped = frozenset(writes_path(*each) for each in gone)
    marks: dict[str, Json] = {gone_path(*each): 1 for each in gone}
    stored: dict[str, Json] = line.at(head).values() if head.commit is not None else {}
    left = {path: each for path, each in stored.items() if _checkpoint_path(path) not in dropped}
    has_dropped = len(left) < len(stored)
    left |= marks
    if not has_dropped or len(line.at(head).log(limit=len(left))) * _REWRITTEN_MAX < len(left):
        with line.change("delete", on_conflict="rebase") as change:
            for prefix in sorted(dropped):
                change.clear(prefix)
            for path in marks:
                change.put(path, 1)
        return
    sizes = enumerate([len(msgspec.json.encode(each)) for each in left.values()])
    ends = full_at(sizes, line._space.limits)  # pyright: ignore[reportPrivateUsage]
    paths = list(left)
    with side_line(line, None) as side:
        for start, end in pairwise((0, *ends, len(left))):
            with side.change("delete") as change:
                for path in paths[start:end]:
                    change.put(path, left[path])
        line.expecting(head).undo(to=side.at().log(limit=1)[0])
    line.put(_PRUNED, len(left))  # a commit, so that no redo leads back


def _checkpoint_path(path: str) -> str:
    """Return the prefix of the checkpoint that a stored write belongs to."""
    return "/".join(path.split("/", 4)[:4])


def _empty(line: Thread, planned: Thread | None = None) -> None:
    """Take a timeline back to before its first commit, so that `gc` may forget what no other timeline needs.

    `planned` is a handle that does it only from the head that it expects; None: from any.
    """
    (planned or line).undo(to=None)
    line.put(_EMPTIED, value=True)  # a commit, so that no redo leads back


def spoken(line: Thread, head: Head | None) -> set[str]:
    """Return the ids of the messages of a transcript."""
    return {each.id for each in line.at(head).transcript()} if head is not None and head.commit else set()


def thread_id_of(thread: Thread) -> str | None:
    """Return LangGraph's id of a thread; None if it has no checkpoint."""
    stored = thread.get(RECORD, default=None)
    if stored is not None:
        return read_record(stored).thread_id
    for hold in thread.timelines():
        found = thread.at(hold.head).get(RECORD, default=None) if hold.head.commit else None
        if found is not None:
            return read_record(found).thread_id
    return None


def ids_of(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, the namespace and the checkpoint that a config names; raises `Invalid` without a thread."""
    given = config.get("configurable") or {}
    thread_id = given.get("thread_id")
    if thread_id is None:
        raise Invalid(
            "a checkpoint belongs to a thread, and the config names none; nothing was done.",
            code="thread_not_named",
            advice='Give one: {"configurable": {"thread_id": …}}.',
        )
    id = given.get("checkpoint_id")
    return str(thread_id), str(given.get("checkpoint_ns") or ""), None if id is None else str(id)


def _metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the metadata of a checkpoint; LangGraph adds the texts of the config, of which credentials are not stored."""
    given = config.get("configurable") or {}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    shown = cast("RunnableConfig", {**config, "configurable": {**given, **without_credentials(texts)}})
    return dict(get_checkpoint_metadata(shown, metadata))


def config_of(thread_id: str, namespace: str, id: str | None) -> RunnableConfig:
    """Return the config that names a checkpoint; None: the latest."""
    given = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {"configurable": given if id is None else {**given, "checkpoint_id": id}}


def is_of_run(config: RunnableConfig) -> bool:
    """True if a run of LangGraph calls the saver, and not a program itself."""
    return "__pregel_runtime" in config.get("configurable", {})
