"""Limits how deep JSON may be nested: a deeper body is refused, a deeper text within one stays text.

A hostile body of a few kilobytes can be nested deeper than a program can follow.  Bodies are checked
before they are read; deep nesting that is found later raises `Invalid` and never crashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.errors import Invalid
from perdure.providers.contract import ModelEvent, Reply, StreamParser

__all__ = ["DEPTH_MAX", "GuardedStream", "check_depth", "is_shallow", "is_shallow_text", "too_deep"]

DEPTH_MAX = 200


def is_shallow(value: object) -> bool:
    """True if a value is nested no deeper than can be read."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                below.extend(cast("Mapping[str, Any]", each).values())
            elif isinstance(each, list | tuple):
                below.extend(cast("list[Any]", each))
        if not below:
            return True
        level = [each for each in below if isinstance(each, Mapping | list | tuple)]
    return not level


def is_shallow_text(text: str) -> bool:
    """True if a JSON text is certainly so: it opens too few objects and lists to be otherwise."""
    return text.count("{") + text.count("[") <= DEPTH_MAX


def check_depth(value: object, what: str, not_done: str) -> None:
    """Raise `Invalid` for what is nested too deeply."""
    if not is_shallow(value):
        raise too_deep(what, not_done)


def too_deep(what: str, not_done: str) -> Invalid:
    """Return the error for what is nested too deeply."""
    return Invalid(
        f"{what} is nested more than {DEPTH_MAX} levels deep; {not_done}.",
        code="nested_too_deep",
        what=what,
        depth_max=DEPTH_MAX,
    )


class GuardedStream:
    """Parses a stream, and raises `Invalid` for events that are nested too deeply."""

    def __init__(self, parser: StreamParser) -> None:
        """Guard `parser`."""
        self._parser = parser

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        try:
            return self._parser.feed(data)
        except RecursionError as error:
            raise too_deep("an event of the stream", "nothing of it was read") from error

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        try:
            return self._parser.close()
        except RecursionError as error:
            raise too_deep("the answer", "nothing of it was read") from error
