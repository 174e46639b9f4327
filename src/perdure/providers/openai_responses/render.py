"""Renders a context as a request of the Responses API.

The items are put into the order that the API demands; each repair is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from perdure.model.context import Context
from perdure.model.message import Block, Message, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss, Rendered, losses_of
from perdure.providers.openai_responses.items import CALL, CALLS, is_client_call, output_of
from perdure.providers.openai_responses.options import API, custom_tools, render_options, render_tools
from perdure.providers.openai_responses.parse import DEFAULT_ENDPOINT, VENDOR
from perdure.providers.openai_responses.portable_items import ItemWriter
from perdure.providers.openai_responses.request import BARE, OUTPUTS
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import CallAnswer, Exchange, exchanges
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
from perdure.providers.wire.server_tools import is_account
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render", "dropped", "mended"]


RequestItems: TypeAlias = list[dict[str, Any]]
Places: TypeAlias = Callable[[Mapping[str, Any]], list[str]]

# Calls of OpenAI's own tools that a program carries out; the server answers the others itself.
_FOR_PROGRAM = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "shell_call", "tool_search_call"}
)


# What is in order by itself: words, and calls that have their results right behind them.
_OURS = frozenset({None, "message", "function_call", "function_call_output"})

# What only some servers do: xAI itself gives an id to several items of an answer, DeepSeek is strict about order.
_REPEATS_IDS = frozenset({"xai"})
_CALLS_LAST = frozenset({"deepseek"})


def mended(
    items: RequestItems, losses: list[Loss], places_of: Places, *, continues: bool, endpoint: str
) -> RequestItems:
    """Return the items in a form that the API accepts; `continues` is True if some are on the server already.

    `places_of` gives the places of an item's content in the context.
    """
    kinds = {item.get("type") for item in items}
    found = items if continues or kinds <= _OURS else _paired(items, losses, places_of)
    if endpoint not in _REPEATS_IDS and any("id" in item for item in found):
        found = _told_once(found, losses, places_of)
    if "reasoning" in kinds:
        found = _with_output(found, losses, places_of)
    return _calls_last(found, losses) if endpoint in _CALLS_LAST else found


def dropped(item: Mapping[str, Any], places_of: Places, why: str) -> list[Loss]:
    """Return the losses of an item that is left out."""
    what = "reasoning" if item.get("type") == "reasoning" else "server tool"
    return [Loss(kind="dropped", where=place, what=what, why=why) for place in places_of(item)]


def _paired(items: RequestItems, losses: list[Loss], places_of: Places) -> RequestItems:
    """Return the items without unmatched results and calls, which the API refuses."""
    answered = {item.get("call_id") for item in items if _is_result(item)}
    asked: set[Any] = set()
    found: RequestItems = []
    for item in items:
        kind, id = str(item.get("type")), item.get("call_id")
        if kind == "mcp_approval_response":
            keep = item.get("approval_request_id") in asked
        elif _is_result(item):
            keep = id is None or id in asked
        else:
            keep = not _is_for_program(item) or id in answered
        if keep:
            asked |= {id, item.get("id")}
            found.append(item)
        else:
            why = f"the other half of this {kind}, the call or the result, is not there"
            losses += dropped(item, places_of, why)
    return found


def _is_for_program(item: Mapping[str, Any]) -> bool:
    """True if a program, not the server, carries out a call of OpenAI's own tools."""
    if item.get("call_id") is None or item.get("execution") == "server":
        return False
    return item.get("type") in _FOR_PROGRAM


def _is_result(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_output")


def _told_once(items: RequestItems, losses: list[Loss], places_of: Places) -> RequestItems:
    """Return the items with each id once: a repeated reasoning is dropped, any other item loses its id."""
    seen: set[Any] = set()
    found: RequestItems = []
    for item in items:
        id = item.get("id")
        if id is None or id not in seen:
            seen.add(id)
            found.append(item)
            continue
        if item.get("type") in ("reasoning", "item_reference"):
            losses += dropped(item, places_of, "another item has its id")
        else:  # the id carries no content
            found.append({name: value for name, value in item.items() if name != "id"})
    return found


def _with_output(items: RequestItems, losses: list[Loss], places_of: Places) -> RequestItems:
    """Return the items without reasoning that no output follows, which the API refuses."""
    found: RequestItems = []
    for item in reversed(items):
        if item.get("type") == "reasoning" and not (found and _is_output(found[-1])):
            why = "the output that belongs to it is not there, and it is refused alone"
            losses += dropped(item, places_of, why)
        else:
            found.append(item)
    return found[::-1]


def _is_output(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    if kind in (None, "message"):
        return item.get("role") == "assistant"
    return not _is_result(item) and kind not in ("mcp_approval_response", "additional_tools")


def _calls_last(items: RequestItems, losses: list[Loss]) -> RequestItems:
    """Return the items with calls after text: DeepSeek refuses text between a call and its result."""
    found: RequestItems = []
    waiting: RequestItems = []
    for item in items:
        kind = item.get("type")
        if kind in CALLS:
            waiting.append(item)
            continue
        if waiting and item.get("role") == "assistant":
            why = "words between a call and its result are refused; they stand before the call"
            losses.append(Loss(kind="repaired", where="messages", what="order of items", why=why))
        else:
            found += waiting
            waiting = []
        found.append(item)
    return [*found, *waiting]


_NAMES = r"[a-zA-Z0-9_-]{1,64}"
_IDS = r"[\x21-\x7e]{1,64}"
_NOTHING = "Continue."
_WORDS = ("type", "id", "call_id")

Items: TypeAlias = list[dict[str, Any]]


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """Return a request that the API takes."""
    losses: list[Loss] = []
    vendor = object_of(object_of(context.options.get("vendor")).get(API))
    endpoint = provider or _issuer(context.messages) or DEFAULT_ENDPOINT
    names, ids = (
        ToolNames(names_in(context), _NAMES),
        CallIds(_IDS, own=own_ids(context.messages, VENDOR, endpoint=endpoint)),
    )
    body = render_options(context, model=model, endpoint=endpoint, names=names, losses=losses)
    tools = render_tools(context.tools, vendor, names, losses)
    custom = custom_tools(vendor)
    writer = ItemWriter(losses, id_of=ids.of, name_of=names.of, is_custom=custom.__contains__)
    history = _InputItems(context.messages, writer, endpoint, body)
    instructions, first = _system(context.system, vendor)
    items = [*first, *history.items()]
    items = mended(items, losses, history.places_of, continues=history.continues, endpoint=endpoint)
    _report_ids(context.messages, ids, losses)
    said = _input(items, body, losses, is_sent=context.is_sent)
    request = {"model": model, "input": said, **instructions, **body}
    if tools:
        request["tools"] = tools
    elif "tools" not in vendor:
        _without_tools(request, losses)
    served = {tool.serves: tool.name for tool in context.tools if tool.serves is not None}
    return Rendered(body=request, losses=losses_of(losses), names={**names.renamed, **served})


def _issuer(messages: Sequence[Message]) -> str | None:
    """Return the provider of the server that wrote the last message; the request goes there if no provider is given."""
    for message in reversed(messages):
        facts = kept(message, VENDOR)
        if facts is not None and facts.keys() & {"items", "call_ids"}:
            return str(facts.get("endpoint"))
    return None


def _system(system: str, vendor: Mapping[str, Any]) -> tuple[dict[str, Any], Items]:
    """Return the instructions, and the system messages that came with them, if they still say the same."""
    held = object_of(vendor.get("system"))
    items = [object_of(item) for item in items_of(held.get("items"))]
    texts = [text_of(held.get("instructions")), *(_words(item.get("content")) for item in items)]
    if held and "\n\n".join(text for text in texts if text) == system:
        given = held.get("instructions")
        return ({} if given is None else {"instructions": given}), items
    return ({"instructions": system} if system else {}), []


def _words(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(object_of(part).get("text")) for part in items_of(content))


class _Origin(NamedTuple):
    """The message that stores an item of OpenAI's own, and the index of the item."""

    item: dict[str, Any]  # keeps its identity from being given to another item
    message: Message
    where: str
    shells: list[Any]
    at: int


class _InputItems:
    """Turns messages into items."""

    def __init__(
        self, messages: Sequence[Message], writer: ItemWriter, endpoint: str, body: Mapping[str, Any]
    ) -> None:
        self._messages, self._writer, self._endpoint = messages, writer, endpoint
        self._stateless = body.get("store") is False
        self._origins: dict[int, _Origin] = {}  # by the identity of the item
        self._in_words: set[int] = set()  # the calls that are sent as text, by their identity
        self.continues = bool(body.get("previous_response_id") or body.get("conversation"))

    def items(self) -> Items:
        found, losses = exchanges(self._messages, continues=self.continues)
        orphans = self._orphans() if self.continues else {}
        self._writer.losses += losses
        items: Items = []
        if not orphans:
            for exchange in found:
                items += self._exchange(exchange)
            return items
        by_place = {exchange.where: exchange for exchange in found}
        for where in range(len(self._messages)):
            items += [self._result(*orphan) for orphan in orphans.get(where, [])]
            if where in by_place:
                items += self._exchange(by_place[where])
        return items

    def places_of(self, item: Mapping[str, Any]) -> list[str]:
        """Return the places of an item's content in the context."""
        origin = self._origins.get(id(item))
        if origin is None:
            return ["messages"]
        shell, where = object_of(origin.shells[origin.at]), origin.where
        if CALL in shell:
            return [f"{where}.tool_calls[{shell[CALL]}]"]
        places = [f"{where}.content[{at}]" for at in holes_of(shell)]
        if not _has_account(shell):
            return places or [f"{where}.{shell.get('type')}"]
        accounts = [at for at, block in enumerate(origin.message.content) if is_account(block)]
        told = sum(_has_account(object_of(each)) for each in origin.shells[: origin.at])
        return [*(f"{where}.content[{at}]" for at in accounts[told : told + 1]), *places]

    def _orphans(self) -> dict[int, list[tuple[ToolCall, ToolResult, int, str]]]:
        """Return results whose calls the server has: the request continues what it stores."""
        calls = {call.id for message in self._messages for call in message.tool_calls}
        return {
            where: [
                (ToolCall(result.call_id, "", ""), result, where, f"messages[{where}].tool_results[{at}]")
                for at, result in enumerate(message.tool_results)
                if result.call_id not in calls
            ]
            for where, message in enumerate(self._messages)
        }

    def _exchange(self, exchange: Exchange) -> Items:
        where = f"messages[{exchange.where}]"
        message = exchange.message
        items = self._native(message, where)
        moved: Items = []
        if items is None:
            items = self._writer.message(message, where)
            moved = self._writer.moved(message, where)
        if not exchange.answers:
            return [*items, *moved] if moved else items
        calls = {item.get("call_id") or item.get("id"): item for item in items}
        answers = [self._answer(answer, calls) for answer in exchange.answers]
        return [*(item for item in items if id(item) not in self._in_words), *answers, *moved]

    def _answer(self, answer: CallAnswer, calls: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
        id = self._writer.id_of(answer.call.id)
        asked = calls.get(id, {})
        if is_client_call(asked):
            return output_of(asked, id, answer.result) or self._told_in_words(answer, asked)
        item = self._result(answer.call, answer.result, answer.where, answer.place)
        call_kind = asked.get("type")
        if OUTPUTS[item["type"]] != call_kind:
            item["type"] = f"{call_kind}_output"
        return item

    def _told_in_words(self, answer: CallAnswer, asked: dict[str, Any]) -> dict[str, Any]:
        """Return a result that OpenAI's own tool cannot give, and its call, which is refused without one."""
        why = "OpenAI's own tool takes no such answer; call and result are sent as text"
        self._in_words.add(id(asked))
        for place in self.places_of(asked):
            self._lose("converted", place, "tool call", why)
        self._lose("converted", answer.place, "tool result", why)
        said = "\n".join(block.text for block in answer.result.content if isinstance(block, Text))
        return {"role": "user", "content": f"[{answer.call.name} {answer.call.args} → {said}]"}

    def _result(self, call: ToolCall, result: ToolResult, place: int | None, where: str) -> dict[str, Any]:
        if place is not None and result.status == "success":
            message = self._messages[place]
            shells = self._shells(message, result.content) if len(message.tool_results) == 1 else None
            if shells is not None and len(shells) == 1:
                try:
                    return {**fill(shells[0], result.content), "call_id": self._writer.id_of(call.id)}
                except Changed:
                    self._changed(where)
        return self._writer.result(call, result, where)

    def _shells(self, message: Message, content: Sequence[Block]) -> list[Any] | None:
        """Return the items stored with a result, if it is unchanged."""
        facts = kept(message, VENDOR, endpoint=self._endpoint)
        if facts is None or "items" not in facts:
            return None
        return items_of(facts["items"]) if facts.get("size") == size_of(content) else None

    def _native(self, message: Message, where: str) -> Items | None:
        """Return the vendor's own items, if it wrote the message and the message is unchanged."""
        facts = kept(message, VENDOR, endpoint=self._endpoint)
        if facts is None or "items" not in facts:
            return None
        try:
            if facts.get("size") != size_of(message.content, message.tool_calls):
                raise Changed
            shells = items_of(facts["items"])
            items = [self._filled(shell, message, where) for shell in shells]
        except Changed:
            self._changed(where)
            return None
        for at, item in enumerate(items):
            self._origins[id(item)] = _Origin(item, message, where, shells, at)
        lost = self._stateless or facts.get("store") is False
        return self._reachable(items) if lost else items

    def _filled(self, shell: Any, message: Message, where: str) -> dict[str, Any]:
        item: dict[str, Any] = fill(shell, message.content)
        if not isinstance(item, dict) or not all(isinstance(item.get(name), str | None) for name in _WORDS):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Changed  # it was never an item
        at = item.pop(CALL, None)
        if at is None:
            return item
        field = CALLS.get(str(item.get("type")))
        is_own = is_client_call(item)
        if not (field or is_own) or not isinstance(at, int) or not 0 <= at < len(message.tool_calls):
            raise Changed
        call = message.tool_calls[at]
        if field is None:
            return {**item, "call_id": self._writer.id_of(call.id)} if "call_id" in item else item
        return {
            **item,
            "call_id": self._writer.id_of(call.id),
            "name": self._writer.tool_name(call, f"{where}.tool_calls[{at}]"),
            field: call.args,
        }

    def _reachable(self, items: Items) -> Items:
        """Return the items without references that the server would have to look up: it stores nothing."""
        whole = [item for item in items if not _by_id_alone(item)]
        if len(whole) == len(items):
            return items
        why = "it is known by its id alone, and the server keeps nothing"
        for item in items:
            self._writer.losses += dropped(item, self.places_of, why) if _by_id_alone(item) else []
        for item in whole:
            if item.get("type") != "mcp_approval_request":  # the answer names it by its id
                item.pop("id", None)
        return whole

    def _changed(self, where: str) -> None:
        self._lose("repaired", where, "native form", "the message was changed since OpenAI made it")

    def _lose(self, kind: str, where: str, what: str, why: str) -> None:
        loss = Loss(kind=kind, where=where, what=what, why=why)  # pyright: ignore[reportArgumentType]
        self._writer.losses.append(loss)


def _has_account(shell: Mapping[str, Any]) -> bool:
    """True if a block of the message describes what one of OpenAI's own tools did."""
    return CALL not in shell and shell.get("type") not in (None, "message", "reasoning")


def _by_id_alone(item: Mapping[str, Any]) -> bool:
    match item.get("type"):
        case "reasoning":
            return not item.get("encrypted_content")
        case "item_reference":
            return True
        case "image_generation_call":
            return not item.get("result")
        case _:
            return False


def _report_ids(messages: Sequence[Message], ids: CallIds, losses: list[Loss]) -> None:
    for where, message in enumerate(messages):
        for at, call in enumerate(message.tool_calls):
            if ids.changed(call.id):
                place = f"messages[{where}].tool_calls[{at}].id"
                losses.append(
                    Loss(
                        kind="repaired",
                        where=place,
                        what="tool call id",
                        why="it is not legal here, or taken",
                    )
                )


def _input(items: Items, body: Mapping[str, Any], losses: list[Loss], *, is_sent: bool) -> Any:
    if len(items) == 1 and BARE in items[0]:
        return items[0][BARE]
    if (
        is_sent
        and not items
        and not any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))
    ):
        why = "a request must say something"
        losses.append(Loss(kind="repaired", where="messages", what="empty history", why=why))
        return _NOTHING
    return [{"role": "user", "content": item[BARE]} if BARE in item else item for item in items]


def _without_tools(request: dict[str, Any], losses: list[Loss]) -> None:
    """Drop the choice of a tool if there is none: the API refuses it."""
    choice = request.get("tool_choice")
    if choice not in (None, "auto", "none"):
        del request["tool_choice"]
        why = "no tools are declared"
        losses.append(Loss(kind="dropped", where="options.tool_choice", what="tool choice", why=why))
