"""The names under which programs use a store, and which of these uses are over.

A lease names the use of the store that holds it.  An engine that lives in one process keeps
the names here.  An engine that several processes share marks them where all can see them, and
makes them in the same form, so that nothing else found in data is ever mistaken for such a name.
"""

from __future__ import annotations

import re
import secrets
import time

from perdure.engines.contract import Instant

__all__ = ["Openings", "is_name", "new_name"]

_NAME = re.compile(r"[0-9a-f]{32}")


def new_name() -> str:
    """Return a new name that was never used and never will be again."""
    return secrets.token_hex(16)


def is_name(text: str) -> bool:
    """True if `text` can be such a name; it is then safe as the name of a file."""
    return _NAME.fullmatch(text) is not None


class Openings:
    """The openings of a store that lives in one process.  Not thread-safe: its user has a lock."""

    def __init__(self) -> None:
        """Begin without any opening, on a clock of its own."""
        self._clock = f"process:{new_name()}"
        self._names: set[str] = set()

    def instant(self) -> Instant:
        """Return the time now, on this process's monotonic clock."""
        return Instant(self._clock, time.monotonic_ns() // 1_000)

    def enter(self) -> str:
        """Return the name of one more opening."""
        name = new_name()
        self._names.add(name)
        return name

    def leave(self, name: str) -> None:
        """End that opening; one that is over is no error."""
        self._names.discard(name)

    def gone(self, name: str) -> bool:
        """True if that opening is over.

        A forked child has a copy of the store in which its parent's openings stay: the parent may be alive.
        """
        return is_name(name) and name not in self._names
