"""A command that runs at a real terminal, which a test types into and reads from."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.forked import ForkedProcess, commands

__all__ = ["PASTE_BEGINS", "PASTE_ENDS", "PtySession"]

PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"

_COMMAND = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.")
_DEADLINE_SECONDS = 60.0
_UNSET = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "PERDURE_STORE", "PERDURE_DEBUG")


class PtySession:
    """`perdure WORDS` in `directory`, at a terminal; leaving the block ends it."""

    def __init__(
        self,
        directory: Path,
        *words: str,
        program: str | None = None,
        typed_ahead: str = "",
        columns: int = 80,
        **environment: str,
    ) -> None:
        """Start it, or with `program` another one; `typed_ahead` waits in the terminal before the process begins."""
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        os.write(self._ours, typed_ahead.encode())
        clean = {name: value for name, value in os.environ.items() if name not in _UNSET}
        code = f"from perdure.cli import main; main({list(words)!r})"
        if program is not None:
            code = f"import os; os.execvp({program!r}, {[program, *words]!r})"
        self._process = ForkedProcess(
            commands(),
            ["-c", code],
            cwd=directory,
            env=clean | {"TERM": "xterm-256color"} | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            at_terminal=True,
        )
        os.close(theirs)
        self._shown = bytearray()
        self._seen = 0  # how far `wait_for` has looked

    def __enter__(self) -> Self:
        """Give the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, if it has not ended."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    @property
    def shown(self) -> str:
        """Everything that the terminal was sent so far, without its commands."""
        return _COMMAND.sub("", self._shown.decode(errors="replace")).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` is shown, after what was waited for before; fails if it never is."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while (found := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was never shown:\n{self.shown}"
            assert self._read(), f"it ended before {text!r} was shown:\n{self.shown}"
        self._seen = found + len(text)

    def press_until(self, key: str, text: str) -> None:
        """Press a key until `text` is shown: Python drops an interruption that comes inside a callback."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < deadline, f"{text!r} was never shown:\n{self.shown}"
            self.type(key)
            until = time.monotonic() + 5
            while text not in self.shown[self._seen :] and time.monotonic() < until:
                assert self._read(), f"it ended before {text!r} was shown:\n{self.shown}"

    def ended(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self._process.wait(_DEADLINE_SECONDS)

    def _read(self) -> bool:
        """Read what comes next; False: nothing more comes."""
        if not select.select([self._ours], [], [], 1.0)[0]:
            return True
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # the other end was closed
            return False
        self._shown += piece
        return bool(piece)
