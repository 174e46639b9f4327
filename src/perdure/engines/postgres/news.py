"""News: how a process hears of what other processes write, at no cost for spaces that no process follows.

A follower marks the spaces that it waits for, in their rows, for a minute.  A write reads that row in any case, and its
answer says who has marked it.  Unless that is the writer's own process alone, the process notifies the followers, after
the commit and in a transaction of its own: a notification inside the transaction of the write would let commits happen
only one by one.

A notification that is lost costs time and never news, because each follower also looks by itself once a second.  Behind
a pooler in transaction mode nothing can be heard.  There a follower looks often while there is news, and once a second
while there is none.

One thread of the process sends what has gathered, in transactions that wait for no flush: words for the channel of the
tenant, on which every process of the store listens while it waits for news, and the messages of live runs, each run on a
channel of its own.

A process that wants the words of a run listens to the run's channel and asks for them by a word on the common one; the
process of a live run waits for news in any case, because a write may ask its run to stop, so it hears that.  Nothing is
sent on a channel before that.  The name of a run's channel is a digest over the run's id: a role that is tied to another
tenant can listen to any name, but cannot guess this one.

A notification has at most 8,000 bytes.  Short messages go together in one, a long one is cut into parts.  What gathers
faster than it can be sent is left out, and so are the messages of a lost session; the reader of a topic notices.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from secrets import randbits
from threading import Event, Lock
from typing import Protocol

import psycopg

from perdure.engines.postgres.connections import Connection, Pool, bytea_array, text_array
from perdure.engines.postgres.errors import ConnectionLost, StatementFailed
from perdure.engines.postgres.pack import bytes_of, name_of
from perdure.errors import PerdureError
from perdure.model.fork_safety import renew_in_child

__all__ = ["LISTEN_SECONDS", "LiveNotifications", "NewsOfOthers", "Notifier"]

LISTEN_SECONDS = 0.01  # how often the socket of the listening session is looked at
_LOOK_SECONDS, _LOOK_SECONDS_MIN = 1.0, 0.05
_MARKED_SECONDS = 60
_NOTIFY = (
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, payload) "
    "FROM unnest($1, $2) AS sent(channel, payload)"
)
_PAYLOAD_BYTES_MAX = 7_900  # the server refuses 8,000
_BATCH_BYTES_MAX = 256 * 1024  # of one transaction
_PENDING_BYTES_MAX = 4 * 1024 * 1024
_INBOX_BYTES_MAX = 4 * 1024 * 1024
_WORDS_MAX = 400  # of one notification: one has up to 17 bytes
_IDLE_SECONDS = 2.0  # how long the thread stays when there is nothing to send
_PAUSE_SECONDS = 0.005  # between two transactions with words of live runs, so that several deltas go together
_CONNECT_SECONDS = 1.0  # between two attempts to listen
_WHOLE, _NEWS = "!", "?"  # what a request begins with

_LOOK = "SELECT name, rows FROM perdure.spaces WHERE tenant = $1 AND name = ANY($2)"
# A row that a writer has locked is marked by the next look: nothing here waits for a lock.
_MARK = f"""
WITH due AS MATERIALIZED (
    SELECT name FROM perdure.spaces, set_config('synchronous_commit', 'off', true)
    WHERE tenant = $1 AND name = ANY($2) FOR NO KEY UPDATE OF spaces SKIP LOCKED
), marked AS (
    UPDATE perdure.spaces s SET followed_until = perdure.now_us() + {_MARKED_SECONDS} * 1000000,
        follower = CASE WHEN s.followed_until > perdure.now_us() AND s.follower <> $3 THEN 0 ELSE $3 END FROM due
    WHERE s.tenant = $1 AND s.name = due.name RETURNING s.name, s.rows
)
SELECT name, rows, true FROM marked
UNION ALL
SELECT name, rows, false FROM perdure.spaces WHERE tenant = $1 AND name = ANY($2) AND name NOT IN (SELECT name FROM marked)
"""


class Retried(Protocol):
    """Runs work with a connection, again after a lost one."""

    def __call__(self, work: Callable[[Connection], dict[str, int]], left: str, /) -> dict[str, int]:
        """Return what `work` returns."""
        ...


class NewsOfOthers:
    """What one opening of a store hears and tells.  Thread-safe; a forked child begins with nothing."""

    def __init__(self, pool: Pool, tenant: str, *, read_only: bool) -> None:
        """Open nothing before a caller waits or has something to tell."""
        self._pool, self._tenant, self._read_only = pool, tenant, read_only
        self._channel = f"perdure_{_key(bytes_of(tenant))}"
        self._notifier = Notifier(pool, self._channel)
        self.live = LiveNotifications(pool, self._notifier, tenant)
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self.own = randbits(62) + 1  # the name of this follower; its own writes are not notified to it
        self._listening: Connection | None = None
        self._marked: dict[str, float] = {}  # spaces, and when the mark has to be renewed
        self._standings: Mapping[str, int] = {}
        self._look_at, self._pause = 0.0, _LOOK_SECONDS

    def after_fork_in_child(self) -> None:
        """Close the inherited session without sending anything."""
        if self._listening is not None:
            self._listening.abandon()
        self._begin()

    def close(self) -> None:
        """Tell what is untold, and end the sessions."""
        self._notifier.close()
        self.live.close()
        self.rest()

    def rest(self) -> None:
        """End the listening session: nothing is waited for."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with suppress(psycopg.Error):
                listening.close()

    # ---- hearing

    def has_changed(self) -> bool:
        """True if a followed space may have been written to; asked often, by one thread."""
        now = time.monotonic()
        if self._heard() or now >= self._look_at:
            self._look_at = now + self._pause
            return True
        return False

    def standings(self, spaces: Iterable[str], retried: Retried) -> dict[str, int]:
        """Return how many rows these spaces have, in one round trip that also marks them where that is due."""
        wanted = sorted(spaces)
        names = bytea_array([bytes_of(space) for space in wanted])
        now = time.monotonic()
        is_due = not self._read_only and any(self._marked.get(space, 0) <= now for space in wanted)
        rows: dict[str, int] = dict.fromkeys(wanted, 0)

        def look(connection: Connection) -> dict[str, int]:
            sql, own = (_MARK, (self.own,)) if is_due else (_LOOK, ())
            for name, count, *marked in connection.ask(sql, self._tenant, names, *own):
                space = name_of(name)
                rows[space] = int(str(count))
                if marked and marked[0]:
                    self._marked[space] = now + _MARKED_SECONDS / 2
            return rows

        found = retried(look, "nothing was read")
        marked_at = self._marked
        if len(marked_at) > 2 * len(wanted):
            self._marked = {space: marked_at[space] for space in wanted if space in marked_at}
        self._set_pause(found)
        return found

    def _set_pause(self, found: Mapping[str, int]) -> None:
        """Look more often while there is news and none of it can be heard."""
        before, self._standings = self._standings, found
        if self._pool.prepares and not self._read_only:
            self._pause = _LOOK_SECONDS
        elif any(rows != before.get(space, rows) for space, rows in found.items()):
            self._pause = _LOOK_SECONDS_MIN
        else:
            self._pause = min(2 * self._pause, _LOOK_SECONDS)
        self._look_at = min(self._look_at, time.monotonic() + self._pause)

    def _heard(self) -> bool:
        if self._read_only or not self._pool.prepares:  # nothing is marked, or a pooler stands between
            return False
        try:
            if self._listening is not None and self._pool.has_left(self._listening):
                self.rest()
            if self._listening is None:
                if time.monotonic() < self._look_at:
                    # The session was lost; the next look asks the server for another.
                    return False
                self._listening = self._pool.connect()
                self._listening.ask(f"LISTEN {self._channel}")
            heard = {word for payload in self._listening.notifications() for word in payload.split()}
            if not heard:
                return False
            for word in heard:
                self.live.asked(word)
            followed = {_key(bytes_of(space)) for space in list(self._marked)}  # other threads mark too
        except (ConnectionLost, StatementFailed):
            self.rest()
            return True
        return not heard.isdisjoint(followed)

    # ---- telling

    def tell(self, space: str) -> None:
        """Notify those who follow the space, soon and from another thread."""
        self._notifier.say(_key(bytes_of(space)))


def _key(name: bytes) -> str:
    return sha256(name).hexdigest()[:16]


class Notifier:
    """Sends notifications for one opening of a store.  Thread-safe; a forked child begins with nothing to send."""

    def __init__(self, pool: Pool, channel: str) -> None:
        """Start no thread before there is something to send; words go to `channel`."""
        self._pool, self._channel = pool, channel
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._words: dict[str, None] = {}
        self._messages: deque[tuple[str, bytes]] = deque()  # each with its channel
        self._bytes = 0  # of the messages
        self._called = Event()
        self._thread: threading.Thread | None = None

    def after_fork_in_child(self) -> None:
        """Leave what is to be sent to the parent."""
        self._begin()

    def say(self, word: str) -> None:
        """Send a word to all who listen for news; a word that waits already is sent once."""
        with self._lock:
            self._words[word] = None
            self._start()
        self._called.set()

    def send(self, channel: str, message: bytes) -> None:
        """Send a message on a channel; leave it out if too much waits already."""
        with self._lock:
            if self._bytes + len(message) > _PENDING_BYTES_MAX:
                return
            self._messages.append((channel, message))
            self._bytes += len(message)
            self._start()
        self._called.set()

    def close(self) -> None:
        """Send what waits, and end the thread."""
        thread = self._thread
        self._called.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_IDLE_SECONDS)

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="perdure-notifier", daemon=True)
            with suppress(RuntimeError):  # no thread can be started now; followers look by themselves
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            self._called.wait(_IDLE_SECONDS)
            self._called.clear()
            with self._lock:
                batch, has_messages = self._batch()
                if not batch:
                    self._thread = None
                    return
                if self._words or self._messages:
                    self._called.set()
            # Followers look by themselves, so what cannot be sent is left.
            with (
                suppress(ConnectionLost, StatementFailed, PerdureError),
                self._pool.connection() as connection,
            ):
                channels = text_array([channel.encode() for channel, _ in batch])
                connection.call(_NOTIFY, channels, text_array([payload for _, payload in batch]))
            if has_messages:
                time.sleep(_PAUSE_SECONDS)

    def _batch(self) -> tuple[list[tuple[str, bytes]], bool]:
        """Take what goes into the next transaction, as notifications; True: words of live runs are among them."""
        words = [self._words.popitem()[0] for _ in range(min(len(self._words), _WORDS_MAX))]
        batch = [(self._channel, " ".join(words).encode())] if words else []
        lines: dict[str, list[bytes]] = {}
        size = 0
        while self._messages and size < _BATCH_BYTES_MAX:
            channel, message = self._messages.popleft()
            self._bytes -= len(message)
            size += len(message)
            lines.setdefault(channel, []).append(message)
        for channel, messages in lines.items():
            batch += [(channel, payload) for payload in _payloads(messages)]
        return batch, bool(lines)


class LiveNotifications:
    """The live channel of one opening of a store.  Thread-safe; a forked child begins with no topic."""

    def __init__(self, pool: Pool, notifier: Notifier, tenant: str) -> None:
        """Open nothing before a topic is listened to."""
        self._pool, self._notifier, self._tenant = pool, notifier, tenant
        self._listening: Connection | None = None
        self._is_closed = False
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._offers: dict[str, Callable[[bool], None]] = {}  # by the word that asks for them
        self._inboxes: dict[str, _Inbox] = {}  # by channel
        self._heard: set[str] = set()  # channels that the session listens to
        self._connect_at = 0.0

    def after_fork_in_child(self) -> None:
        """Close the inherited session without sending anything."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.abandon()
        self._begin()

    # ---- sending

    def offer(self, topic: str, asked: Callable[[bool], None]) -> None:
        """Call `asked` when a process asks for the topic."""
        with self._lock:
            self._offers[self._word(topic)] = asked

    def withdraw(self, topic: str) -> None:
        """Offer a topic no longer."""
        with self._lock:
            self._offers.pop(self._word(topic), None)

    def send(self, topic: str, message: bytes) -> None:
        """Send a message soon, from another thread."""
        self._notifier.send(self._channel(topic), message)

    def asked(self, word: str) -> None:
        """Take in a word that was heard; one that asks for nothing that is offered here means nothing."""
        kind, name = word[:1], word[1:]
        if kind in (_WHOLE, _NEWS):
            asked = self._offers.get(name)
            if asked is not None:
                asked(kind == _WHOLE)

    # ---- listening

    def listen(self, topic: str) -> None:
        """Keep what is sent on a topic."""
        with self._lock:
            self._inboxes.setdefault(self._channel(topic), _Inbox(self._word(topic)))

    def leave(self, topic: str) -> None:
        """Listen to a topic no longer."""
        with self._lock:
            self._inboxes.pop(self._channel(topic), None)

    def ask(self, topic: str, *, whole: bool) -> None:
        """Ask those who offer a topic to send, once the session listens to it."""
        if self._channel(topic) in self._heard:
            self._notifier.say((_WHOLE if whole else _NEWS) + self._word(topic))

    def poll(self) -> None:
        """Read what has arrived; a lost session is replaced after a while, and what it missed is lost."""
        with self._lock:
            wanted = dict(self._inboxes)
        try:
            connection = self._session()
            if connection is None:
                return
            for channel in wanted.keys() - self._heard:
                connection.run(f"LISTEN {channel}")
                self._heard.add(channel)
                self._notifier.say(_WHOLE + wanted[channel].word)  # what was sent before was not heard
            for channel in self._heard - wanted.keys():
                self._heard.discard(channel)
                connection.run(f"UNLISTEN {channel}")
            arrived = connection.named_notifications()
        except (ConnectionLost, StatementFailed):
            self.rest()
            return
        with self._lock:
            for channel, payload in arrived:
                if (inbox := self._inboxes.get(channel)) is not None:
                    inbox.take_in(payload)

    def received(self, topic: str) -> list[bytes]:
        """Return the messages of a topic that `poll` has read."""
        with self._lock:
            inbox = self._inboxes.get(self._channel(topic))
            return [] if inbox is None else inbox.empty()

    def rest(self) -> None:
        """End the listening session."""
        listening, self._listening = self._listening, None
        self._heard = set()
        if listening is not None:
            with suppress(psycopg.Error):
                listening.close()

    def close(self) -> None:
        """End the listening session for good."""
        self._is_closed = True
        self.rest()

    def _session(self) -> Connection | None:
        if self._listening is not None and self._pool.has_left(self._listening):
            self.rest()
        if self._listening is None:
            now = time.monotonic()
            if now < self._connect_at or self._is_closed:
                return None
            self._connect_at = now + _CONNECT_SECONDS
            self._listening = self._pool.connect()
        return self._listening

    def _channel(self, topic: str) -> str:
        return f"perdure_live_{self._digest('live', topic)[:40]}"

    def _word(self, topic: str) -> str:
        return self._digest("ask", topic)[:16]

    def _digest(self, use: str, topic: str) -> str:
        return sha256(b"\0".join([use.encode(), bytes_of(self._tenant), topic.encode()])).hexdigest()


class _Inbox:
    """The messages of one topic that are not read yet, and the parts of one that is not whole yet."""

    __slots__ = ("_bytes", "_messages", "_parts", "word")

    def __init__(self, word: str) -> None:
        self.word = word  # that asks for them
        self._messages: list[bytes] = []
        self._bytes = 0
        self._parts: list[bytes] = []

    def take_in(self, payload: bytes) -> None:
        """Add the messages of a notification; the parts of a long one are joined, and of one with a gap none is kept."""
        place, _, data = payload.partition(b" ")
        at, _, count = place.partition(b"/")
        if not (at.isdigit() and count.isdigit()):
            return
        if int(at) != len(self._parts):
            self._parts = []
            if int(at):
                return
        self._parts.append(data)
        if len(self._parts) == int(count):
            messages, self._parts = b"".join(self._parts).split(b"\n"), []
            if self._bytes < _INBOX_BYTES_MAX:
                self._messages += messages
                self._bytes += len(payload) * int(count)

    def empty(self) -> list[bytes]:
        """Take all messages out."""
        found, self._messages, self._bytes = self._messages, [], 0
        return found


def _payloads(messages: list[bytes]) -> list[bytes]:
    """Return messages as the payloads of notifications: several in one, or one in several parts."""
    payloads: list[bytes] = []
    together: list[bytes] = []
    size = 0
    for message in messages:
        if together and size + len(message) + 1 > _PAYLOAD_BYTES_MAX:
            payloads.append(b"0/1 " + b"\n".join(together))
            together, size = [], 0
        if len(message) > _PAYLOAD_BYTES_MAX:
            parts = _parts(message)
            payloads += [b"%d/%d %b" % (at, len(parts), part) for at, part in enumerate(parts)]
        else:
            together.append(message)
            size += len(message) + 1
    if together:
        payloads.append(b"0/1 " + b"\n".join(together))
    return payloads


def _parts(message: bytes) -> list[bytes]:
    """Return a long message in parts, none of which ends inside of a character."""
    parts: list[bytes] = []
    at = 0
    while at < len(message):
        end = min(at + _PAYLOAD_BYTES_MAX, len(message))
        while end < len(message) and message[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(message[at:end])
        at = end
    return parts
