"""JSON of unknown shape, at the edge."""

from __future__ import annotations

from typing import Any, cast

from perdure.providers.wire.shells import items_of

__all__ = ["objects_of"]


def objects_of(value: object) -> list[dict[str, Any]]:
    """The objects of a JSON list; none for anything else."""
    return [cast("dict[str, Any]", each) for each in items_of(value) if isinstance(each, dict)]
