"""Renders a context as a Chat request that the server accepts, for any history.

Calls and results are paired already (`wire.call_pairs`).  Here each message becomes one of Chat's: results follow
their calls, media from tools or models go into a user's message after them, and the server gets its own fields
back unchanged.  Then the order of roles is repaired to what the server demands, and tools get legal names and
schemas that it accepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from perdure.model.context import Context, ToolSpec
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers.contract import Loss, Rendered, losses_of
from perdure.providers.openai_chat.content import part_of
from perdure.providers.openai_chat.options import own_fields, render_options
from perdure.providers.openai_chat.request import REASONING
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Origin, beside, objects_of
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import NO_PLACE, CallAnswer, Exchange, exchanges
from perdure.providers.wire.fields.vendor_items import items_of, object_of
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = [
    "render",
    "ordered",
    "NAMES",
    "is_closed",
    "render_choice",
    "render_output",
    "render_tools",
    "ChatTurns",
    "is_thinking",
]


_NOTHING = "Continue."


def ordered(messages: list[dict[str, Any]], place: Server, losses: list[Loss]) -> list[dict[str, Any]]:
    """Return the messages in an order that the server takes."""
    repairs: list[Callable[[list[dict[str, Any]], list[Loss]], list[dict[str, Any]]]] = []
    if place.alternates:
        repairs += [_user_first, _in_turn]
    if place.prefix_last:
        repairs.append(_prefixed)
    for repair in repairs:
        messages = repair(messages, losses)
    if not messages or (place.alternates and messages[-1]["role"] == "system"):
        losses.append(_repaired("there was nothing to answer; a user's turn was put there"))
        messages = [*messages, {"role": "user", "content": _NOTHING}]
    return messages


def _user_first(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    first = next((at for at, message in enumerate(messages) if message["role"] != "system"), None)
    if first is None or messages[first]["role"] != "assistant":
        return messages
    losses.append(_repaired("the assistant spoke first; a user's turn was put before it"))
    return [*messages[:first], {"role": "user", "content": _NOTHING}, *messages[first:]]


def _in_turn(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """Join messages of one role that follow each other; messages with calls are not joined."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or not _joinable(last, message):
            joined.append(message)
            continue
        losses.append(_repaired(f"two {message['role']} messages follow each other; they were joined"))
        joined[-1] = last | {"content": _both(last.get("content"), message.get("content"))}
    return joined


def _joinable(last: dict[str, Any], message: dict[str, Any]) -> bool:
    if last["role"] != message["role"] or message["role"] not in ("user", "assistant", "system"):
        return False
    plain = {"role", "content"}
    return set(last) <= plain and set(message) <= plain


def _both(first: object, second: object) -> object:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Any]", content) if isinstance(content, list) else []


def _prefixed(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """Return the last turn is a user's or a tool's; an assistant's is what the answer begins with."""
    if not messages or messages[-1]["role"] in ("user", "tool"):
        return messages
    last = messages[-1]
    if last["role"] == "assistant" and last.get("content") and not last.get("tool_calls"):
        if not last.get("prefix"):
            losses.append(_repaired("the assistant spoke last; its words are the beginning of the answer"))
        return [*messages[:-1], last | {"prefix": True}]
    losses.append(_repaired("there was nothing to answer; a user's turn was put there"))
    return [*messages, {"role": "user", "content": _NOTHING}]


def _repaired(why: str) -> Loss:
    return Loss(kind="repaired", where="messages", what="order of roles", why=why)


NAMES = r"[a-zA-Z0-9_-]{1,64}"
_INSIDE = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not")


def render_tools(
    tools: Sequence[ToolSpec], own: object, names: ToolNames, place: Server, losses: list[Loss]
) -> list[dict[str, Any]]:
    """Return the declarations of functions, then those of the server's own tools."""
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
    """Return the field `tool_choice`; None where there is nothing to choose."""
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
    """Return the field `response_format`."""
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
    """True if a schema is as strict ones have to be: every object closed, and all its properties required."""
    properties = object_of(schema.get("properties"))
    if properties or schema.get("type") == "object":
        required = {name for name in items_of(schema.get("required")) if isinstance(name, str)}
        if schema.get("additionalProperties") is not False or not set(properties) <= required:
            return False
    return all(is_closed(each) for each in _schemas(schema))


_OPEN = "an object of it is open or has properties that are not required; the schema is given as a loose one"


def _schemas(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas inside one."""
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


_JSON_WORDS = "Answer in JSON."


def render(context: Context, origin: Origin, place: Server, api: str) -> Rendered:
    """Return the request for a context, and what could not be carried over unchanged."""
    losses: list[Loss] = []
    options = cast("Mapping[str, Any]", context.options)
    own = own_fields(options, api, origin.endpoint, losses)
    leading, others = own.pop("system", None), own.pop("tools", None)
    names = ToolNames(names_in(context), NAMES)
    history, repairs = exchanges(context.messages)
    losses.extend(repairs)
    turns = ChatTurns(context, origin, place, names, losses, thinking=is_thinking(options, origin.model, own))
    messages = [*_system(context.system, leading, place), *turns.render(history)]
    if context.is_sent:
        messages = ordered(messages, place, losses)
    body: dict[str, Any] = {"model": origin.model or "", "messages": messages}
    tools = render_tools(context.tools, others, names, place, losses)
    if tools:
        body["tools"] = tools
    body |= render_options(options, place, origin.model or "", losses)
    losses += foreign_options(options, context.tools, api)
    _choices(body, options, names, tools, place, losses)
    body |= {name: value for name, value in own.items() if name not in body}
    _say_json(body, losses)
    if options.get("cache") and place.cache_marks:
        _mark(messages)
    return Rendered(body=body, losses=losses_of(losses), names=names.renamed)


def _system(system: str, leading: object, place: Server) -> list[dict[str, Any]]:
    """Return the first messages: as a request of this format had them, if they still say the same."""
    given = objects_of(leading)
    if given and "\n\n".join(filter(None, (_words(each.get("content")) for each in given))) == system:
        return [each | {"role": _role(each.get("role"), place)} for each in given if each.get("content")]
    return [{"role": "system", "content": system}] if system else []


def _role(role: object, place: Server) -> str:
    return "developer" if role == "developer" and place.developer else "system"


def _words(content: object) -> str:
    if isinstance(content, str):
        return content
    held = [part if isinstance(part, str) else object_of(part).get("text") for part in items_of(content)]
    return "\n\n".join(word for word in held if isinstance(word, str) and word)


def _choices(
    body: dict[str, Any],
    options: Mapping[str, Any],
    names: ToolNames,
    tools: list[dict[str, Any]],
    place: Server,
    losses: list[Loss],
) -> None:
    choice = render_choice(options.get("tool_choice"), names, tools, place, losses)
    if choice is not None:
        body["tool_choice"] = choice
    if "parallel_tool_calls" in body and not tools:
        del body["parallel_tool_calls"]
        losses.append(
            Loss(
                kind="dropped",
                where="options.parallel_tool_calls",
                what="parallel calls",
                why="no tools are declared",
            )
        )
    output = render_output(options.get("output"), place, losses)
    if output is not None:
        body["response_format"] = output


def _say_json(body: dict[str, Any], losses: list[Loss]) -> None:
    """Add the word JSON to a message: servers demand it of a request for JSON."""
    if body.get("response_format") != {"type": "json_object"}:
        return
    messages = cast("list[dict[str, Any]]", body["messages"])
    if any("json" in _words(message.get("content")).lower() for message in messages):
        return
    first = messages[0]
    if first["role"] in ("system", "developer") and isinstance(first.get("content"), str):
        messages[0] = first | {"content": f"{first['content']}\n\n{_JSON_WORDS}"}
    else:
        messages.insert(0, {"role": "system", "content": _JSON_WORDS})
    losses.append(
        Loss(
            kind="repaired",
            where="options.output",
            what="system",
            why="a message has to say the word JSON; one does now",
        )
    )


def _mark(messages: list[dict[str, Any]]) -> None:
    """Mark the system message and the last user message for the prompt cache."""
    for wanted in (("system", "developer"), ("user",)):
        found = [message for message in messages if message["role"] in wanted and message.get("content")]
        if not found:
            continue
        message = found[0] if "system" in wanted else found[-1]
        content = message["content"]
        parts: list[Any] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else items_of(content)
        )
        message["content"] = [*parts[:-1], parts[-1] | {"cache_control": {"type": "ephemeral"}}]


_NONE = Beside()


def is_thinking(options: Mapping[str, Any], model: str | None, own: Mapping[str, Any]) -> bool:
    """True if the request asks for reasoning."""
    asked: object = options.get("reasoning")
    if isinstance(asked, dict):
        wanted = cast("dict[str, Any]", asked)
        return wanted.get("enabled") is not False and wanted.get("effort") != "none"
    thinking: object = own.get("thinking")
    if isinstance(thinking, dict):
        return cast("dict[str, Any]", thinking).get("type") != "disabled"
    return "reasoner" in (model or "")


class _Moved(NamedTuple):
    """A picture or file that is moved to a user's message, and its server's own fields."""

    where: str
    block: Block
    source: str  # who gave it
    own: Beside = _NONE
    at: str = ""  # its place, as `own` knows it


class ChatTurns:
    """Writes the messages of one request."""

    def __init__(
        self,
        context: Context,
        origin: Origin,
        place: Server,
        names: ToolNames,
        losses: list[Loss],
        *,
        thinking: bool,
    ) -> None:
        """Take what every turn needs."""
        self.context, self.origin, self.place, self.names = context, origin, place, names
        self.losses, self.thinking = losses, thinking
        rule = place.call_ids
        self.ids = CallIds(rule.legal, prefix=rule.prefix, length=rule.length)
        self.used: dict[str, int] = {}
        self.messages: list[dict[str, Any]] = []

    def render(self, history: Sequence[Exchange]) -> list[dict[str, Any]]:
        """Return every exchange in turn."""
        for exchange in history:
            self._exchange(exchange)
        return self.messages

    def _exchange(self, exchange: Exchange) -> None:
        message, where = exchange.message, f"messages[{exchange.where}]"
        match message.role:
            case "assistant":
                self._assistant(exchange, where)
                return
            case "system":
                self._system(message, where)
            case "user" | "tool":
                self._user(message, where)
        if exchange.answers:
            self._lost("repaired", where, "tool call", f"a {message.role} cannot call; the assistant does")
            self._assistant(Exchange(exchange.where, Message(role="assistant"), exchange.answers), where)

    def _user(self, message: Message, where: str) -> None:
        own = self._beside(message)
        parts = self._parts(message.content, own, where)
        if not parts:
            if message.content:
                self._lost("dropped", where, "message", "nothing of it can be said here")
            return
        self.messages.append({"role": "user", "content": _content(parts), **own.fields})

    def _beside(self, message: Message) -> Beside:
        """Return the server's own fields of a message, as far as it takes them."""
        own, takes = beside(message, self.origin), self.place.takes
        if all(map(takes, (*own.fields, *own.bound))):
            return own
        fields = {name: value for name, value in own.fields.items() if takes(name)}
        bound = {name: value for name, value in own.bound.items() if takes(name)}
        return msgspec.structs.replace(own, fields=fields, bound=bound)

    def _parts(self, blocks: Sequence[Block], own: Beside, where: str) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for at, block in enumerate(blocks):
            place = f"{where}.content[{at}]"
            part = part_of(block, str(at), own, place, self.place, self.origin.endpoint, self.losses)
            if part is not None:
                parts.append(part)
        return parts

    def _system(self, message: Message, where: str) -> None:
        own = self._beside(message)
        every = self._parts(message.content, own, where)
        parts = [part for part in every if part.get("type") == "text"]
        if len(parts) < len(every):
            self._lost("dropped", where, "media", "a system message holds text only")
        if not parts:
            return
        if self.place.late_system or all(each["role"] == "system" for each in self.messages):
            role = "developer" if own.role == "developer" and self.place.developer else "system"
        else:
            role = "user"
            self._lost("converted", where, "system message", "here the only system message is the first")
        self.messages.append({"role": role, "content": _content(parts), **own.fields})

    def _assistant(self, exchange: Exchange, where: str) -> None:
        own = self._beside(exchange.message)
        spoken: dict[str, Any] = {"role": "assistant"}
        moved: list[_Moved] = []
        self._speak(exchange.message, own, where, spoken, moved)
        calls = [self._call(answer, at, own, where) for at, answer in enumerate(exchange.answers)]
        if calls:
            spoken["tool_calls"] = calls
            if spoken.get("content") is None and self.place.empty_content == "":
                spoken["content"] = ""
            self._demanded(spoken, where)
        said = spoken.get("content") or calls or spoken.get("refusal") or spoken.get("audio")
        if said:
            self.messages.append(spoken)
        elif not moved:
            self._lost("dropped", where, "message", "nothing of it can be said here")
        for answer, call in zip(exchange.answers, calls, strict=True):
            self._result(answer, call, moved)
        self._moved(moved)

    def _speak(
        self,
        message: Message,
        own: Beside,
        where: str,
        spoken: dict[str, Any],
        moved: list[_Moved],
    ) -> None:
        """Write the text of an assistant's message, and the server's own fields."""
        parts: list[dict[str, Any]] = []
        for at, block in enumerate(message.content):
            place = f"{where}.content[{at}]"
            match block:
                case Text("") | ReasoningSummary(""):
                    continue
                case Text() if own.refusal == at:
                    spoken["refusal"] = block.text
                case Text():
                    parts.append(_text_part(block.text, own, str(at)))
                case ReasoningSummary():
                    self._think(block, own, str(at), place, spoken, parts)
                case File() if is_account(block) and str(at) not in own.parts:
                    parts.append({"type": "text", "text": told(block)})
                    self._lost("converted", place, "server-side tool", "only its vendor has it")
                case File() if (kept := own.parts.get(str(at))) is not None and kept.native is not None:
                    parts.append(kept.native)
                case Image() | File() if "audio" not in own.fields:
                    moved.append(_Moved(place, block, "The assistant"))
                    self._lost(
                        "converted",
                        place,
                        "media",
                        "an assistant's turn holds text only; it follows in a user's",
                    )
                case _:
                    pass
        spoken["content"] = None if "audio" in own.fields else _joined(parts)
        spoken.update({name: value for name, value in (own.fields | own.bound).items() if name not in spoken})

    def _think(
        self,
        block: ReasoningSummary,
        own: Beside,
        at: str,
        where: str,
        spoken: dict[str, Any],
        parts: list[dict[str, Any]],
    ) -> None:
        """Write reasoning for the server that gave it, under its original names."""
        is_asked = own.asked and not self.place.strict_messages
        taken = [name for name in own.reasoning if name in self.place.reasoning or is_asked]
        if "thinking" in taken:
            kept = own.parts.get(at)
            chunk = {"type": "thinking", "thinking": [{"type": "text", "text": block.text}]}
            parts.append(kept.native if kept and kept.native else chunk | (kept.add if kept else {}))
        for name in taken:
            if name in REASONING:
                spoken[name] = spoken.get(name, "") + block.text
        if not taken and "reasoning_details" not in own.bound:
            self._lost("dropped", where, "reasoning", "only the server that gave it takes it, if any does")

    def _demanded(self, spoken: dict[str, Any], where: str) -> None:
        """Add empty reasoning to turns with calls, for servers that demand it."""
        if self.place.reasoning_demanded and self.thinking and not any(name in spoken for name in REASONING):
            spoken[self.place.reasoning[0]] = ""
            self._lost("repaired", where, "reasoning", "the server wants the field on turns with calls")

    def _call(self, answer: CallAnswer, at: int, own: Beside, where: str) -> dict[str, Any]:
        call, place = answer.call, f"{where}.tool_calls[{at}]"
        id = self._id(call.id, own.ids[at] if at < len(own.ids) else None, place)
        name = self.names.of(call.name)
        if name != call.name:
            self._lost("repaired", place, "tool name", f"'{call.name}' goes by '{name}'")
        more = own.calls.get(str(at), {})
        if "custom" in more:
            return {"id": id, "type": "custom", "custom": more["custom"]}
        more = {key: value for key, value in more.items() if key != "function_call"}
        arguments = self._arguments(call.args, place)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}

    def _id(self, canonical: str, own: str | None, place: str) -> str:
        """Return the id of a call here; one that a history uses again becomes another."""
        again = self.used.get(canonical, 0)
        self.used[canonical] = again + 1
        key = f"{canonical}\n{again}" if again else canonical
        id = self.ids.of(key, own or None)
        if id not in (canonical, own):
            self._lost("repaired", place, "tool call id", f"'{canonical}' goes by '{id}'")
        return id

    def _arguments(self, args: str, place: str) -> str:
        if not self.place.parses_arguments:
            return args
        try:
            known = json.loads(args)
        except (ValueError, RecursionError):
            known = None
        if isinstance(known, dict):
            return args
        self._lost("repaired", place, "arguments", "the server reads them, and they are no JSON object")
        return json.dumps({"arguments": args}) if args else "{}"

    def _result(self, answer: CallAnswer, call: dict[str, Any], moved: list[_Moved]) -> None:
        own = _NONE
        if answer.where is not None:
            source = self.context.messages[answer.where]
            own = self._beside(source) if len(source.tool_results) == 1 else _NONE
        words = self._result_words(answer, own, moved)
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": words, **own.fields})

    def _result_words(self, answer: CallAnswer, own: Beside, moved: list[_Moved]) -> str:
        result, where = answer.result, answer.place
        words: list[str] = []
        media = 0
        for at, block in enumerate(result.content):
            place = f"{where}.content[{at}]"
            match block:
                case Text():
                    words.append(block.text)
                case ReasoningSummary():
                    self._lost("dropped", place, "reasoning", "a result holds none")
                case File() if is_account(block):
                    words.append(told(block))
                    self._lost("converted", place, "server-side tool", "only its vendor has it")
                case Image() | File():
                    media += 1
                    moved.append(_Moved(place, block, f"The tool {answer.call.name}", own, str(at)))
                    self._lost(
                        "converted", place, "media", "a result holds text only; it follows in a user's turn"
                    )
        if media and not words:
            words.append("The result follows in the next message.")
        text = "\n".join(words) if media or len(words) > 1 else "".join(words)
        return self._error(text, where) if result.status == "error" else text

    def _error(self, text: str, where: str) -> str:
        """Return the content of a failed result, which starts with the word for an error: Chat has no field for it."""
        if where != NO_PLACE:
            self._lost("converted", where, "error", "a result says in words that it is an error")
        return text if text.lower().startswith(("error", '{"error')) else f"Error: {text}"

    def _moved(self, moved: list[_Moved]) -> None:
        """Write the media of an exchange as a user's message after it."""
        parts: list[dict[str, Any]] = []
        for each in moved:
            server, endpoint = self.place, self.origin.endpoint
            part = part_of(each.block, each.at, each.own, each.where, server, endpoint, self.losses)
            if part is not None:
                parts += [{"type": "text", "text": f"{each.source} gave this:"}, part]
        if parts:
            self.messages.append({"role": "user", "content": parts})

    def _lost(self, kind: str, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))  # pyright: ignore[reportArgumentType]


def _text_part(words: str, own: Beside, at: str) -> dict[str, Any]:
    kept = own.parts.get(at)
    if kept is None:
        return {"type": "text", "text": words}
    if kept.native is not None and kept.native.get("type") == "refusal":
        return {"type": "refusal", "refusal": words}
    return {"type": "text", "text": words} | kept.add


def _content(parts: list[dict[str, Any]]) -> Any:
    """Return the content; a single text part becomes plain text."""
    return parts[0]["text"] if len(parts) == 1 and set(parts[0]) == {"type", "text"} else parts


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Return an assistant's parts: plain words are one text."""
    if all(set(part) == {"type", "text"} and isinstance(part["text"], str) for part in parts):
        return "".join(part["text"] for part in parts) or None
    return parts
