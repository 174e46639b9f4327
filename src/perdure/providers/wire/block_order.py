"""Records the order of a vendor's blocks in a message, and the fields that only the vendor reads.

The canonical form keeps content, calls and results apart.  Where a vendor's own order, or something
that only it can read, would be lost, vendorMetadata holds one *piece* for each of its blocks, and
the vendor gets every block back in its place.  Text and media are stored once: a piece points
to the canonical block.

    [{"content": 0, "native": {"type": "thinking", "signature": "…"}, "fill": "thinking"},
     {"call": 0, "add": {"caller": …}}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.model.canonical import prepared
from perdure.model.message import Message

__all__ = ["Piece", "fits", "layout_of", "shown"]


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One block of the vendor's message."""

    content: int | None = None  # index of the canonical block
    call: int | None = None
    result: int | None = None
    native: dict[str, Any] | None = None  # the vendor's own block, verbatim
    fill: str | None = None  # the field of `native` that takes the words of the canonical block
    add: dict[str, Any] | None = None  # the vendor's fields beside the canonical block
    inside: tuple[Piece, ...] | None = None  # the blocks inside a result

    @property
    def plain(self) -> bool:
        """True if the canonical block holds the whole piece."""
        return self.native is None and self.add is None and self.inside is None


def shown(pieces: Sequence[Piece], *, results_first: bool = False) -> list[dict[str, Any]] | None:
    """Return the stored form of a layout; None if it is the canonical order: content, then calls."""
    if all(piece.plain for piece in pieces) and _in_order(pieces, results_first=results_first):
        return None
    return [msgspec.to_builtins(piece) for piece in pieces]


def layout_of(facts: Mapping[str, Any] | None, message: Message) -> tuple[Piece, ...] | None:
    """Return the layout that is stored with a message, if it is valid and still fits."""
    told = None if facts is None else facts.get("blocks")
    if told is None:
        return None
    try:
        pieces = msgspec.convert(told, prepared(tuple[Piece, ...]))
    except (msgspec.ValidationError, UnicodeError):
        return None
    counts = (len(message.content), len(message.tool_calls), len(message.tool_results))
    return pieces if fits(pieces, *counts) else None


def fits(pieces: Sequence[Piece], content: int, calls: int = 0, results: int = 0) -> bool:
    """True if every block, call and result has exactly one place."""
    found = (
        [piece.content for piece in pieces if piece.content is not None],
        [piece.call for piece in pieces if piece.call is not None],
        [piece.result for piece in pieces if piece.result is not None],
    )
    return all(
        sorted(places) == list(range(count))
        for places, count in zip(found, (content, calls, results), strict=True)
    )


def _in_order(pieces: Sequence[Piece], *, results_first: bool) -> bool:
    keys = [_key(piece, results_first=results_first) for piece in pieces]
    return keys == sorted(keys)


def _key(piece: Piece, *, results_first: bool) -> tuple[int, int]:
    if piece.content is not None:
        return (1, piece.content)
    if piece.call is not None:
        return (2, piece.call)
    return (0 if results_first else 3, piece.result or 0)
