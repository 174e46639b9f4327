"""Writes and reads the options and tools of the Interactions API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.contract import Loss, LossKind
from perdure.providers.gemini.options import is_asked_in_words
from perdure.providers.wire.fields.vendor_items import items_of, object_of, text_of
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.tool_names import ToolNames

__all__ = ["API", "read_options", "read_tools", "render_options", "render_tools"]

API = "gemini-interactions"

# Canonical name → the API's in generation_config, where the value is the same.
_SAME = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop_sequences",
    "seed": "seed",
}
_BESIDE = ("stream", "service_tier")  # canonical options of the same name that stand beside generation_config
_OWN = {"input", "model", "system_instruction", "tools", "generation_config", *_BESIDE}
_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
_LEVELS = ("minimal", "low", "medium", "high")
_TIERS = ("flex", "standard", "priority", "deferred")
_FORMATS = ("text", "audio", "image", "video")
_HERE = {"tool_choice", "output", "reasoning", "vendor", "cache", *_BESIDE}
_JSON = "application/json"


def read_options(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the canonical options of a request, and what only this API knows."""
    options: dict[str, Any] = {name: body[name] for name in _BESIDE if body.get(name) is not None}
    vendor: dict[str, Any] = {name: value for name, value in body.items() if name not in _OWN}
    if not isinstance(words := body.get("system_instruction"), str | None):
        vendor["system_instruction"] = words
    config = dict(object_of(body.get("generation_config")))
    for ours, theirs in _SAME.items():
        if config.get(theirs) is not None:
            options[ours] = config.pop(theirs)
    _read_choice(config, options)
    _read_thinking(config, options)
    _read_output(vendor, options)
    if config:
        vendor["generation_config"] = config
    return options, vendor


def _read_choice(config: dict[str, Any], options: dict[str, Any]) -> None:
    choice = config.get("tool_choice")
    allowed = object_of(object_of(choice).get("allowed_tools"))
    named = items_of(allowed.get("tools"))
    if isinstance(choice, str) and choice in _CHOICES:
        options["tool_choice"] = _CHOICES[config.pop("tool_choice")]
    elif allowed.get("mode") == "any" and len(named) == 1 and set(allowed) == {"mode", "tools"}:
        options["tool_choice"] = {"name": named[0]}
        del config["tool_choice"]


def _read_thinking(config: dict[str, Any], options: dict[str, Any]) -> None:
    found: dict[str, Any] = {}
    if isinstance(config.get("thinking_level"), str):
        found["effort"] = config.pop("thinking_level")
    if config.get("thinking_summaries") == "auto":
        found["summary"] = config.pop("thinking_summaries")
    if found:
        options["reasoning"] = found


def _read_output(vendor: dict[str, Any], options: dict[str, Any]) -> None:
    form = object_of(vendor.get("response_format"))
    is_text = form.get("type") == "text" and set(form) <= {"type", "mime_type", "schema"}
    if is_text and form.get("mime_type") == _JSON:
        schema = form.get("schema")
    elif vendor.get("response_mime_type") == _JSON and form.get("type") not in _FORMATS:
        schema = form or None  # the older form: the schema itself, and its media type beside it
        del vendor["response_mime_type"]
    else:
        return
    vendor.pop("response_format", None)
    options["output"] = "json" if schema is None else {"schema": schema}


def read_tools(tools: object, vendor: dict[str, Any]) -> list[ToolSpec]:
    """Return the functions that a program declares; what else is declared goes into `vendor`."""
    specs: list[ToolSpec] = []
    server: list[Any] = []
    extras: dict[str, Any] = {}
    order: list[int] = []  # of each tool as it came, its place here: functions first
    for at, tool in enumerate(items_of(tools)):
        told = object_of(tool)
        if told.get("type") == "function" and text_of(told.get("name")):
            order.append(len(specs))
            specs.append(_spec(told, extras))
        elif text_of(told.get("type")) not in ("", "function"):
            order.append(-1 - len(server))
            server.append(tool)
        else:
            raise malformed(f"tools[{at}]", "is no tool of the Interactions API: it has no type, or no name")
    if server:
        vendor["tools"] = server
        if order != [*range(len(specs)), *(-1 - at for at in range(len(server)))]:
            vendor["tool_order"] = order
    if extras:
        vendor["tool_extras"] = extras
    return specs


def _spec(tool: dict[str, Any], extras: dict[str, Any]) -> ToolSpec:
    known = {"type", "name", "description", "parameters"}
    more = {key: value for key, value in tool.items() if key not in known}
    if tool.get("description") == "":
        more["description"] = ""
    if more:
        extras[tool["name"]] = more
    return ToolSpec(
        name=tool["name"],
        description=text_of(tool.get("description")),
        parameters=object_of(tool.get("parameters")),
    )


def render_tools(
    tools: Sequence[ToolSpec], vendor: Mapping[str, Any], names: ToolNames, losses: list[Loss]
) -> list[Any]:
    """Return the declarations of all tools."""
    extras = object_of(vendor.get("tool_extras"))
    ours: list[Any] = []
    for at, tool in enumerate(tools):
        if any(tool.name == earlier.name for earlier in tools[:at]):
            why = "another of the same name stands before it"
            losses.append(_loss("dropped", f"tools[{at}]", "tool", why))
        else:
            ours.append({**_tool(at, tool, names, losses), **object_of(extras.get(tool.name))})
    server = items_of(vendor.get("tools"))
    order = cast("list[int]", items_of(vendor.get("tool_order")))
    if sorted(each for each in order if type(each) is int) == [*range(-len(server), len(ours))]:
        return [ours[at] if at >= 0 else server[-1 - at] for at in order]
    return [*ours, *server]


def _tool(at: int, tool: ToolSpec, names: ToolNames, losses: list[Loss]) -> dict[str, Any]:
    name = names.of(tool.name)
    if name != tool.name:
        losses.append(_loss("repaired", f"tools[{at}].name", "tool name", f"it is {name!r} here"))
    if tool.strict is not None:
        losses.append(_loss("dropped", f"tools[{at}].strict", "strict", "functions have no such mark here"))
    described = {"description": tool.description} if tool.description else {}
    parameters = {"parameters": dict(tool.parameters)} if tool.parameters else {}
    return {"type": "function", "name": name, **described, **parameters}


def render_options(context: Context, *, model: str, names: ToolNames, losses: list[Loss]) -> dict[str, Any]:
    """Return the fields of a request beside its input, its system words and its tools."""
    options = context.options
    vendor = object_of(object_of(options.get("vendor")).get(API))
    aside = ("tools", "tool_order", "tool_extras", "generation_config")
    body: dict[str, Any] = {key: value for key, value in vendor.items() if key not in aside}
    config = dict(object_of(vendor.get("generation_config")))
    config |= {theirs: options[ours] for ours, theirs in _SAME.items() if options.get(ours) is not None}
    _clamp(config, losses)
    _render_choice(context, config, names, losses)
    _render_thinking(object_of(options.get("reasoning")), config, losses)
    if body.get("agent") and config:
        _drop_config(config, options, losses)
    elif config:
        body["generation_config"] = config
    _render_output(context, body, model, losses)
    _render_beside(options, body, losses)
    losses.extend(
        _loss("dropped", f"options.{name}", name, "the Interactions API has no such option")
        for name, value in options.items()
        if name not in _SAME and name not in _HERE and value not in (None, []) and (name, value) != ("n", 1)
    )
    losses += foreign_options(options, context.tools, API)
    return body


def _clamp(config: dict[str, Any], losses: list[Loss]) -> None:
    heat = config.get("temperature")
    if isinstance(heat, int | float) and not 0 <= heat <= 2:
        config["temperature"] = min(max(heat, 0), 2)
        losses.append(_loss("repaired", "options.temperature", "temperature", "it is between 0 and 2 here"))


def _drop_config(config: Mapping[str, Any], options: Mapping[str, Any], losses: list[Loss]) -> None:
    """Report all settings of the generation: the API refuses them in a request to an agent."""
    why = "an agent is asked, and the API takes no settings of the generation for one"
    known = {*_SAME.values(), "tool_choice", "thinking_level", "thinking_summaries"}
    places = [
        f"options.{name}" for name in (*_SAME, "tool_choice", "reasoning") if options.get(name) is not None
    ]
    places += [f"options.vendor.{API}.generation_config.{name}" for name in sorted(config.keys() - known)]
    losses.extend(_loss("dropped", place, place.rpartition(".")[2], why) for place in places)


def _render_choice(context: Context, config: dict[str, Any], names: ToolNames, losses: list[Loss]) -> None:
    choice = context.options.get("tool_choice")
    named = object_of(choice).get("name")
    if isinstance(named, str):
        if any(tool.name == named for tool in context.tools):
            config["tool_choice"] = {"allowed_tools": {"mode": "any", "tools": [names.of(named)]}}
        else:
            why = f"no tool {named!r} is declared"
            losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    elif choice == "required" and not context.tools:
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", "no tools are declared"))
    elif isinstance(choice, str):
        config["tool_choice"] = {"none": "none", "required": "any"}.get(choice, "auto")


def _render_thinking(reasoning: dict[str, Any], config: dict[str, Any], losses: list[Loss]) -> None:
    summary = reasoning.get("summary")
    if summary is not None:
        config["thinking_summaries"] = "none" if summary in ("none", False) else "auto"
        if summary not in ("auto", "none", False):
            why = "summaries are shown or not here, with no detail to choose"
            losses.append(_loss("converted", "options.reasoning.summary", "reasoning summary", why))
    effort, budget = reasoning.get("effort"), reasoning.get("budget_tokens")
    enabled = reasoning.get("enabled")
    if enabled is not None:
        why = "whether a model thinks is said by its level here"
        losses.append(_loss("converted", "options.reasoning.enabled", "reasoning switch", why))
        effort = "minimal" if enabled is False and effort is None and budget is None else effort
    if budget is not None:
        why = "levels have names here"
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
        effort = _level(budget) if effort is None else effort
    if isinstance(effort, str):
        level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
        if level not in _LEVELS:
            why = f"there is no level {effort!r} here"
            losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
            return
        config["thinking_level"] = level
        if reasoning.get("effort") not in (None, level):
            why = f"it is {level} here"
            losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))


def _level(budget: object) -> str:
    tokens = budget if isinstance(budget, int | float) else 0
    return (
        "minimal" if tokens <= 512 else "low" if tokens <= 2_048 else "medium" if tokens <= 8_192 else "high"
    )


def _render_output(context: Context, body: dict[str, Any], model: str, losses: list[Loss]) -> None:
    output = context.options.get("output")
    told = object_of(output)
    if output is None or (not told and output != "json"):
        return
    if is_asked_in_words(context, model):
        body.pop("response_format", None)
        why = "asked for in words: this model takes no form of the answer beside functions"
        losses.append(_loss("converted", "options.output", "output", why))
        return
    schema = {"schema": told["schema"]} if told else {}
    body["response_format"] = {"type": "text", "mime_type": _JSON, **schema}
    losses.extend(
        _loss("dropped", f"options.output.{name}", name, "an output's schema stands alone here")
        for name in ("name", "description", "strict")
        if told.get(name) is not None
    )


def _render_beside(options: Mapping[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    tier, stream = options.get("service_tier"), options.get("stream")
    if tier in _TIERS:
        body["service_tier"] = tier
    elif tier is not None:
        why = f"there is no tier {tier!r} here"
        losses.append(_loss("dropped", "options.service_tier", "service tier", why))
    if stream is not None:
        body["stream"] = stream
    if stream and body.get("background") is True:
        body["stream"] = False  # the id of the answer arrives at once, and is stored
        why = "an interaction in the background is fetched by its id when it is whole"
        losses.append(_loss("converted", "options.stream", "stream", why))


def _loss(kind: LossKind, where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)
