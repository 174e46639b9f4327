"""Reads requests of the Interactions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.model.message import Message, Role, ToolResult
from perdure.providers.contract import Asked, Loss
from perdure.providers.gemini_interactions.options import API, read_options, read_tools
from perdure.providers.gemini_interactions.parse import (
    DEFAULT_ENDPOINT,
    MEDIA,
    VENDOR,
    read_contents,
    read_step,
)
from perdure.providers.gemini_interactions.portable_steps import plain_steps
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

__all__ = ["BARE", "CONTENTS", "read_request"]

BARE = "#input"  # the shell of an input that is one text
CONTENTS = "#contents"  # the shell of an input that is a list of contents, not of steps


def read_request(body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None) -> Asked:
    """Return the context that a request shows."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable(
            "not_a_request",
            f"this is no request of the Interactions API: it is a {type(body).__name__}, not an object",
        )
    given: object = body.get("input")
    is_input = isinstance(given, str) or is_list(given) or bool(object_of(given))
    if not is_input and "previous_interaction_id" not in body:
        raise unreadable(
            "not_a_request", "this is no request of the Interactions API: it has no 'input', a text or a list"
        )
    options, vendor = read_options(body)
    tools = read_tools(body.get("tools"), vendor)
    system = text_of(body.get("system_instruction"))
    named = model or text_of(body.get("model")) or text_of(body.get("agent")) or None
    reader = _Reader(endpoint=provider or DEFAULT_ENDPOINT, model=named)
    for at, step in enumerate(_steps(given)):
        reader.take(step, f"input[{at}]")
    if vendor:
        options["vendor"] = {API: vendor}
    messages = reader.messages()
    return Asked(system=system, messages=messages, tools=tools, options=options, losses=tuple(reader.losses))


def _steps(given: object) -> list[Any]:
    """Return the input as a list of steps, whichever of its forms it has."""
    if isinstance(given, str):
        return [{BARE: given}]
    listed = items_of(given) or items_of([given] if object_of(given) else [])
    if listed and all(object_of(each).get("type") in ("text", *MEDIA) for each in listed):
        return [{CONTENTS: listed}]
    return listed


class _Reader:
    """Turns steps into messages: consecutive steps of the model are one message."""

    def __init__(self, *, endpoint: str, model: str | None) -> None:
        self._facts = {"endpoint": endpoint, "model": model}
        self._found: list[Message] = []
        self._taken = TakenIds()
        self._latest: dict[str, str] = {}  # the vendor's id of a call → ours, of the latest such call
        self._turn = VendorTurn(self._taken)
        self._natives: list[Any] = []
        self._shells: list[Any] = []
        self.losses: list[Loss] = []

    def take(self, step: Any, where: str) -> None:
        told = object_of(step)
        kind = told.get("type")
        if not all(isinstance(told.get(name), str | None) for name in ("type", "id", "call_id", "name")):
            raise malformed(where, "has a type, a name or an id that is no text")
        if BARE in told:
            turn = VendorTurn()
            self._keep("user", turn, [told], [{BARE: turn.text(told[BARE])}])
        elif CONTENTS in told:
            turn = VendorTurn()
            shell = {CONTENTS: read_contents(told[CONTENTS], turn, self.losses, where)}
            self._keep("user", turn, [told], [shell])
        elif kind == "user_input":
            self._end()
            turn = VendorTurn()
            self._keep("user", turn, [told], [read_step(told, turn, self.losses, where)])
        elif kind == "function_result":
            self._end()
            self._result(told, where)
        else:
            before = len(self._turn.calls)
            self._shells.append(read_step(told, self._turn, self.losses, where))
            self._natives.append(told)
            if kind == "function_call":
                self._latest[text_of(told.get("id"))] = self._turn.calls[before].id

    def messages(self) -> list[Message]:
        self._end()
        return self._found

    def _end(self) -> None:
        if self._natives:
            self._keep("assistant", self._turn, self._natives, self._shells)
        self._turn, self._natives, self._shells = VendorTurn(self._taken), [], []

    def _result(self, told: dict[str, Any], where: str) -> None:
        call_id = text_of(told.get("call_id"))
        if not call_id:
            raise malformed(where, "is a result that names no call")
        turn = VendorTurn()
        result: Any = told.get("result")
        if isinstance(result, str | None):
            shell = turn.text(result or "")
        elif is_list(result):
            shell = read_contents(result, turn, self.losses, where)
        else:
            shell = turn.json(result)
        failed = told.get("is_error") is True
        status = "error" if failed else "success"
        given = ToolResult(self._latest.get(call_id, call_id), status, tuple(turn.content))
        canonical = ("call_id", "name", *(("is_error",) if failed else ()))
        rest = {name: value for name, value in told.items() if name not in canonical}
        message = Message("tool", tool_results=(given,))
        self._found.append(self._with(message, [told], [{**rest, "result": shell}], turn))

    def _keep(self, role: Role, turn: VendorTurn, natives: list[Any], shells: list[Any]) -> None:
        message = Message(role, content=tuple(turn.content), tool_calls=tuple(turn.calls))
        self._found.append(self._with(message, natives, shells, turn))

    def _with(self, message: Message, natives: list[Any], shells: list[Any], turn: VendorTurn) -> Message:
        """Return the message, with its native form where the canonical one holds less."""
        ids = call_ids(turn.calls)
        if plain_steps(message) != [_nameless(each) for each in natives]:
            facts = {**self._facts, "steps": shells, "size": turn.size, "call_ids": ids}
        elif ids is not None:
            facts = {**self._facts, "call_ids": ids}
        else:
            return message
        return msgspec.structs.replace(message, vendor_metadata=keep(VENDOR, facts))


def _nameless(step: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the name of its tool, which its call has."""
    if step.get("type") != "function_result":
        return step
    return {name: value for name, value in step.items() if name != "name"}
