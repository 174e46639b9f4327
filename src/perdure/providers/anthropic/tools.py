"""Tools as Anthropic is told of them: names, schemas, and its own server-side tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.contract import Loss

__all__ = ["NAMES", "NAME_MAX", "closed", "tools_of"]

NAME_MAX = 128
NAMES = rf"[a-zA-Z0-9_-]{{1,{NAME_MAX}}}"

# What a schema that has to be kept may not say; the service refuses each of these.
_UNKEPT = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "contains",
    }
)
_SCHEMAS = ("properties", "$defs", "definitions")
_SCHEMA = ("items", "not", "additionalProperties")
_CHOICES = ("anyOf", "allOf", "oneOf", "prefixItems")


def tools_of(
    context: Context, listed: object, names: Mapping[str, str], losses: list[Loss]
) -> list[dict[str, Any]]:
    """The tools; in the order of `listed`, where an Anthropic request had such a list."""
    specs: dict[str, tuple[int, ToolSpec]] = {}
    for at, spec in enumerate(context.tools):
        if spec.name in specs:
            losses.append(_loss("dropped", at, "tool", f"'{spec.name}' is declared twice; the first stands"))
        else:
            specs[spec.name] = (at, spec)
    made: list[dict[str, Any]] = []
    for entry in _listed(listed):
        found = specs.pop(str(entry.get("name")), None) if "type" not in entry else None
        if found is not None:
            more = {key: value for key, value in entry.items() if key != "name"}
            made.append(_tool(*found, names, losses) | more)
        elif "type" in entry:
            made.append(dict(entry))
    made += [_tool(at, spec, names, losses) for at, spec in specs.values()]
    return _once(made, losses)


def _listed(listed: object) -> Sequence[Mapping[str, Any]]:
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]


def _once(tools: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """No two tools of one name."""
    found: dict[object, dict[str, Any]] = {}
    for at, tool in enumerate(tools):
        key = str(tool["name"]) if tool.get("name") else at
        if key in found:
            losses.append(_loss("dropped", at, "tool", f"'{key}' is declared twice; the first stands"))
        else:
            found[key] = tool
    return list(found.values())


def _tool(at: int, spec: ToolSpec, names: Mapping[str, str], losses: list[Loss]) -> dict[str, Any]:
    schema = dict(spec.parameters)
    if schema.get("type") != "object":
        if schema:
            losses.append(_loss("repaired", at, "schema", "it is not said to be of an object; it is now"))
        schema["type"] = "object"
        schema.setdefault("properties", {})
    refused = [key for key in ("anyOf", "oneOf", "allOf") if schema.pop(key, None) is not None]
    why = "Anthropic refuses it at the top of a schema"
    losses += [_loss("dropped", at, f"schema rule {key}", why) for key in refused]
    tool: dict[str, Any] = {"name": names[spec.name], "description": spec.description}
    if spec.strict is not None:
        tool["strict"] = spec.strict
    tool["input_schema"] = closed(schema, f"tools[{at}].parameters", losses) if spec.strict else schema
    return tool


def closed(schema: Any, where: str, losses: list[Loss]) -> Any:
    """A schema as the service keeps it: every object closed, no limits on sizes; each removal is a loss."""
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key in _UNKEPT or (key == "minItems" and value not in (0, 1)):
            why = "Anthropic keeps no such rule"
            losses.append(Loss(kind="dropped", where=f"{where}.{key}", what=f"schema rule {key}", why=why))
        elif key in _SCHEMAS and isinstance(value, Mapping):
            parts = cast("Mapping[str, Any]", value)
            made[key] = {name: closed(part, f"{where}.{key}.{name}", losses) for name, part in parts.items()}
        elif key in _SCHEMA:
            made[key] = closed(value, f"{where}.{key}", losses)
        elif key in _CHOICES and isinstance(value, list):
            parts = enumerate(cast("list[Any]", value))
            made[key] = [closed(part, f"{where}.{key}[{at}]", losses) for at, part in parts]
        else:
            made[key] = value
    return _shut(made, where, losses)


def _shut(schema: dict[str, Any], where: str, losses: list[Loss]) -> dict[str, Any]:
    if schema.get("type") != "object" or schema.get("additionalProperties") is False:
        return schema
    why = (
        "Anthropic demands that objects are closed"
        if "additionalProperties" in schema
        else "it was not said whether it is closed; Anthropic demands it"
    )
    losses.append(Loss(kind="repaired", where=where, what="open object", why=why))
    return schema | {"additionalProperties": False}


def _loss(kind: str, at: int, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=f"tools[{at}]", what=what, why=why)  # pyright: ignore[reportArgumentType]
