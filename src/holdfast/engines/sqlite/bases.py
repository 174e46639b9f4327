"""Bases: recent objects that later ones resemble, so that only the difference is stored.

A rewritten leaf differs from the old one in some forty bytes.  Stored whole, the nodes
of the map would be the larger part of a store; stored as differences they hardly count.
A chain of differences is never longer than `_DEPTH_MAX`, which bounds what a read costs.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from holdfast.engines.sqlite.pack import Form, difference
from holdfast.model.digest import Digest, Object

__all__ = ["Bases"]

_DEPTH_MAX = 8
_BYTES_MAX = 8 * 1024 * 1024
_ENTRY_BYTES = 300
_FROM_BYTES = 128


class Bases:
    """Objects written a short while ago, with the place where they stand."""

    def __init__(self) -> None:
        """Know none."""
        self._lock = Lock()
        self._kept: OrderedDict[tuple[int, Digest], tuple[int, int, int, bytes]] = OrderedDict()
        self._bytes = 0

    def item(self, kind: int, space: int, found: Object, row: int, index: int) -> tuple[object, ...]:
        """The fields of the item that stores `found` at that place: a difference if that saves a lot, or whole."""
        base = self._kept.get((space, found.base)) if found.base is not None else None
        depth = 0
        fields: tuple[object, ...] = (kind, Form.WHOLE, found.body)
        if base is not None and base[2] < _DEPTH_MAX and len(found.body) >= _FROM_BYTES:
            head, tail, middle = difference(base[3], found.body)
            if 2 * len(middle) + 40 < len(found.body):
                depth = base[2] + 1
                fields = kind, Form.DIFFERENCE, middle, 0, base[0], base[1], head, tail, depth
        self._keep(space, found, row, index, depth)
        return fields

    def forget(self) -> None:
        """Forget all, because rows were rolled back or changed in place."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _keep(self, space: int, found: Object, row: int, index: int, depth: int) -> None:
        with self._lock:
            if self._kept.pop((space, found.digest), None) is not None:
                self._bytes -= len(found.body) + _ENTRY_BYTES
            self._kept[space, found.digest] = row, index, depth, found.body
            self._bytes += len(found.body) + _ENTRY_BYTES
            while self._bytes > _BYTES_MAX:
                _, (_, _, _, body) = self._kept.popitem(last=False)
                self._bytes -= len(body) + _ENTRY_BYTES
