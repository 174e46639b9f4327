"""The outside world of the hard tests: a file to which tools append what they do, durable at once.

Nothing of it is undone by a crash, an undo or a fork.  What is counted there is what happened.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Deed", "World"]


class Deed(msgspec.Struct, frozen=True):
    """One thing that was done."""

    what: str  # what was asked for, told apart by its arguments
    key: str
    attempt: int
    by: int  # the process


class World:
    """What tools have done, in order, as every process sees it."""

    def __init__(self, path: str | Path) -> None:
        """Look at the world that is kept in this file; it need not be there yet."""
        self.path = str(path)

    def do(self, what: object, key: str = "", attempt: int = 1) -> None:
        """Do something that cannot be taken back."""
        line = json.dumps([str(what), key, attempt, os.getpid()]).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def deeds(self) -> list[Deed]:
        """Everything that was done."""
        try:
            text = Path(self.path).read_text()
        except FileNotFoundError:
            return []
        rows: list[list[Any]] = [json.loads(line) for line in text.splitlines()]
        return [Deed(*row) for row in rows]

    def counted(self) -> Counter[str]:
        """How often each thing was done."""
        return Counter(deed.what for deed in self.deeds())

    def knows(self, key: str) -> bool:
        """Whether anything was done under that key."""
        return any(deed.key == key for deed in self.deeds())

    def repeated(self) -> list[str]:
        """What was done more than once."""
        return [what for what, often in self.counted().items() if often > 1]
