"""Long-term memory as a fold: which version of an item counts.

Pure: the versions of one item in the order in which they came, and whether what wrote each can still
be reached, give the one that stands.  Whoever came last wins, unless it was withdrawn; a forgetting
that was withdrawn lets what was there before stand again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.model.memory import Item, Version

__all__ = ["is_expired", "standing"]

_T = TypeVar("_T")


def standing(
    versions: Sequence[_T], read: Callable[[_T], Version], counts: Callable[[_T, Version], bool]
) -> tuple[_T, Version] | None:
    """The last version that counts, wherever it is kept; None if none does, or it says that the item was forgotten."""
    for each in reversed(versions):
        version = read(each)
        if counts(each, version):
            return None if version.item is None else (each, version)
    return None


def is_expired(item: Item, now: int) -> bool:
    """Whether its time is over."""
    return item.expires_at is not None and item.expires_at <= now
