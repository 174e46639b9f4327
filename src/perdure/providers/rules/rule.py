"""What a rule is, what breaks it, and how a request is read to find out.

A rule is data (code, level, sentence) and one small function of the same name that yields the places
where a request breaks it.  Requests come from outside: nothing here assumes that a field is there or
has its type, so a rule that finds no sense in a place says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

__all__ = ["Broken", "Check", "Found", "Level", "Request", "Rule", "items", "numbered", "object_at", "words"]

Level: TypeAlias = Literal["error", "warn"]
Found: TypeAlias = tuple[str, str]
"""Where in the request, and why."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a request breaks, and where."""

    code: str
    level: Level  # error: the API refuses it; warn: some models or servers do
    where: str  # in the request: `messages[3].content[0]`
    why: str  # in words


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the rules see it."""

    body: Mapping[str, Any]
    provider: str  # whose server it goes to
    model: str  # empty: not known


Check: TypeAlias = Callable[[Request], Iterable[Found]]


class Rule(msgspec.Struct, frozen=True):
    """Something that an API demands."""

    code: str
    level: Level
    demand: str  # "the API demands that …", as a sentence
    broken: Check  # where a request does not


def object_at(holder: object, *names: str) -> dict[str, Any]:
    """The object in the first of these fields that is there; an empty one for anything else."""
    held = cast("Mapping[str, Any]", holder if isinstance(holder, Mapping) else {})
    value = next((held[name] for name in names if held.get(name) is not None), None)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[dict[str, Any]]:
    """The objects of a list, others aside; one object is a list of one."""
    if isinstance(value, dict):
        return [cast("dict[str, Any]", value)]
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict)]


def numbered(value: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its place."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    for at, each in enumerate(listed):
        if isinstance(each, dict):
            yield f"{where}[{at}]", cast("dict[str, Any]", each)


def words(value: object) -> str:
    """Text; none for anything else."""
    return value if isinstance(value, str) else ""
