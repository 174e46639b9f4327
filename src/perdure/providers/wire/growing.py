"""Texts that a stream sends in pieces, inside JSON objects that are held meanwhile.

Adding each piece to the text so far would copy the text with every piece, and a long answer would cost the
square of its length.  So the pieces are kept apart, and `settle` joins them once.
"""

from __future__ import annotations

from typing import Any

__all__ = ["GrowingTexts"]


class GrowingTexts:
    """The texts of one stream that are still growing, by the container that holds each and its key there."""

    __slots__ = ("_growing",)

    def __init__(self) -> None:
        """Begin with none."""
        self._growing: dict[tuple[int, str | int], tuple[Any, list[str]]] = {}

    def add(self, container: Any, key: str | int, piece: str) -> None:
        """Append `piece` to the text at `key` of `container`, where a text stands, or nothing does."""
        place = (id(container), key)
        held = self._growing.get(place)
        if held is None:
            try:
                before: Any = container[key]
            except KeyError:
                before = ""
            held = self._growing[place] = (container, [str(before or "")])
        held[1].append(piece)
        container[key] = ""  # a text as before; what it says is in the pieces

    def put(self, container: Any, key: str | int, value: object) -> None:
        """Let `key` of `container` hold `value` in place of a text that was growing there."""
        self._growing.pop((id(container), key), None)
        container[key] = value

    def settle(self) -> None:
        """Put the whole texts where they belong."""
        for (_, key), (container, pieces) in self._growing.items():
            container[key] = "".join(pieces)
        self._growing.clear()
