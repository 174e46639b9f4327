"""Renders a context as a request of the Gemini API."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from perdure.model.context import Context
from perdure.model.message import Message, ToolCall
from perdure.providers.contract import Loss, Rendered, losses_of
from perdure.providers.gemini.capabilities import is_third, same_model
from perdure.providers.gemini.options import API, is_asked_in_words, render_options, render_tools
from perdure.providers.gemini.parse import CALL, DEFAULT_ENDPOINT, VENDOR, camel, listed, native_part
from perdure.providers.gemini.portable_parts import PartWriter
from perdure.providers.gemini.request import RESULT
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import CallAnswer, Exchange, exchanges, leading_system
from perdure.providers.wire.fields.vendor_items import (
    Changed,
    fill,
    holes_of,
    items_of,
    object_of,
    size_of,
    text_of,
)
from perdure.providers.wire.fields.vendor_metadata import kept, own_ids
from perdure.providers.wire.options import output_words
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["SKIP", "render"]

# Stands for the signature of a call that another model made.
SKIP = base64.b64encode(b"skip_thought_signature_validator").decode()

_NAMES = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
_IDS = r"[\x21-\x7e]{1,128}"
_NOTHING = "Continue."

Part: TypeAlias = dict[str, Any]
Contents: TypeAlias = list[dict[str, Any]]


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """Return a request that the API takes."""
    losses: list[Loss] = []
    vendor = object_of(object_of(context.options.get("vendor")).get(API))
    endpoint = provider or _issuer(context.messages) or DEFAULT_ENDPOINT
    names = ToolNames(names_in(context), _NAMES, strange=r"[^a-zA-Z0-9_.:-]")
    ids = CallIds(_IDS, own=own_ids(context.messages, VENDOR, endpoint=endpoint))
    body = render_options(context, model=model, names=names, losses=losses)
    tools = render_tools(context.tools, vendor, names, losses)
    writer = PartWriter(losses, id_of=ids.of, name_of=names.of, media_in_results=is_third(model))
    history = _Contents(context.messages, writer, endpoint, model)
    contents = history.contents()
    if context.is_sent:
        contents = _in_order(contents, losses)
        if is_third(model):
            _sign(contents, losses)
    _report_ids(context.messages, ids, losses)
    words = output_words(context.options.get("output")) if is_asked_in_words(context, model) else ""
    system = "\n\n".join(part for part in (context.system, history.system) if part)
    request: dict[str, Any] = {"contents": contents, **_system(system, words, vendor), **body}
    if tools:
        request["tools"] = tools
    return Rendered(body=request, losses=losses_of(losses), names=names.renamed)


def _issuer(messages: Sequence[Message]) -> str | None:
    """Return the provider of the server that wrote the last message; the request goes there if no provider is given."""
    for message in reversed(messages):
        facts = kept(message, VENDOR)
        if facts is not None and facts.get("endpoint"):
            return str(facts["endpoint"])
    return None


def _system(system: str, words: str, vendor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the system words, as they came if they still say the same; `words` are put behind them."""
    held = vendor.get("system")
    if held is not None and not words:
        contents = [camel({"parts": each}) if isinstance(each, str) else camel(each) for each in listed(held)]
        parts = [native_part(part, "system") for each in contents for part in listed(each.get("parts"))]
        if "\n\n".join(text_of(part.get("text")) for part in parts if part.get("text")) == system:
            return {"systemInstruction": held}
    told = "\n\n".join(part for part in (system, words) if part)
    return {"systemInstruction": {"parts": [{"text": told}]}} if told else {}


class _Contents:
    """Turns messages into contents."""

    def __init__(self, messages: Sequence[Message], writer: PartWriter, endpoint: str, model: str) -> None:
        self._messages, self._writer, self._endpoint, self._model = messages, writer, endpoint, model
        self._nameless: set[str] = set()  # calls that go without an id
        self.system = ""  # the words of the system that the messages begin with, once they are written

    def contents(self) -> Contents:
        found, losses = exchanges(self._messages)
        self._writer.losses += losses
        self.system, found = leading_system(found, self._writer.losses)
        contents: Contents = []
        answered = -1  # the message whose results the last content holds
        for exchange in found:
            parts = self._message(exchange)
            if parts and exchange.where == answered and self._facts(exchange.message) is not None:
                contents[-1]["parts"] += parts  # they came together
            elif parts:
                contents.append({"role": _role(exchange.message), "parts": parts})
            answered = -1
            if exchange.answers:
                contents += self._answers(exchange)
                if "functionResponse" in contents[-1]["parts"][0]:
                    answered = max(
                        (each.where for each in exchange.answers if each.where is not None), default=-1
                    )
        return contents

    def _message(self, exchange: Exchange) -> list[Part]:
        message, where = exchange.message, f"messages[{exchange.where}]"
        if message.role == "system":
            why = "Gemini knows none within a conversation; the user says it"
            self._lose("converted", where, "system message", why)
        parts = self._native(message, where)
        return self._writer.message(message, where) if parts is None else parts

    def _answers(self, exchange: Exchange) -> Contents:
        results: list[Part] = []
        behind: list[Part] = []
        for answer in exchange.answers:
            result, media = self._result(answer)
            results.append(result)
            behind += media
        contents: Contents = [{"role": "user", "parts": results}]
        if behind:
            contents.append({"role": "user", "parts": [{"text": "From the results above:"}, *behind]})
        return contents

    def _result(self, answer: CallAnswer) -> tuple[Part, list[Part]]:
        native = None if answer.where is None else self._native_result(answer, answer.where)
        if native is not None:
            return native, []
        part, media = self._writer.result(answer.call, answer.result, answer.place)
        if answer.call.id in self._nameless:
            del part["functionResponse"]["id"]
        return part, media

    def _native_result(self, answer: CallAnswer, place: int) -> Part | None:
        message = self._messages[place]
        facts = self._facts(message)
        if facts is None:
            return None
        for part in items_of(facts.get("parts")):
            shell = object_of(object_of(part).get("functionResponse"))
            if shell.get(RESULT) == answer.at and shell.get("size") == size_of(answer.result.content):
                try:
                    filled: Part = fill(part, answer.result.content)
                except Changed:
                    return None
                return self._named(filled, answer.call)
        return None

    def _named(self, part: Part, call: ToolCall) -> Part:
        answer = {
            key: value for key, value in part["functionResponse"].items() if key not in (RESULT, "size", "id")
        }
        id = {"id": self._writer.id_of(call.id)} if "id" in part["functionResponse"] else {}
        return {**part, "functionResponse": {**id, "name": self._writer.name_of(call.name), **answer}}

    def _facts(self, message: Message) -> Mapping[str, Any] | None:
        facts = kept(message, VENDOR, endpoint=self._endpoint)
        return facts if facts is not None and "parts" in facts else None

    def _native(self, message: Message, where: str) -> list[Part] | None:
        """Return Google's own parts, if it wrote the message and the message is unchanged."""
        facts = self._facts(message)
        if facts is None:
            return None
        try:
            if facts.get("size") != size_of(message.content, message.tool_calls):
                raise Changed
            shells = [object_of(each) for each in items_of(facts["parts"])]
            parts = [
                self._filled(shell, message, where)
                for shell in shells
                if RESULT not in object_of(shell.get("functionResponse"))
            ]
        except Changed:
            self._lose("repaired", where, "native form", "the message was changed since Google made it")
            return None
        if same_model(facts.get("model"), self._model):
            return parts
        for at in sorted({at for shell in shells if shell.get("thought") for at in holes_of(shell)}):
            why = "it is good for the model that made it"
            self._lose("dropped", f"{where}.content[{at}]", "reasoning", why)
        return _unsigned(parts)

    def _filled(self, shell: Part, message: Message, where: str) -> Part:
        part: Part = fill(shell, message.content)
        if "functionCall" not in part:
            return part
        told = dict(object_of(part["functionCall"]))
        at = told.pop(CALL, None)
        if not isinstance(at, int) or not 0 <= at < len(message.tool_calls):
            raise Changed
        call, where = message.tool_calls[at], f"{where}.tool_calls[{at}]"
        if "args" in told and call.args == "{}":
            del told["args"]  # it came without
        else:
            told["args"] = self._writer.args(call.args, where)
        if "id" in told:
            told["id"] = self._writer.id_of(call.id)
        else:
            self._nameless.add(call.id)
        return {**part, "functionCall": {**told, "name": self._writer.tool_name(call, where)}}

    def _lose(self, kind: str, where: str, what: str, why: str) -> None:
        loss = Loss(kind=kind, where=where, what=what, why=why)  # pyright: ignore[reportArgumentType]
        self._writer.losses.append(loss)


def _unsigned(parts: list[Part]) -> list[Part]:
    """Return the parts for another model of Google's: without thoughts and signatures."""
    found = [
        {name: value for name, value in part.items() if name != "thoughtSignature"}
        for part in parts
        if not part.get("thought")
    ]
    return [part for part in found if part and part != {"text": ""}]


def _role(message: Message) -> str:
    return "model" if message.role == "assistant" else "user"


def _in_order(contents: Contents, losses: list[Loss]) -> Contents:
    """Return the contents reordered: calls follow a turn of the user, whose turn is also the last."""
    found: Contents = []
    for content in contents:
        calls = content["role"] == "model" and any("functionCall" in part for part in content["parts"])
        while calls and found and found[-1]["role"] == "model":
            content = {"role": "model", "parts": [*found.pop()["parts"], *content["parts"]]}
            losses.append(_repaired("turn", "a call stands behind a turn of the user's; both turns are one"))
        found.append(content)
        if calls and len(found) == 1:
            found.insert(0, {"role": "user", "parts": [{"text": _NOTHING}]})
            losses.append(_repaired("turn", "a call stands behind a turn of the user's; one was put there"))
    if not found or found[-1]["role"] == "model":
        found.append({"role": "user", "parts": [{"text": _NOTHING}]})
        losses.append(_repaired("turn", "the user's turn is the last; one was put there"))
    return found


def _sign(contents: Contents, losses: list[Loss]) -> None:
    """Sign the first call of each step of the unfinished turn, as the API demands."""
    begun = max(
        (at for at, each in enumerate(contents) if each["role"] == "user" and not _is_results(each)),
        default=-1,
    )
    for content in contents[begun + 1 :]:
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            first["thoughtSignature"] = SKIP
            losses.append(
                _repaired("signature", "the call is another model's; the word for that stands for it")
            )


def _is_results(content: dict[str, Any]) -> bool:
    return any("functionResponse" in part for part in content["parts"])


def _report_ids(messages: Sequence[Message], ids: CallIds, losses: list[Loss]) -> None:
    for where, message in enumerate(messages):
        for at, call in enumerate(message.tool_calls):
            if ids.changed(call.id):
                place = f"messages[{where}].tool_calls[{at}].id"
                why = "it is not legal here, or taken"
                losses.append(Loss(kind="repaired", where=place, what="tool call id", why=why))


def _repaired(what: str, why: str) -> Loss:
    return Loss(kind="repaired", where="messages", what=what, why=why)
