"""A context as a Chat request that the server takes, whatever the history looks like.

Calls and results are paired already (`wire.exchanges`); here each message becomes one of Chat's, results stand
right behind their calls, media that came out of tools or models go into a user's message behind them, and what the
server itself said goes back to it as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.model.context import Context
from perdure.providers.contract import Loss, Rendered, losses_of
from perdure.providers.openai_chat.beside import Origin
from perdure.providers.openai_chat.options import own_fields, render_options
from perdure.providers.openai_chat.order import ordered
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.shape import objects_of
from perdure.providers.openai_chat.tools import NAMES, render_choice, render_output, render_tools
from perdure.providers.openai_chat.turns import Turns, is_thinking
from perdure.providers.wire.exchanges import exchanges
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.shells import items_of, object_of
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render"]

_JSON_WORDS = "Answer in JSON."


def render(context: Context, origin: Origin, place: Server, api: str) -> Rendered:
    """The request for a context, and what could not be carried over unchanged."""
    losses: list[Loss] = []
    options = cast("Mapping[str, Any]", context.options)
    own = own_fields(options, api, origin.endpoint, losses)
    leading, others = own.pop("system", None), own.pop("tools", None)
    names = ToolNames(names_in(context), NAMES)
    history, repairs = exchanges(context.messages)
    losses.extend(repairs)
    turns = Turns(context, origin, place, names, losses, thinking=is_thinking(options, origin.model, own))
    messages = [*_system(context.system, leading, place), *turns.render(history)]
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
    """The first messages: as a request of this format had them, if they still say the same."""
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
    """A request for JSON has to say the word in a message."""
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
    """Mark the system's words and the last user's for the prompt cache."""
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
