"""A checkpointer of LangGraph: every checkpoint is a commit, and no acknowledged turn disappears behind another.

**Which put may go where.**  A put names the checkpoint below it.  The writer reads the head of the namespace, compares, and
writes only if the head has not moved since; the comparison is part of the write.

- If the one below is the latest, the put goes on top of it.
- Else, if this program wrote it or read it as the latest, another run was faster: a lost race.  `on_conflict` says what
  happens: `raise` (nothing is written), `branch` (the checkpoint goes to a timeline of its own, and the latest stays), or
  `last_writer` (it becomes the latest, and what was the latest stays as a branch).
- Else it is a branch that was asked for: below a checkpoint that was read by its id, a copy (`source: fork`), or one that
  this program has not read.  It becomes the latest, as LangGraph expects; what was the latest is kept, and found by its ids.

**A run under way wins.**  A new input on top of a checkpoint with nodes left to run would take the place of the run that is
to run them.  So it is refused while that run is under way: nothing records that it stopped (an error or an interrupt among
the writes of that checkpoint), and its process still has it.  In this process LangGraph holds an object for each run, and
the saver sees when that object is gone.  Of another process it knows only its last write: the run counts as under way until
that process has ended, or has written nothing for `lease_seconds`.  No end of a run needs to be told.  A put that goes on
with a run (`loop`) is not refused: of two that resume the same checkpoint the first one wins.

**Subgraphs.**  The namespace of one task belongs to one run; a node may call a subgraph there several times at once, and the
last one to write is the latest.  If a parent is replayed, LangGraph lists the one checkpoint of the subgraph before it: to
go on from that one is a branch, too.
"""

from __future__ import annotations

import copy
import random
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from perdure import aio
from perdure.errors import Busy, Conflict, Invalid, NotFound, StaleHead
from perdure.integrations.checkpoint_layout import (
    CHANNELS,
    RECORD,
    WRITES,
    channel_path,
    is_of_task,
    line_of,
    name_of,
    write_path,
)
from perdure.integrations.door import Door
from perdure.integrations.langgraph.checkpoints import (
    CheckpointRecord,
    FoundCheckpoint,
    GraphThreads,
    How,
    SaverMemory,
    config_of,
    fork,
    ids_of,
    is_of_run,
    side_line,
    spoken,
    thread_id_of,
)
from perdure.integrations.langgraph.codec import Codec, Serializer
from perdure.integrations.langgraph.deletion import CheckpointDeletion
from perdure.integrations.langgraph.task_writes import (
    TaskWrite,
    WaitBackoff,
    carry,
    is_carriable,
    store_writes,
)
from perdure.integrations.langgraph.transcript import (
    ListChange,
    MessageList,
    decoded,
    elements_of,
    missed,
    new_results,
    retract,
    settle_imported,
    transcribe,
)
from perdure.model import names
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.store.change import Change
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["OnConflict", "Saver"]

OnConflict: TypeAlias = Literal["raise", "branch", "last_writer"]
_T = TypeVar("_T")

_ATTEMPTS_MAX = 256
_APPENDED_MAX = 64  # messages; if more are new, the list is written at once
_ENDED = ("__error__", "__interrupt__")


_memories: weakref.WeakKeyDictionary[Store, SaverMemory] = weakref.WeakKeyDictionary()
_memories_lock = Lock()


class Saver(BaseCheckpointSaver[str]):
    """Stores the checkpoints of graphs as commits of threads.

    `on_conflict` says what happens to the put of a run that lost a race.  `messages` is the channel whose messages are the
    thread's transcript.  `types` are further classes that values may have, by class or by module and name; `serializer`
    takes every value that is on no list.  `agent` is whose threads they are; None: of any agent, new ones of `langgraph`.
    """

    def __init__(
        self,
        store: Store | aio.Store,
        *,
        on_conflict: OnConflict = "raise",
        lease_seconds: float = 60.0,
        messages: str = "messages",
        types: Collection[type[Any] | tuple[str, str]] = (),
        serializer: Serializer | None = None,
        agent: str | None = None,
    ) -> None:
        """Use an open store."""
        super().__init__()
        names.check_choice("on_conflict", on_conflict, ("raise", "branch", "last_writer"))
        if agent is not None:
            names.check_name("agent", agent)
        self._door = Door(store)
        self._threads = GraphThreads(self._door.store, agent)
        with _memories_lock:
            self._memory = _memories.setdefault(self._door.store, SaverMemory())
        self._codec = Codec(types, serializer=serializer)
        self._on_conflict: OnConflict = on_conflict
        self._lease_seconds, self._messages = lease_seconds, messages
        self._backoff = WaitBackoff()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Saver:
        """Return a saver that accepts the classes of a graph's state too, and shares everything else with this one."""
        clone = copy.copy(self)
        clone._codec, clone._backoff = self._codec.allowing(extra_allowlist), WaitBackoff()
        return clone

    @property
    def _deletion(self) -> CheckpointDeletion:
        return CheckpointDeletion(self._threads, self._codec)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """Return a version that is greater than `current`; equal versions are of equal values, also on two branches."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random.getrandbits(53):016}"

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id, or the latest of its namespace; None if there is none."""
        return self._door.call(partial(self._get, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Await `get_tuple`."""
        return await self._door.acall(partial(self._get, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first, of a thread, or of all threads for None."""
        found = self._door.call(partial(self._list, config, filter, before))
        shown = 0
        while (limit is None or shown < limit) and (each := self._door.call(partial(next, found, None))):
            self._note_replay(config, before, limit, each)
            yield each
            shown += 1
        if shown == 0:
            self._note_replay(config, before, limit, None)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield what `list` yields."""
        found = await self._door.acall(partial(self._list, config, filter, before))
        shown = 0
        while (limit is None or shown < limit) and (
            each := await self._door.acall(partial(next, found, None))
        ):
            self._note_replay(config, before, limit, each)
            yield each
            shown += 1
        if shown == 0:
            self._note_replay(config, before, limit, None)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint in one durable write; raises `Conflict`, having written nothing, if its run lost a race."""
        return self._door.call(partial(self._put, config, checkpoint, metadata))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Await `put`."""
        return await self._door.acall(partial(self._put, config, checkpoint, metadata))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, in one durable write."""
        self._door.call(partial(self._put_writes, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Await `put_writes`."""
        await self._door.acall(partial(self._put_writes, config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with its checkpoints and its ledger."""
        self._door.call(partial(self._deletion.delete_thread, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Await `delete_thread`."""
        await self._door.acall(partial(self._deletion.delete_thread, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that have one of these runs in their metadata."""
        self._door.call(partial(self._deletion.delete_for_runs, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Await `delete_for_runs`."""
        await self._door.acall(partial(self._deletion.delete_for_runs, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        self._door.call(partial(self._copy_thread, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Await `copy_thread`."""
        await self._door.acall(partial(self._copy_thread, source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of these threads, with `keep_latest` all but the latest of each namespace."""
        self._door.call(partial(self._deletion.prune, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Await `prune`."""
        await self._door.acall(partial(self._deletion.prune, thread_ids, strategy))

    def missed_messages(self, config: RunnableConfig) -> list[BaseMessage]:
        """Return the messages that others have said in the thread and the graph's state does not have.

        Give them to the graph with the next input, and it goes on from there; they are not said again.
        """
        return self._door.call(partial(self._missed, config))

    async def amissed_messages(self, config: RunnableConfig) -> list[BaseMessage]:
        """Await `missed_messages`."""
        return await self._door.acall(partial(self._missed, config))

    # Reading.

    def _missed(self, config: RunnableConfig) -> list[BaseMessage]:
        thread_id = ids_of(config)[0]
        thread = self._threads.find(thread_id)
        if thread is None:
            return []
        view = thread.at()
        found = self._threads.at(view, thread_id, "")
        has_list = found is not None and self._messages in found.record.channels
        stored: Any = view.get(channel_path(self._messages)) if has_list else []
        return missed(view.transcript(), cast("list[Json]", stored) if isinstance(stored, list) else [])

    def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace, id = ids_of(config)
        find = partial(self._threads.named, thread_id, namespace, id) if id else None
        found = self._current(thread_id, find or partial(self._latest, thread_id, namespace))
        how: How = "by_id" if id else "latest"
        self._memory.note(thread_id, namespace, found.record.id if found else id, how)
        return None if found is None else self._tuple(found)

    def _latest(self, thread_id: str, namespace: str) -> FoundCheckpoint | None:
        line = self._threads.line(thread_id, line_of(namespace))
        return None if line is None else self._at_head(line.at(), thread_id, namespace)

    def _at_head(self, view: View, thread_id: str, namespace: str) -> FoundCheckpoint | None:
        """Return the checkpoint at the head that a view was taken of; what this process wrote there is not read again."""
        tip = self._memory.tip(thread_id, view.timeline)
        if tip is not None and tip[0] == view.head:
            return tip[1]._replace(source=view, is_last=True)
        found = self._threads.at(view, thread_id, namespace)
        if found is None and namespace == "":
            self._threads.check_carried(view, thread_id)
        return found

    def _current(self, thread_id: str, read: Callable[[], _T | None]) -> _T | None:
        """Return what `read` returns, also if the thread was removed and perhaps begun again by another process."""
        try:
            return read()
        except NotFound as gone:
            if gone.code != "thread_removed":
                raise
            self._threads.forget(thread_id)
            return read()

    def _tuple(self, found: FoundCheckpoint) -> CheckpointTuple:
        record, decode = found.record, self._codec.decode
        values = self._channel_values(found)
        checkpoint: dict[str, Any] = {
            "v": record.v,
            "ts": record.ts,
            "id": record.id,
            "channel_values": values,
            "channel_versions": decode(record.versions),
            "versions_seen": decode(record.seen),
            "updated_channels": decode(record.updated),
        }
        if record.pending_sends is not None:
            checkpoint["pending_sends"] = decode(record.pending_sends)
        parent = (
            None if record.parent is None else config_of(record.thread_id, record.namespace, record.parent)
        )
        writes = self._threads.writes(record.thread_id, record.namespace, record.id, is_last=found.is_last)
        return CheckpointTuple(
            config_of(record.thread_id, record.namespace, record.id),
            cast("Checkpoint", checkpoint),
            decode(record.metadata),
            parent,
            [(str(each["task"]), str(each["channel"]), decode(each["value"])) for each in writes],
        )

    def _channel_values(self, found: FoundCheckpoint) -> dict[str, Any]:
        view, lists = found.view, self._memory.lists
        entries = {entry.path: entry for entry in view.entries(CHANNELS)}
        values: dict[str, Any] = dict.fromkeys(found.record.triggers)
        for channel in found.record.channels:
            entry = entries[channel_path(channel)]
            known = lists.get(entry.value) if channel == self._messages else None
            if known is None:
                stored = view.get(entry.path)
                is_list = channel == self._messages and isinstance(stored, list)
                known = decoded(self._codec, cast("list[Json]", stored)) if is_list else None
                if known is None:
                    values[channel] = self._codec.decode(cast("Json", stored))
                    continue
                lists.put(entry.value, known)
            values[channel] = known.messages()
        return values

    def _note_replay(
        self,
        config: RunnableConfig | None,
        before: RunnableConfig | None,
        limit: int | None,
        found: CheckpointTuple | None,
    ) -> None:
        """Note a checkpoint that LangGraph goes on from in a subgraph, because its parent was replayed.

        It then asks for the one checkpoint of the subgraph before that of the parent, and perhaps there is none.
        """
        if config is None or before is None or limit != 1:
            return
        thread_id, namespace, _ = ids_of(config)
        if namespace != "":
            id = None if found is None else ids_of(found.config)[2]
            self._memory.note(thread_id, namespace, id, "by_id")

    def _list(
        self, config: RunnableConfig | None, filter: dict[str, Any] | None, before: RunnableConfig | None
    ) -> Iterator[CheckpointTuple]:
        if config is None:
            ids = [each for thread in self._threads.every() if (each := thread_id_of(thread)) is not None]
            namespace, id = None, None
        else:
            ids = [ids_of(config)[0]]
            namespace = config.get("configurable", {}).get("checkpoint_ns")
            id = config.get("configurable", {}).get("checkpoint_id")
        until: Any = None if before is None else before.get("configurable", {}).get("checkpoint_id")
        for thread_id in ids:
            for found in self._threads.sorted(thread_id):
                record = found.record
                if namespace is not None and record.namespace != namespace:
                    continue
                if (id and record.id != id) or (until and record.id >= until):
                    continue
                metadata = self._codec.decode(record.metadata)
                if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                    yield self._tuple(found)

    # Writing.

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        thread_id, namespace, _ = ids_of(config)
        record = CheckpointRecord.of(config, checkpoint, metadata, self._codec.encode, self._holder())
        source = str(metadata.get("source", ""))
        # Before the write: a reader of the checkpoint must find its run.
        run = config.get("metadata") if is_of_run(config) else None
        self._memory.began(thread_id, namespace, record.id, run)
        for attempt in range(_ATTEMPTS_MAX):
            try:
                self._put_once(record, checkpoint, source, config, is_first=attempt == 0)
            except StaleHead:
                self._threads.forget(thread_id)  # it may have been removed and begun again
                continue
            self._memory.note(thread_id, namespace, record.id, "written")
            return config_of(thread_id, namespace, record.id)
        raise Busy(f"the head of thread '{thread_id}'", "other writers are done")

    def _put_once(
        self,
        record: CheckpointRecord,
        checkpoint: Checkpoint,
        source: str,
        config: RunnableConfig,
        *,
        is_first: bool,
    ) -> None:
        thread_id, namespace = record.thread_id, record.namespace
        line = self._threads.line(thread_id, line_of(namespace), begin=True)
        assert line is not None
        tip = self._memory.tip(thread_id, line.timeline)
        if is_first and tip is not None and tip[1].record.id == record.parent and source == "loop":
            # The run that wrote it goes on.  If the head has moved, the write says so, and the second attempt reads it.
            self._commit(line, record, checkpoint, tip[1], head=tip[0])
            return
        view = line.at()
        latest = self._at_head(view, thread_id, namespace)
        below = None if latest is None else latest.record.id
        if record.parent == below or record.id == below:
            if latest is not None and source == "input" and not is_of_task(namespace):
                self._check_idle(latest, config)
            self._commit(line, record, checkpoint, latest, head=view.head)
        elif (
            source != "fork"
            and not is_of_task(namespace)
            and self._memory.how(thread_id, namespace, record.parent) in ("latest", "written")
        ):
            self._lost(line, record, checkpoint, below)
        else:
            self._branch(line, record, checkpoint, becomes_latest=True)

    def _lost(
        self, line: Thread, record: CheckpointRecord, checkpoint: Checkpoint, latest: str | None
    ) -> None:
        if self._on_conflict == "raise":
            raise Conflict(
                f"thread '{record.thread_id}' has gone on to checkpoint {latest} since this run read {record.parent}; "
                "nothing was written.",
                code="langgraph_lost_race",
                advice="Invoke the graph again: it then begins from the latest checkpoint.",
                thread=record.thread_id,
                namespace=record.namespace,
                parent=record.parent,
                latest=latest,
            )
        self._branch(line, record, checkpoint, becomes_latest=self._on_conflict == "last_writer")

    def _check_idle(self, latest: FoundCheckpoint, config: RunnableConfig) -> None:
        """Raise `Busy` if a run is under way that a new input would take the place of."""
        record = latest.record
        if not record.has_work:
            return
        thread_id, namespace = record.thread_id, record.namespace
        is_own = record.holder is not None and record.holder == self._holder()
        run = self._memory.run_of(thread_id, namespace, record.id)
        if is_own and (run is None or run is config.get("metadata")):
            return
        writes = self._threads.writes(thread_id, namespace, record.id, is_last=True)
        if any(each["channel"] in _ENDED for each in writes):
            return
        if not is_own and not self._is_leased(latest, writes):
            return
        raise Busy(f"thread '{thread_id}'", "the run under way has ended")

    def _is_leased(self, latest: FoundCheckpoint, writes: Sequence[TaskWrite]) -> bool:
        holder = latest.record.holder
        if holder is None or self._engine().gone(holder):
            return False
        signs = [latest.view.log(limit=1)[0].at, *(int(cast("int", each["at"])) for each in writes)]
        return time.time() - max(signs) / 1e6 < self._lease_seconds

    def _branch(
        self, line: Thread, record: CheckpointRecord, checkpoint: Checkpoint, *, becomes_latest: bool
    ) -> None:
        """Put a checkpoint on a timeline that begins at the one below it; perhaps it becomes the latest."""
        thread_id, namespace = record.thread_id, record.namespace
        parent = record.parent and self._threads.named(thread_id, namespace, record.parent)
        at = None if not parent else parent.view.log(limit=1)[0]
        where = f"langgraph/branch-{record.id if names.is_plain_id(record.id) else ''}".lower()
        branch = fork(line, where, at)
        self._commit(branch, record, checkpoint, parent or None, head=branch.head)
        if not becomes_latest:
            return
        if line.timeline == "main":
            line.promote(branch)
        else:  # another namespace: its timeline follows, and what was there is kept
            old = line.head
            fork(line, f"{line.timeline}.v{old.version}", old)
            line.undo(to=None if at is None else at)
            now = self._threads.at(line.at(), thread_id, namespace)
            self._commit(line, record, checkpoint, now, head=line.head)

    def _commit(
        self,
        line: Thread,
        record: CheckpointRecord,
        checkpoint: Checkpoint,
        below: FoundCheckpoint | None,
        *,
        head: Head,
    ) -> None:
        """Write a checkpoint on top of `head`; raises `StaleHead`, with the timeline as it was, if it is not there any more."""
        digest, new = self._new_messages(record, checkpoint, below)
        limits = line._space.limits  # pyright: ignore[reportPrivateUsage]
        parts = new.parts(limits) if new is not None and record.namespace == "" else []
        results = new_results(new) if record.namespace == "" else []
        if new is None or not parts:
            after, stored = self._write(line, record, checkpoint, below, (digest, new), head)
        else:
            with side_line(line, head) as side:
                for number, end in enumerate(parts):
                    with side.change("messages") as change:
                        if number == 0:
                            retract(change, new)
                        transcribe(change, new, end, partial(spoken, side, change.head))
                said = new._replace(gone=[], is_anew=False)
                _, stored = self._write(side, record, checkpoint, below, (digest, said), side.head)
                after = line.expecting(head).undo(to=side.at().log(limit=1)[0])
        settle_imported(line, head.commit, results)
        if new is not None and stored is not None:
            new.after.keep(checkpoint["channel_values"][self._messages], new.before, new.known)
            self._memory.lists.put(stored, new.after, instead_of=digest)
            digest = stored
        messages = None if digest is None else (self._messages, digest)
        if after.commit is not None:
            tip = FoundCheckpoint(record, (line, after), after.commit, messages)
            self._memory.wrote(record.thread_id, after, tip)

    def _write(
        self,
        line: Thread,
        record: CheckpointRecord,
        checkpoint: Checkpoint,
        below: FoundCheckpoint | None,
        messages: tuple[Digest | None, ListChange | None],
        head: Head,
    ) -> tuple[Head, Digest | None]:
        """Write a checkpoint in one commit; return the head, and the digest of the list of messages if it is written."""
        stored: Digest | None = None
        before = None if below is None else below.record
        old = cast("Mapping[str, Any]", before.versions if before else {})
        new = cast("Mapping[str, Any]", record.versions)
        had = set(before.channels) if before else set[str]()
        thread_id, namespace = record.thread_id, record.namespace
        # A branch and a side line carry nothing: the writes belong to the one that is asked for the latest.
        is_next = before is not None and before.id == record.parent and line.timeline == line_of(namespace)
        with (
            self._memory.pending.take(thread_id, namespace, record.parent if is_next else None) as carried,
            line.change("checkpoint", head=head) as change,
        ):
            change.put(RECORD, cast("Json", msgspec.to_builtins(record)))
            values = cast("Mapping[str, Any]", checkpoint["channel_values"])
            for channel in record.channels:
                if channel in had and channel in new and old.get(channel) == new[channel]:
                    continue
                if channel == self._messages and messages[1] is not None:
                    stored = self._put_messages(line, change, record, messages[0], messages[1])
                else:
                    change.put(channel_path(channel), self._codec.encode(values[channel]))
            for channel in had - set(record.channels):
                change.delete(channel_path(channel))
            change.name(name_of(namespace, record.id))
            if carried and record.parent is not None:
                carry(change, namespace, record.parent, carried)
        assert change.head is not None
        return change.head, stored

    def _new_messages(
        self, record: CheckpointRecord, checkpoint: Checkpoint, below: FoundCheckpoint | None
    ) -> tuple[Digest | None, ListChange | None]:
        """Return the digest of the list of messages below a checkpoint, and how it changes.

        None: no digest is known, or it is not a list of messages any more; nothing changes.
        """
        path, channel = channel_path(self._messages), self._messages
        messages: Any = checkpoint["channel_values"].get(channel)
        if not isinstance(messages, list):
            return None, None
        if below is None or channel not in below.record.channels:
            return None, elements_of(self._codec, cast("list[Any]", messages), MessageList())
        noted = below.messages[1] if below.messages and below.messages[0] == channel else None
        if channel in record.versions and below.record.versions.get(channel) == record.versions[channel]:
            return noted, None
        digest = noted or below.view.entry(path).value
        before = self._memory.lists.get(digest) or decoded(self._codec, below.view.get(path))
        if before is None:
            return None, None
        is_step = record.is_step_after(below.record)
        change = elements_of(self._codec, cast("list[Any]", messages), before, is_step=is_step)
        return (None, None) if change is None else (digest, change)

    def _put_messages(
        self, line: Thread, change: Change, record: CheckpointRecord, digest: Digest | None, new: ListChange
    ) -> Digest:
        """Write a list of messages, and say the new ones; return the digest of the list."""
        path, after = channel_path(self._messages), new.after
        if record.namespace == "":
            retract(change, new)
            transcribe(change, new, len(after), partial(spoken, line, change.head))
        added = len(after) - len(new.before)
        if digest is None or not 0 < new.shared == len(new.before) or not 0 < added <= _APPENDED_MAX:
            return change.put(path, cast("Json", after.stored))
        for each in after.stored[new.shared :]:
            digest = change.append(path, cast("Json", each))
        return digest

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        thread_id, namespace, id = ids_of(config)
        if id is None:
            raise Invalid(
                "the writes of a task belong to a checkpoint, and none is named; nothing was written.",
                code="checkpoint_not_named",
            )
        line = self._threads.line(thread_id, WRITES, begin=True)
        assert line is not None
        at = int(time.time() * 1e6)
        given: list[TaskWrite] = []
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            about: dict[str, Json] = {"task": task_id, "path": task_path, "index": index, "channel": channel}
            given.append({**about, "value": self._codec.encode(value), "at": at})
        is_tried = self._is_put_next(config, thread_id, namespace, id) and is_carriable(given)
        if is_tried and self._memory.pending.wait((thread_id, namespace, id), given, self._backoff):
            return
        with self._memory.pending.take(thread_id, namespace, id) as others, self._memory.writing(thread_id):
            store_writes(line, namespace, id, (*others, *given))

    def _is_put_next(self, config: RunnableConfig, thread_id: str, namespace: str, id: str) -> bool:
        """True if a run of LangGraph makes these writes, and has not put the checkpoint after them yet."""
        tip = self._memory.tip(thread_id, line_of(namespace))
        return is_of_run(config) and (tip is None or tip[1].record.parent != id)

    # Copying.

    def _copy_thread(self, source: str, target: str) -> None:
        every = self._threads.sorted(source)
        is_done = dict.fromkeys((each.record.namespace for each in every), False)  # its latest was copied
        lasts = {space: self._threads.latest_of(source, space, every) for space in is_done}
        for found in reversed(every):
            record = msgspec.structs.replace(found.record, thread_id=target)
            stored = self._tuple(found)
            line = self._threads.line(target, line_of(record.namespace), begin=True)
            assert line is not None
            latest = self._threads.latest(target, record.namespace)
            is_last = (last := lasts[record.namespace]) is not None and last.record.id == record.id
            if latest is None or (latest.record.id == record.parent and not is_done[record.namespace]):
                self._commit(line, record, stored.checkpoint, latest, head=line.head)
            else:
                self._branch(line, record, stored.checkpoint, becomes_latest=is_last)
            is_done[record.namespace] |= is_last
            for each in self._threads.writes(source, record.namespace, record.id):
                to = self._threads.line(target, WRITES, begin=True)
                assert to is not None
                to.put(write_path(record.namespace, record.id, each), cast("Json", dict(each)))

    def _engine(self) -> Any:
        return self._threads.store._resources.engine  # pyright: ignore[reportPrivateUsage]

    def _holder(self) -> str:
        return self._engine().holder()
