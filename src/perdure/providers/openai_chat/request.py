"""A Chat request as a context: import is the same code as switching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.canonical import Json
from perdure.model.context import ToolSpec
from perdure.model.message import Message, ToolCall, ToolResult
from perdure.providers.contract import Asked, Loss
from perdure.providers.openai_chat.content import CACHE_MARKS, without_marks
from perdure.providers.openai_chat.message import clean_id, made_id, read_message, unknown_parts, words_of
from perdure.providers.openai_chat.options import read_options
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Origin, objects_of, with_beside
from perdure.providers.wire.fields.unknown import asked
from perdure.providers.wire.fields.vendor_items import items_of, object_of
from perdure.providers.wire.fields.vendor_metadata import id_of_tool

__all__ = ["read_request"]

_SYSTEM = ("system", "developer")

# What is read of a request where nothing else is kept.
_FIELDS = {
    "messages[].tool_calls[].function": frozenset({"name", "arguments"}),
    "messages[].function_call": frozenset({"name", "arguments"}),
    "tools[].function": frozenset({"name", "description", "parameters", "strict"}),
    "functions[]": frozenset({"name", "description", "parameters", "strict"}),
    "response_format": frozenset({"type", "json_schema"}),
    "response_format.json_schema": frozenset({"name", "description", "schema", "strict"}),
}


def read_request(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Asked:
    """The context that a request shows; raises `Invalid` if it is none."""
    raw = body.get("messages")
    if not isinstance(raw, list):
        raise Invalid(f"this is no {api} request: 'messages' is no list; nothing was read.")
    listed = [_checked(message, at) for at, message in enumerate(cast("list[Any]", raw))]
    system, first, rich = _system(listed, origin)
    options, fields = read_options(body, place)
    if rich:
        fields["system"] = rich
    tools, others = _tools(body)
    if others:
        fields["tools"] = others
    if set(fields) - {"system"}:
        fields["endpoint"] = origin.endpoint
    if fields:
        options["vendor"] = cast("Json", {api: fields})
    if _is_marked([*listed, *_listed(body.get("tools"), "tools")]):
        options["cache"] = True
    history = _IncomingMessages(origin)
    messages = history.read(listed, first)
    read = Asked(system=system, messages=messages, tools=tools, options=options, losses=tuple(history.losses))
    return asked(read, body, _FIELDS)


def _checked(message: object, at: int) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(cast("dict[str, Any]", message).get("role"), str):
        raise Invalid(f"messages[{at}] is no Chat message with a role; nothing was read.")
    return cast("dict[str, Any]", message)


def _system(listed: list[dict[str, Any]], origin: Origin) -> tuple[str, int, list[dict[str, Any]]]:
    """The words of the first system messages, how many there are, and they themselves if they are more than words."""
    first = next((at for at, message in enumerate(listed) if message["role"] not in _SYSTEM), len(listed))
    leading = [without_marks(message) for message in listed[:first]]
    words = [
        words_of(message.get("content"), f"messages[{at}].content", origin.endpoint)
        for at, message in enumerate(leading)
    ]
    system = "\n\n".join(word for word in words if word)
    plain = [{"role": "system", "content": system}] if system else []
    rich = [message | {"content": _unmarked(message.get("content"))} for message in leading]
    return system, first, [] if rich == plain else rich


def _unmarked(content: object) -> object:
    """Parts of a system message without marks; several, or one that is only words, as they are."""
    if not isinstance(content, list):
        return content
    parts = [
        part if isinstance(part, str) else without_marks(object_of(part))
        for part in items_of(cast("object", content))
    ]
    one = object_of(parts[0]) if len(parts) == 1 else {}
    return one["text"] if set(one) == {"type", "text"} else parts


class _IncomingMessages:
    """Messages on their way in: ids that were used before become new ones, and results follow them."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.seen: set[str] = set()
        self.losses: list[Loss] = []
        self.open: dict[str, str] = {}  # the canonical ids of the last turn's calls, by the server's own

    def read(self, listed: Sequence[dict[str, Any]], first: int) -> list[Message]:
        """Every message after the system's."""
        return [self._one(message, f"messages[{at}]") for at, message in enumerate(listed) if at >= first]

    def _one(self, message: dict[str, Any], where: str) -> Message:
        match message["role"]:
            case "tool" | "function":
                return self._result(message, where)
            case "user":
                return self._plain(message, "user", where)
            case "system" | "developer":
                return self._plain(message, "system", where)
            case "assistant":
                return self._plain(message, "assistant", where)
            case other:
                raise Invalid(f"{where} has the role {other!r}, which Chat does not know; nothing was read.")

    def _plain(self, message: dict[str, Any], role: str, where: str) -> Message:
        said = read_message(message, where, self.origin.endpoint)
        self.losses += unknown_parts(said, where)
        renamed = message["role"] if message["role"] != role else None
        calls = tuple(self._unique(call, own) for call, own in zip(said.calls, said.ids, strict=True))
        known = Message(role=role, content=tuple(said.content), tool_calls=calls)  # pyright: ignore[reportArgumentType]
        return with_beside(known, said.beside(role=renamed, asked=bool(said.reasoning)), self.origin)

    def _unique(self, call: ToolCall, own: str) -> ToolCall:
        id, more = call.id, 2
        while id in self.seen:
            id, more = f"{call.id}~{more}", more + 1
        self.seen.add(id)
        self.open[own or call.name] = id
        return ToolCall(id, call.name, call.args)

    def _result(self, message: dict[str, Any], where: str) -> Message:
        said = read_message(message, where, self.origin.endpoint)
        own, name = message.get("tool_call_id") or message.get("name"), message.get("name")
        if not isinstance(own, str) or not own:
            own = made_id(where)
        id = self.open.get(own) or clean_id(id_of_tool(own) if own == name else own)
        content = tuple(said.content)
        result = ToolResult(id, "success", content)
        fields = {name: value for name, value in said.fields.items() if message["role"] == "tool"}
        known = Message(role="tool", tool_results=(result,))
        self.losses += unknown_parts(said, f"{where}.tool_results[0]")
        return with_beside(known, Beside(fields=fields, parts=said.parts), self.origin)


def _tools(body: Mapping[str, Any]) -> tuple[list[ToolSpec], list[dict[str, Any]]]:
    """The functions that are declared, and what only this format knows of tools."""
    tools: list[ToolSpec] = []
    others: list[dict[str, Any]] = []
    for at, tool in enumerate(_listed(body.get("tools"), "tools")):
        known = without_marks(_object(tool, f"tools[{at}]"))
        function = known.get("function")
        if known.get("type", "function") != "function" or not isinstance(function, dict):
            others.append(known)
            continue
        tools.append(_spec(cast("dict[str, Any]", function), f"tools[{at}].function"))
        if set(known) - {"type", "function"}:
            others.append(known | {"function": {"name": tools[-1].name}})
    for at, function in enumerate(_listed(body.get("functions"), "functions")):
        tools.append(_spec(_object(function, f"functions[{at}]"), f"functions[{at}]"))
    return tools, others


def _spec(function: Mapping[str, Any], where: str) -> ToolSpec:
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        raise Invalid(f"{where} has no name; nothing was read.")
    strict = function.get("strict")
    return ToolSpec(
        name=name,
        description=str(function.get("description") or ""),
        parameters=cast("dict[str, Json]", parameters) if isinstance(parameters, dict) else {},
        strict=strict if isinstance(strict, bool) else None,
    )


def _is_marked(listed: Sequence[Any]) -> bool:
    """Whether anything bears a mark of a prompt cache."""
    for message in objects_of(listed):
        held = [message, *objects_of(message.get("content")), *objects_of(message.get("tool_calls"))]
        if any(mark in each for each in held for mark in CACHE_MARKS):
            return True
    return False


def _listed(value: object, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Invalid(f"'{where}' is no list; nothing was read.")
    return cast("list[Any]", value)


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(f"{where} is no object; nothing was read.")
    return cast("dict[str, Any]", value)
