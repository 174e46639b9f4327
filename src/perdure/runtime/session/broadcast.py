"""Broadcasts what goes on in a live run to watchers in this process.

A feed hands out text as the model writes it, and after every commit a notice that says how far to
read: so text never comes after the message that it is part of.  Watchers read durable events from
the store, never from here, so a watcher in another process, or a late one, sees the same.  A watcher that
does not read delays neither the run nor other watchers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Lock
from typing import TypeAlias

import msgspec

from perdure.model.digest import Digest
from perdure.runtime.events import Live, TextDelta

__all__ = ["Feed", "Feeds", "CommitNotice", "Watcher"]


class CommitNotice(msgspec.Struct, frozen=True):
    """A commit became durable: read the timeline up to it before the items that follow."""

    commit: Digest | None


Item: TypeAlias = Live | CommitNotice

_ITEMS_MAX = 10_000  # of one watcher; one that is further behind still has the durable events


class Watcher:
    """The queue of one watcher: items wait here until they are taken."""

    def __init__(self, text: str, at: Digest | None, wake: Callable[[], None] | None = None) -> None:
        """Start with the text that was written before; `wake` is called for every new item."""
        self.text = text  # of the message that was being written when the watching began
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
        self._lock = Lock()
        self._watchers: list[Watcher] = []
        self._text: list[str] = []
        self._over = False
        self._at: Digest | None = None

    @property
    def watched(self) -> bool:
        """True if there is a watcher."""
        return bool(self._watchers)

    def tell(self, item: Live) -> None:
        """Give an item to every watcher."""
        with self._lock:
            if isinstance(item, TextDelta):
                self._text.append(item.text)
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
                self._text.clear()
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.give(CommitNotice(commit))

    def watch(self, wake: Callable[[], None] | None = None) -> Watcher:
        """Add a watcher."""
        with self._lock:
            watcher = Watcher("".join(self._text), self._at, wake)
            self._watchers.append(watcher)
            if self._over:
                watcher.end()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher; the run goes on."""
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def end(self) -> None:
        """End every watcher's queue: the run is over, or waits."""
        with self._lock:
            self._over = True
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.end()


class Feeds:
    """The feeds of the runs that live in this process, by space and timeline."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._live: dict[tuple[str, str], Feed] = {}

    def begin(self, space: str, timeline: str, feed: Feed) -> None:
        """Register the feed of a run that has begun."""
        with self._lock:
            self._live[space, timeline] = feed

    def find(self, space: str, timeline: str) -> Feed | None:
        """Return the feed of the run on a timeline; None if no run lives there in this process."""
        with self._lock:
            return self._live.get((space, timeline))

    def end(self, space: str, timeline: str, feed: Feed) -> None:
        """Remove a feed and end it: its run is over, or waits."""
        with self._lock:
            if self._live.get((space, timeline)) is feed:
                del self._live[space, timeline]
        feed.end()
