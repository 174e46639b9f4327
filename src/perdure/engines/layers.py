"""Layers: dictionaries that lie over others, so that a change can be dropped or made as a whole."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from typing import TypeVar

__all__ = ["over", "pour"]

_K = TypeVar("_K")
_V = TypeVar("_V")


def over(below: MutableMapping[_K, _V] | None) -> MutableMapping[_K, _V]:
    """An empty dictionary, or one that lies over `below` and keeps what is put into it to itself."""
    return {} if below is None else ChainMap({}, below)


def pour(draft: MutableMapping[_K, _V], below: MutableMapping[_K, _V]) -> None:
    """Put into `below` what was put into `draft`, which lies over it."""
    assert isinstance(draft, ChainMap)
    below.update(draft.maps[0])
