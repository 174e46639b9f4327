"""Marks: what is remembered of a commit besides its bytes, so that lines can be walked without decoding them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engines.contract import Place
from perdure.model.digest import Digest

__all__ = ["Mark", "jump_of_child"]


class Mark(msgspec.Struct, frozen=True):
    """Where a commit stands, and two ways back from it."""

    place: Place
    run: str | None
    events: int
    parent: Digest | None  # the first one
    jump: Digest  # an ancestor such that any other is O(log n) jumps and parents away; the first: itself


def jump_of_child(marks: Mapping[Digest, Mark], parent: Digest) -> Digest:
    """Where a child of `parent` jumps to: two equal jumps are joined into one (skew binary numbers)."""
    once = marks[parent].jump
    twice = marks[once].jump
    here, middle, there = (marks[each].place.depth for each in (parent, once, twice))
    return twice if here - middle == middle - there else parent
