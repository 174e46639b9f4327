"""Bases: recent objects that later ones resemble, so that only the difference is stored.

A rewritten leaf differs from the old one in some forty bytes, and a rewritten document is
mostly made of words that the old one had.  Stored whole, the nodes of the map would be the
larger part of a store; stored as differences they hardly count.
A chain of differences has a largest length, which bounds what a read costs.
"""

from __future__ import annotations

from typing import TypeAlias

from perdure.engines.sqlite.pack import Form, deflated, difference
from perdure.model.digest import Digest, Kind, Object

__all__ = ["Bases"]

_NODE_DEPTH_MAX = 16
_DEPTH_MAX = 4  # of documents: each step is another row to read
_BYTES_MAX = 8 * 1024 * 1024
_ENTRY_BYTES = 300
_FROM_BYTES = 128
_NODE = Kind.NODE

_Base: TypeAlias = tuple[int, int, int, bytes]  # row, index, differences below it, bytes


class Bases:
    """Objects written a short while ago, with the place where they stand.  Noted by who writes, read by all.

    Two generations: what was not asked for since the last change of generation goes.  Every
    change is one operation on a dictionary, so that readers need no lock.
    """

    def __init__(self) -> None:
        """Know none."""
        self._young: dict[tuple[int, Digest], _Base] = {}
        self._old: dict[tuple[int, Digest], _Base] = {}
        self._held = 0
        self.epoch = 0  # what was made of bases before it last changed is not to be used

    def against(self, kind: int, space: int | None, found: Object) -> tuple[tuple[object, ...], int]:
        """The fields of the item that stores `found`: a difference if that saves a lot, or whole; and its depth."""
        body = found.body
        if found.base is not None and space is not None and len(body) >= _FROM_BYTES:
            name = space, found.base
            base = self._young.get(name) or self._old.get(name)
            if base is not None:
                fields, depth = _against(base, kind, found)
                if fields is not None:
                    return fields, depth
        return (kind, Form.WHOLE, body), 0

    def note(self, space: int, found: Object, row: int, index: int, depth: int) -> None:
        """An object was written at that place."""
        body = found.body
        self._held += len(body) + _ENTRY_BYTES
        if self._held > _BYTES_MAX // 2:
            self._old, self._young, self._held = self._young, {}, 0
        self._young[space, found.digest] = row, index, depth, body

    def forget(self) -> None:
        """Forget all, because rows were rolled back or changed in place."""
        self.epoch += 1
        self._young, self._old, self._held = {}, {}, 0


def _against(base: _Base, kind: int, found: Object) -> tuple[tuple[object, ...] | None, int]:
    """The fields of `found` as a difference to `base`, None if that does not pay, and how many lie below it then."""
    row, index, depth, old = base
    body = found.body
    if found.kind is _NODE:
        if depth < _NODE_DEPTH_MAX:
            head, tail, middle = difference(old, body)
            if 2 * len(middle) + 40 < len(body):
                return (kind, Form.DIFFERENCE, middle, 0, row, index, head, tail), depth + 1
    elif depth < _DEPTH_MAX:
        data = deflated(old, body)
        if 4 * len(data) < 3 * len(body):
            return (kind, Form.DEFLATED, data, 0, row, index), depth + 1
    return None, 0
