"""Writes of tasks: what each task of a step wrote, stored until the checkpoint after that step needs them no more.

They belong to a checkpoint that exists already, so they are paths of the timeline `langgraph/writes`, which never branches.

When the last task of a step has ended, LangGraph hands its writes to the saver, and the next checkpoint right after.  Each
comes on a thread of its own, and none waits for the other.  So a write waits a moment for the put of that checkpoint, which
*carries* it: the commit of the checkpoint has the writes that led to it, under one path and with a name that leads from the
checkpoint below to it.  A step is then one durable write.  `put_writes` returns once its writes are durable, in either way.

A write that no put takes is stored by itself, and takes the one that another task of its step has waiting with it.  So are
writes that no put follows, such as an error or an interrupt, and those of a program that calls the saver itself.  A saver
whose writes wait in vain, because LangGraph waits for them before it puts, soon stops trying.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import Any, TypeAlias, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP

from perdure.errors import Corrupt, Invalid, StaleHead
from perdure.integrations import foreign_ids
from perdure.integrations.checkpoint_layout import write_path
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.fork_safety import ThreadLock, renew_in_child
from perdure.store.change import Change
from perdure.store.thread import Thread

__all__ = [
    "CARRIED_PATH",
    "WaitBackoff",
    "PendingWrites",
    "TaskWrite",
    "carried_name",
    "carry",
    "is_carriable",
    "merge_writes",
    "read_carried",
    "store_writes",
]

CARRIED_PATH = "/langgraph/writes.json"
_OF_ROOT, _OF_NAMESPACE = "langgraph-writes", "langgraph-ns-writes"
_WAIT_SECONDS = 0.02  # for the next put to begin
_WAITS_MAX = 50  # if puts before it are under way
_SKIPPED_MAX = 1024  # writes that do not wait after many that did in vain
_CARRIED_BYTES_MAX = 64 * 1024
_ATTEMPTS_MAX = 256

TaskWrite: TypeAlias = Mapping[str, Json]
"""One write of a task: its task, path, index, channel, value, and when it was made."""
_Key: TypeAlias = tuple[str, str, str]  # thread, namespace, checkpoint


def carried_name(namespace: str, id: str) -> str:
    """Return the name of the commits that carry writes of a checkpoint."""
    if namespace == "":
        return foreign_ids.moment_name(_OF_ROOT, id)
    space = sha256(namespace.encode("utf-8", "surrogatepass")).hexdigest()[:48]
    return foreign_ids.moment_name(_OF_NAMESPACE, f"{space}/{id}")


def is_carriable(writes: Sequence[TaskWrite]) -> bool:
    """True if a put is likely to follow these writes, and its commit can hold them: they are nested deeper there."""
    if any(str(each["channel"]) in WRITES_IDX_MAP for each in writes):
        return False
    try:
        return len(canonical.encode({"writes": [*writes]})) <= _CARRIED_BYTES_MAX
    except Invalid:
        return False


def merge_writes(found: Iterable[TaskWrite]) -> list[TaskWrite]:
    """Return each write once, in the order of LangGraph; an index below 0 is the last of its writes, any other the first."""
    by_time = sorted(found, key=lambda each: int(cast("int", each["at"])))
    kept: dict[tuple[str, int], TaskWrite] = {}
    for each in by_time:
        key = str(each["task"]), int(cast("int", each["index"]))
        if key[1] < 0 or key not in kept:
            kept[key] = each
    return sorted(kept.values(), key=lambda each: (str(each["path"]), str(each["task"]), each["index"]))


class WaitBackoff:
    """Decides whether a write of one graph waits for a put: after each wait in vain it lets more writes pass."""

    def __init__(self) -> None:
        """Begin with a write that waits."""
        self._misses = self._skips = 0

    def should_wait(self) -> bool:
        """True if the next write is to wait."""
        self._skips = max(self._skips - 1, 0)
        return self._skips == 0

    def record(self, *, is_stored: bool) -> None:
        """Note whether a write that has waited was stored meanwhile."""
        self._misses = 0 if is_stored else self._misses + 1
        self._skips = 0 if is_stored else min(2**self._misses, _SKIPPED_MAX)


class _PendingWrite:
    """Writes that wait to be stored by another thread."""

    __slots__ = ("is_stored", "settled", "writes")

    def __init__(self, writes: Sequence[TaskWrite]) -> None:
        self.writes, self.is_stored = writes, False
        self.settled = Lock()  # it is free once another thread has stored them, or failed to
        self.settled.acquire()


class PendingWrites:
    """The writes of this process that wait for a put, by their checkpoint; of each step at most one task waits."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = ThreadLock()
        self._waiting: dict[_Key, _PendingWrite] = {}
        self._puts: dict[tuple[str, str], int] = {}  # under way, by thread and namespace
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Drop what threads of the parent wait for and write: they store it there."""
        self._waiting, self._puts = {}, {}

    def wait(self, key: _Key, writes: Sequence[TaskWrite], backoff: WaitBackoff) -> bool:
        """Return True once another thread has stored these writes; False if none does: then the caller has to.

        Puts of one run come one after the other, so the put that is to take them may have to wait for those before it.
        """
        with self._lock:
            if key in self._waiting or not backoff.should_wait():
                return False
            own = self._waiting[key] = _PendingWrite(writes)
        for _ in range(_WAITS_MAX):
            if own.settled.acquire(timeout=_WAIT_SECONDS):
                break
            with self._lock:
                is_left = self._waiting.get(key) is own
                if is_left and key[:2] not in self._puts:
                    del self._waiting[key]
                    break
        else:
            self._give_up(key, own)
        backoff.record(is_stored=own.is_stored)
        return own.is_stored

    def _give_up(self, key: _Key, own: _PendingWrite) -> None:
        with self._lock:
            is_left = self._waiting.get(key) is own
            if is_left:
                del self._waiting[key]
        if not is_left:
            own.settled.acquire()  # another thread has taken them: its outcome must be waited for

    @contextmanager
    def take(self, thread_id: str, namespace: str, id: str | None) -> Generator[Sequence[TaskWrite]]:
        """Take the writes that wait for a checkpoint; they are stored if the block, which writes, ends without an error."""
        place, own, is_counted = (thread_id, namespace), None, False
        try:
            with self._lock:
                self._puts[place] = self._puts.get(place, 0) + 1
                is_counted = True
                own = None if id is None else self._waiting.pop((*place, id), None)
            yield () if own is None else own.writes
            if own is not None:
                own.is_stored = True
        finally:
            with self._lock:
                left = self._puts.pop(place, 1) - is_counted
                if left > 0:
                    self._puts[place] = left
            if own is not None:
                own.settled.release()


def store_writes(line: Thread, namespace: str, id: str, writes: Sequence[TaskWrite]) -> None:
    """Store the writes of a checkpoint by themselves, on the timeline of writes."""
    for attempt in range(_ATTEMPTS_MAX):
        try:
            with line.change("writes", on_conflict="rebase") as change:
                for each in writes:
                    path = write_path(namespace, id, each)
                    if int(cast("int", each["index"])) < 0 or change.get(path, default=None) is None:
                        change.put(path, cast("Json", each))
            return
        except StaleHead:
            if attempt == _ATTEMPTS_MAX - 1:
                raise


def carry(change: Change, namespace: str, id: str, writes: Sequence[TaskWrite]) -> None:
    """Add the writes of the checkpoint below to the commit of a checkpoint."""
    change.put(CARRIED_PATH, {"writes": [cast("Any", each) for each in writes]})
    change.name(carried_name(namespace, id))


def read_carried(stored: Any) -> list[TaskWrite]:
    """Return the writes that a commit carries; raises `Corrupt` if they are none."""
    try:
        found: list[TaskWrite] = list(stored["writes"])
        merge_writes(found)
    except (TypeError, KeyError, ValueError) as error:
        raise Corrupt(
            f"{CARRIED_PATH} has no writes of tasks: {error!r}; nothing was read.",
            code="record_unreadable",
            what=CARRIED_PATH,
        ) from error
    return found
