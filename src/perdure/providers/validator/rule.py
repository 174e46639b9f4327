"""Defines rules, and the functions by which they read a request.

A rule is data (code, level, sentence) and one small function of the same name that yields the places
where a request breaks it.  Requests come from outside: no function here assumes that a field is there or
has its type, and a rule ignores places that it cannot read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from perdure.model.artifact import sniff
from perdure.providers.wire.media import inline

__all__ = [
    "BrokenRule",
    "Check",
    "Found",
    "Level",
    "CheckedRequest",
    "Rule",
    "items",
    "numbered",
    "object_at",
    "words",
    "PICTURES",
    "decoded",
    "looks_like_token",
    "picture_fault",
    "url_fault",
    "is_object",
    "not_strict",
    "within",
]


Level: TypeAlias = Literal["error", "warn"]
Found: TypeAlias = tuple[str, str]
"""Where in the request, and why."""


class BrokenRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a request breaks, and where."""

    code: str
    level: Level  # error: the API refuses it; warn: some models or servers do
    where: str  # in the request: `messages[3].content[0]`
    why: str  # in words


class CheckedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with the facts that rules need."""

    body: Mapping[str, Any]
    provider: str  # whose server it goes to
    model: str  # empty: not known


Check: TypeAlias = Callable[[CheckedRequest], Iterable[Found]]


class Rule(msgspec.Struct, frozen=True):
    """A demand of an API."""

    code: str
    level: Level
    demand: str  # "the API demands that …", as a sentence
    broken: Check  # where a request does not


def object_at(holder: object, *names: str) -> dict[str, Any]:
    """Return the object in the first of these fields that is there; an empty one for anything else."""
    held = cast("Mapping[str, Any]", holder if isinstance(holder, Mapping) else {})
    value = next((held[name] for name in names if held.get(name) is not None), None)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list, others aside; one object is a list of one."""
    if isinstance(value, dict):
        return [cast("dict[str, Any]", value)]
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict)]


def numbered(value: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list, each with its place."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    for at, each in enumerate(listed):
        if isinstance(each, dict):
            yield f"{where}[{at}]", cast("dict[str, Any]", each)


def words(value: object) -> str:
    """Return the value if it is text; an empty text otherwise."""
    return value if isinstance(value, str) else ""


PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")

_TOKEN = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def decoded(text: object) -> bytes | None:
    """Return the bytes behind base64 text; None if it is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return base64.b64decode(re.sub(r"\s+", "", text), validate=True)
    except (binascii.Error, ValueError):
        return None


def looks_like_token(text: object) -> bool:
    """True if it could be an opaque token: base64 of either alphabet."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def picture_fault(text: object, declared: str) -> str | None:
    """Return what is wrong with a picture in base64 that is declared to be of some type; None if nothing is."""
    body = decoded(text)
    if body is None:
        return "its data is not base64"
    found = sniff(body[:4_096], whole=len(body) <= 4_096)
    if found not in PICTURES:
        return f"its bytes are {found}, which is no picture that is taken"
    return (
        None if found == declared else f"its bytes are {found}, but it is declared as {declared or 'nothing'}"
    )


def url_fault(url: str) -> str | None:
    """Return what is wrong with the address of a picture; None if nothing is."""
    if url.startswith(("https://", "http://")):
        return None
    held = inline(url)
    if held is None:
        return "it is neither an http address nor a data URL that can be read"
    found = sniff(held.bytes[:4_096], whole=len(held.bytes) <= 4_096)
    return None if found in PICTURES else f"its bytes are {found}, which is no picture that is taken"


_NAMED = ("properties", "$defs", "definitions", "defs", "patternProperties")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "any_of", "prefix_items")
_SINGLE = ("items", "additionalProperties", "additional_properties", "not", "contains")
_DEPTH_MAX = 100


def within(schema: object, where: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema itself and all schemas inside it, each with its place."""
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
    """True if a schema is of objects."""
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def not_strict(schema: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield the places where a schema is not strict: open objects, and properties that are not required."""
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
