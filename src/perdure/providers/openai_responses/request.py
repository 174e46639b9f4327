"""Reads requests of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.model.message import Message, Role, ToolResult
from perdure.providers.contract import Asked, Loss
from perdure.providers.openai_responses.items import CALLS, read_item, read_parts
from perdure.providers.openai_responses.options import API, read_options, read_tools
from perdure.providers.openai_responses.parse import DEFAULT_ENDPOINT, VENDOR
from perdure.providers.openai_responses.portable_items import plain_items
from perdure.providers.wire.fields.vendor_items import (
    TakenIds,
    VendorTurn,
    is_list,
    items_of,
    object_of,
    text_of,
)
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable

__all__ = ["BARE", "OUTPUTS", "read_request"]

BARE = "#input"  # the shell of an input that is one text, not a list
OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}

# What a program sends on its own account.  The same kind may come from the model, made on its server.
_FROM_PROGRAM = frozenset(
    {
        "additional_tools",
        "apply_patch_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "mcp_approval_response",
    }
)


def read_request(body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None) -> Asked:
    """Return the context that a request shows."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable(
            "not_a_request",
            f"this is no request of the Responses API: it is a {type(body).__name__}, not an object",
        )
    given: object = body.get("input")
    if not (isinstance(given, str | None) or is_list(given)) or not (
        given is not None or body.keys() & {"previous_response_id", "prompt", "conversation"}
    ):
        raise unreadable(
            "not_a_request",
            "this is no request of the Responses API: it has no 'input', a text or a list of items",
        )
    options = read_options(body)
    vendor = object_of(object_of(options.get("vendor")).get(API))
    tools = read_tools(body.get("tools"), vendor)
    reader = _ItemsReader(
        endpoint=provider or DEFAULT_ENDPOINT, model=model or text_of(body.get("model")) or None
    )
    items: list[Any] = [{BARE: given}] if isinstance(given, str) else items_of(given)
    items, system = _system(body.get("instructions"), items, vendor)
    for at, item in enumerate(items):
        reader.take(item, f"input[{at}]")
    if vendor:
        options["vendor"] = {API: vendor}
    messages = reader.messages()
    return Asked(system=system, messages=messages, tools=tools, options=options, losses=tuple(reader.losses))


def _system(instructions: object, items: list[Any], vendor: dict[str, Any]) -> tuple[list[Any], str]:
    """Return the system words: the instructions, and the system messages that the input begins with."""
    texts = [instructions] if isinstance(instructions, str) else []
    if instructions is not None and not texts:
        vendor["instructions"] = instructions
    leading = 0
    while leading < len(items) and (words := _system_words(items[leading])) is not None:
        texts.append(words)
        leading += 1
    if leading or texts == [""]:
        vendor["system"] = {"instructions": instructions, "items": items[:leading]}
    return items[leading:], "\n\n".join(text for text in texts if text)


def _system_words(item: object) -> str | None:
    """Return the text of a system message, if it holds text alone."""
    told = object_of(item)
    if told.get("role") not in ("system", "developer") or told.get("type") not in (None, "message"):
        return None
    content = told.get("content")
    if isinstance(content, str):
        return content
    parts = [object_of(part) for part in items_of(content)]
    if not parts or not all(isinstance(part.get("text"), str) for part in parts):
        return None
    return "\n\n".join(part["text"] for part in parts)


class _ItemsReader:
    """Turns items into messages: consecutive items of the model are one message."""

    def __init__(self, *, endpoint: str, model: str | None) -> None:
        self._facts = {"endpoint": endpoint, "model": model}
        self._found: list[Message] = []
        self._taken = TakenIds()
        self._latest: dict[str, str] = {}  # the vendor's id of a call → ours, of the latest such call
        self._server_calls: set[Any] = set()  # ids of calls of OpenAI's own tools
        self._turn = VendorTurn(self._taken)
        self._natives: list[Any] = []
        self._shells: list[Any] = []
        self.losses: list[Loss] = []

    def take(self, item: Any, where: str) -> None:
        told = object_of(item)
        kind, role = told.get("type"), told.get("role")
        if not all(isinstance(told.get(name), str | None) for name in ("type", "role", "call_id", "id")):
            raise malformed(where, "has a type, a role or an id that is no text")
        if BARE in told:
            self._bare(told[BARE])
        elif kind in OUTPUTS and told.get("call_id") not in self._server_calls:
            self._result(told, where)
        elif kind in (None, "message") and role != "assistant":
            self._other(told, where)
        elif kind in OUTPUTS or kind in _FROM_PROGRAM or _from_program(told):
            self._end()
            self._one("user", item, where)
        else:
            self._model(told, item, where)

    def messages(self) -> list[Message]:
        self._end()
        return self._found

    def _model(self, told: dict[str, Any], item: Any, where: str) -> None:
        if self._natives and told.get("type") is None and self._natives[-1].get("type") in (None, "message"):
            self._end()  # messages in the short form stand for themselves
        before = len(self._turn.calls)
        self._shells.append(read_item(item, self._turn, self.losses, where))
        self._natives.append(item)
        if told.get("type") in CALLS:
            id = text_of(told.get("call_id")) or text_of(told.get("id"))
            self._latest[id] = self._turn.calls[before].id
        elif told.get("call_id"):
            self._server_calls.add(told["call_id"])

    def _end(self) -> None:
        if self._natives:
            self._keep("assistant", self._turn, self._natives, self._shells)
        self._turn, self._natives, self._shells = VendorTurn(self._taken), [], []

    def _bare(self, words: str) -> None:
        turn = VendorTurn()
        self._keep("user", turn, [{BARE: words}], [{BARE: turn.text(words)}])

    def _other(self, told: dict[str, Any], where: str) -> None:
        role = told.get("role")
        if role not in ("user", "system", "developer"):
            raise malformed(where, f"is no item of the Responses API: its role is {role!r}")
        if told.get("content") is None:
            raise malformed(where, "is no item of the Responses API: it has no content")
        self._end()
        self._one("user" if role == "user" else "system", told, where)

    def _one(self, role: Role, item: Any, where: str) -> None:
        turn = VendorTurn()
        self._keep(role, turn, [item], [read_item(item, turn, self.losses, where)])

    def _result(self, told: dict[str, Any], where: str) -> None:
        self._end()
        turn = VendorTurn()
        call_id = text_of(told.get("call_id"))
        if not call_id:
            raise malformed(where, "is a result that names no call")
        output = read_parts(told.get("output"), turn, self.losses, where)
        result = ToolResult(self._latest.get(call_id, call_id), "success", tuple(turn.content))
        shell = {**told, "output": output}
        del shell["call_id"]
        message = Message("tool", tool_results=(result,))
        self._found.append(self._with(message, [told], [shell], turn))

    def _keep(self, role: Role, turn: VendorTurn, natives: list[Any], shells: list[Any]) -> None:
        message = Message(role, content=tuple(turn.content), tool_calls=tuple(turn.calls))
        self._found.append(self._with(message, natives, shells, turn))

    def _with(self, message: Message, natives: list[Any], shells: list[Any], turn: VendorTurn) -> Message:
        """Return the message, with its native form where the canonical one holds less."""
        ids = call_ids(turn.calls)
        if plain_items(message) != natives:
            facts = {**self._facts, "items": shells, "size": turn.size, "call_ids": ids}
        elif ids is not None:
            facts = {**self._facts, "call_ids": ids}
        else:
            return message
        return msgspec.structs.replace(message, vendor_metadata=keep(VENDOR, facts))


def _from_program(item: dict[str, Any]) -> bool:
    return item.get("type") == "tool_search_output" and item.get("execution") == "client"
