"""Schemas: the API's own dialect, after OpenAPI, as JSON schema."""

from __future__ import annotations

from typing import Any

from perdure.providers.gemini.names import camel
from perdure.providers.wire.shells import is_list, items_of, object_of

__all__ = ["json_schema"]

_ONE_BELOW = ("items", "additionalProperties", "not")
_LIST_BELOW = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAP_BELOW = ("properties", "$defs", "defs", "definitions")
_NUMBERS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")


def json_schema(schema: object) -> dict[str, Any]:
    """The JSON schema that a schema of the API's dialect means: types in small letters, null as a type."""
    told = camel(schema)
    found: dict[str, Any] = {}
    for name, value in told.items():
        if name in _ONE_BELOW and object_of(value):
            found[name] = json_schema(object_of(value))
        elif name in _LIST_BELOW:
            found[name] = [json_schema(each) for each in items_of(value)]
        elif name in _MAP_BELOW:
            found[name] = {key: json_schema(each) for key, each in object_of(value).items()}
        elif name in _NUMBERS and isinstance(value, str) and value.isdigit():
            found[name] = int(value)  # 64-bit integers travel as text
        elif name == "type":
            found["type"] = _small(value)
        elif name == "example":
            found["examples"] = [value]
        elif name not in ("nullable", "propertyOrdering"):
            found[name] = value
    return _nullable(found) if told.get("nullable") is True else found


def _small(kind: Any) -> Any:
    if is_list(kind):
        return [_small(each) for each in items_of(kind)]
    return kind.lower() if isinstance(kind, str) else kind


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        enum = {"enum": [*items_of(schema["enum"]), None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **enum}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*items_of(schema["anyOf"]), {"type": "null"}]}
    return schema
