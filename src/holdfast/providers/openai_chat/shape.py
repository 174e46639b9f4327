"""JSON of unknown shape, at the edge: an object or a list if it is one, else nothing."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["items", "mapping", "mappings"]


def mapping(value: object) -> dict[str, Any]:
    """The object that a value is; an empty one if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The list that a value is; an empty one if it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def mappings(value: object) -> list[dict[str, Any]]:
    """The objects of the list that a value is."""
    return [cast("dict[str, Any]", each) for each in items(value) if isinstance(each, dict)]
