"""Reads Chat messages and Chat requests.

Messages of a request's history and of an answer are read by the same code, so that an answer and its repetition
in a later request become the same message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model import names
from perdure.model.canonical import Json
from perdure.model.context import ToolSpec
from perdure.model.message import Block, File, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Asked, Loss
from perdure.providers.openai_chat.content import CACHE_MARKS, read_part, without_marks
from perdure.providers.openai_chat.options import read_options
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import BOUND, Beside, Origin, Part, objects_of, with_beside
from perdure.providers.wire.fields.unknown import asked
from perdure.providers.wire.fields.vendor_items import items_of, json_or_text, object_of
from perdure.providers.wire.fields.vendor_metadata import id_of_tool
from perdure.providers.wire.malformed import malformed, unreadable
from perdure.providers.wire.server_tools import account

__all__ = [
    "REASONING",
    "ChatMessageParts",
    "clean_id",
    "read_message",
    "unknown_parts",
    "words_of",
    "read_request",
]

REASONING = ("reasoning_content", "reasoning")
_READ = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "tool_call_id", *REASONING})


class ChatMessageParts:
    """The parts of one message before they become a canonical one."""

    def __init__(self, endpoint: str, salt: str = "") -> None:
        """Start empty; missing ids are derived from `salt`."""
        self.endpoint, self.salt = endpoint, salt
        self.content: list[Block] = []
        self.calls: list[ToolCall] = []
        self.given: dict[str, int] = {}  # the ids of calls, each with the number for its next repetition
        self.parts: dict[str, Part] = {}
        self.reasoning: list[str] = []
        self.refusal: int | None = None
        self.ids: list[str] = []
        self.beside_calls: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, Any] = {}

    def add(self, block: Block | None, part: Part) -> None:
        """Add a block and its other fields."""
        if block is None:
            return
        if part.add or part.native is not None:
            self.parts[str(len(self.content))] = part
        self.content.append(block)

    def beside(self, **more: Any) -> Beside:
        """Return the other fields of the message."""
        bound = {name: value for name, value in self.fields.items() if name in BOUND}
        return Beside(
            fields={name: value for name, value in self.fields.items() if name not in BOUND},
            bound=bound,
            reasoning=tuple(self.reasoning),
            parts=self.parts,
            refusal=self.refusal,
            ids=tuple(self.ids),
            calls=self.beside_calls,
            **more,
        )


def read_message(message: Mapping[str, Any], where: str, endpoint: str, salt: str = "") -> ChatMessageParts:
    """Return the parts of a message of any role; raises `Invalid` if it is none.  Missing ids are derived from `salt`."""
    said = ChatMessageParts(endpoint, salt or where)
    _reasoning(message, said)
    for tool in _listed(message.get("executed_tools"), f"{where}.executed_tools"):
        said.add(_executed(tool), Part())
    _content(message.get("content"), f"{where}.content", said)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        said.refusal = len(said.content)
        said.content.append(Text(refusal))
    for at, call in enumerate(_listed(message.get("tool_calls"), f"{where}.tool_calls")):
        _call(call, f"{where}.tool_calls[{at}]", said)
    _function_call(message.get("function_call"), where, said)
    more = without_marks(message).items()
    said.fields = {name: value for name, value in more if name not in _READ and value not in ([], {}, "")}
    return said


def unknown_parts(said: ChatMessageParts, where: str) -> list[Loss]:
    """Return a loss for each part that the canonical form can only describe."""
    return [
        Loss(
            kind="converted",
            where=f"{where}.content[{at}]",
            what=f"part '{part.native.get('type')}'",
            why="no other format knows it",
        )
        for at, part in said.parts.items()
        if part.native is not None and isinstance(said.content[int(at)], File)
    ]


def words_of(content: object, where: str, endpoint: str) -> str:
    """Return the words of a system message."""
    said = ChatMessageParts(endpoint)
    _content(content, where, said)
    return "\n\n".join(block.text for block in said.content if isinstance(block, Text))


def clean_id(id: str) -> str:
    """Return a vendor's id as a canonical one may be; one that may not is replaced by its hash."""
    try:
        return names.check_id("call id", id)
    except Invalid:
        return made_id(id)


def made_id(text: str) -> str:
    """Return an id that the text decides."""
    return "call_" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _content(content: object, where: str, said: ChatMessageParts) -> None:
    match content:
        case None:
            return
        case str():
            said.add(Text(content) if content else None, Part())
        case list():
            for at, part in enumerate(cast("list[Any]", content)):
                block, more = read_part(part, f"{where}[{at}]", said.endpoint)
                if isinstance(block, ReasoningSummary) and "thinking" not in said.reasoning:
                    said.reasoning.append("thinking")
                said.add(block, more)
        case dict():  # some servers answer a schema with the object itself
            said.add(Text(_dumped(cast("object", content))), Part())
        case _:
            raise malformed(where, f"is {type(content).__name__}, not words or parts")


def _dumped(value: object) -> str:
    """Return JSON text that does not depend on the order of keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _reasoning(message: Mapping[str, Any], said: ChatMessageParts) -> None:
    """Read the text of reasoning once, and the names of its fields."""
    told = {name: message[name] for name in REASONING if isinstance(message.get(name), str) and message[name]}
    details = message.get("reasoning_details")
    words = next(iter(told.values()), None) or _detailed(details)
    said.reasoning.extend(name for name, value in told.items() if value == words)
    said.fields.update({name: value for name, value in told.items() if value != words})
    if words:
        said.content.append(ReasoningSummary(words))


def _detailed(details: object) -> str:
    if not isinstance(details, list):
        return ""
    listed = [cast("dict[str, Any]", each) for each in cast("list[Any]", details) if isinstance(each, dict)]
    told = [each.get("text") or each.get("summary") for each in listed]
    return "".join(words for words in told if isinstance(words, str))


def _executed(tool: object) -> Block | None:
    if not isinstance(tool, dict):
        return None
    known = cast("dict[str, Any]", tool)
    name = str(known.get("type") or known.get("name") or "tool")
    results = known.get("output") or known.get("search_results")
    return account(
        "executed_tool",
        name,
        input=json_or_text(args) if isinstance(args := known.get("arguments"), str) else args,
        result=results,
    )


def _call(call: object, where: str, said: ChatMessageParts) -> None:
    if not isinstance(call, dict):
        raise malformed(where, f"is {type(call).__name__}, not a tool call")
    known = without_marks(cast("dict[str, Any]", call))
    function = known.get("function")
    if isinstance(function, dict):
        spoken = cast("dict[str, Any]", function)
        name, args = spoken.get("name"), spoken.get("arguments")
        extra = {key: value for key, value in known.items() if key not in ("id", "type", "function", "index")}
        extra.pop("custom", None) if known.get("type") != "custom" else None
    elif isinstance(custom := known.get("custom"), dict):
        spoken = cast("dict[str, Any]", custom)
        name, args = spoken.get("name"), json.dumps({"input": spoken.get("input")}, ensure_ascii=False)
        extra = {"custom": spoken}
    else:
        raise malformed(where, "calls no function")
    _take(known.get("id"), name, args, extra, where, said)


def _function_call(call: object, where: str, said: ChatMessageParts) -> None:
    """Read the older form of a call, which has no id."""
    if not isinstance(call, dict):
        return
    known = cast("dict[str, Any]", call)
    if known.get("name"):
        _take(
            None,
            known["name"],
            known.get("arguments"),
            {"function_call": True},
            f"{where}.function_call",
            said,
        )


def _take(
    id: object, name: object, args: object, extra: dict[str, Any], where: str, said: ChatMessageParts
) -> None:
    if not isinstance(name, str) or not name:
        raise malformed(where, "names no function")
    text = args if isinstance(args, str) else _dumped(args)
    if args is None:
        text = ""
    own = id if isinstance(id, str) and id and id != "null" else ""
    if extra:
        said.beside_calls[str(len(said.calls))] = extra
    said.ids.append(own)
    known = clean_id(own) if own else made_id(f"{said.salt}\n{len(said.calls)}")
    unique, more = known, said.given.get(known, 2)
    while unique in said.given:
        unique, more = f"{known}~{more}", more + 1
    said.given[known] = more
    said.given.setdefault(unique, 2)
    said.calls.append(ToolCall(unique, name, text))


def _listed(value: object, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise malformed(where, f"is {type(value).__name__}, not a list")
    return cast("list[Any]", value)


_SYSTEM = ("system", "developer")

# The fields that the reader knows, in places where it keeps no others.
_FIELDS = {
    "messages[].tool_calls[].function": frozenset({"name", "arguments"}),
    "messages[].function_call": frozenset({"name", "arguments"}),
    "tools[].function": frozenset({"name", "description", "parameters", "strict"}),
    "functions[]": frozenset({"name", "description", "parameters", "strict"}),
    "response_format": frozenset({"type", "json_schema"}),
    "response_format.json_schema": frozenset({"name", "description", "schema", "strict"}),
}


def read_request(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Asked:
    """Return the context that a request shows; raises `Invalid` if it is none."""
    raw = body.get("messages")
    if not isinstance(raw, list):
        raise unreadable("not_a_request", f"this is no {api} request: 'messages' is no list")
    listed = [_checked(message, at) for at, message in enumerate(cast("list[Any]", raw))]
    history = _IncomingMessages(origin, place)
    system, first, rich = _system(listed, history)
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
    messages = history.read(listed, first)
    read = Asked(system=system, messages=messages, tools=tools, options=options, losses=tuple(history.losses))
    return asked(read, body, _FIELDS)


def _checked(message: object, at: int) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(cast("dict[str, Any]", message).get("role"), str):
        raise malformed(f"messages[{at}]", "is no Chat message with a role")
    told = cast("dict[str, Any]", message)
    if told["role"] == "user" and told.get("content") is None and "images" not in told:
        raise malformed(f"messages[{at}]", "has no content")
    return cast("dict[str, Any]", message)


def _system(
    listed: list[dict[str, Any]], history: _IncomingMessages
) -> tuple[str, int, list[dict[str, Any]]]:
    """Return the words of the first system messages, how many there are, and they themselves if they are more than words."""
    first = next((at for at, message in enumerate(listed) if message["role"] not in _SYSTEM), len(listed))
    leading = [
        history.known_fields(without_marks(message), f"messages[{at}]")[0]
        for at, message in enumerate(listed[:first])
    ]
    words = [
        words_of(message.get("content"), f"messages[{at}].content", history.origin.endpoint)
        for at, message in enumerate(leading)
    ]
    system = "\n\n".join(word for word in words if word)
    plain = [{"role": "system", "content": system}] if system else []
    rich = [message | {"content": _unmarked(message.get("content"))} for message in leading]
    return system, first, [] if rich == plain else rich


def _unmarked(content: object) -> object:
    """Return parts of a system message without marks; several, or a plain text, unchanged."""
    if not isinstance(content, list):
        return content
    parts = [
        part if isinstance(part, str) else without_marks(object_of(part))
        for part in items_of(cast("object", content))
    ]
    one = object_of(parts[0]) if len(parts) == 1 else {}
    return one["text"] if set(one) == {"type", "text"} else parts


class _IncomingMessages:
    """Collects messages: repeated ids are replaced, in calls and in their results."""

    def __init__(self, origin: Origin, place: Server) -> None:
        self.origin, self.place = origin, place
        self.seen: set[str] = set()
        self.losses: list[Loss] = []
        self.open: dict[str, str] = {}  # the canonical ids of the last turn's calls, by the server's own

    def read(self, listed: Sequence[dict[str, Any]], first: int) -> list[Message]:
        """Return every message after the system's."""
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
                raise malformed(where, f"has the role {other!r}, which Chat does not know")

    def _plain(self, message: dict[str, Any], role: str, where: str) -> Message:
        said = read_message(message, where, self.origin.endpoint)
        self.losses += unknown_parts(said, where)
        renamed = message["role"] if message["role"] != role else None
        calls = tuple(self._unique(call, own) for call, own in zip(said.calls, said.ids, strict=True))
        known = Message(role=role, content=tuple(said.content), tool_calls=calls)  # pyright: ignore[reportArgumentType]
        said.fields, strange = self.known_fields(said.fields, where)
        more = said.beside(role=renamed, asked=bool(said.reasoning), said=strange)
        return with_beside(known, more, self.origin)

    def known_fields(self, fields: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of a message that Chat has, and those of the program that kept it, which no server is sent."""
        known: dict[str, Any] = {}
        strange: dict[str, Any] = {}
        for name, value in fields.items():
            if name in _READ or name in BOUND or self.place.takes(name):
                known[name] = value
            elif name != "id":  # by which an import knows the message
                strange[name] = value
                why = "a Chat message has no such field; no server is sent it"
                self.losses.append(Loss(kind="dropped", where=f"{where}.{name}", what=name, why=why))
        return known, strange

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
        # Chat has no mark of an error; this is that of frameworks which keep its messages.
        result = ToolResult(id, "error" if message.get("status") == "error" else "success", content)
        said.fields.pop("status", None)
        fields, strange = self.known_fields(said.fields, where)
        fields = fields if message["role"] == "tool" else {}
        known = Message(role="tool", tool_results=(result,))
        self.losses += unknown_parts(said, f"{where}.tool_results[0]")
        return with_beside(known, Beside(fields=fields, parts=said.parts, said=strange), self.origin)


def _tools(body: Mapping[str, Any]) -> tuple[list[ToolSpec], list[dict[str, Any]]]:
    """Return the functions that are declared, and what only this format knows of tools."""
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
        raise malformed(where, "has no name")
    strict = function.get("strict")
    return ToolSpec(
        name=name,
        description=str(function.get("description") or ""),
        parameters=cast("dict[str, Json]", parameters) if isinstance(parameters, dict) else {},
        strict=strict if isinstance(strict, bool) else None,
    )


def _is_marked(listed: Sequence[Any]) -> bool:
    """True if anything bears a mark of a prompt cache."""
    for message in objects_of(listed):
        held = [message, *objects_of(message.get("content")), *objects_of(message.get("tool_calls"))]
        if any(mark in each for each in held for mark in CACHE_MARKS):
            return True
    return False


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(where, "is no object")
    return cast("dict[str, Any]", value)
