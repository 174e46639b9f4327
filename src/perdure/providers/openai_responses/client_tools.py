"""OpenAI's own tools that a program carries out: shell, patches, the computer, tool search, approvals of MCP calls.

The model asks for them by items of their own kinds.  Each becomes an ordinary tool call, under a name
that no function has (`openai.shell`), so that it is in the ledger, is guarded by its effect, and is
carried out by the tool that the agent declares for it with `serves=`.  The item itself is kept and goes
back as it came; its result goes back in the item that OpenAI expects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import ToolSpec
from perdure.model.message import Image, Text, ToolResult
from perdure.providers.wire.shells import items_of, object_of, text_of

__all__ = ["TOOLS", "arguments_of", "choice_of", "declarations", "is_client_call", "name_of", "output_of"]

# What the model asks for, by the kind of its item.
_NAMES = {
    "apply_patch_call": "openai.apply_patch",
    "computer_call": "openai.computer",
    "local_shell_call": "openai.local_shell",
    "mcp_approval_request": "openai.mcp_approval",
    "shell_call": "openai.shell",
    "tool_search_call": "openai.tool_search",
}
# How a tool is declared to the model, by its name; a request that declares one of these kinds itself keeps its own.
TOOLS: dict[str, dict[str, Any]] = {
    "openai.apply_patch": {"type": "apply_patch"},
    "openai.computer": {"type": "computer"},
    "openai.local_shell": {"type": "local_shell"},
    "openai.shell": {"type": "shell", "environment": {"type": "local"}},
}
_SAME_KIND = {"computer_use_preview": "computer", "computer-preview": "computer"}
_FILE_ID = "file-id://openai/"


def is_client_call(item: Mapping[str, Any], answered: frozenset[str] = frozenset()) -> bool:
    """Whether a program has to carry out what an item asks for; `answered` are calls whose output is there."""
    if text_of(item.get("type")) not in _NAMES or text_of(item.get("call_id")) in answered - {""}:
        return False
    if item["type"] == "tool_search_call":
        return item.get("execution") == "client"
    place = text_of(object_of(item.get("environment")).get("type"))
    return not place.startswith("container")  # commands in a container are run by OpenAI


def name_of(item: Mapping[str, Any]) -> str:
    """The name of the tool that an item asks for."""
    return _NAMES[str(item.get("type"))]


def arguments_of(item: Mapping[str, Any]) -> str:
    """The arguments of a call, as JSON text; what the model left open is left out."""
    match item.get("type"):
        case "apply_patch_call":
            asked = object_of(item.get("operation"))
        case "computer_call":
            actions = items_of(item.get("actions")) or [item.get("action")]
            asked = {"actions": actions, "pending_safety_checks": item.get("pending_safety_checks") or None}
        case "mcp_approval_request":
            asked = {
                "approval_request_id": item.get("id"),
                "server_label": item.get("server_label"),
                "name": item.get("name"),
                "arguments": _parsed(text_of(item.get("arguments"))),
            }
        case "tool_search_call":
            asked = object_of(item.get("arguments"))
        case "local_shell_call":
            action = object_of(item.get("action"))
            asked = {key: value for key, value in action.items() if key != "type"}
        case _:
            asked = object_of(item.get("action"))
    given = {key: value for key, value in asked.items() if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def declarations(tools: Sequence[ToolSpec], declared: Sequence[Any]) -> list[dict[str, Any]]:
    """What the model is told of the tools that serve OpenAI's own, beside those that are `declared` already."""
    kinds = {text_of(object_of(tool).get("type")) for tool in declared}
    known = kinds | {_SAME_KIND[kind] for kind in kinds & _SAME_KIND.keys()}
    wanted = [TOOLS[tool.serves] for tool in tools if tool.serves in TOOLS]
    return [dict(tool) for tool in wanted if tool["type"] not in known]


def choice_of(tool: ToolSpec) -> dict[str, Any] | None:
    """How a request says that a tool has to be called; None: as any function."""
    return {"type": TOOLS[tool.serves]["type"]} if tool.serves in TOOLS else None


def output_of(item: Mapping[str, Any], id: str, result: ToolResult) -> dict[str, Any] | None:
    """The item that answers a call; None: OpenAI takes no such answer, and it has to be told in words."""
    text = "\n".join(block.text for block in result.content if isinstance(block, Text))
    is_done = result.status == "success"
    match item.get("type"):
        case "shell_call":
            most = object_of(item.get("action")).get("max_output_length")
            limit = {} if most is None else {"max_output_length": most}
            return {
                "type": "shell_call_output",
                "call_id": id,
                "output": _commands(text, is_done=is_done),
                **limit,
            }
        case "local_shell_call":
            return {"type": "local_shell_call_output", "id": id, "call_id": id, "output": text}
        case "apply_patch_call":
            status = "completed" if is_done else "failed"
            return {"type": "apply_patch_call_output", "call_id": id, "status": status, "output": text}
        case "mcp_approval_request":
            is_approved = is_done and text.strip() == "true"
            reason = {} if is_approved or not text else {"reason": text}
            answer = {"type": "mcp_approval_response", "approval_request_id": id, "approve": is_approved}
            return {**answer, **reason}
        case "tool_search_call":
            found = _parsed(text) if is_done else None
            output = {"type": "tool_search_output", "call_id": id, "execution": "client"}
            return {**output, "status": "completed", "tools": found} if isinstance(found, list) else None
        case _:
            return _screenshot(item, id, result)


def _screenshot(item: Mapping[str, Any], id: str, result: ToolResult) -> dict[str, Any] | None:
    seen = next((block.uri for block in result.content if isinstance(block, Image)), None)
    if seen is None or not seen.startswith(("data:", "http:", "https:", _FILE_ID)):
        return None
    where = {"file_id": seen.removeprefix(_FILE_ID)} if seen.startswith(_FILE_ID) else {"image_url": seen}
    output: dict[str, Any] = {"type": "computer_call_output", "call_id": id}
    output["output"] = {"type": "computer_screenshot", **where}
    checks = items_of(item.get("pending_safety_checks"))
    if checks and result.status == "success":  # the tool, or whoever approved it, saw them in its arguments
        output["acknowledged_safety_checks"] = checks
    return output


def _commands(text: str, *, is_done: bool) -> list[dict[str, Any]]:
    """What each command gave: as the tool says it, or all of the text as what one of them printed."""
    value = _parsed(text)
    told = cast("list[Any]", value) if isinstance(value, list) else [value]
    if told and all(object_of(each).keys() & {"stdout", "stderr", "exit_code", "outcome"} for each in told):
        return [_command(object_of(each)) for each in told]
    said = {"stdout": text} if is_done else {"stderr": text, "exit_code": 1}
    return [_command(said)]


def _command(told: Mapping[str, Any]) -> dict[str, Any]:
    code = told.get("exit_code")
    ended = {"type": "exit", "exit_code": code if isinstance(code, int) else 0}
    return {
        "stdout": text_of(told.get("stdout")),
        "stderr": text_of(told.get("stderr")),
        "outcome": object_of(told.get("outcome")) or ended,
    }


def _parsed(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
