"""A context as a request of Anthropic Messages that is valid whatever the history looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context
from perdure.model.message import Message
from perdure.providers.anthropic.capabilities import traits_of
from perdure.providers.anthropic.parse import PAUSED, VENDOR
from perdure.providers.anthropic.request import API, joined
from perdure.providers.anthropic.settings import Settings
from perdure.providers.anthropic.tools import NAME_MAX, NAMES, tools_of
from perdure.providers.anthropic.turns import Turns
from perdure.providers.contract import Loss, LossKind, Rendered
from perdure.providers.wire.native import kept
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render"]

_GO_ON = "Continue."
_BEGIN = "Begin."
_MARK = {"type": "ephemeral"}
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_UNMARKED = frozenset({"thinking", "redacted_thinking"})


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """The request, and what could not be carried over unchanged."""
    named = ToolNames(names_in(context), NAMES, length=NAME_MAX)
    names, losses = named.given, named.losses(context)
    turns = Turns(model, provider, names)
    turns.write(context.messages)
    losses += turns.losses
    vendor = _vendor(context)
    body: dict[str, Any] = {"model": model, "messages": _paired(turns.turns, turns.places, losses)}
    if not _is_paused(context.messages, body["messages"], provider):
        body["messages"] = _ended(body["messages"], model, losses)
    tools = tools_of(context, vendor.get("tools"), names, losses)
    settings = Settings(context.options, vendor, model, provider)
    body |= settings.write(tools, names, loop=_open_loop(body["messages"]))
    losses += [*settings.losses, *foreign_options(context.options, context.tools, API)]
    system = _system(context.system, turns.system, settings.words, vendor.get("system"))
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
    if context.options.get("cache") is True:
        _mark(body)
    return Rendered(body=body, losses=tuple(dict.fromkeys(losses)), names=named.renamed)


def _vendor(context: Context) -> Mapping[str, Any]:
    """What a request of this format said beyond the canonical options."""
    vendor = context.options.get("vendor")
    own = vendor.get(API) if isinstance(vendor, Mapping) else None
    return cast("Mapping[str, Any]", own) if isinstance(own, Mapping) else {}


def _system(system: str, first: Sequence[str], words: Sequence[str], blocks: object) -> object:
    """The system words; as the blocks that they came in, if they still say the same."""
    if not first and not words and isinstance(blocks, list) and joined(cast("object", blocks)) == system:
        return [
            dict(block) for block in cast("list[dict[str, Any]]", blocks) if block.get("text", "").strip()
        ]
    return "\n\n".join(part for part in (system, *first, *words) if part.strip())


def _paired(
    turns: list[dict[str, Any]], places: Mapping[int, str], losses: list[Loss]
) -> list[dict[str, Any]]:
    """The turns without calls of server-side tools that never got a result, or results without their call."""
    alone = _alone(turns)
    if not alone:
        return turns
    why = "its other half, the call or the result, is not there"
    losses += [
        Loss(kind="dropped", where=places[id(block)], what="server-side tool", why=why)
        for block in _blocks(turns)
        if id(block) in alone
    ]
    kept: list[dict[str, Any]] = []
    for turn in turns:
        content = [block for block in turn["content"] if id(block) not in alone]
        if content:
            kept.append({"role": turn["role"], "content": content})
    return kept


def _alone(turns: Sequence[Mapping[str, Any]]) -> set[int]:
    """The calls and results of server-side tools that have no counterpart; a turn that still goes on may have calls."""
    alone: set[int] = set()
    waiting: dict[object, Mapping[str, Any]] = {}
    before = None
    for turn in turns:
        if turn["role"] == "user" != before and turn["content"][0]["type"] != "tool_result":
            alone |= {id(block) for block in waiting.values()}
            waiting.clear()
        before = turn["role"]
        for block in turn["content"] if turn["role"] == "assistant" else ():
            if block["type"] in _SERVER_CALLS:
                called = str(block.get("id"))
                alone |= {id(waiting[called])} if called in waiting else set()
                waiting[called] = block
            elif _is_server_result(block) and waiting.pop(str(block.get("tool_use_id")), None) is None:
                alone.add(id(block))
    last = _blocks([turn for turn in turns if turn["role"] == "assistant"][-1:])
    going_on = {id(block) for block in last} | {_caller(block) for block in last}
    return alone | {id(block) for call, block in waiting.items() if not {id(block), call} & going_on}


def _blocks(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [block for turn in turns if turn["role"] == "assistant" for block in turn["content"]]


def _caller(block: Mapping[str, Any]) -> object:
    """The call of a server-side tool that itself called this one, and has its result only when all is done."""
    caller = block.get("caller")
    return cast("Mapping[str, Any]", caller).get("tool_id") if isinstance(caller, Mapping) else None


def _is_server_result(block: Mapping[str, Any]) -> bool:
    return str(block["type"]).endswith("_tool_result")


def _ended(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    """The turns with an end that the model takes."""
    if not any(turn["role"] != "system" for turn in turns):
        _lose(losses, "repaired", "conversation", f"it has no message; '{_BEGIN}' was put there")
        return [{"role": "user", "content": [{"type": "text", "text": _BEGIN}]}, *turns]
    last = turns[-1]
    if last["role"] != "assistant" or _is_waiting(last):
        return turns
    if not traits_of(model).prefill:
        why = f"the model refuses one that ends with the assistant; '{_GO_ON}' was put there"
        _lose(losses, "repaired", "conversation", why)
        return [*turns, {"role": "user", "content": [{"type": "text", "text": _GO_ON}]}]
    content = _trimmed(last["content"], losses)
    if content:
        return [*turns[:-1], {"role": "assistant", "content": content}]
    return _ended(turns[:-1], model, losses)


def _is_paused(messages: Sequence[Message], turns: Sequence[Mapping[str, Any]], provider: str | None) -> bool:
    """Whether Anthropic itself paused the last turn: it goes on if the turn is sent back as it is."""
    if not turns or turns[-1]["role"] != "assistant":
        return False
    facts = kept(messages[-1], VENDOR, endpoint=provider or VENDOR)
    return facts is not None and facts.get("stop_reason") in PAUSED


def _is_waiting(turn: Mapping[str, Any]) -> bool:
    """Whether the turn waits for tools of Anthropic's own, and is to be gone on with."""
    kind = str(turn["content"][-1]["type"])
    return kind in _SERVER_CALLS or kind.endswith("_tool_result")


def _trimmed(content: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    block = content[-1]
    if block["type"] != "text" or block["text"] == block["text"].rstrip():
        return content
    _lose(losses, "repaired", "white space", "the last words of a last assistant turn may not end in it")
    text = block["text"].rstrip()
    return [*content[:-1], *([block | {"text": text}] if text else [])]


def _open_loop(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether tools have just answered an assistant turn that does not start with thinking."""
    said = [turn for turn in turns if turn["role"] != "system"]
    if not said or said[-1]["role"] != "user":
        return False
    at = len(said) - 1
    while at >= 0 and said[at]["role"] == "user":
        at -= 1
    if at < 0 or not any(
        block["type"] == "tool_result" for turn in said[at + 1 :] for block in turn["content"]
    ):
        return False
    while at > 0 and said[at - 1]["role"] == "assistant":
        at -= 1
    return said[at]["content"][0]["type"] not in _UNMARKED


def _mark(body: dict[str, Any]) -> None:
    """Marks for the prompt cache: behind the tools, the system words and the last two turns of the user."""
    if body.get("tools"):
        body["tools"][-1] = body["tools"][-1] | {"cache_control": _MARK}
    if isinstance(body.get("system"), str):
        body["system"] = [{"type": "text", "text": body["system"]}]
    if body.get("system"):
        body["system"][-1] = body["system"][-1] | {"cache_control": _MARK}
    turns = [turn for turn in body["messages"] if turn["role"] == "user"]
    for turn in turns[-2:]:
        block = turn["content"][-1]
        if block["type"] not in _UNMARKED:
            turn["content"][-1] = block | {"cache_control": _MARK}


def _lose(losses: list[Loss], kind: LossKind, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where="messages", what=what, why=why))
