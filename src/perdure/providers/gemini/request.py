"""Reads requests of the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.model.message import Message, ToolResult
from perdure.providers.contract import Asked, Loss
from perdure.providers.gemini.options import API, read_options, read_tools
from perdure.providers.gemini.parse import DEFAULT_ENDPOINT, VENDOR, camel, listed, native_part, read_part
from perdure.providers.gemini.portable_parts import plain_parts
from perdure.providers.wire.fields.vendor_items import TakenIds, VendorTurn, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, id_of_tool, keep
from perdure.providers.wire.malformed import malformed, unreadable

__all__ = ["FIELDS", "RESULT", "read_request"]

# The fields that the reader knows, in places where it keeps no others.
FIELDS = {"contents[]": frozenset({"role", "parts"})}

RESULT = "#result"  # in the shell of a result: which of the message's results it is


def read_request(body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None) -> Asked:
    """Return the context that a request shows."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable(
            "not_a_request",
            f"this is no request of the Gemini API: it is a {type(body).__name__}, not an object",
        )
    told = camel(body)
    if "contents" not in told:
        raise unreadable("not_a_request", "this is no request of the Gemini API: it has no 'contents'")
    options, vendor = read_options(told)
    tools = read_tools(told.get("tools"), vendor)
    system = _system(told.get("systemInstruction"), vendor)
    reader = _ContentsReader(
        endpoint=provider or DEFAULT_ENDPOINT, model=model or text_of(told.get("model")) or None
    )
    for at, content in enumerate(listed(told["contents"])):
        reader.take(content, f"contents[{at}]")
    if vendor:
        options["vendor"] = {API: vendor}
    return Asked(
        system=system, messages=reader.found, tools=tools, options=options, losses=tuple(reader.losses)
    )


def _system(given: object, vendor: dict[str, Any]) -> str:
    """Return the system text, and its original form where that differs."""
    if given is None:
        return ""
    contents = [camel({"parts": each}) if isinstance(each, str) else camel(each) for each in listed(given)]
    parts = [
        native_part(part, "systemInstruction") for each in contents for part in listed(each.get("parts"))
    ]
    words = "\n\n".join(text_of(part.get("text")) for part in parts if part.get("text"))
    if given != {"parts": [{"text": words}]}:
        vendor["system"] = given
    return words


class _ContentsReader:
    """Turns contents into messages."""

    def __init__(self, *, endpoint: str, model: str | None) -> None:
        self._facts = {"endpoint": endpoint, "model": model}
        self.found: list[Message] = []
        self._taken = TakenIds()
        self._open: list[
            tuple[str, str, str]
        ] = []  # calls without a result: the vendor's id, the name, our id
        self.losses: list[Loss] = []

    def take(self, content: object, where: str) -> None:
        told = camel({"parts": content} if isinstance(content, str) else content)
        if told.get("parts") is None and told.get("role") != "model":  # an answer may be empty
            raise malformed(where, "is no content of the Gemini API: it has no parts")
        role = told.get("role") or "user"
        if role not in ("user", "model", "function"):
            raise malformed(where, f"is no content of the Gemini API: its role is {role!r}")
        natives = [
            native_part(part, f"{where}.parts[{at}]") for at, part in enumerate(listed(told.get("parts")))
        ]
        turn, results, shells = VendorTurn(self._taken), list[ToolResult](), list[Any]()
        for at, part in enumerate(natives):
            place = f"{where}.parts[{at}]"
            if "functionResponse" in part:
                shells.append(self._result(part, results, place))
            else:
                shells.append(read_part(part, turn, self.losses, place, model=role == "model"))
        message = Message(
            "assistant" if role == "model" else "tool" if results and not turn.content else "user",
            content=tuple(turn.content),
            tool_calls=tuple(turn.calls),
            tool_results=tuple(results),
        )
        self._remember(natives, turn)
        self.found.append(self._with(message, natives, shells, turn))

    def _remember(self, natives: list[dict[str, Any]], turn: VendorTurn) -> None:
        calls = [object_of(part["functionCall"]) for part in natives if "functionCall" in part]
        self._open += [
            (text_of(native.get("id")), call.name, call.id)
            for native, call in zip(calls, turn.calls, strict=True)
        ]

    def _result(self, part: dict[str, Any], results: list[ToolResult], where: str) -> dict[str, Any]:
        answer = object_of(part["functionResponse"])
        turn = VendorTurn()
        response, is_error = _response(answer.get("response"), turn)
        shell = {key: value for key, value in answer.items() if key != "name"}
        shell["response"] = response
        if "parts" in answer:
            shell["parts"] = [
                read_part(each, turn, self.losses, where, model=False) for each in answer["parts"]
            ]
        id = self._call_of(text_of(answer.get("id")), text_of(answer.get("name")))
        results.append(ToolResult(id, "error" if is_error else "success", tuple(turn.content)))
        shell |= {RESULT: len(results) - 1, "size": turn.size}
        return {**part, "functionResponse": shell}

    def _call_of(self, id: str, name: str) -> str:
        """Return the call that a result belongs to: by its id, else the first of its name that has none."""
        by_id = next((each for each in self._open if id and each[0] == id), None)
        found = by_id or next((each for each in self._open if each[1] == name), None)
        if found is not None:
            self._open.remove(found)
            return found[2]
        return id or id_of_tool(name)

    def _with(self, message: Message, natives: list[Any], shells: list[Any], turn: VendorTurn) -> Message:
        """Return the message, with its native form where the canonical one holds less."""
        ids = call_ids(turn.calls)
        if _named_alike(plain_parts(message)) != _named_alike(natives):
            facts = {**self._facts, "parts": shells, "size": turn.size, "call_ids": ids}
        elif ids is not None:
            facts = {**self._facts, "call_ids": ids}
        else:
            return message
        return msgspec.structs.replace(message, vendor_metadata=keep(VENDOR, facts))


def _response(response: object, turn: VendorTurn) -> tuple[Any, bool]:
    """Return a function's result as text or JSON, and whether it is an error."""
    told = object_of(response)
    if len(told) == 1:
        ((key, value),) = told.items()
        if key in ("result", "output", "error") and isinstance(value, str):
            return {key: turn.text(value)}, key == "error"
    return (turn.json(told) if told else told), "error" in told and len(told) == 1


def _named_alike(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return parts without the names of answered calls, which the calls themselves have."""
    return [
        {**part, "functionResponse": {**object_of(part["functionResponse"]), "name": ""}}
        if "functionResponse" in part
        else part
        for part in parts
    ]
