"""Reads items of the Responses API: each adds its blocks and calls to a turn and leaves the item with holes.

The program runs some of OpenAI's own tools: shell, patches, the computer, tool search, approvals of MCP calls.
The model calls them by items of their own kinds.  Each becomes an ordinary tool call, under a name that no
function has (`openai.shell`): the ledger records it, its effect guards it, and the tool that the agent declares
for it with `serves=` runs it.  The item is stored and sent back unchanged; its result is sent in the item that
OpenAI expects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import ToolSpec
from perdure.model.message import File, Image, Text, ToolResult
from perdure.providers.contract import Loss
from perdure.providers.wire.fields.vendor_items import (
    VendorTurn,
    is_list,
    items_of,
    json_or_text,
    object_of,
    text_of,
)
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.media import data_url, inline, kind_of, media_type_of
from perdure.providers.wire.server_tools import account

__all__ = [
    "CALL",
    "CALLS",
    "SERVER_ITEMS",
    "file_of",
    "image_of",
    "read_item",
    "read_parts",
    "TOOLS",
    "arguments_of",
    "choice_of",
    "declarations",
    "is_client_call",
    "name_of",
    "output_of",
]


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
    """True if a program has to carry out what an item asks for; `answered` are calls whose output is there."""
    if text_of(item.get("type")) not in _NAMES or text_of(item.get("call_id")) in answered - {""}:
        return False
    if item["type"] == "tool_search_call":
        return item.get("execution") == "client"
    place = text_of(object_of(item.get("environment")).get("type"))
    return not place.startswith("container")  # commands in a container are run by OpenAI


def name_of(item: Mapping[str, Any]) -> str:
    """Return the name of the tool that an item asks for."""
    return _NAMES[str(item.get("type"))]


def arguments_of(item: Mapping[str, Any]) -> str:
    """Return the arguments of a call, as JSON text; what the model left open is left out."""
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
                "arguments": json_or_text(text_of(item.get("arguments"))),
            }
        case "tool_search_call":
            asked = object_of(item.get("arguments"))
        case "local_shell_call":
            action = object_of(item.get("action"))
            asked = {key: value for key, value in action.items() if key != "type"}
        case _:
            asked = object_of(item.get("action"))
    given = {key: value for key, value in asked.items() if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def declarations(tools: Sequence[ToolSpec], declared: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the declarations of OpenAI's own tools that the agent serves, without those `declared` already."""
    kinds = {text_of(object_of(tool).get("type")) for tool in declared}
    known = kinds | {_SAME_KIND[kind] for kind in kinds & _SAME_KIND.keys()}
    wanted = [TOOLS[tool.serves] for tool in tools if tool.serves in TOOLS]
    return [dict(tool) for tool in wanted if tool["type"] not in known]


def choice_of(tool: ToolSpec) -> dict[str, Any] | None:
    """Return the choice that forces a call of a tool; None: that of any function."""
    return {"type": TOOLS[tool.serves]["type"]} if tool.serves in TOOLS else None


def output_of(item: Mapping[str, Any], id: str, result: ToolResult) -> dict[str, Any] | None:
    """Return the item that answers a call; None: OpenAI accepts no such answer, and it is sent as text."""
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
            found = json_or_text(text) if is_done else None
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
    if checks and result.status == "success":  # the tool, or its approver, saw them in the arguments
        output["acknowledged_safety_checks"] = checks
    return output


def _commands(text: str, *, is_done: bool) -> list[dict[str, Any]]:
    """Return the output of each command: as the tool reports it, or the whole text as the output of one."""
    value = json_or_text(text)
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


CALL = "#call"  # in the shell of a call: which of the message's calls it is
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}

# What the model's own tools did, what was asked of the user, and what only the server can read.
SERVER_ITEMS = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "computer_call_output",
        "file_search_call",
        "image_generation_call",
        "item_reference",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
_ASKED = ("arguments", "input", "queries", "query", "code", "action", "operation", "revised_prompt", "prompt")
_GAVE = ("output", "outputs", "results", "result", "approve", "error")


def read_item(
    item: Any, turn: VendorTurn, losses: list[Loss], where: str, answered: frozenset[str] | None = None
) -> Any:
    """Add an item of the model to its turn; return the item with holes.

    `answered` are the calls of an answer that have their output in it; None: it is a request, whose calls
    of OpenAI's own tools are history.
    """
    told = object_of(item)
    if answered is not None and is_client_call(told, answered):
        id = text_of(told.get("call_id")) or text_of(told.get("id"))
        return {**told, CALL: turn.call(id, name_of(told), arguments_of(told))}
    match told.get("type"):
        case None | "message" if "content" in told:
            return {**told, "content": read_parts(told["content"], turn, losses, where)}
        case "reasoning":
            return _reasoning(told, turn)
        case "function_call" | "custom_tool_call":
            return _call(told, turn, where)
        case "image_generation_call":
            return _picture(told, turn)
        case str(kind):
            return _server_item(kind, told, turn, losses, where)
        case _:
            raise malformed(where, "is no item of the Responses API: it has neither a type nor content")


def read_parts(parts: Any, turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    """Return the content of a message or a result: words, or a list of parts."""
    if parts is None or isinstance(parts, str):
        return turn.text(parts or "")
    if not is_list(parts):
        raise malformed(where, "has a content that is neither text nor a list")
    return [
        _part(object_of(part), turn, losses, f"{where}.content[{at}]")
        for at, part in enumerate(items_of(parts))
    ]


def _part(part: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    match part.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return {**part, "text": turn.text(text_of(part.get("text")))}
        case "refusal":
            return {**part, "refusal": turn.text(text_of(part.get("refusal")))}
        case "input_image" if isinstance(url := part.get("image_url"), str):
            return {**part, "image_url": turn.media(image_of(url))}
        case "input_file" if isinstance(url := part.get("file_url"), str):
            return {**part, "file_url": turn.media(file_of(url))}
        case "input_file" if isinstance(data := part.get("file_data"), str):
            return _file(part, data, turn)
        case "input_image" | "input_file" if isinstance(id := part.get("file_id"), str):
            kind = Image if part["type"] == "input_image" else File
            turn.add(kind(uri=f"file-id://openai/{id}", mime_type=_named(part)))
            return part
        case kind:
            turn.add(account(str(kind), str(kind), input={k: v for k, v in part.items() if k != "type"}))
            losses.append(_opaque(where, str(kind)))
            return part


def image_of(url: str) -> Image:
    """Return a picture by its address; the media type is that of its bytes, if they are there."""
    held = inline(url)
    if held is None:
        return Image(uri=url, mime_type=_by_ending(url, "image/*"))
    uri = url if held.declared == held.media_type else data_url(held.media_type, held.base64)
    return Image(uri=uri, mime_type=held.media_type)


def file_of(url: str, name: str = "") -> File:
    """Return a file by its address."""
    held = inline(url)
    if held is None:
        return File(uri=url, mime_type=_by_ending(name or url, "application/octet-stream"))
    uri = url if held.declared == held.media_type else data_url(held.media_type, held.base64)
    return File(uri=uri, mime_type=held.media_type)


def _file(part: dict[str, Any], data: str, turn: VendorTurn) -> Any:
    if data.startswith("data:"):
        return {**part, "file_data": turn.media(file_of(data))}
    declared = _by_ending(text_of(part.get("filename")), "application/octet-stream")
    held = inline(data_url(declared, data))
    uri = data_url(declared if held is None else media_type_of(declared, held.bytes), data)
    return {**part, "file_data": turn.media(file_of(uri), base64=True)}


def _named(part: dict[str, Any]) -> str:
    fallback = "image/*" if part["type"] == "input_image" else "application/octet-stream"
    return _by_ending(text_of(part.get("filename")), fallback)


def _by_ending(name: str, fallback: str) -> str:
    ending = name.partition("?")[0].rpartition(".")[2].lower()
    return _ENDINGS.get(ending, fallback) if kind_of("", name) != "file" or ending in _ENDINGS else fallback


_ENDINGS = {
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "txt": "text/plain",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def _reasoning(item: dict[str, Any], turn: VendorTurn) -> Any:
    parts = [
        {**object_of(part), "text": turn.reasoning(text_of(object_of(part).get("text")))}
        for part in items_of(item.get("summary"))
    ]
    return {**item, "summary": parts} if "summary" in item else item


def _call(item: dict[str, Any], turn: VendorTurn, where: str) -> Any:
    field = CALLS[item["type"]]
    name, args = item.get("name"), item.get(field, "")
    if not isinstance(name, str) or not name:
        raise malformed(where, "is a call that names no tool")
    if not isinstance(args, str):
        args = json.dumps(args, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    at = turn.call(text_of(item.get("call_id")) or text_of(item.get("id")), name, args)
    rest = {key: value for key, value in item.items() if key not in ("call_id", "name", field)}
    return {**rest, CALL: at}


def _picture(item: dict[str, Any], turn: VendorTurn) -> Any:
    turn.add(
        account(item["type"], "image_generation", input=item.get("revised_prompt") or item.get("prompt"))
    )
    data = item.get("result")
    if not isinstance(data, str) or not data:
        return item
    if data.startswith("data:"):
        return {**item, "result": turn.media(image_of(data))}
    declared = f"image/{text_of(item.get('output_format')) or 'png'}"
    held = inline(data_url(declared, data))
    named = declared if held is None else held.media_type
    if held is None or held.base64 != data:
        return item
    return {
        **item,
        "result": turn.media(Image(uri=data_url(named, data), mime_type=named), base64=True),
    }


def _server_item(
    kind: str, item: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str
) -> dict[str, Any]:
    name = text_of(item.get("name")) or kind.removesuffix("_output").removesuffix("_call")
    asked = next((item[key] for key in _ASKED if item.get(key) not in (None, "", [], {})), None)
    gave = next((item[key] for key in _GAVE if item.get(key) not in (None, "", [], {})), None)
    if gave is None and isinstance(item.get("tools"), list):
        gave = [object_of(tool).get("name") or object_of(tool).get("type") for tool in item["tools"]]
    turn.add(account(kind, name, input=asked, result=gave))
    if kind not in SERVER_ITEMS:
        losses.append(_opaque(where, kind))
    return item


def _opaque(where: str, kind: str) -> Loss:
    return Loss(
        kind="converted",
        where=where,
        what=kind,
        why="its kind is not known; it is kept as it came for OpenAI",
    )
