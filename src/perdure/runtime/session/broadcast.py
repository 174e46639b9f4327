"""Feeds: what goes on in a live run, for whoever watches it in this process.

A feed hands out words as they are written, and a nudge after every commit that says how far to
read: so words never come after the message that they are part of.  What is durable is read from
the store, never from here: a watcher in another process, or one that comes later, sees the same.  A watcher that does not read holds up nobody.
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
    """Something became durable: the line can be read up to this commit before anything that comes after."""

    commit: Digest | None


Item: TypeAlias = Live | CommitNotice

_ITEMS_MAX = 10_000  # of one watcher; whoever is further behind has the durable events


class Watcher:
    """One who watches: items wait here until they are taken."""

    def __init__(self, text: str, at: Digest | None, wake: Callable[[], None] | None = None) -> None:
        """Begin with what was written before; `wake` is called whenever something comes."""
        self.text = text  # of the message that was being written when the watching began
        self.at = at  # the last commit before that message
        self.over = False
        self._items: deque[Item] = deque(maxlen=_ITEMS_MAX)
        self._changed = Condition()
        self._wake = wake

    def give(self, item: Item) -> None:
        """Put something here."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    def end(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self.over = True
            self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    def take(self, timeout: float) -> list[Item]:
        """What has come, waiting for it up to `timeout` seconds; empty if nothing came or it is over."""
        with self._changed:
            if not self._items and not self.over:
                self._changed.wait(timeout)
            found = list(self._items)
            self._items.clear()
        return found


class Feed:
    """What one live run hands out."""

    def __init__(self, run: str) -> None:
        """Begin with nobody watching."""
        self.run = run
        self._lock = Lock()
        self._watchers: list[Watcher] = []
        self._text: list[str] = []
        self._over = False
        self._at: Digest | None = None

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watchers)

    def tell(self, item: Live) -> None:
        """Hand out what is going on."""
        with self._lock:
            if isinstance(item, TextDelta):
                self._text.append(item.text)
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.give(item)

    def begin(self, at: Digest | None) -> None:
        """Stand at a commit."""
        with self._lock:
            self._at = at

    def committed(self, commit: Digest | None, *, spoken: bool = False) -> None:
        """Say that something became durable; `spoken`: the message that was being written is whole."""
        with self._lock:
            self._at = commit
            if spoken:
                self._text.clear()
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.give(CommitNotice(commit))

    def watch(self, wake: Callable[[], None] | None = None) -> Watcher:
        """Begin to watch."""
        with self._lock:
            watcher = Watcher("".join(self._text), self._at, wake)
            self._watchers.append(watcher)
            if self._over:
                watcher.end()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Stop watching; the run goes on."""
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def end(self) -> None:
        """The run is over, or waits."""
        with self._lock:
            self._over = True
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.end()


class Feeds:
    """The feeds of the runs that live in this process, by space and timeline."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self._live: dict[tuple[str, str], Feed] = {}

    def begin(self, space: str, timeline: str, feed: Feed) -> None:
        """Let others find the feed of a run that has begun."""
        with self._lock:
            self._live[space, timeline] = feed

    def find(self, space: str, timeline: str) -> Feed | None:
        """The feed of the run that lives there, if it lives in this process."""
        with self._lock:
            return self._live.get((space, timeline))

    def end(self, space: str, timeline: str, feed: Feed) -> None:
        """The run is over, or waits."""
        with self._lock:
            if self._live.get((space, timeline)) is feed:
                del self._live[space, timeline]
        feed.end()
