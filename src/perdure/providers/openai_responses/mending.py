"""Items put into the order that the Responses API demands, each repair reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from perdure.providers.contract import Loss
from perdure.providers.openai_responses.items import CALLS

__all__ = ["dropped", "mended"]

Items: TypeAlias = list[dict[str, Any]]
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


def mended(items: Items, losses: list[Loss], places_of: Places, *, continues: bool, endpoint: str) -> Items:
    """The items as the API takes them; `continues`: some are on the server already.

    `places_of` gives the places in the context of what an item says.
    """
    kinds = {item.get("type") for item in items}
    found = items if continues or kinds <= _OURS else _paired(items, losses, places_of)
    if endpoint not in _REPEATS_IDS and any("id" in item for item in found):
        found = _told_once(found, losses, places_of)
    if "reasoning" in kinds:
        found = _with_output(found, losses, places_of)
    return _calls_last(found, losses) if endpoint in _CALLS_LAST else found


def dropped(item: Mapping[str, Any], places_of: Places, why: str) -> list[Loss]:
    """The losses of an item that is left out."""
    what = "reasoning" if item.get("type") == "reasoning" else "server tool"
    return [Loss(kind="dropped", where=place, what=what, why=why) for place in places_of(item)]


def _paired(items: Items, losses: list[Loss], places_of: Places) -> Items:
    """Without results whose calls are not there, and calls that nothing answers: both are refused."""
    answered = {item.get("call_id") for item in items if _is_result(item)}
    asked: set[Any] = set()
    found: Items = []
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
    """Whether a program, not the server, carries out a call of OpenAI's own tools."""
    if item.get("call_id") is None or item.get("execution") == "server":
        return False
    return item.get("type") in _FOR_PROGRAM


def _is_result(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_output")


def _told_once(items: Items, losses: list[Loss], places_of: Places) -> Items:
    """Each item id once: a second reasoning of the same id goes, anything else stands without its id."""
    seen: set[Any] = set()
    found: Items = []
    for item in items:
        id = item.get("id")
        if id is None or id not in seen:
            seen.add(id)
            found.append(item)
            continue
        if item.get("type") in ("reasoning", "item_reference"):
            losses += dropped(item, places_of, "another item has its id")
        else:  # nothing that anybody reads is lost with the id
            found.append({name: value for name, value in item.items() if name != "id"})
    return found


def _with_output(items: Items, losses: list[Loss], places_of: Places) -> Items:
    """Without reasoning that no output of the model follows: it is refused alone."""
    found: Items = []
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


def _calls_last(items: Items, losses: list[Loss]) -> Items:
    """DeepSeek refuses words between a call and its result."""
    found: Items = []
    waiting: Items = []
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
