"""Tools as Bedrock is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.contract import Loss, LossKind

__all__ = ["NAMES", "NAME_MAX", "tools_of"]

NAME_MAX = 64
NAMES = rf"[a-zA-Z0-9_-]{{1,{NAME_MAX}}}"


def tools_of(
    context: Context, listed: object, names: Mapping[str, str], losses: list[Loss], *, called: Sequence[str]
) -> list[dict[str, Any]]:
    """The tools; in the order of `listed`, where a Bedrock request had such a list; and those of the history."""
    specs: dict[str, tuple[int, ToolSpec]] = {}
    for at, spec in enumerate(context.tools):
        if spec.name in specs:
            _lose(
                losses,
                "dropped",
                f"tools[{at}]",
                "tool",
                f"'{spec.name}' is declared twice; the first stands",
            )
        else:
            specs[spec.name] = (at, spec)
    made: list[dict[str, Any]] = []
    for entry in cast("list[dict[str, Any]]", listed) if isinstance(listed, list) else []:
        if "name" not in entry:
            made.append(dict(entry))
        elif (found := specs.pop(str(entry["name"]), None)) is not None:
            made.append(_tool(*found, names, losses))
    made += [_tool(at, spec, names, losses) for at, spec in specs.values()]
    declared = {tool["toolSpec"]["name"] for tool in made if "toolSpec" in tool}
    return made + ([] if declared else _of_history(called, losses))


def _of_history(called: Sequence[str], losses: list[Loss]) -> list[dict[str, Any]]:
    """Bedrock wants tools declared wherever the history has calls."""
    for name in called:
        why = f"'{name}' was called, and Bedrock wants it declared; it takes anything"
        _lose(losses, "repaired", "tools", "tool", why)
    return [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in called]


def _tool(at: int, spec: ToolSpec, names: Mapping[str, str], losses: list[Loss]) -> dict[str, Any]:
    schema = dict(spec.parameters)
    if schema.get("type") != "object":
        if schema:
            why = "it is not said to be of an object; it is now"
            _lose(losses, "repaired", f"tools[{at}].parameters", "schema", why)
        schema["type"] = "object"
    tool: dict[str, Any] = {"name": names[spec.name], "inputSchema": {"json": schema}}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict is not None:
        tool["strict"] = spec.strict
    return {"toolSpec": tool}


def _lose(losses: list[Loss], kind: LossKind, where: str, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where=where, what=what, why=why))
