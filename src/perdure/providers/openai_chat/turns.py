"""Turns of a Chat request: one canonical message after the other, each with the results of its calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from perdure.model.context import Context
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers.contract import Loss
from perdure.providers.openai_chat.content import part_of
from perdure.providers.openai_chat.message import REASONING
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Origin, beside
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import NO_PLACE, CallAnswer, Exchange
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import ToolNames

__all__ = ["ChatTurns", "is_thinking"]

_NONE = Beside()


def is_thinking(options: Mapping[str, Any], model: str | None, own: Mapping[str, Any]) -> bool:
    """Whether the model is asked to think before it answers."""
    asked: object = options.get("reasoning")
    if isinstance(asked, dict):
        wanted = cast("dict[str, Any]", asked)
        return wanted.get("enabled") is not False and wanted.get("effort") != "none"
    thinking: object = own.get("thinking")
    if isinstance(thinking, dict):
        return cast("dict[str, Any]", thinking).get("type") != "disabled"
    return "reasoner" in (model or "")


class _Moved(NamedTuple):
    """A picture or file that follows in a user's message, and what its server said beside it."""

    where: str
    block: Block
    source: str  # who gave it
    own: Beside = _NONE
    at: str = ""  # its place, as `own` knows it


class ChatTurns:
    """The messages of one request."""

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
        """Every exchange in turn."""
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
        own = beside(message, self.origin)
        parts = self._parts(message.content, own, where)
        if not parts:
            if message.content:
                self._lost("dropped", where, "message", "nothing of it can be said here")
            return
        self.messages.append({"role": "user", "content": _content(parts), **own.fields})

    def _parts(self, blocks: Sequence[Block], own: Beside, where: str) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for at, block in enumerate(blocks):
            place = f"{where}.content[{at}]"
            part = part_of(block, str(at), own, place, self.place, self.origin.endpoint, self.losses)
            if part is not None:
                parts.append(part)
        return parts

    def _system(self, message: Message, where: str) -> None:
        own = beside(message, self.origin)
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
        own = beside(exchange.message, self.origin)
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
        """The words of an assistant's message, and what the server itself said beside them."""
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
        """Reasoning goes back to the server that gave it, under the names that it came by."""
        taken = [name for name in own.reasoning if name in self.place.reasoning or own.asked]
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
        """Some want reasoning on every turn with calls while they think, be it empty."""
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
        """The id of a call here; one that a history uses again becomes another."""
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
            own = beside(source, self.origin) if len(source.tool_results) == 1 else _NONE
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
        """A result that is an error says so: Chat has no other place for it."""
        if where != NO_PLACE:
            self._lost("converted", where, "error", "a result says in words that it is an error")
        return text if text.lower().startswith(("error", '{"error')) else f"Error: {text}"

    def _moved(self, moved: list[_Moved]) -> None:
        """Media of an exchange, in a user's message behind it."""
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
    """One text part is simply its words."""
    return parts[0]["text"] if len(parts) == 1 and set(parts[0]) == {"type", "text"} else parts


def _joined(parts: list[dict[str, Any]]) -> Any:
    """An assistant's parts: plain words are one text."""
    if all(set(part) == {"type", "text"} and isinstance(part["text"], str) for part in parts):
        return "".join(part["text"] for part in parts) or None
    return parts
