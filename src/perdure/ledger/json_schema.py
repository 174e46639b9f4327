"""Checks an answer, or new arguments, against the schema in a ticket, and fills in the defaults of a schema.

The module knows the part of JSON Schema that generated schemas use.  A schema with another keyword is refused when the
question is asked, so no keyword is ignored when it is answered.  References stay within the schema, there are no
patterns, and a schema that refers to itself without end is refused, so a check always ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import nan
from typing import TypeAlias, cast

from perdure.errors import Invalid, Unsupported
from perdure.model.canonical import DEPTH_MAX, Json, loads

__all__ = ["check_answer", "check_arguments", "check_schema", "checkable", "parse_value", "with_defaults"]

_SCHEMA_MAX = 8_192  # characters of a schema that is stored with a question

_Schema: TypeAlias = "dict[str, Json] | bool"

_ANNOTATIONS = frozenset(
    (
        "$schema",
        "$id",
        "$defs",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "format",
    )
)
_TYPES: dict[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _number(value) is not None,
    "integer": lambda value: (number := _number(value)) is not None and number % 1 == 0,
}


def parse_value(text: str, what: str) -> Json:
    """Decode JSON text that a person wrote, with exact integers; raises `Invalid`, also for duplicate keys."""
    try:
        text.encode()
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{what} is not JSON: {error}; nothing was decided.", code="not_json") from error


def check_schema(text: str) -> None:
    """Raise `Unsupported` for a schema with a keyword that is not checked here, `Invalid` for a text that is no schema."""
    try:
        schema = cast("Json", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"the response schema is not JSON: {error}; nothing was asked.", code="not_json"
        ) from error
    _check_keywords(schema, schema, 1)


def check_answer(text: str, answer: Json) -> None:
    """Raise `Invalid`, naming the place, if `answer` is not what the schema says."""
    schema = cast("_Schema", json.loads(text))
    fault = _fault(schema, answer, schema, "the answer", 1)
    if fault is not None:
        raise Invalid(f"{fault}; nothing was decided.", code="schema_mismatch", fault=fault)


def check_arguments(text: str, arguments: Json) -> None:
    """Raise `Invalid`, naming the place, if new arguments for a call are not what the schema of its tool says."""
    schema = cast("_Schema", json.loads(text))
    fault = _fault(schema, arguments, schema, "arguments", 1)
    if fault is not None:
        raise Invalid(
            f"the schema of the tool does not allow these arguments: {fault}; nothing was decided.",
            code="schema_mismatch",
            fault=fault,
        )


def checkable(schema: Mapping[str, Json]) -> str | None:
    """Return the text of a schema against which arguments can be checked later; None: it is too long or too complex."""
    text = json.dumps(dict(schema), ensure_ascii=False)
    try:
        check_schema(text)
    except (Unsupported, Invalid):
        return None
    return text if len(text) <= _SCHEMA_MAX else None


def with_defaults(schema: Json, value: Json) -> Json:
    """Return `value` with the defaults that the schema declares for fields that it leaves out, also deep inside."""
    return _filled(schema, value, schema, 1)


def _filled(schema: Json, value: Json, root: Json, depth: int) -> Json:
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return value
    referred = schema.get("$ref")
    if isinstance(referred, str):
        try:
            return _filled(_referred(referred, root), value, root, depth + 1)
        except Unsupported:
            return value
    parts, items = schema.get("properties"), schema.get("items")
    if isinstance(value, dict) and isinstance(parts, dict):
        defaults = {
            name: part["default"]
            for name, part in parts.items()
            if name not in value and isinstance(part, dict) and _is_json(part.get("default", nan))
        }
        given = {name: _filled(parts.get(name), item, root, depth + 1) for name, item in value.items()}
        return defaults | given
    if isinstance(value, list) and items is not None:
        return [_filled(items, item, root, depth + 1) for item in value]
    return value


def _is_json(default: object) -> bool:
    """True unless a schema has no default (NaN), or one that JSON cannot represent."""
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _check_keywords(schema: Json, root: Json, depth: int) -> None:
    """Check the keywords of a schema and of the schemas in it."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        raise Invalid(f"{json.dumps(schema)[:80]} is not a schema; nothing was asked.", code="schema_invalid")
    for keyword, value in schema.items():
        if keyword not in _ANNOTATIONS and keyword not in _RULES:
            raise Unsupported(
                f"answers cannot be checked against the schema keyword '{keyword}'; nothing was asked.",
                code="schema_keyword",
                advice=f"Use {', '.join(sorted(_RULES))}.",
                keyword=keyword,
            )
        _check_parts(keyword, value, root, depth)


def _check_parts(keyword: str, value: Json, root: Json, depth: int) -> None:
    match keyword, value:
        case (("properties" | "$defs"), dict()):
            for part in value.values():
                _check_keywords(part, root, depth + 1)
        case "anyOf", list():
            for part in value:
                _check_keywords(part, root, depth + 1)
        case (("items" | "additionalProperties"), _):
            _check_keywords(value, root, depth + 1)
        case "$ref", str():
            _referred(value, root)
        case (("properties" | "anyOf" | "$ref"), _):
            raise Invalid(
                f"the schema's {keyword} is {json.dumps(value)[:80]}; nothing was asked.",
                code="schema_invalid",
            )
        case _:
            pass


def _fault(schema: Json, value: Json, root: Json, where: str, depth: int) -> str | None:
    """Say what is wrong with `value`; None if nothing is."""
    if isinstance(schema, bool):
        return None if schema else f"{where} is not allowed"
    if depth > DEPTH_MAX:
        return f"{where} is nested deeper than {DEPTH_MAX}"
    for keyword, argument in cast("dict[str, Json]", schema).items():
        rule = _RULES.get(keyword)
        fault = (
            rule(argument, value, _SchemaPlace(cast("dict[str, Json]", schema), root, where, depth))
            if rule
            else None
        )
        if fault is not None:
            return fault
    return None


class _SchemaPlace:
    """The place in a schema and in a value where a rule is applied."""

    __slots__ = ("depth", "root", "schema", "where")

    def __init__(self, schema: Mapping[str, Json], root: Json, where: str, depth: int) -> None:
        self.schema, self.root, self.where, self.depth = schema, root, where, depth

    def below(self, schema: Json, value: Json, step: str = "") -> str | None:
        """Say what is wrong with a part of the value; None if nothing is."""
        return _fault(schema, value, self.root, self.where + step, self.depth + 1)


def _type(wanted: Json, value: Json, place: _SchemaPlace) -> str | None:
    kinds = [str(kind) for kind in wanted] if isinstance(wanted, list) else [str(wanted)]
    if any(kind in _TYPES and _TYPES[kind](value) for kind in kinds):
        return None
    return f"{place.where} is not {' or '.join(kinds)}"


def _enum(allowed: Json, value: Json, place: _SchemaPlace) -> str | None:
    if any(_equal(value, each) for each in cast("list[Json]", allowed)):
        return None
    return f"{place.where} is none of {json.dumps(allowed)[:200]}"


def _const(only: Json, value: Json, place: _SchemaPlace) -> str | None:
    return None if _equal(value, only) else f"{place.where} is not {json.dumps(only)[:200]}"


def _required(names: Json, value: Json, place: _SchemaPlace) -> str | None:
    if not isinstance(value, dict):
        return None
    missing = [str(name) for name in cast("list[Json]", names) if name not in value]
    return f"{place.where} lacks {', '.join(missing)}" if missing else None


def _properties(parts: Json, value: Json, place: _SchemaPlace) -> str | None:
    if not isinstance(value, dict):
        return None
    found = [
        place.below(part, value[name], f"[{name!r}]")
        for name, part in cast("dict[str, Json]", parts).items()
        if name in value
    ]
    return next((fault for fault in found if fault), None)


def _additional(rest: Json, value: Json, place: _SchemaPlace) -> str | None:
    if not isinstance(value, dict):
        return None
    known = cast("dict[str, Json]", place.schema.get("properties") or {})
    found = [place.below(rest, item, f"[{name!r}]") for name, item in value.items() if name not in known]
    return next((fault for fault in found if fault), None)


def _items(part: Json, value: Json, place: _SchemaPlace) -> str | None:
    if not isinstance(value, list):
        return None
    found = [place.below(part, item, f"[{index}]") for index, item in enumerate(value)]
    return next((fault for fault in found if fault), None)


def _any_of(parts: Json, value: Json, place: _SchemaPlace) -> str | None:
    found = [place.below(part, value) for part in cast("list[Json]", parts)]
    return None if None in found else " and ".join(dict.fromkeys(fault for fault in found if fault))


def _ref(target: Json, value: Json, place: _SchemaPlace) -> str | None:
    return place.below(_referred(str(target), place.root), value)


def _within(
    size: Callable[[Json], float | None], below: bool
) -> Callable[[Json, Json, _SchemaPlace], str | None]:
    def rule(bound: Json, value: Json, place: _SchemaPlace) -> str | None:
        measured, limit = size(value), cast("float", bound)
        if measured is None or (measured >= limit if below else measured <= limit):
            return None
        return f"{place.where} is {'under' if below else 'over'} the limit of {limit}"

    return rule


def _number(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _letters(value: Json) -> int | None:
    return len(value) if isinstance(value, str) else None


def _length(value: Json) -> int | None:
    return len(value) if isinstance(value, list) else None


_RULES: dict[str, Callable[[Json, Json, _SchemaPlace], str | None]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "anyOf": _any_of,
    "$ref": _ref,
    "minimum": _within(_number, below=True),
    "maximum": _within(_number, below=False),
    "minLength": _within(_letters, below=True),
    "maxLength": _within(_letters, below=False),
    "minItems": _within(_length, below=True),
    "maxItems": _within(_length, below=False),
}


def _referred(target: str, root: Json) -> Json:
    name = target.removeprefix("#/$defs/")
    known = root.get("$defs") if isinstance(root, dict) else None
    if name == target or not isinstance(known, dict) or name not in known:
        raise Unsupported(
            f"the schema refers to '{target}', which is not one of its own $defs; nothing was asked.",
            code="schema_reference",
            reference=target,
        )
    return known[name]


def _equal(one: Json, other: Json) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other
