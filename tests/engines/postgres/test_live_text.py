"""Live text between machines: processes that share nothing but the server see each other's runs as they are written."""

from __future__ import annotations

import os
import random
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import perdure
from perdure import Agent, Thread
from perdure.runtime.events import Happened, TextDelta, TextSoFar
from perdure.runtime.session.broadcast import Feed
from perdure.testing import Script, say
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url
from tests.forked import PIPE, ForkedProcess, commands

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import Connection
    from perdure.engines.postgres.news import LiveNotifications, Notifier

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]

WAIT_SECONDS = 60.0
# The model of the other process writes on only while it is told to, so that no test depends on time.
RUNNER = """
    import sys
    import perdure
    from perdure import Agent
    from perdure.runtime.session.broadcast import Feed
    from perdure.testing import Script, say

    tell = Feed.tell

    def when_told(feed, item):
        tell(feed, item)
        print("told", flush=True)
        sys.stdin.readline()

    Feed.tell = when_told
    agent = Agent("assistant", backend=Script(say(sys.argv[2]), pieces=int(sys.argv[3])))
    with perdure.open(sys.argv[1]) as store:
        thread = store.thread("chat", agent=agent)
        print("ready", flush=True)
        sys.stdin.readline()
        thread.run("Speak", id="long")
"""
WORDS = " ".join(f"word{number}" for number in range(12))


class Shown(NamedTuple):
    """What one who follows a thread was shown up to the message of the assistant."""

    live: list[str]  # the text of the message after each event that was shown while it was written
    message: str


class Runner:
    """A process on another machine: its temporary files are elsewhere, so it shares no spool with this one."""

    def __init__(self, url: str, place: Path, words: str, pieces: int) -> None:
        self._process = ForkedProcess(
            commands(),
            ["-c", textwrap.dedent(RUNNER), url, words, str(pieces)],
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "TMPDIR": str(place)},
        )
        self.hear("ready\n")

    def hear(self, line: str) -> None:
        """Wait for what the process says."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line

    def go_on(self) -> None:
        """Let the process go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Let the run end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        assert self._process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def runner(url: str, place: Path, words: str = WORDS, pieces: int = 12) -> Generator[Runner]:
    """The process of another machine, which will run the assistant on thread `chat`."""
    place.mkdir()
    process = Runner(url, place, words, pieces)
    try:
        yield process
    finally:
        process.kill()


class Follower:
    """Follows the thread in this process, in a thread of its own."""

    def __init__(self, thread: Thread) -> None:
        self.live: list[str] = []
        self.kinds: list[type] = []
        self.message = ""
        self._thread = threading.Thread(target=self._follow, args=(thread,), daemon=True)
        self._thread.start()

    def _follow(self, thread: Thread) -> None:
        text = ""
        for event in thread.follow(wait=True):
            self.kinds.append(type(event))
            if isinstance(event, TextSoFar | TextDelta):
                text = event.text if isinstance(event, TextSoFar) else text + event.text
                self.live.append(text)
            if (
                isinstance(event, Happened)
                and event.message is not None
                and event.message.role == "assistant"
            ):
                self.message = event.text
                return

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.01)

    def shown(self) -> Shown:
        """Return what was shown up to the message."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return Shown(self.live, self.message)


def test_the_words_of_another_machine_are_seen_while_they_are_written(tmp_path: Path) -> None:
    """First the text so far, then what follows it, each piece before the model writes the next."""
    url = new_url()
    with perdure.open(url) as store, runner(url, tmp_path / "other") as other:
        thread = store.thread("chat", agent="assistant")
        other.go_on()
        other.hear("told\n")
        follower = Follower(thread)
        follower.until(lambda: bool(follower.live))
        for number in range(1, 4):
            other.go_on()
            other.hear("told\n")
            follower.until(lambda seen=number: len(follower.live) > seen)
        other.finish()
        shown = follower.shown()

    assert follower.kinds[follower.kinds.index(TextSoFar) + 1] is TextDelta
    assert shown.message == WORDS
    assert all(WORDS.startswith(text) for text in shown.live)


def test_without_the_channel_the_words_of_another_machine_come_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the two processes share no spool, so what carries the text is the channel."""
    monkeypatch.setattr(LiveNotifications, "ask", lambda *_, **__: None)
    url = new_url()
    with perdure.open(url) as store, runner(url, tmp_path / "other") as other:
        thread = store.thread("chat", agent="assistant")
        other.go_on()
        other.hear("told\n")
        follower = Follower(thread)
        follower.until(lambda: bool(follower.kinds))  # it has joined the run
        other.finish()
        shown = follower.shown()

    assert shown == Shown([], WORDS)


def test_a_long_text_is_joined_from_its_parts(tmp_path: Path) -> None:
    """The text so far is longer than several notifications, and its characters have up to four bytes."""
    url, words = new_url(), "añ漢🐑 " * 9_000
    with perdure.open(url) as store, runner(url, tmp_path / "other", words, 2) as other:
        thread = store.thread("chat", agent="assistant")
        other.go_on()
        other.hear("told\n")
        follower = Follower(thread)
        follower.until(lambda: bool(follower.live))
        other.finish()
        shown = follower.shown()

    assert len(shown.live[0]) > 10_000
    assert words.startswith(shown.live[0])
    assert shown.message == words


def test_lost_notifications_garble_nothing_and_lose_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what arrives here is lost; the text shown is always a beginning of the message."""
    chance, real = random.Random(5), Connection.named_notifications

    def losing(connection: Connection) -> list[tuple[str, bytes]]:
        return [each for each in real(connection) if chance.random() < 0.5]

    monkeypatch.setattr(Connection, "named_notifications", losing)
    url = new_url()
    with perdure.open(url) as store, runner(url, tmp_path / "other") as other:
        thread = store.thread("chat", agent="assistant")
        other.go_on()
        other.hear("told\n")
        follower = Follower(thread)
        follower.until(lambda: bool(follower.live))
        for _ in range(6):
            other.go_on()
            other.hear("told\n")
        follower.until(lambda: len(follower.live) > 1)
        other.finish()
        shown = follower.shown()

    assert all(WORDS.startswith(text) for text in shown.live)
    assert shown.message == WORDS


def test_a_follower_goes_on_after_its_session_was_ended(tmp_path: Path, postgres: Server) -> None:
    """The server ends the session that listens; the follower listens again and has all of the text."""
    url = new_url()
    with perdure.open(url) as store, runner(url, tmp_path / "other") as other:
        thread = store.thread("chat", agent="assistant")
        other.go_on()
        other.hear("told\n")
        follower = Follower(thread)
        follower.until(lambda: bool(follower.live))
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN perdure_live%'"
        )
        for _ in range(3):
            other.go_on()
            other.hear("told\n")
        seen = len(follower.live)
        follower.until(lambda: len(follower.live) > seen)
        other.finish()
        shown = follower.shown()

    assert all(WORDS.startswith(text) for text in shown.live)
    assert shown.message == WORDS


class Sent:
    """What this process sends on the channels of its runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages = 0
        self.payloads: list[int] = []
        send, call = Notifier.send, Connection.call

        def counted(notifier: Notifier, channel: str, message: bytes) -> None:
            self.messages += 1
            send(notifier, channel, message)

        def noted(connection: Connection, sql: str, *parameters: Any) -> Any:
            if "pg_notify" in sql:
                self.payloads.append(len(parameters[1].data))
            return call(connection, sql, *parameters)

        monkeypatch.setattr(Notifier, "send", counted)
        monkeypatch.setattr(Connection, "call", noted)


@pytest.mark.parametrize("followed", [False, True], ids=["nobody", "another process"])
def test_a_run_that_nobody_follows_sends_nothing(followed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a message nor a request of its own; with a follower it does, which is the control."""
    sent, held, go_on = Sent(monkeypatch), threading.Event(), threading.Event()
    tell = Feed.tell

    def pausing(feed: Feed, item: Any) -> None:
        tell(feed, item)
        if not feed.is_mirror and not held.is_set():
            held.set()
            assert go_on.wait(WAIT_SECONDS)

    monkeypatch.setattr(Feed, "tell", pausing)
    url = new_url()
    # Another opening of the store stands for the other process, without its spool.
    monkeypatch.setattr("perdure.store.open_store._spool", lambda _: None)
    with perdure.open(url) as store, perdure.open(url) as elsewhere:
        agent = Agent("assistant", backend=Script(say(WORDS), pieces=12))
        thread = store.thread("chat", agent=agent)
        run = threading.Thread(target=lambda: thread.run("Speak"))
        run.start()
        assert held.wait(WAIT_SECONDS)
        if followed:
            follower = Follower(elsewhere.thread("chat"))
            follower.until(lambda: bool(follower.live))
        go_on.set()
        run.join()
        if followed:
            assert follower.shown().message == WORDS  # pyright: ignore[reportPossiblyUnboundVariable]

    assert (sent.messages > 0, len(sent.payloads) > 0) == (followed, followed)


def test_behind_a_pooler_the_spool_of_the_machine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens there; a process of the same machine sees the words, as in a file."""
    monkeypatch.setattr(Connection, "is_pooled", lambda _: True)
    monkeypatch.setattr(Connection, "named_notifications", lambda _: pytest.fail("nothing can be heard"))
    held, go_on, seen, tell = threading.Event(), threading.Event(), threading.Event(), Feed.tell

    def pausing(feed: Feed, item: Any) -> None:
        tell(feed, item)
        if not feed.is_mirror:
            said_after = seen if held.is_set() else go_on
            held.set()
            assert said_after.wait(WAIT_SECONDS)

    monkeypatch.setattr(Feed, "tell", pausing)
    url = new_url()
    with perdure.open(url) as store, perdure.open(url) as elsewhere:
        thread = store.thread("chat", agent=Agent("assistant", backend=Script(say(WORDS), pieces=12)))
        follower = Follower(elsewhere.thread("chat"))
        run = threading.Thread(target=lambda: thread.run("Speak"))
        run.start()
        assert held.wait(WAIT_SECONDS)
        follower.until(lambda: elsewhere._resources.store_runtime.feeds._listening != {})
        go_on.set()
        follower.until(lambda: bool(follower.live))
        seen.set()
        shown = follower.shown()
        run.join()

    assert shown.live
    assert shown.message == WORDS


def test_the_channel_of_a_run_cannot_be_named_without_its_id() -> None:
    """A role of another tenant may listen to any name, so the name is a digest over the id, which it cannot read."""
    pool: Any = None
    one, other = [
        LiveNotifications(pool, Notifier(pool, "c"), "acme")._channel(f'["threads/1","main","{run}"]')
        for run in ("0198-1", "0198-2")
    ]

    assert one != other
    assert len(one) < 64  # the server cuts longer names, and two could become one
