"""JSON schemas in requests: every schema within one, with its place, and what the strict form wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

__all__ = ["is_object", "not_strict", "within"]

_NAMED = ("properties", "$defs", "definitions", "defs", "patternProperties")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "any_of", "prefix_items")
_SINGLE = ("items", "additionalProperties", "additional_properties", "not", "contains")
_DEPTH_MAX = 100


def within(schema: object, where: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema itself and all schemas inside it, each with its place."""
    if not isinstance(schema, dict) or depth > _DEPTH_MAX:
        return
    held = cast("dict[str, Any]", schema)
    yield where, held
    for key, value in held.items():
        for place, inner in _inner(key, value, f"{where}.{key}"):
            yield from within(inner, place, depth + 1)


def _inner(key: str, value: Any, where: str) -> Iterator[tuple[str, object]]:
    if key in _NAMED and isinstance(value, dict):
        yield from ((f"{where}.{name}", each) for name, each in cast("dict[str, object]", value).items())
    elif key in _LISTED and isinstance(value, list):
        yield from ((f"{where}[{at}]", each) for at, each in enumerate(cast("list[object]", value)))
    elif key in _SINGLE:
        yield where, value


def is_object(schema: dict[str, Any]) -> bool:
    """Whether a schema is of objects."""
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def not_strict(schema: object, where: str) -> Iterator[tuple[str, str]]:
    """Where a schema is not as strict ones are: objects closed, and all their properties required."""
    for place, each in within(schema, where):
        if not is_object(each):
            continue
        if each.get("additionalProperties") is not False:
            yield place, "a strict schema has additionalProperties false on every object"
        properties, required = each.get("properties"), each.get("required")
        named: set[str] = set(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else set()
        needed = (
            {str(each) for each in cast("list[object]", required)}
            if isinstance(required, list)
            else set[str]()
        )
        if missing := sorted(named - needed):
            yield place, f"a strict schema requires every property, but not {', '.join(missing)}"
