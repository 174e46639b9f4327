"""What a run says reaches other processes whole and in order, whatever the way between them loses."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.digest import Digest
from perdure.runtime.events import CallProgress, Live, ReasoningDelta, TextDelta
from perdure.runtime.session import live_text
from perdure.runtime.session.broadcast import CommitNotice, Feed, Feeds, PollThread, Watcher
from perdure.runtime.session.live_text import ChannelCarrier, LiveCarrier, SpoolCarrier

SPACE, TIMELINE, RUN = "threads/chat", "main", "run-1"
COMMITS = [Digest(f"{number:064x}") for number in range(100)]


class LossyChannel:
    """A channel inside of the process that loses messages by chance."""

    def __init__(self, chance: random.Random, loss: float) -> None:
        self.chance, self.loss = chance, loss
        self.sent = 0
        self._offers: dict[str, Callable[[bool], None]] = {}
        self._inboxes: dict[str, list[bytes]] = {}

    def offer(self, topic: str, asked: Callable[[bool], None]) -> None:
        """Note who answers."""
        self._offers[topic] = asked

    def withdraw(self, topic: str) -> None:
        """Forget who answers."""
        self._offers.pop(topic, None)

    def send(self, topic: str, message: bytes) -> None:
        """Deliver, or lose."""
        self.sent += 1
        if topic in self._inboxes and self.chance.random() >= self.loss:
            self._inboxes[topic].append(message)

    def listen(self, topic: str) -> None:
        """Keep messages."""
        self._inboxes.setdefault(topic, [])

    def leave(self, topic: str) -> None:
        """Keep no messages."""
        self._inboxes.pop(topic, None)

    def ask(self, topic: str, *, whole: bool) -> None:
        """Ask, unless that is lost."""
        if topic in self._offers and self.chance.random() >= self.loss:
            self._offers[topic](whole)

    def poll(self) -> None:
        """Everything has arrived."""

    def received(self, topic: str) -> list[bytes]:
        """Return what was kept."""
        found = self._inboxes.get(topic, [])
        if found:
            self._inboxes[topic] = []
        return found

    def rest(self) -> None:
        """Hold nothing."""


class Follower:
    """One who follows the run from another process, and what it would show."""

    def __init__(self, carrier: LiveCarrier) -> None:
        self.feeds = Feeds([carrier])
        self.feeds._thread.start = lambda: None  # pyright: ignore[reportPrivateUsage]  # the test polls
        self.feeds.listen(SPACE, TIMELINE, RUN)
        self.text = ""
        self.commits: list[Digest | None] = []
        self._watcher: Watcher | None = None

    def poll(self) -> None:
        """Read what has come, and show it."""
        self.feeds._poll()  # pyright: ignore[reportPrivateUsage]
        feed = self.feeds.find(SPACE, TIMELINE)
        if self._watcher is None and feed is not None:
            self._watcher = feed.watch()
            self.text = self._watcher.spoken.text
        for item in [] if self._watcher is None else self._watcher.take(0):
            if isinstance(item, CommitNotice):
                self.commits.append(item.commit)
                self.text = ""
            elif isinstance(item, TextDelta):
                self.text += item.text


@pytest.fixture(autouse=True)
def asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every poll may ask, so that no test waits for a time."""
    for name in ("_ASK_SECONDS_MIN", "_ASK_SECONDS_MAX", "_RENEW_SECONDS"):
        monkeypatch.setattr(live_text, name, 0.0)


def running(carrier: LiveCarrier) -> tuple[Feeds, Feed]:
    """A run that has begun in a process of its own."""
    feeds, feed = Feeds([carrier]), Feed(RUN)
    feeds.begin(SPACE, TIMELINE, feed)
    return feeds, feed


PIECES = st.lists(st.one_of(st.text(min_size=1, max_size=5), st.none()), min_size=1, max_size=60)


@given(pieces=PIECES, seed=st.integers(0, 1_000_000), loss=st.sampled_from([0.0, 0.2, 0.6]))
def test_what_a_follower_shows_is_always_a_beginning_of_what_was_said(
    pieces: list[str | None], seed: int, loss: float
) -> None:
    """A piece that is None commits the message; messages and requests are lost by chance."""
    chance = random.Random(seed)
    channel = LossyChannel(chance, loss)
    _, feed = running(ChannelCarrier(channel))
    follower, messages, commit = Follower(ChannelCarrier(channel)), [""], 0

    for piece in pieces:
        if piece is None:
            commit += 1
            feed.committed(COMMITS[commit], spoken=True)
            messages.append("")
        else:
            feed.tell(TextDelta(piece, message=f"m-{len(messages)}"))
            messages[-1] += piece
        if chance.random() < 0.5:
            follower.poll()
            assert any(message.startswith(follower.text) for message in messages)
    channel.loss = 0.0
    for _ in range(3):
        follower.poll()

    assert follower.text == messages[-1]
    assert follower.commits == sorted(set(follower.commits), key=str)


def test_without_places_lost_messages_would_garble_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a reader that appends whatever comes shows what was never said."""
    reader: Any = live_text._ChannelReader  # pyright: ignore[reportPrivateUsage]
    lines = reader._lines

    def placeless(self: Any, message: list[Any]) -> list[list[Any]]:
        if message[0] == "piece":
            message = [
                message[0],
                self._commits,
                message[2],
                self._text,
                message[4],
                self._reasoning,
                message[6],
            ]
        return lines(self, message)

    monkeypatch.setattr(reader, "_lines", placeless)
    channel = LossyChannel(random.Random(1), 0.0)
    _, feed = running(ChannelCarrier(channel))
    follower = Follower(ChannelCarrier(channel))
    follower.poll()
    channel.loss = 0.5
    said = ""
    for number in range(20):
        feed.tell(TextDelta(f"{number} ", message="m"))
        said += f"{number} "
    follower.poll()

    assert follower.text
    assert not said.startswith(follower.text)


def test_a_run_that_no_process_asks_for_sends_nothing() -> None:
    """Neither words nor calls nor commits, nor its end."""
    channel = LossyChannel(random.Random(1), 0.0)
    feeds, feed = running(ChannelCarrier(channel))

    _say_all(feed)
    feeds.end(SPACE, TIMELINE, feed)

    assert channel.sent == 0


def test_a_run_that_a_process_asks_for_sends_everything() -> None:
    """The control of the test above."""
    channel = LossyChannel(random.Random(1), 0.0)
    feeds, feed = running(ChannelCarrier(channel))
    follower = Follower(ChannelCarrier(channel))
    follower.poll()
    before = channel.sent

    _say_all(feed)
    feeds.end(SPACE, TIMELINE, feed)
    follower.poll()

    assert channel.sent - before >= 5
    assert follower.feeds.find(SPACE, TIMELINE) is None


def test_a_run_stops_sending_a_while_after_the_last_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed cannot say that it asks no longer."""
    channel, now = LossyChannel(random.Random(1), 0.0), [1_000.0]
    monkeypatch.setattr("perdure.runtime.session.live_text.time.monotonic", lambda: now[0])
    _, feed = running(ChannelCarrier(channel))
    Follower(ChannelCarrier(channel)).poll()
    before = channel.sent

    now[0] += 100.0
    _say_all(feed)

    assert channel.sent == before


@pytest.mark.parametrize("way", ["spool", "channel"])
def test_a_lone_surrogate_of_a_model_does_not_stop_its_run(way: str, tmp_path: Path) -> None:
    """Half of a pair arrives as U+FFFD, as it stands in the message later."""
    if way == "spool":
        sending: LiveCarrier = SpoolCarrier(tmp_path / "live")
        receiving: LiveCarrier = SpoolCarrier(tmp_path / "live")
    else:
        channel = LossyChannel(random.Random(1), 0.0)
        sending, receiving = ChannelCarrier(channel), ChannelCarrier(channel)
    _, feed = running(sending)
    follower = Follower(receiving)
    follower.poll()

    feed.tell(TextDelta("a\ud83db", message="m"))
    follower.poll()

    assert follower.text == "a\N{REPLACEMENT CHARACTER}b"


def test_a_follower_that_leaves_no_longer_listens() -> None:
    """The last one who follows a run takes the mirror with it, so that the run can stop sending."""
    channel = LossyChannel(random.Random(1), 0.0)
    running(ChannelCarrier(channel))
    follower = Follower(ChannelCarrier(channel))

    def wake() -> None:
        pass

    follower.feeds.expect(SPACE, TIMELINE, wake)
    follower.poll()  # asks
    follower.poll()
    assert follower.feeds.find(SPACE, TIMELINE) is not None
    follower.feeds.expect_no_more(SPACE, TIMELINE, wake)
    follower.poll()

    assert follower.feeds.find(SPACE, TIMELINE) is None
    assert channel._inboxes == {}


def _say_all(feed: Feed) -> None:
    said: list[Live] = [
        TextDelta("text", message="m"),
        ReasoningDelta("thought", message="m"),
        CallProgress(call="c", tool="t", state="started"),
    ]
    for item in said:
        feed.tell(item)
    feed.committed(COMMITS[1], spoken=True)


def test_a_damaged_line_is_left_out_and_the_next_ones_are_read(tmp_path: Path) -> None:
    """A disk that is full in the middle of a character leaves one; the thread that reads goes on."""
    _, feed = running(SpoolCarrier(tmp_path / "live"))
    follower = Follower(SpoolCarrier(tmp_path / "live"))
    follower.poll()
    feed.tell(TextDelta("a", message="m"))
    (file,) = (tmp_path / "live").glob("*")
    with file.open("ab") as spool:
        spool.write(b'["text","caf\xc3"]\n["text"\n')
    feed.tell(TextDelta("b", message="m"))

    follower.poll()

    assert follower.text == "ab"


def test_a_line_that_was_written_in_part_ends_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it would be read as its rest; followers get the message from the store."""
    _, feed = running(SpoolCarrier(tmp_path / "live"))
    follower = Follower(SpoolCarrier(tmp_path / "live"))
    follower.poll()
    feed.tell(TextDelta("a", message="m"))
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("perdure.runtime.session.live_text.os.write", lambda file, line: write(file, line[:5]))
        feed.tell(TextDelta("b", message="m"))
    feed.tell(TextDelta("c", message="m"))

    follower.poll()

    assert follower.text in ("a", "abc")


def test_after_a_thread_that_failed_the_next_follower_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no run of another process would be followed again."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    polled = [threading.Event(), threading.Event()]

    def poll() -> bool:
        if not polled[0].is_set():
            polled[0].set()
            raise ValueError("a fault")
        polled[1].set()
        return False

    poller = PollThread(poll)
    poller.start()
    assert polled[0].wait(60)
    while not polled[1].wait(0.01):
        poller.start()

    assert polled[1].is_set()


def _open_to_all(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    directory.chmod(0o777)


def _link(directory: Path, _: pytest.MonkeyPatch) -> None:
    (directory.parent / "elsewhere").mkdir(mode=0o700)
    directory.symlink_to(directory.parent / "elsewhere")


def _of_another_user(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(mode=0o700)
    other = os.geteuid() + 1
    monkeypatch.setattr("perdure.runtime.session.live_text.os.geteuid", lambda: other)


def _own(directory: Path, _: pytest.MonkeyPatch) -> None:
    directory.mkdir(mode=0o700)


@pytest.mark.parametrize("made", [_open_to_all, _link, _of_another_user, _own])
def test_nothing_is_written_where_another_user_could_have_laid_out_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    """The directory has a name that can be guessed; the last one is the control."""
    made(tmp_path / "live", monkeypatch)
    _, feed = running(SpoolCarrier(tmp_path / "live"))
    follower = Follower(SpoolCarrier(tmp_path / "live"))
    follower.poll()

    feed.tell(TextDelta("a", message="m"))
    follower.poll()

    assert (follower.text, len(list(tmp_path.glob("*/*")))) == (("a", 1) if made is _own else ("", 0))
