"""Tools of a Chat request: legal names, schemas that a server takes, which of them to use, what form to answer in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.model.context import ToolSpec
from perdure.providers.contract import Loss
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.shape import objects_of
from perdure.providers.wire.shells import items_of, object_of
from perdure.providers.wire.tool_names import ToolNames

__all__ = ["NAMES", "is_closed", "render_choice", "render_output", "render_tools"]

NAMES = r"[a-zA-Z0-9_-]{1,64}"
_INSIDE = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not")


def render_tools(
    tools: Sequence[ToolSpec], own: object, names: ToolNames, place: Server, losses: list[Loss]
) -> list[dict[str, Any]]:
    """The declarations of functions, then those of the server's own tools."""
    others = objects_of(own)
    more = {_name(each): each for each in others if "function" in each}
    found: dict[str, dict[str, Any]] = {}
    for at, tool in enumerate(tools):
        name = names.of(tool.name)
        if name in found:
            losses.append(_loss("dropped", f"tools[{at}]", "tool", f"'{name}' is declared twice"))
            continue
        if name != tool.name:
            losses.append(
                _loss("repaired", f"tools[{at}].name", "tool name", f"'{tool.name}' goes by '{name}'")
            )
        declared = {"type": "function", "function": _function(tool, name, at, place, losses)}
        found[name] = declared | {
            key: value for key, value in more.get(tool.name, {}).items() if key != "function"
        }
    return [*found.values(), *(each for each in others if "function" not in each)]


def render_choice(
    choice: object, names: ToolNames, tools: Sequence[Mapping[str, Any]], place: Server, losses: list[Loss]
) -> object:
    """The field `tool_choice`; None where there is nothing to choose."""
    if choice is None:
        return None
    if not tools:
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", "no tools are declared"))
        return None
    match choice:
        case "required":
            return place.required
        case "auto" | "none":
            return choice
        case {"name": str(name)} if any(_name(tool) == name for tool in tools) or _declared(
            names, name, tools
        ):
            return {"type": "function", "function": {"name": names.of(name)}}
        case _:
            losses.append(_loss("dropped", "options.tool_choice", "tool choice", "it names no declared tool"))
            return None


def render_output(output: object, place: Server, losses: list[Loss]) -> dict[str, Any] | None:
    """The field `response_format`."""
    match output:
        case None:
            return None
        case "json":
            return {"type": "json_object"}
        case {"schema": dict()}:
            asked = object_of(output)
            schema = object_of(asked["schema"])
            wanted: dict[str, Any] = {"name": _format_name(asked.get("name"), losses), "schema": schema}
            wanted |= {name: asked[name] for name in ("description", "strict") if asked.get(name) is not None}
            if wanted.get("strict") and place.strict == "checked" and not is_closed(schema):
                wanted["strict"] = False
                losses.append(_loss("repaired", "options.output", "strict schema", _OPEN))
            return {"type": "json_schema", "json_schema": wanted}
        case _:
            losses.append(
                _loss("dropped", "options.output", "output form", "it is neither 'json' nor a schema")
            )
            return None


def is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is as strict ones have to be: every object closed, and all its properties required."""
    properties = object_of(schema.get("properties"))
    if properties or schema.get("type") == "object":
        required = {name for name in items_of(schema.get("required")) if isinstance(name, str)}
        if schema.get("additionalProperties") is not False or not set(properties) <= required:
            return False
    return all(is_closed(each) for each in _schemas(schema))


_OPEN = "an object of it is open or has properties that are not required; the schema is given as a loose one"


def _schemas(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas inside one."""
    found: list[Any] = [schema.get(name) for name in _ONE]
    for name in _INSIDE:
        found.extend(object_of(schema.get(name)).values())
    for name in _LISTS:
        found.extend(items_of(schema.get(name)))
    return objects_of(found)


def _function(tool: ToolSpec, name: str, at: int, place: Server, losses: list[Loss]) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "description": tool.description}
    function["parameters"] = _parameters(tool, at, losses)
    strict = tool.strict
    if strict and place.strict == "none":
        losses.append(
            _loss("dropped", f"tools[{at}].strict", "strict tool", "this server has no strict tools")
        )
    elif strict and place.strict == "checked" and not is_closed(function["parameters"]):
        losses.append(_loss("repaired", f"tools[{at}].strict", "strict tool", _OPEN))
        strict = False
    if strict is not None and place.strict != "none":
        function["strict"] = strict
    return function


def _parameters(tool: ToolSpec, at: int, losses: list[Loss]) -> dict[str, Any]:
    parameters = dict(tool.parameters)
    if not parameters:
        closed: dict[str, Any] = {"additionalProperties": False} if tool.strict else {}
        return {"type": "object", "properties": {}, **closed}
    if parameters.get("type") != "object":
        losses.append(_loss("repaired", f"tools[{at}].parameters", "schema", "its type has to be object"))
        return parameters | {"type": "object"}
    return parameters


def _format_name(name: object, losses: list[Loss]) -> str:
    if not isinstance(name, str) or not name:
        return "output"
    legal = ToolNames([name], NAMES).of(name)
    if legal == name:
        return name
    losses.append(_loss("repaired", "options.output.name", "name of the schema", "it is not legal here"))
    return legal


def _declared(names: ToolNames, name: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    known = names.given.get(name)
    return any(_name(tool) == known for tool in tools)


def _name(tool: Mapping[str, Any]) -> str:
    return str(object_of(tool.get("function")).get("name") or "")


def _loss(kind: str, where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)  # pyright: ignore[reportArgumentType]
