"""Maps call ids between vendors and the canonical form.

On reading, `CallNames` keeps the vendor's ids and makes them unique where the vendor repeats or omits them.
On rendering, `CallIds` chooses ids that are legal for the target, unique, stable, and equal for a call and its
result.  A target gets its own id back for a call that it made; any other id is derived from the canonical one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from hashlib import sha256

__all__ = ["CallNames", "CallIds"]


class CallNames:
    """The ids of the calls in one request or reply, in their order."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._number: dict[str, int] = {}  # how many calls of each id there were
        self._open: dict[str, deque[str]] = {}  # by the vendor's id, those without a result
        self._last: dict[str, str] = {}

    def call(self, id: object) -> str:
        """Return the id of a call that the vendor calls `id`."""
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
        """Return the id of the call that a result for `id` belongs to: the first that has none, else the last."""
        waiting = self._open.get(id)
        return waiting.popleft() if waiting else self._last.get(id, id)


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class CallIds:
    """Chooses the ids of the calls in one request."""

    def __init__(
        self, legal: str, *, prefix: str = "call_", length: int = 24, own: Mapping[str, str] | None = None
    ) -> None:
        """Ids must match `legal` as a whole; derived ones are `prefix` and `length` letters and digits.

        `own` has the target's own ids of the calls that it made, by their canonical ids.
        """
        self._legal = re.compile(legal)
        self._own = own or {}
        self._prefix, self._length = prefix, length
        self._given: dict[str, str] = {}  # by canonical id
        self._taken: set[str] = set()

    def of(self, id: str, own: str | None = None) -> str:
        """Return the id of a call here; `own` is the target's own id; None: the one given to the constructor, if any."""
        known = self._given.get(id)
        if known is not None:
            return known
        for wanted in (own or self._own.get(id), id):
            if wanted and wanted not in self._taken and self._legal.fullmatch(wanted):
                return self._give(id, wanted)
        salt = 0
        while (made := self._made(id, salt)) in self._taken:
            salt += 1
        return self._give(id, made)

    def changed(self, id: str) -> bool:
        """True if the call goes by another id here than canonically, and not by the one that the target gave it."""
        return self._given.get(id, id) not in (id, self._own.get(id))

    def _give(self, id: str, made: str) -> str:
        self._given[id] = made
        self._taken.add(made)
        return made

    def _made(self, id: str, salt: int) -> str:
        number = int.from_bytes(sha256(f"{salt}\n{id}".encode("utf-8", "surrogatepass")).digest())
        letters: list[str] = []
        for _ in range(self._length):
            number, at = divmod(number, len(_ALPHABET))
            letters.append(_ALPHABET[at])
        return self._prefix + "".join(letters)
