"""Names of fields: the API takes camelCase and snake_case alike; here they are camelCase."""

from __future__ import annotations

import re
from typing import Any, cast

from perdure.providers.wire.shells import is_list, object_of

__all__ = ["camel", "camel_all", "listed"]

_SNAKE = re.compile(r"_([a-z0-9])")


def camel(value: object) -> dict[str, Any]:
    """An object with its own names in camelCase; what they hold stays as it is."""
    return {_name(name): held for name, held in object_of(value).items()}


def camel_all(value: Any) -> Any:
    """A value with all names in it in camelCase; only for what holds no words and no schemas of others."""
    if isinstance(value, dict):
        return {_name(name): camel_all(held) for name, held in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [camel_all(held) for held in cast("list[Any]", value)]
    return value


def listed(value: object) -> list[Any]:
    """A repeated field: where it holds one thing, the API takes it without the list."""
    if value is None:
        return []
    return cast("list[Any]", value) if is_list(value) else [value]


def _name(name: str) -> str:
    return _SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name
