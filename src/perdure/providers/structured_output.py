"""Prepares how an answer is returned: by a strict schema, and as a stream.

The schema of a type refers to its own definition and leaves objects open.  Backends demand a strict schema,
which begins with an object and closes every object.
"""

from __future__ import annotations

from typing import Any, cast

from perdure.model.canonical import Json

__all__ = ["as_sent", "output_of", "request_options"]

_TELLS_USAGE = frozenset({"openai-chat", "azure-inference-chat"})  # in a stream, if it is asked to
_DEFINITIONS = "#/$defs/"


def request_options(given: dict[str, Json]) -> dict[str, Json]:
    """Return the options of a request in their canonical names; an answer is streamed unless they say otherwise."""
    schema = given.pop("output_schema", None)
    if schema is not None and "output" not in given:
        given["output"] = output_of(schema)
    given["stream"] = given.get("stream") is not False
    return given


def as_sent(api: str, body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """Return the rendered body of a request with what sending it adds: how the answer is to come."""
    if api in _TELLS_USAGE and stream:
        return {"stream_options": {"include_usage": True}, **body}
    if api == "anthropic-messages":
        return {**body, "stream": stream}
    return body


def output_of(schema: Json) -> dict[str, Json]:
    """Return the canonical option `output` for the schema of a type."""
    if not isinstance(schema, dict):
        return {"schema": schema, "name": "output"}
    root = _rooted(cast("dict[str, Json]", schema))
    return {"schema": _closed(root), "name": _name(root), "strict": True}


def _rooted(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema with the definition that it refers to in its place."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    name = reference.removeprefix(_DEFINITIONS)
    root = definitions.get(name)
    if not reference.startswith(_DEFINITIONS) or not isinstance(root, dict):
        return schema
    others = {
        key: each for key, each in definitions.items() if key != name or _refers(definitions, reference)
    }
    rest = {key: each for key, each in schema.items() if key not in ("$ref", "$defs")}
    return {**root, **rest, **({"$defs": others} if others else {})}


def _refers(value: Json, reference: str) -> bool:
    """True if something inside refers to that definition."""
    if isinstance(value, dict):
        return value.get("$ref") == reference or any(_refers(each, reference) for each in value.values())
    return isinstance(value, list) and any(_refers(each, reference) for each in value)


def _closed(value: Json) -> Json:
    """Return the schema with no object open to further fields, where it did not say so itself."""
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _closed(each) for key, each in value.items()}
    if value.get("type") == "object" and isinstance(value.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _name(schema: dict[str, Json]) -> str:
    title = str(schema.get("title") or "")
    return (
        "".join(each for each in title if each.isascii() and (each.isalnum() or each in "_-"))[:64]
        or "output"
    )
