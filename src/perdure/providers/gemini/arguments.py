"""Arguments that come in pieces: each says a value at a place, `$.stops[0].name`, or goes on with a text there."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, cast

from perdure.errors import Invalid
from perdure.providers.gemini.names import camel, listed
from perdure.providers.wire.growing import GrowingTexts
from perdure.providers.wire.shells import text_of

__all__ = ["add_pieces"]

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[['"]([^'"]*)['"]\]""")
_INDEX_MAX = 10_000
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def add_pieces(args: dict[str, Any], pieces: object, growing: GrowingTexts) -> None:
    """Put what the pieces say into the arguments; texts that go on are `growing`."""
    for piece in listed(pieces):
        told = camel(piece)
        kind = next((name for name in _VALUES if name in told), None)
        path = [
            int(index) if index else name or key
            for name, index, key in _STEP.findall(text_of(told.get("jsonPath")))
        ]
        if kind is not None and path:
            _put(args, path, None if kind == "nullValue" else told[kind], growing)
        elif kind is not None:
            raise Invalid(f"a piece of a call's arguments names no place: {told.get('jsonPath')!r}.")


def _put(args: dict[str, Any], path: list[str | int], value: Any, growing: GrowingTexts) -> None:
    at: Any = args
    for step, after in pairwise(path):
        at = _step(at, step, [] if isinstance(after, int) else {})
    last = path[-1]
    before = _step(at, last, None)
    if isinstance(before, str) and isinstance(value, str):
        growing.add(at, last, value)
    else:
        growing.put(at, last, value)


def _step(at: Any, step: str | int, empty: Any) -> Any:
    """What stands at a place; `empty` is put where nothing does."""
    if isinstance(step, int) and isinstance(at, list) and step <= _INDEX_MAX:
        items = cast("list[Any]", at)
        items.extend([None] * (step + 1 - len(items)))
        if items[step] is None:
            items[step] = empty
        return items[step]
    if isinstance(step, str) and isinstance(at, dict):
        fields = cast("dict[str, Any]", at)
        if fields.get(step) is None and empty is not None:
            fields[step] = empty
        return fields.get(step)
    raise Invalid(f"a piece of a call's arguments names a place that is not there: {step!r}.")
