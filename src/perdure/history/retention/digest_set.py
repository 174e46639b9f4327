"""A set of digests that needs about 25 bytes for each digest, where Python's own set needs about 150.

Open addressing in 256 tables, so that growing one of them never doubles the whole.  A key
is 136 bits of the digest: enough that no two digests are ever confused.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.model.digest import Digest

__all__ = ["Digests"]

_KEY = 16
_EMPTY = bytearray(_KEY)
_SLOTS_MIN = 8


class Digests:
    """A set that only grows.  Membership is exact."""

    __slots__ = ("_counts", "_tables")

    def __init__(self) -> None:
        """Begin empty."""
        self._tables = [bytearray(_SLOTS_MIN * _KEY) for _ in range(256)]
        self._counts = [0] * 256

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(self._counts)

    def __contains__(self, digest: Digest) -> bool:
        """True if the digest was added."""
        table, key = self._tables[int(digest[:2], 16)], bytearray.fromhex(digest[2:34])
        at = _place(table, key)
        return table[at : at + _KEY] == key

    def update(self, digests: Iterable[Digest]) -> None:
        """Add them all."""
        for digest in digests:
            self.add(digest)

    def add(self, digest: Digest) -> bool:
        """Add a digest; return False if it was there."""
        number, key = int(digest[:2], 16), bytearray.fromhex(digest[2:34])
        table = self._tables[number]
        at = _place(table, key)
        if table[at : at + _KEY] == key:
            return False
        table[at : at + _KEY] = key
        self._counts[number] += 1
        if self._counts[number] * _KEY * 4 > len(table) * 3:
            self._tables[number] = _grown(table)
        return True


def _place(table: bytearray, key: bytearray) -> int:
    """Return the position of `key` in `table`, or where to put it."""
    at = int.from_bytes(key[:4], "big") * _KEY % len(table)
    while (found := table[at : at + _KEY]) != _EMPTY and found != key:
        at = (at + _KEY) % len(table)
    return at


def _grown(table: bytearray) -> bytearray:
    larger = bytearray(len(table) * 2)
    for start in range(0, len(table), _KEY):
        key = table[start : start + _KEY]
        if key != _EMPTY:
            at = _place(larger, key)
            larger[at : at + _KEY] = key
    return larger
