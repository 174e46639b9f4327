"""Call ids on entry: the vendor's own, made unique where it repeats them or gives none."""

from __future__ import annotations

from collections import deque

__all__ = ["CallNames"]


class CallNames:
    """The ids of the calls in one request or reply, in the order in which they are met."""

    def __init__(self) -> None:
        """Begin with none."""
        self._taken: set[str] = set()
        self._number: dict[str, int] = {}  # how many calls of each id there were
        self._open: dict[str, deque[str]] = {}  # by the vendor's id, those without a result
        self._last: dict[str, str] = {}

    def call(self, id: object) -> str:
        """The id of a call that the vendor calls `id`."""
        said = id if isinstance(id, str) and id else "call"
        number = self._number.get(said, 0) + 1
        made = said if number == 1 else f"{said}-{number}"
        while made in self._taken:
            number += 1
            made = f"{said}-{number}"
        self._number[said] = number
        self._taken.add(made)
        self._open.setdefault(said, deque()).append(made)
        self._last[said] = made
        return made

    def result(self, id: str) -> str:
        """The id of the call that a result for `id` belongs to: the first that has none, else the last."""
        waiting = self._open.get(id)
        return waiting.popleft() if waiting else self._last.get(id, id)
