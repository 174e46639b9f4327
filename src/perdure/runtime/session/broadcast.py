"""Wakes those who watch: broadcasts what goes on in a live run to watchers, and waits for news of threads.

A feed hands out text as the model writes it, and after every commit a notice that says how far to
read: so text never comes after the message that it is part of.  Watchers read durable events from
the store, never from here, so a watcher in another process, or a late one, sees the same.  A watcher that
does not read delays neither the run nor other watchers.  `live_text` carries what a run says to other processes.

An engine's `wait` blocks the thread that calls it.  For coroutines one thread of the process calls it, for all that wait
on a store, and ends when none does.  A forked child begins without it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Event, Lock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from perdure.history.space import Space
from perdure.model.canonical import prepared
from perdure.model.digest import Digest
from perdure.model.fork_safety import renew_in_child
from perdure.runtime.events import CallProgress, Live, ReasoningDelta, TextDelta
from perdure.runtime.session.live_text import LiveCarrier, LiveReader, LiveWriter, PartialMessage, RunPlace

__all__ = ["Feed", "Feeds", "CommitNotice", "NewsThread", "Watcher", "waker"]

_POLL_SECONDS = 0.01


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
        try:
            while True:
                if not self._poll():
                    with self._lock:
                        if not self._poll():
                            self._thread = None
                            return
                pause.wait(_POLL_SECONDS)
        except BaseException:
            self._thread = None  # so that the next follower starts another one
            raise


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

    def take_live(self) -> list[Live]:
        """Take the items before the next notice of a commit, without waiting."""
        found: list[Live] = []
        with self._changed:
            while self._items and not isinstance(item := self._items[0], CommitNotice):
                found.append(item)
                self._items.popleft()
        return found

    @property
    def is_quiet(self) -> bool:
        """True if no item waits here, and more may come."""
        return not self._items and not self.over


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
        self.writers: tuple[LiveWriter, ...] = ()  # what other processes read
        self.is_mirror = False  # the run lives in another process

    @property
    def watched(self) -> bool:
        """True if there is a watcher."""
        return bool(self._watchers)

    def tell(self, item: Live) -> None:
        """Give an item to every watcher."""
        with self._lock:
            for writer in self.writers:
                writer.tell(item, at=self._at, spoken=self._spoken)
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
            for writer in self.writers:
                writer.committed(commit, is_spoken=spoken, spoken=self._spoken)
            watchers = tuple(self._watchers) if self._watchers else ()
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
            for writer in self.writers:
                writer.end()
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.end()

    def answer(self, *, whole: bool) -> None:
        """Answer a process that asks what the run says: with the whole text so far, or with where it ends."""
        with self._lock:
            if not self._over:
                for writer in self.writers:
                    writer.answer(self._at, self._spoken, whole=whole)

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


class _Mirror(NamedTuple):
    """A run of another process, as it is told here."""

    feed: Feed
    reader: LiveReader


class Feeds:
    """The feeds of the runs of a store, by space and timeline: of this process, and as mirrors of others.

    A mirror reads what another process tells through a carrier, and tells it to its watchers here.
    """

    def __init__(self, carriers: Sequence[LiveCarrier] = ()) -> None:
        """Start with no run; `carriers` are the ways to other processes of the store."""
        self._carriers = tuple(carriers)
        self._thread = PollThread(self._poll)
        self._mirrors: dict[tuple[str, str], _Mirror] = {}
        self._listening: dict[tuple[str, str], RunPlace] = {}  # runs that live in another process
        self._lock = Lock()
        self._live: dict[tuple[str, str], Feed] = {}
        self._awaited: dict[tuple[str, str], list[Callable[[], None]]] = {}

    def begin(self, space: str, timeline: str, feed: Feed) -> None:
        """Register the feed of a run that has begun, and wake those who wait for one."""
        place = RunPlace(space, timeline, feed.run)
        feed.writers = tuple(
            [carrier.writer(place, lambda whole: feed.answer(whole=whole)) for carrier in self._carriers]
        )
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
                self._listen_no_more(space, timeline)

    def find(self, space: str, timeline: str) -> Feed | None:
        """Return the feed of the run on a timeline; None if none is known to live there."""
        with self._lock:
            mirror = self._mirrors.get((space, timeline))
            return self._live.get((space, timeline)) or (None if mirror is None else mirror.feed)

    def listen(self, space: str, timeline: str, run: str) -> None:
        """Ask the other process in which a run lives to tell what it says; `wake` is called then."""
        place = RunPlace(space, timeline, run)
        with self._lock:
            if not self._carriers or self._listening.get((space, timeline)) == place:
                return
            self._listen_no_more(space, timeline)
            self._listening[space, timeline] = place
            for carrier in self._carriers:
                carrier.ask(place)
        self._thread.start()

    def _listen_no_more(self, space: str, timeline: str) -> None:
        place = self._listening.pop((space, timeline), None)
        if place is not None:
            for carrier in self._carriers:
                carrier.leave(place)

    def drop(self, space: str, timeline: str, feed: Feed) -> None:
        """End a mirror: the process of its run has gone without a word."""
        with self._lock:
            mirror = self._mirrors.get((space, timeline))
            if mirror is None or mirror.feed is not feed:
                return
            del self._mirrors[space, timeline]
            mirror.reader.close()
            self._listen_no_more(space, timeline)
            for carrier in self._carriers:
                carrier.remove(RunPlace(space, timeline, feed.run))
        feed.end()

    def _poll(self) -> bool:
        """Read what other processes tell; False if nothing is listened for any more."""
        with self._lock:
            listening, mirrors = tuple(self._listening.values()), tuple(self._mirrors.items())
        for carrier in self._carriers:
            carrier.poll()
        for (space, timeline), mirror in mirrors:
            self._read(space, timeline, mirror)
        for place in listening:
            self._find_reader(place)
        with self._lock:
            if self._listening or self._mirrors:
                return True
            for carrier in self._carriers:
                carrier.rest()
        return False

    def _find_reader(self, place: RunPlace) -> None:
        """Make a mirror of a run once a carrier has something of it."""
        key = place.space, place.timeline
        with self._lock:
            if key in self._live or key in self._mirrors:
                return
        for carrier in self._carriers:
            reader = carrier.reader(place)
            if reader is None:
                continue
            feed, lines = Feed(""), reader.read()
            feed.is_mirror = True
            _mirror(feed, lines)
            with self._lock:
                if not feed.run or reader.is_over or key in self._mirrors or key not in self._listening:
                    reader.close()
                    continue
                self._mirrors[key] = _Mirror(feed, reader)
                awaited = self._awaited.get(key, ())
                for other in self._carriers:
                    if other is not carrier:
                        other.leave(place)
            for wake in awaited:
                wake()
            return

    def _read(self, space: str, timeline: str, mirror: _Mirror) -> None:
        feed, reader = mirror
        with self._lock:
            if self._mirrors.get((space, timeline)) is not mirror:
                return
            lines = reader.read()
            is_other = any(line[:1] == ["begin"] and line[1] != feed.run for line in lines)
            if reader.is_over or is_other:
                del self._mirrors[space, timeline]
                reader.close()
                self._listen_no_more(space, timeline)
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
                    feed.tell(msgspec.convert(fields, prepared(CallProgress)))
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
            # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
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
