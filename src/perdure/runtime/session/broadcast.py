"""Wakes those who watch: broadcasts what goes on in a live run to watchers in this process, and waits for news of threads.

A feed hands out text as the model writes it, and after every commit a notice that says how far to
read: so text never comes after the message that it is part of.  Watchers read durable events from
the store, never from here, so a watcher in another process, or a late one, sees the same.  A watcher that
does not read delays neither the run nor other watchers.

An engine's `wait` blocks the thread that calls it.  For coroutines one thread of the process calls it, for all that wait
on a store, and ends when none does.  A forked child begins without it.

Carries what a live run says to other processes of the same store: text, calls and notices of commits.

Each live run of a timeline has one small file in a directory beside the store.  The process of the run appends lines
to it, and processes that follow the timeline read them as they come.  Nothing of it is durable or needed: a reader that
misses it gets the finished message from the store.  The directory exists only while another process asks for it, so a
program that nobody follows writes nothing.

A file is bounded: it begins anew after a message once it is large, and text beyond the bound is left out.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Condition, Event, Lock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.fork_safety import renew_in_child
from perdure.runtime.events import CallProgress, Live, ReasoningDelta, TextDelta

__all__ = ["Feed", "Feeds", "CommitNotice", "NewsThread", "Watcher", "waker"]


_POLL_SECONDS = 0.01
_BYTES_ANEW = 256 * 1024  # a file that is larger begins anew after a message
_BYTES_MAX = 4 * 1024 * 1024
_READ_MAX = 64 * 1024

_decoder = msgspec.json.Decoder(list[Any])


def spool_file(directory: Path, space: str, timeline: str) -> Path:
    """Return the file of a timeline's live run."""
    name = sha256(msgspec.json.encode([space, timeline])).hexdigest()[:32]
    return directory / f"{name}.jsonl"


class PartialMessage(NamedTuple):
    """What a model has said so far of the message that it is writing."""

    id: str | None = None  # None: it says nothing, or the id is not known
    text: str = ""
    reasoning: str = ""


class SpoolWriter:
    """Writes what one run says, from the moment on at which another process asks for it."""

    def __init__(self, directory: Path, space: str, timeline: str, run: str) -> None:
        """Write nothing yet."""
        self._directory, self._run = str(directory), run
        self._space, self._timeline = space, timeline
        self._path: Path | None = None  # None: it was not needed yet
        self._file: int | None = None
        self._message: str | None = None  # whose words were written last
        self._size = 0

    def tell(self, item: Live, *, at: Digest | None, spoken: Callable[[], PartialMessage]) -> None:
        """Write an item; a file that is begun now has what was `spoken` before it, after the commit `at`."""
        if not self._is_open(at, spoken) or self._size > _BYTES_MAX:
            return
        if not isinstance(item, CallProgress) and item.message != self._message:
            self._write(["message", item.message, ""])
            self._message = item.message
        match item:
            case TextDelta():
                self._write(["text", item.text])
            case ReasoningDelta():
                self._write(["reasoning", item.text])
            case CallProgress():
                self._write(["call", msgspec.structs.asdict(item)])

    def committed(
        self, commit: Digest | None, *, is_spoken: bool, spoken: Callable[[], PartialMessage]
    ) -> None:
        """Write the notice of a commit; `is_spoken`: it holds the message that was being written."""
        if not self._is_open(commit, spoken):
            return
        self._write(["commit", commit, is_spoken])
        if is_spoken and self._size > _BYTES_ANEW:
            self._close()
            self._is_open(commit, spoken)

    def end(self) -> None:
        """Write that nothing more comes, and remove the file."""
        if self._file is not None:
            self._write(["end"])
            if self._path is not None:
                with suppress(OSError):
                    self._path.unlink()
            self._close()

    def _is_open(self, at: Digest | None, spoken: Callable[[], PartialMessage]) -> bool:
        if self._file is not None:
            return True
        if not os.access(self._directory, os.F_OK):  # without a Path: every commit of a run asks
            return False
        if self._path is None:
            self._path = spool_file(Path(self._directory), self._space, self._timeline)
        new = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            self._file = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600
            )
            self._size, so_far = 0, spoken()
            self._message = so_far.id
            self._write(["begin", self._run, at, so_far.text])
            if so_far.id is not None:
                self._write(["message", so_far.id, so_far.reasoning])
            new.replace(self._path)
        except OSError:
            self._close()
            return False
        return True

    def _write(self, line: list[Any]) -> None:
        assert self._file is not None
        try:
            self._size += os.write(self._file, msgspec.json.encode(line) + b"\n")
        except OSError:  # the disk is full, or the directory was removed: followers read the store
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
        self._file = None


class SpoolReader:
    """Reads the file of a run that lives in another process, line by line."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises `OSError` if there is none."""
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        self._inode = os.fstat(self._file).st_ino
        self._left = b""
        self.is_over = False

    def read(self) -> list[list[Any]]:
        """Return the new lines; if the file was replaced, those of the next one follow."""
        found = self._lines()
        if self.is_over:
            return found
        try:
            inode = os.stat(self._path).st_ino
        except OSError:
            found += self._lines()
            self.is_over = True
            return found
        if inode != self._inode:
            found += self._lines()
            os.close(self._file)
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                self._file, self.is_over = -1, True
                return found
            self._inode, self._left = os.fstat(self._file).st_ino, b""
            found += self._lines()
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lines(self) -> list[list[Any]]:
        found: list[list[Any]] = []
        while self._file >= 0 and (piece := os.read(self._file, _READ_MAX)):
            *whole, self._left = (self._left + piece).split(b"\n")
            for line in whole:
                with suppress(msgspec.DecodeError):
                    found.append(_decoder.decode(line))
        if any(line[:1] == ["end"] for line in found):
            self.is_over = True
        return found


class PollThread:
    """One thread that calls `poll` again and again, as long as it returns True."""

    def __init__(self, poll: Callable[[], bool]) -> None:
        """Begin without a thread."""
        self._poll = poll
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """See to it that the thread runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="perdure-live", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            if not self._poll():
                with self._lock:
                    if not self._poll():
                        self._thread = None
                        return
            pause.wait(_POLL_SECONDS)


class CommitNotice(msgspec.Struct, frozen=True):
    """A commit became durable: read the timeline up to it before the items that follow."""

    commit: Digest | None


Item: TypeAlias = Live | CommitNotice

_WAIT_SECONDS = 60.0
_IDLE_SECONDS = 2.0  # how long the thread stays while nothing waits
_ITEMS_MAX = 10_000  # of one watcher; one that is further behind still has the durable events


class Watcher:
    """The queue of one watcher: items wait here until they are taken."""

    def __init__(
        self, spoken: PartialMessage, at: Digest | None, wake: Callable[[], None] | None = None
    ) -> None:
        """Start with what was written before; `wake` is called for every new item."""
        self.spoken = spoken  # of the message that was being written when the watching began
        self.at = at  # the last commit before that message
        self.over = False
        self._items: deque[Item] = deque(maxlen=_ITEMS_MAX)
        self._changed = Condition()
        self._wake = wake

    def give(self, item: Item) -> None:
        """Add an item."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    def end(self) -> None:
        """Mark the queue as ended."""
        with self._changed:
            self.over = True
            self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    def take(self, timeout: float) -> list[Item]:
        """Take all items, after waiting up to `timeout` seconds for one; empty if none came or it has ended."""
        with self._changed:
            if not self._items and not self.over:
                self._changed.wait(timeout)
            found = list(self._items)
            self._items.clear()
        return found


class Feed:
    """Broadcasts one live run."""

    def __init__(self, run: str) -> None:
        """Start with no watcher."""
        self.run = run
        self._pid = os.getpid()
        self._lock = Lock()
        self._watchers: list[Watcher] = []
        self._message: str | None = None  # that is being written
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._over = False
        self._at: Digest | None = None
        self.spool: SpoolWriter | None = None  # what other processes read; None: there is no such place
        self.is_mirror = False  # the run lives in another process

    @property
    def watched(self) -> bool:
        """True if there is a watcher."""
        return bool(self._watchers)

    def tell(self, item: Live) -> None:
        """Give an item to every watcher."""
        with self._lock:
            if self.spool is not None:
                self.spool.tell(item, at=self._at, spoken=self._spoken)
            if type(item) is TextDelta:
                self._message = item.message
                self._text.append(item.text)
            elif type(item) is ReasoningDelta:
                self._message = item.message
                self._reasoning.append(item.text)
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.give(item)

    def begin(self, at: Digest | None) -> None:
        """Set the commit that the run starts from."""
        with self._lock:
            self._at = at

    def committed(self, commit: Digest | None, *, spoken: bool = False) -> None:
        """Give watchers notice of a commit; `spoken`: it holds the message that was being written."""
        with self._lock:
            self._at = commit
            if spoken:
                self._message = None
                self._text.clear()
                self._reasoning.clear()
            if self.spool is not None:
                self.spool.committed(commit, is_spoken=spoken, spoken=self._spoken)
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.give(CommitNotice(commit))

    def watch(self, wake: Callable[[], None] | None = None) -> Watcher:
        """Add a watcher."""
        with self._lock:
            watcher = Watcher(self._spoken(), self._at, wake)
            self._watchers.append(watcher)
            if self._over:
                watcher.end()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher; the run goes on.  In a forked child nothing is done: the run, and its lock, are the parent's."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def end(self) -> None:
        """End every watcher's queue: the run is over, or waits."""
        with self._lock:
            self._over = True
            if self.spool is not None:
                self.spool.end()
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.end()

    def resume_at(self, at: Digest | None, text: str) -> None:
        """Set where the run is, as another process says: the last commit, and the text since."""
        with self._lock:
            self._at, self._text = at, [text] if text else []

    def speaks(self, message: str | None, reasoning: str) -> None:
        """Set which message the run writes, as another process says, and the reasoning so far if there is any."""
        with self._lock:
            self._message = message
            if reasoning:
                self._reasoning = [reasoning]

    @property
    def message(self) -> str | None:
        """The id of the message that is being written."""
        return self._message

    def _spoken(self) -> PartialMessage:
        return PartialMessage(self._message, "".join(self._text), "".join(self._reasoning))


class Feeds:
    """The feeds of the runs of a store, by space and timeline: of this process, and as mirrors of others.

    A mirror reads what another process writes to the spool, and tells it to its
    watchers here.
    """

    def __init__(self, spool: Path | None = None) -> None:
        """Start with no run; `spool` is the directory that processes of the store share, None: there is none."""
        self._spool = spool
        self._tail: PollThread | None = None
        self._mirrors: dict[tuple[str, str], tuple[Feed, SpoolReader]] = {}
        self._listening: set[tuple[str, str]] = set()  # timelines whose run lives in another process
        self._lock = Lock()
        self._live: dict[tuple[str, str], Feed] = {}
        self._awaited: dict[tuple[str, str], list[Callable[[], None]]] = {}

    def begin(self, space: str, timeline: str, feed: Feed) -> None:
        """Register the feed of a run that has begun, and wake those who wait for one."""
        if self._spool is not None:
            feed.spool = SpoolWriter(self._spool, space, timeline, feed.run)
        with self._lock:
            self._live[space, timeline] = feed
            awaited = self._awaited.get((space, timeline), ())
        for wake in awaited:
            wake()

    def expect(self, space: str, timeline: str, wake: Callable[[], None]) -> None:
        """Call `wake` each time that a run begins on a timeline in this process."""
        with self._lock:
            self._awaited[space, timeline] = [*self._awaited.get((space, timeline), ()), wake]

    def expect_no_more(self, space: str, timeline: str, wake: Callable[[], None]) -> None:
        """Call `wake` no longer; it is no error if it was never to be called."""
        with self._lock:
            left = [each for each in self._awaited.pop((space, timeline), ()) if each is not wake]
            if left:
                self._awaited[space, timeline] = left
            else:
                self._listening.discard((space, timeline))

    def find(self, space: str, timeline: str) -> Feed | None:
        """Return the feed of the run on a timeline; None if none is known to live there."""
        with self._lock:
            found = self._live.get((space, timeline))
            if found is None and (space, timeline) in self._mirrors:
                return self._mirrors[space, timeline][0]
            return found

    def listen(self, space: str, timeline: str) -> None:
        """Ask the other process in which the run of a timeline lives to tell what it says; `wake` is called then."""
        if self._spool is None:
            return
        with self._lock:
            if (space, timeline) in self._listening:
                return
            self._listening.add((space, timeline))
            self._tail = self._tail or PollThread(self._poll)
        with suppress(OSError):
            self._spool.mkdir(mode=0o700, exist_ok=True)
        self._tail.start()

    def drop(self, space: str, timeline: str, feed: Feed) -> None:
        """End a mirror: the process of its run has gone without a word."""
        with self._lock:
            found = self._mirrors.get((space, timeline))
            if found is None or found[0] is not feed:
                return
            del self._mirrors[space, timeline]
            found[1].close()
        feed.end()
        if self._spool is not None:
            with suppress(OSError):
                spool_file(self._spool, space, timeline).unlink()

    def _poll(self) -> bool:
        """Read what other processes have written; False if nothing is listened for any more."""
        assert self._spool is not None
        with self._lock:
            listening = tuple(self._listening | set(self._mirrors))
        for space, timeline in listening:
            self._poll_one(self._spool, space, timeline)
        with self._lock:
            if self._listening or self._mirrors:
                return True
        with suppress(OSError):
            self._spool.rmdir()  # only if it is empty
        return False

    def _poll_one(self, spool: Path, space: str, timeline: str) -> None:
        with self._lock:
            found = self._mirrors.get((space, timeline))
            is_live = (space, timeline) in self._live
        if is_live:
            return
        if found is None:
            try:
                reader = SpoolReader(spool_file(spool, space, timeline))
            except OSError:
                return
            feed, lines = Feed(""), reader.read()
            feed.is_mirror = True
            _mirror(feed, lines)
            with self._lock:
                if feed.run and not reader.is_over:
                    self._mirrors[space, timeline] = feed, reader
                    awaited = self._awaited.get((space, timeline), ())
                else:
                    awaited = ()
                    reader.close()
            for wake in awaited:
                wake()
            return
        feed, reader = found
        with self._lock:
            if (space, timeline) not in self._mirrors:
                return
            lines = reader.read()
            is_other = any(line[:1] == ["begin"] and line[1] != feed.run for line in lines)
            if reader.is_over or is_other:
                del self._mirrors[space, timeline]
                reader.close()
        _mirror(feed, [] if is_other else lines)
        if reader.is_over or is_other:
            feed.end()

    def end(self, space: str, timeline: str, feed: Feed) -> None:
        """Remove a feed and end it: its run is over, or waits."""
        with self._lock:
            if self._live.get((space, timeline)) is feed:
                del self._live[space, timeline]
        feed.end()


def _mirror(feed: Feed, lines: list[list[Any]]) -> None:
    """Tell the watchers of a mirror what the lines of a spool say; a line of an unknown kind is passed over."""
    for line in lines:
        match line:
            case ["begin", str(run), at, str(text)]:
                if not feed.run:
                    feed.run = run
                    feed.resume_at(None if at is None else Digest(str(at)), text)
            case ["message", message, str(reasoning)]:
                feed.speaks(None if message is None else str(message), reasoning)
            case ["text", str(text)]:
                feed.tell(TextDelta(text, message=feed.message))
            case ["reasoning", str(text)]:
                feed.tell(ReasoningDelta(text, message=feed.message))
            case ["call", fields]:
                with suppress(msgspec.ValidationError):
                    feed.tell(msgspec.convert(fields, CallProgress))
            case ["commit", commit, bool(spoken)]:
                feed.committed(None if commit is None else Digest(str(commit)), spoken=spoken)
            case _:
                pass


class _Subscription:
    """One call that is due when its space has news."""

    __slots__ = ("call", "seen", "space", "standing")

    def __init__(self, space: Space, seen: int, call: Callable[[], None]) -> None:
        self.space, self.seen, self.call = space, seen, call
        self.standing = seen


class NewsThread:
    """Waits for news of the threads of one open store, for any number of coroutines."""

    def __init__(self) -> None:
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._waits: list[_Subscription] = []
        self._woken = Event()  # there are other waits than before
        self._thread: threading.Thread | None = None

    def after_fork_in_child(self) -> None:
        """Leave those who wait to the parent."""
        self._begin()

    async def wait(
        self, space: Space, seen: int, seconds: float, *, event: asyncio.Event | None = None
    ) -> int:
        """Wait until the standing of `space` is higher than `seen`, or `event` is set; return the standing that is known.

        `event` is set if there is news, so that one event can have several causes.
        """
        event = event or asyncio.Event()
        wait = _Subscription(space, seen, waker(asyncio.get_running_loop(), event))
        with self._lock:
            self._waits.append(wait)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="perdure-followers", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except BaseException:
                    self._thread = None
                    self._waits.remove(wait)
                    raise
            self._woken.set()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        finally:
            with self._lock, suppress(ValueError):  # it was called, or this is a forked child
                self._waits.remove(wait)
        return wait.standing

    def _run(self) -> None:
        is_idle = False
        while True:
            with self._lock:
                waits = list(self._waits)
                if not waits and is_idle:
                    self._thread = None
                    return
                self._woken.clear()
            if not waits:
                is_idle = not self._woken.wait(_IDLE_SECONDS)
                continue
            seen: dict[str, int] = {}
            for wait in waits:
                seen[wait.space.name] = min(wait.seen, seen.get(wait.space.name, wait.seen))
            try:
                news = waits[0].space.engine.wait(seen, _WAIT_SECONDS, woken=self._woken)
            except Exception:  # noqa: BLE001  # a coroutine that waits reads the store next, and gets the error there
                news = None
            self._call(waits, news)

    def _call(self, waits: list[_Subscription], news: Mapping[str, int] | None) -> None:
        with self._lock:
            for wait in waits:
                standing = wait.seen if news is None else news.get(wait.space.name, wait.seen)
                if wait in self._waits and (news is None or standing > wait.seen):
                    wait.standing = standing
                    self._waits.remove(wait)
                    wait.call()


def waker(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets `event` of the loop from any thread."""

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(event.set)

    return wake
