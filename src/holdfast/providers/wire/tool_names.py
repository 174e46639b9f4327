"""Names of tools for one target: legal there, and no two the same."""

from __future__ import annotations

import re

__all__ = ["ToolNames"]


class ToolNames:
    """The names of one request."""

    def __init__(self, legal: str, *, strange: str = r"[^a-zA-Z0-9_-]", length: int = 64) -> None:
        """Names must match `legal` as a whole; in others, what is `strange` becomes `_`."""
        self._legal, self._strange, self._length = re.compile(legal), re.compile(strange), length
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """The name here."""
        known = self._given.get(name)
        if known is not None:
            return known
        legal = name if self._legal.fullmatch(name) else self._mended(name)
        made, count = legal, 1
        while made in self._taken:
            count += 1
            made = f"{legal[: self._length - 4]}_{count}"
        self._given[name] = made
        self._taken.add(made)
        return made

    def _mended(self, name: str) -> str:
        made = self._strange.sub("_", name)[: self._length]
        return made if self._legal.fullmatch(made) else f"_{made}"[: self._length]
