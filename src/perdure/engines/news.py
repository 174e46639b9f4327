"""Waiting for news: threads that wait until something is written to a space, and what wakes them.

A write of this opening wakes the threads that wait for its space.  Writes of others have to be looked for; one thread
for each opening does so for all threads that wait, and ends when none does.  How it looks is the engine's: a cheap test
whether anything at all may have changed, and one read of the standings of all spaces that a thread waits for.

No wake-up is lost.  A thread first registers what it waits for.  Then the standings are read, unless they are known
and the cheap test says that they are still the same.

An engine whose store is reached from many machines may also have a `LiveChannel`, which carries what is worth nothing
later: the words of a run while its model writes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Event, Lock
from typing import Protocol

from perdure.errors import PerdureError
from perdure.model.fork_safety import renew_in_child

__all__ = ["LiveChannel", "Waiters"]

_IDLE_SECONDS = 2.0  # how long the thread stays while no thread waits
_PAUSE = 10  # after a look the thread pauses for so many times what the look took
_PAUSE_SECONDS_MAX = 0.5


class LiveChannel(Protocol):
    """Carries messages on topics between the processes of a store.  None is stored, any may be lost, none comes twice.

    A sender offers a topic and sends on it only while a process asks.  Messages of one sender arrive in order.
    Every method returns at once, except `poll`; a forked child has no topic.
    """

    def offer(self, topic: str, asked: Callable[[bool], None]) -> None:
        """Call `asked`, from any thread, when a process asks for the topic; True: it wants all of it, not only news."""
        ...

    def withdraw(self, topic: str) -> None:
        """Offer a topic no longer."""
        ...

    def send(self, topic: str, message: bytes) -> None:
        """Send a message, which is UTF-8 text without NUL or line breaks, soon; one that is too much is left out."""
        ...

    def listen(self, topic: str) -> None:
        """Keep what is sent on a topic for `received`."""
        ...

    def leave(self, topic: str) -> None:
        """Listen to a topic no longer."""
        ...

    def ask(self, topic: str, *, whole: bool) -> None:
        """Ask those who offer a topic to send; `whole`: all of it, not only news."""
        ...

    def poll(self) -> None:
        """Read what has arrived on all topics; one thread at a time calls this."""
        ...

    def received(self, topic: str) -> list[bytes]:
        """Return the messages that `poll` has read since the last call, in order."""
        ...

    def rest(self) -> None:
        """Release what listening needs; the next `poll` begins again."""
        ...


class _Wait:
    """One thread that waits."""

    __slots__ = ("event", "found", "has_failed", "seen")

    def __init__(self, seen: Mapping[str, int], event: Event) -> None:
        self.seen, self.event = seen, event
        self.found: dict[str, int] = {}
        self.has_failed = False  # the standings could not be read


class Waiters:
    """The threads that wait on one opening of a store.  Thread-safe; a forked child begins with none."""

    def __init__(
        self,
        look: Callable[[Iterable[str]], Mapping[str, int]],
        *,
        closed: Callable[[], PerdureError],
        has_changed: Callable[[], bool] = lambda: True,
        every: float | None = None,
        rests: Callable[[], None] = lambda: None,
    ) -> None:
        """Read standings with `look`; `closed` makes the error for those who wait when the store is closed.

        Every `every` seconds a thread asks `has_changed`, and looks if it is true, which may be too often.  None: all
        writers call `written` with the standing, so that nothing has to be looked for.  The thread calls `rests` when it
        ends, because nothing is waited for.
        """
        self._look, self._closed_error = look, closed
        self._has_changed, self._every, self._rests = has_changed, every, rests
        self._is_closed = False
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self.spaces: dict[str, list[_Wait]] = {}  # those that a thread waits for
        self._known: dict[str, int] = {}  # the standings that were read last
        self._thread: threading.Thread | None = None
        self._called = Event()  # the thread is to go on
        self._must_look = False  # whatever the cheap test says

    def after_fork_in_child(self) -> None:
        """Leave the parent's threads to the parent."""
        self._begin()

    def wait(self, seen: Mapping[str, int], seconds: float, woken: Event | None = None) -> Mapping[str, int]:
        """Wait for news, as the contract says."""
        wait = _Wait(dict(seen), woken or Event())
        try:
            if self._every is None or seconds <= 0:
                self._register(wait)
                found = _newer(self._look(wait.seen), wait.seen)
                if found or seconds <= 0:
                    return found
            elif found := self._register_with_thread(wait):
                return found
            wait.event.wait(min(seconds, threading.TIMEOUT_MAX))
        finally:
            self._leave(wait)
        if self._is_closed:
            raise self._closed_error()
        return _newer(self._look(wait.seen), wait.seen) if wait.has_failed else wait.found

    def awaited(self, space: str) -> bool:
        """True if a thread waits for this space, or waited for it a moment ago."""
        return space in self.spaces or space in self._known

    def written(self, space: str, standing: int | None = None) -> None:
        """Wake those who wait for this space: a write has left this standing there (None: it has to be looked up).

        A writer calls this if the space is `awaited` after the write has become true.
        """
        if standing is None:
            self._must_look = True
            self._called.set()
            return
        with self._lock:
            if space in self._known:  # one who waits next must not take the older standing for the newest
                self._known[space] = max(standing, self._known[space])
        self._tell({space: standing})

    def close(self) -> None:
        """End every wait, and the thread."""
        with self._lock:
            self._is_closed = True
            for wait in _all(self.spaces):
                wait.event.set()
            thread = self._thread
        self._called.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_IDLE_SECONDS)

    def _register(self, wait: _Wait) -> None:
        with self._lock:
            self._add(wait)

    def _register_with_thread(self, wait: _Wait) -> Mapping[str, int]:
        """Register a wait that the thread serves; return news that is known already."""
        with self._lock:
            found = _newer(self._known, wait.seen)
            if found and not self._is_closed:
                return found
            if not self._known.keys() >= wait.seen.keys():
                self._must_look = True
            if self._must_look or not self.spaces:
                self._called.set()
            self._add(wait)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="perdure-news", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except BaseException:
                    self._thread = None
                    raise
        return found

    def _add(self, wait: _Wait) -> None:
        if self._is_closed:
            raise self._closed_error()
        for space in wait.seen:
            self.spaces.setdefault(space, []).append(wait)

    def _leave(self, wait: _Wait) -> None:
        with self._lock:
            for space in wait.seen:
                others = [each for each in self.spaces.get(space, ()) if each is not wait]
                if others:
                    self.spaces[space] = others
                else:
                    self.spaces.pop(space, None)

    def _tell(self, standings: Mapping[str, int]) -> None:
        with self._lock:
            for space, standing in standings.items():
                for wait in self.spaces.get(space, ()):
                    if standing > wait.seen[space]:
                        wait.found[space] = standing
                        wait.event.set()

    # ---- in the thread

    def _run(self) -> None:
        assert self._every is not None
        ends_at = time.monotonic() + _IDLE_SECONDS
        while self._goes_on(ends_at):
            if self.spaces:
                ends_at = time.monotonic() + _IDLE_SECONDS
                self._called.wait(self._every)
            else:
                self._called.wait(_IDLE_SECONDS)
            self._called.clear()
            must_look, self._must_look = self._must_look, False
            if self.spaces and (self._has_changed() or must_look):
                began = time.monotonic()
                self._look_for_all()
                pause = min(_PAUSE * (time.monotonic() - began), _PAUSE_SECONDS_MAX)
                if pause > self._every:
                    time.sleep(pause)

    def _goes_on(self, ends_at: float) -> bool:
        """False once no thread has waited for a while, or the store is closed."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return False
            if not self._is_closed and (self.spaces or time.monotonic() < ends_at):
                return True
            self._rests()
            self._thread, self._known = None, {}
            return False

    def _look_for_all(self) -> None:
        with self._lock:
            spaces = list(self.spaces)
        try:
            standings = self._look(spaces)
        except Exception:  # noqa: BLE001  # this thread serves all others, so it goes on
            with self._lock:
                self._must_look, self._known = True, {}
                for wait in _all(self.spaces):
                    wait.has_failed = True
                    wait.event.set()
            return
        with self._lock:
            # A writer may have raised one while this looked.
            self._known = {space: max(at, self._known.get(space, at)) for space, at in standings.items()}
        self._tell(standings)


def _all(waits: Mapping[str, list[_Wait]]) -> list[_Wait]:
    return [wait for group in waits.values() for wait in group]


def _newer(standings: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """Return those standings that are higher than what was seen."""
    return {space: at for space, last in seen.items() if (at := standings.get(space, -1)) > last}
