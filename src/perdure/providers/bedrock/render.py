"""A context as a request of Bedrock Converse that is valid whatever the history looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context
from perdure.providers.bedrock.capabilities import claude, family
from perdure.providers.bedrock.request import API, joined
from perdure.providers.bedrock.settings import Settings
from perdure.providers.bedrock.tools import NAME_MAX, NAMES, tools_of
from perdure.providers.bedrock.turns import Turns
from perdure.providers.contract import Loss, LossKind, Rendered
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render"]

_GO_ON = "Continue."
_BEGIN = "Begin."
_MARK = {"cachePoint": {"type": "default"}}
_ALTERNATING = frozenset({"nova", "titan", "llama", "mistral", "pixtral"})  # these begin with the user


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """The request, and what could not be carried over unchanged."""
    named = ToolNames(names_in(context), NAMES, length=NAME_MAX)
    names, losses = named.given, named.losses(context)
    turns = Turns(model, provider, names)
    turns.write(context.messages)
    losses += turns.losses
    vendor = _vendor(context)
    body: dict[str, Any] = {"messages": _whole(turns.turns, model, losses)}
    tools = tools_of(context, vendor.get("tools"), names, losses, called=_called(body["messages"]))
    settings = Settings(context.options, vendor, model)
    body |= settings.write(tools, names, loop=_open_loop(body["messages"]))
    losses += [*settings.losses, *foreign_options(context.options, context.tools, API)]
    system = _system(context.system, turns.system, settings.words, vendor.get("system"))
    if system:
        body["system"] = system
    if context.options.get("cache") is True:
        _mark(body)
    return Rendered(body=body, losses=tuple(dict.fromkeys(losses)), names=named.renamed)


def _vendor(context: Context) -> Mapping[str, Any]:
    """What a request of this format said beyond the canonical options."""
    vendor = context.options.get("vendor")
    own = vendor.get(API) if isinstance(vendor, Mapping) else None
    return cast("Mapping[str, Any]", own) if isinstance(own, Mapping) else {}


def _system(system: str, first: Sequence[str], words: Sequence[str], blocks: object) -> list[dict[str, Any]]:
    """The system words; as the blocks that they came in, if they still say the same."""
    if not first and not words and isinstance(blocks, list) and joined(cast("object", blocks)) == system:
        given = cast("list[dict[str, Any]]", blocks)
        return [dict(block) for block in given if "text" not in block or str(block["text"]).strip()]
    told = "\n\n".join(part for part in (system, *first, *words) if part.strip())
    return [{"text": told}] if told else []


def _called(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tools that were called in the history."""
    uses = [block["toolUse"] for turn in turns for block in turn["content"] if "toolUse" in block]
    return list(dict.fromkeys(use["name"] for use in uses if use.get("type") != "server_tool_use"))


def _whole(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    """The turns with a beginning and an end that the model takes."""
    if not turns or (turns[0]["role"] == "assistant" and family(model) in _ALTERNATING):
        why = f"the conversation does not begin with the user; '{_BEGIN}' was put there"
        _lose(losses, "repaired", "conversation", why)
        turns = [{"role": "user", "content": [{"text": _BEGIN}]}, *turns]
    if turns[-1]["role"] != "assistant":
        return turns
    known = claude(model)
    if known is not None and not known.prefill:
        why = f"the model refuses a conversation that ends with the assistant; '{_GO_ON}' was put there"
        _lose(losses, "repaired", "conversation", why)
        return [*turns, {"role": "user", "content": [{"text": _GO_ON}]}]
    return _trimmed(turns, model, losses)


def _trimmed(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    *first, block = turns[-1]["content"]
    text = block.get("text")
    if not isinstance(text, str) or text == text.rstrip():
        return turns
    _lose(losses, "repaired", "white space", "the last words of a last assistant message may not end in it")
    content = [*first, *([{"text": text.rstrip()}] if text.rstrip() else [])]
    if content:
        return [*turns[:-1], {"role": "assistant", "content": content}]
    return _whole(turns[:-1], model, losses)


def _open_loop(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether tools have just answered an assistant message that does not start with thinking."""
    if len(turns) < 2 or not any("toolResult" in block for block in turns[-1]["content"]):
        return False
    return "reasoningContent" not in turns[-2]["content"][0]


def _mark(body: dict[str, Any]) -> None:
    """Marks for the prompt cache: behind the tools, the system words and the last two user messages."""
    if "toolConfig" in body:
        body["toolConfig"]["tools"].append(dict(_MARK))
    if "system" in body:
        body["system"].append(dict(_MARK))
    for turn in [turn for turn in body["messages"] if turn["role"] == "user"][-2:]:
        turn["content"].append(dict(_MARK))


def _lose(losses: list[Loss], kind: LossKind, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where="messages", what=what, why=why))
