"""Bases: recent objects that later ones resemble, so that only the difference is stored.

A rewritten leaf differs from the old one in some forty bytes, and a rewritten document is
mostly made of words that the old one had.  Stored whole, the nodes of the map would be the
larger part of a store; stored as differences they hardly count.
A chain of differences has a largest length, which bounds what a read costs.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast.engines.sqlite.pack import Form, deflated, difference
from holdfast.model.digest import Digest, Kind, Object

__all__ = ["Bases"]

_NODE_DEPTH_MAX = 32
_DEPTH_MAX = 8
_BYTES_MAX = 8 * 1024 * 1024
_ENTRY_BYTES = 300
_FROM_BYTES = 128

_Base: TypeAlias = tuple[int, int, int, bytes]  # row, index, differences below it, bytes


class Bases:
    """Objects written a short while ago, with the place where they stand.  One user at a time: who writes.

    Two generations: what was not asked for since the last change of generation goes.
    """

    def __init__(self) -> None:
        """Know none."""
        self._young: dict[tuple[int, Digest], _Base] = {}
        self._old: dict[tuple[int, Digest], _Base] = {}
        self._held = 0

    def item(self, kind: int, space: int, found: Object, row: int, index: int) -> tuple[object, ...]:
        """The fields of the item that stores `found` at that place: a difference if that saves a lot, or whole."""
        body = found.body
        base = None if found.base is None else self._get((space, found.base))
        fields = None if base is None or len(body) < _FROM_BYTES else _against(base, kind, found)
        depth = 0 if base is None or fields is None else base[2] + 1
        self._put((space, found.digest), (row, index, depth, body))
        return (kind, Form.WHOLE, body) if fields is None else fields

    def forget(self) -> None:
        """Forget all, because rows were rolled back or changed in place."""
        self._young, self._old, self._held = {}, {}, 0

    def _get(self, name: tuple[int, Digest]) -> _Base | None:
        return self._young.get(name) or self._old.get(name)

    def _put(self, name: tuple[int, Digest], base: _Base) -> None:
        self._held += len(base[3]) + _ENTRY_BYTES
        if self._held > _BYTES_MAX // 2:
            self._old, self._young, self._held = self._young, {}, 0
        self._young[name] = base


def _against(base: _Base, kind: int, found: Object) -> tuple[object, ...] | None:
    """The fields of `found` as a difference to `base`; None if that does not pay."""
    row, index, depth, old = base
    body = found.body
    if found.kind is Kind.NODE:
        if depth >= _NODE_DEPTH_MAX:
            return None
        head, tail, middle = difference(old, body)
        worth = 2 * len(middle) + 40 < len(body)
        return (kind, Form.DIFFERENCE, middle, 0, row, index, head, tail) if worth else None
    if depth >= _DEPTH_MAX:
        return None
    data = deflated(old, body)
    return (kind, Form.DEFLATED, data, 0, row, index) if 4 * len(data) < 3 * len(body) else None
