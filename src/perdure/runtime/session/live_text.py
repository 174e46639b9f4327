"""Carries what a live run says to other processes of the same store: text, calls and notices of commits.

Nothing of it is durable or needed: a process that misses it gets the finished message from the store.  A carrier does
nothing for a run before another process asks for it, so a run that no other process follows costs nothing.  There are two.

The spool is a directory that the processes of one machine share.  It exists only while a process asks.  Each live run
has one small file there: the process of the run appends lines to it, and processes that follow the timeline read them
as they come.  A file is bounded: once it is large, a new file replaces it after a message, and text beyond the bound is left out.

The channel is the engine's, where it has one (`engines/news`), and reaches processes of other machines.  Messages on it
may be lost, so each says where it belongs: after how many commits, and at which character of the message that is being
written.  A reader that finds a gap asks for the whole text, and goes on behind what it has.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import msgspec

from perdure.engines.news import LiveChannel
from perdure.model.digest import Digest
from perdure.runtime.events import CallProgress, Live, ReasoningDelta, TextDelta

__all__ = [
    "ChannelCarrier",
    "LiveCarrier",
    "LiveReader",
    "LiveWriter",
    "PartialMessage",
    "RunPlace",
    "SpoolCarrier",
]

_FILE_BYTES = 256 * 1024  # a file that is larger is replaced after a message
_BYTES_MAX = 4 * 1024 * 1024
_READ_MAX = 64 * 1024
_LOOK_SECONDS = 0.02  # between two commits of a process that look whether another one asks
_TEXT_MAX = 1024 * 1024  # characters of one message that are sent on a channel
_ASKED_SECONDS = 20.0  # how long one request for a run's text is good for
_RENEW_SECONDS = 2.0
_ASK_SECONDS_MIN, _ASK_SECONDS_MAX = 0.1, 1.0  # until the first answer

_LONE = re.compile("[\ud800-\udfff]")
_decoder = msgspec.json.Decoder(list[Any])


def _encoded(line: list[Any]) -> bytes:
    """Return a line as JSON; a lone surrogate, which a model may write, becomes U+FFFD, as in the message."""
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:
        return _LONE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(line, ensure_ascii=False)).encode()


def _decoded(line: bytes) -> list[Any] | None:
    """Return what a line says; None if it is damaged, as by a disk that was full in the middle of it."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class PartialMessage(NamedTuple):
    """What a model has said so far of the message that it is writing."""

    id: str | None = None  # None: it says nothing, or the id is not known
    text: str = ""
    reasoning: str = ""


class RunPlace(NamedTuple):
    """A run, and where it lives."""

    space: str
    timeline: str
    run: str


class LiveWriter(Protocol):
    """Tells other processes what one run says, as long as one asks.  Its caller lets one thread in at a time."""

    def tell(self, item: Live, *, at: Digest | None, spoken: Callable[[], PartialMessage]) -> None:
        """Tell an item; `spoken` is what was said before it, after the commit `at`."""
        ...

    def committed(
        self, commit: Digest | None, *, is_spoken: bool, spoken: Callable[[], PartialMessage]
    ) -> None:
        """Tell of a commit; `is_spoken`: it holds the message that was being written."""
        ...

    def answer(self, at: Digest | None, spoken: Callable[[], PartialMessage], *, whole: bool) -> None:
        """Answer a process that has asked: with the whole text so far, or with where it ends."""
        ...

    def end(self) -> None:
        """Tell that nothing more comes."""
        ...


class LiveReader(Protocol):
    """Reads what a run of another process says, as lines."""

    is_over: bool  # nothing more comes

    def read(self) -> list[list[Any]]:
        """Return the new lines, without waiting."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


class LiveCarrier(Protocol):
    """One way from the process of a run to those that follow it."""

    def writer(self, place: RunPlace, asked: Callable[[bool], None]) -> LiveWriter:
        """Return the writer of a run; `asked` is called, from any thread, when a process has to be answered."""
        ...

    def ask(self, place: RunPlace) -> None:
        """Ask the process of a run to tell what it says, from now on until `leave`."""
        ...

    def poll(self) -> None:
        """Fetch what has arrived; one thread at a time calls this."""
        ...

    def reader(self, place: RunPlace) -> LiveReader | None:
        """Return the reader of a run that was asked for; None if it has not told anything yet."""
        ...

    def leave(self, place: RunPlace) -> None:
        """Ask no longer: no watcher follows the run here."""
        ...

    def remove(self, place: RunPlace) -> None:
        """Remove what a process has left that has gone without a word."""
        ...

    def rest(self) -> None:
        """Release what is held for asking: nothing is asked for any more."""
        ...


# ---- files of one machine


def _spool_file(directory: Path, place: RunPlace) -> Path:
    """Return the file of a timeline's live run."""
    name = sha256(msgspec.json.encode([place.space, place.timeline])).hexdigest()[:32]
    return directory / f"{name}.jsonl"


def _is_private(directory: str) -> bool:
    """True if the directory is there, and no other user can put files into it.

    Its name can be guessed, and for a store on a server it is in a directory that all users share: a user who made it
    first could prepare the files to which runs write conversations.  It takes no Path: every commit of a run asks.
    """
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


class _SpoolWriter:
    """Writes what one run says, from the moment on at which another process asks for it."""

    def __init__(self, carrier: SpoolCarrier, directory: str, place: RunPlace) -> None:
        """Write nothing yet."""
        self._carrier, self._directory, self._place = carrier, directory, place
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
        if self._file is None:
            # A follower finds commits in the store too, so for a commit the directory is looked for now and then.
            now = time.monotonic()
            if now < self._carrier.look_from:
                return
            self._carrier.look_from = now + _LOOK_SECONDS
        if not self._is_open(commit, spoken):
            return
        self._write(["commit", commit, is_spoken])
        if is_spoken and self._size > _FILE_BYTES:
            self._close()
            self._is_open(commit, spoken)

    def answer(self, at: Digest | None, spoken: Callable[[], PartialMessage], *, whole: bool) -> None:
        """Do nothing: a later reader reads the file from its beginning."""

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
        if not _is_private(self._directory):
            return False
        if self._path is None:
            self._path = _spool_file(Path(self._directory), self._place)
        new = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            self._file = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600
            )
            self._size, so_far = 0, spoken()
            self._message = so_far.id
            self._write(["begin", self._place.run, at, so_far.text])
            if so_far.id is not None:
                self._write(["message", so_far.id, so_far.reasoning])
            new.replace(self._path)
        except OSError:
            self._close()
            return False
        return True

    def _write(self, line: list[Any]) -> None:
        assert self._file is not None
        content, written = _encoded(line) + b"\n", 0
        with suppress(OSError):
            written = os.write(self._file, content)
        self._size += written
        if written < len(content):  # the disk is full, or the directory was removed: followers read the store
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
        self._file = None


class _SpoolReader:
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
            found += [decoded for line in whole if (decoded := _decoded(line)) is not None]
        if any(line[:1] == ["end"] for line in found):
            self.is_over = True
        return found


class SpoolCarrier:
    """Carries live text between the processes that share a directory."""

    def __init__(self, directory: Path) -> None:
        """Make nothing yet."""
        self._directory, self._name = directory, str(directory)
        self.look_from = 0.0  # when a commit may look again whether a process asks, on the monotonic clock

    def writer(self, place: RunPlace, asked: Callable[[bool], None]) -> LiveWriter:
        """Return the writer of a run, which looks by itself whether the directory is there."""
        return _SpoolWriter(self, self._name, place)

    def ask(self, place: RunPlace) -> None:
        """Make the directory."""
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)

    def poll(self) -> None:
        """Do nothing: each reader reads its file."""

    def reader(self, place: RunPlace) -> LiveReader | None:
        """Return the reader of a timeline's file; None if there is none."""
        if not _is_private(self._name):
            return None
        try:
            return _SpoolReader(_spool_file(self._directory, place))
        except OSError:
            return None

    def leave(self, place: RunPlace) -> None:
        """Leave the file to the process of the run, which removes it."""

    def remove(self, place: RunPlace) -> None:
        """Remove the file of a run."""
        with suppress(OSError):
            _spool_file(self._directory, place).unlink()

    def rest(self) -> None:
        """Remove the directory if it is empty."""
        with suppress(OSError):
            self._directory.rmdir()


# ---- a channel of the engine


class _ChannelWriter:
    """Sends what one run says, for a while after each request."""

    def __init__(self, channel: LiveChannel, place: RunPlace, asked: Callable[[bool], None]) -> None:
        """Send nothing yet."""
        self._channel, self._place, self._topic = channel, place, _topic(place)
        self._until = 0.0  # as long as this a process wants it; 0: none does
        self._commits = 0
        self._message: str | None = None
        self._text = self._reasoning = 0  # characters of the message so far, while a process wants it
        channel.offer(self._topic, asked)

    def tell(self, item: Live, *, at: Digest | None, spoken: Callable[[], PartialMessage]) -> None:
        """Send an item with its place."""
        if not self._until or not self._is_wanted():
            return
        match item:
            case TextDelta(text=text, message=message):
                self._send_piece(message, text, "")
            case ReasoningDelta(text=text, message=message):
                self._send_piece(message, "", text)
            case CallProgress():
                self._send(["call", self._commits, msgspec.structs.asdict(item)])

    def committed(
        self, commit: Digest | None, *, is_spoken: bool, spoken: Callable[[], PartialMessage]
    ) -> None:
        """Count a commit, and send its number."""
        self._commits += 1
        if is_spoken:
            self._message, self._text, self._reasoning = None, 0, 0
        if self._until and self._is_wanted():
            self._send(["commit", self._commits, commit, is_spoken])

    def answer(self, at: Digest | None, spoken: Callable[[], PartialMessage], *, whole: bool) -> None:
        """Send the whole text, or where it ends."""
        is_known, self._until = bool(self._until), time.monotonic() + _ASKED_SECONDS
        if whole or not is_known:
            self._message, text, reasoning = spoken()
            self._text, self._reasoning = len(text), len(reasoning)
            if self._text + self._reasoning <= _TEXT_MAX:
                self._send(["whole", self._commits, at, self._message, text, reasoning])
        else:
            self._send_piece(self._message, "", "")

    def end(self) -> None:
        """Send that nothing more comes, and answer no more."""
        self._channel.withdraw(self._topic)
        if self._until:
            self._send(["end"])

    def _is_wanted(self) -> bool:
        if time.monotonic() > self._until:
            self._until = 0.0
        return self._until > 0

    def _send_piece(self, message: str | None, text: str, reasoning: str) -> None:
        at_text, at_reasoning = self._text, self._reasoning
        self._message, self._text, self._reasoning = (
            message,
            at_text + len(text),
            at_reasoning + len(reasoning),
        )
        if self._text + self._reasoning <= _TEXT_MAX:
            self._send(["piece", self._commits, message, at_text, text, at_reasoning, reasoning])

    def _send(self, message: list[Any]) -> None:
        self._channel.send(self._topic, _encoded(message))


class _ChannelReader:
    """Makes lines of the messages about one run, each thing once and in order; asks again for what is missing."""

    def __init__(self, channel: LiveChannel, place: RunPlace) -> None:
        """Listen, and ask."""
        self._channel, self._run, self._topic = channel, place.run, _topic(place)
        self.is_begun = self.is_over = False
        self._commits = 0
        self._message: str | None = None
        self._text = self._reasoning = 0
        self._is_whole = False  # nothing is missing, as far as is known
        self._pause, self._ask_at = _ASK_SECONDS_MIN, 0.0
        self._unread: list[list[Any]] = []
        channel.listen(self._topic)

    def is_live(self) -> bool:
        """True if the process of the run has answered, and may tell more; asks if that is due."""
        self._unread = self.read()
        return self.is_begun and not self.is_over

    def read(self) -> list[list[Any]]:
        """Return the new lines, and ask if that is due."""
        lines, self._unread = self._unread, []
        for message in self._channel.received(self._topic):
            decoded = _decoded(message)
            lines += [] if decoded is None else self._lines(decoded)
        now = time.monotonic()
        if now >= self._ask_at and not self.is_over:
            self._channel.ask(self._topic, whole=not self._is_whole)
            self._ask_at = now + (_RENEW_SECONDS if self._is_whole else self._pause)
            self._pause = min(2 * self._pause, _ASK_SECONDS_MAX)
        return lines

    def close(self) -> None:
        """Listen no more."""
        self.is_over = True
        self._channel.leave(self._topic)

    def _lines(self, message: list[Any]) -> list[list[Any]]:
        """Return what a message says that is new; one of an unknown kind says nothing."""
        match message:
            case ["whole", int(commits), at, said, str(text), str(reasoning)]:
                return self._from_whole(commits, at, PartialMessage(said, text, reasoning))
            case ["piece", int(commits), said, int(at_text), str(text), int(at_reasoning), str(reasoning)]:
                is_next = (
                    commits == self._commits and at_text <= self._text and at_reasoning <= self._reasoning
                )
                if not is_next:
                    self._miss(is_missing=commits >= self._commits)
                    return []
                return self._appended(
                    said, text[self._text - at_text :], reasoning[self._reasoning - at_reasoning :]
                )
            case ["commit", int(commits), commit, bool(is_spoken)]:
                if commits != self._commits + 1:
                    self._miss(is_missing=commits > self._commits)
                    return []
                return self._committed(commits, commit, is_spoken=is_spoken)
            case ["call", int(commits), fields]:
                return [["call", fields]] if self.is_begun and commits == self._commits else []
            case ["end"]:
                self.is_over = True
                return [["end"]]
            case _:
                return []

    def _from_whole(self, commits: int, at: object, so_far: PartialMessage) -> list[list[Any]]:
        """Return what the whole text says beyond what is known."""
        if self.is_begun and commits < self._commits:
            return []
        lines: list[list[Any]] = []
        if not self.is_begun:
            self.is_begun, self._message = True, so_far.id
            self._commits, self._text, self._reasoning = commits, len(so_far.text), len(so_far.reasoning)
            lines.append(["begin", self._run, at, so_far.text])
            if so_far.id is not None:
                lines.append(["message", so_far.id, so_far.reasoning])
        else:
            if commits > self._commits:
                lines += self._committed(commits, at, is_spoken=so_far.id != self._message)
            lines += self._appended(so_far.id, so_far.text[self._text :], so_far.reasoning[self._reasoning :])
        self._is_whole, self._ask_at = True, time.monotonic() + _RENEW_SECONDS
        return lines

    def _committed(self, commits: int, commit: object, *, is_spoken: bool) -> list[list[Any]]:
        self._commits = commits
        if is_spoken:
            self._message, self._text, self._reasoning = None, 0, 0
        return [["commit", commit, is_spoken]]

    def _appended(self, message: str | None, text: str, reasoning: str) -> list[list[Any]]:
        lines: list[list[Any]] = []
        if message != self._message:
            self._message = message
            lines.append(["message", message, ""])
        if reasoning:
            self._reasoning += len(reasoning)
            lines.append(["reasoning", reasoning])
        if text:
            self._text += len(text)
            lines.append(["text", text])
        return lines

    def _miss(self, *, is_missing: bool) -> None:
        """Ask for the whole text soon if something is missing, and not only old."""
        if is_missing and self._is_whole:
            self._is_whole, self._pause, self._ask_at = False, _ASK_SECONDS_MIN, 0.0


class ChannelCarrier:
    """Carries live text over the channel of an engine."""

    def __init__(self, channel: LiveChannel) -> None:
        """Listen to nothing yet."""
        self._channel = channel
        self._lock = Lock()
        self._readers: dict[RunPlace, _ChannelReader] = {}

    def writer(self, place: RunPlace, asked: Callable[[bool], None]) -> LiveWriter:
        """Return the writer of a run, which answers when it is asked."""
        return _ChannelWriter(self._channel, place, asked)

    def ask(self, place: RunPlace) -> None:
        """Begin to listen; the reader asks."""
        with self._lock:
            if place not in self._readers:
                self._readers[place] = _ChannelReader(self._channel, place)

    def poll(self) -> None:
        """Read what has arrived for all readers."""
        self._channel.poll()

    def reader(self, place: RunPlace) -> LiveReader | None:
        """Return the reader of a run once the first answer is there."""
        with self._lock:
            reader = self._readers.get(place)
        return reader if reader is not None and reader.is_live() else None

    def leave(self, place: RunPlace) -> None:
        """Stop listening."""
        with self._lock:
            reader = self._readers.pop(place, None)
        if reader is not None:
            reader.close()

    def remove(self, place: RunPlace) -> None:
        """Stop listening."""
        self.leave(place)

    def rest(self) -> None:
        """End the session that listens."""
        self._channel.rest()


def _topic(place: RunPlace) -> str:
    return msgspec.json.encode(place).decode()
