"""Carries what a live run says to other processes of the same store: text, calls and notices of commits.

Each live run of a timeline has one small file in a directory beside the store.  The process of the run appends lines
to it, and processes that follow the timeline read them as they come.  Nothing of it is durable or needed: a reader that
misses it gets the finished message from the store.  The directory exists only while another process asks for it, so a
program that nobody follows writes nothing.

A file is bounded: it begins anew after a message once it is large, and text beyond the bound is left out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from perdure.model.digest import Digest
from perdure.runtime.events import CallProgress, Live, ReasoningDelta, TextDelta

__all__ = ["SpoolReader", "SpoolWriter", "Tail", "spool_file"]

_POLL_SECONDS = 0.01
_BYTES_ANEW = 256 * 1024  # a file that is larger begins anew after a message
_BYTES_MAX = 4 * 1024 * 1024
_READ_MAX = 64 * 1024

_decoder = msgspec.json.Decoder(list[Any])


def spool_file(directory: Path, space: str, timeline: str) -> Path:
    """Return the file of a timeline's live run."""
    name = sha256(msgspec.json.encode([space, timeline])).hexdigest()[:32]
    return directory / f"{name}.jsonl"


class SpoolWriter:
    """Writes what one run says, from the moment on at which another process asks for it."""

    def __init__(self, directory: Path, space: str, timeline: str, run: str) -> None:
        """Write nothing yet."""
        self._directory, self._run = directory, run
        self._path = spool_file(directory, space, timeline)
        self._file: int | None = None
        self._size = 0

    def tell(self, item: Live, *, at: Digest | None, text: Sequence[str]) -> None:
        """Write an item; a file that is begun now has the `text` of the message before it, after the commit `at`."""
        if not self._is_open(at, text) or self._size > _BYTES_MAX:
            return
        match item:
            case TextDelta():
                self._write(["text", item.text])
            case ReasoningDelta():
                self._write(["reasoning", item.text])
            case CallProgress():
                self._write(["call", msgspec.structs.asdict(item)])

    def committed(self, commit: Digest | None, *, spoken: bool, text: Sequence[str]) -> None:
        """Write the notice of a commit; `spoken`: it holds the message that was being written."""
        if not self._is_open(commit, () if spoken else text):
            return
        self._write(["commit", commit, spoken])
        if spoken and self._size > _BYTES_ANEW:
            self._close()
            self._is_open(commit, ())

    def end(self) -> None:
        """Write that nothing more comes, and remove the file."""
        if self._file is not None:
            self._write(["end"])
            with suppress(OSError):
                self._path.unlink()
            self._close()

    def _is_open(self, at: Digest | None, text: Sequence[str]) -> bool:
        if self._file is not None:
            return True
        if not self._directory.is_dir():
            return False
        new = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            self._file = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600
            )
            self._size = 0
            self._write(["begin", self._run, at, "".join(text)])
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


class Tail:
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
