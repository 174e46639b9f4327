"""Writes and reads the options and tools of the Gemini API, whose schemas are a dialect of OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.contract import Loss
from perdure.providers.gemini.capabilities import is_third
from perdure.providers.gemini.parse import camel, camel_all, listed
from perdure.providers.wire.fields.vendor_items import is_list, items_of, object_of, text_of
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.tool_names import ToolNames

__all__ = [
    "API",
    "is_asked_in_words",
    "read_options",
    "read_tools",
    "render_options",
    "render_tools",
    "json_schema",
]


_ONE_BELOW = ("items", "additionalProperties", "not")
_LIST_BELOW = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAP_BELOW = ("properties", "$defs", "defs", "definitions")
_NUMBERS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")


def json_schema(schema: object) -> dict[str, Any]:
    """Return the JSON schema that a schema of the API's dialect means: types in small letters, null as a type."""
    told = camel(schema)
    found: dict[str, Any] = {}
    for name, value in told.items():
        if name in _ONE_BELOW and object_of(value):
            found[name] = json_schema(object_of(value))
        elif name in _LIST_BELOW:
            found[name] = [json_schema(each) for each in items_of(value)]
        elif name in _MAP_BELOW:
            found[name] = {key: json_schema(each) for key, each in object_of(value).items()}
        elif name in _NUMBERS and isinstance(value, str) and value.isdigit():
            found[name] = int(value)  # 64-bit integers travel as text
        elif name == "type":
            found["type"] = _small(value)
        elif name == "example":
            found["examples"] = [value]
        elif name not in ("nullable", "propertyOrdering"):
            found[name] = value
    return _nullable(found) if told.get("nullable") is True else found


def _small(kind: Any) -> Any:
    if is_list(kind):
        return [_small(each) for each in items_of(kind)]
    return kind.lower() if isinstance(kind, str) else kind


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        enum = {"enum": [*items_of(schema["enum"]), None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **enum}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*items_of(schema["anyOf"]), {"type": "null"}]}
    return schema


API = "gemini-generate"

# Canonical name → the API's in generationConfig, where the value is the same.
_SAME = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "n": "candidateCount",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
_OWN = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"}
_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}
_SCHEMAS = ("responseJsonSchema", "responseSchema")
_EFFORTS = {"minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
_HERE = {"tool_choice", "output", "reasoning", "vendor", "cache", "stream"}


def read_options(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the canonical options of a request, and what only this API knows."""
    options: dict[str, Any] = {}
    vendor: dict[str, Any] = {name: camel_all(value) for name, value in body.items() if name not in _OWN}
    config = camel(body.get("generationConfig"))
    for ours, theirs in _SAME.items():
        if config.get(theirs) is not None:
            options[ours] = _whole(ours, config.pop(theirs))
    _read_output(config, options)
    _read_thinking(config, options)
    if config or (body.get("generationConfig") == {}):
        vendor["generationConfig"] = config
    _read_choice(camel_all(object_of(body.get("toolConfig"))), options, vendor)
    return options, vendor


def _whole(name: str, value: Any) -> Any:
    """Return the value with whole numbers as integers: proto JSON may write 40.0, which others refuse."""
    is_whole = name not in ("temperature", "top_p") and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _read_output(config: dict[str, Any], options: dict[str, Any]) -> None:
    if config.get("responseMimeType") != "application/json":
        return
    schema = next((config[name] for name in _SCHEMAS if config.get(name) is not None), None)
    if schema is None:
        options["output"] = "json"
        del config["responseMimeType"]
    elif config.get("responseJsonSchema") is not None:
        options["output"] = {"schema": config.pop("responseJsonSchema")}
        del config["responseMimeType"]
    else:
        options["output"] = {"schema": json_schema(schema)}


def _read_thinking(config: dict[str, Any], options: dict[str, Any]) -> None:
    thinking = camel(config.pop("thinkingConfig", None))
    found: dict[str, Any] = {}
    if thinking.get("includeThoughts") is True:
        found["summary"] = "auto"
        del thinking["includeThoughts"]
    if isinstance(thinking.get("thinkingBudget"), int):
        found["budget_tokens"] = thinking.pop("thinkingBudget")
    level = thinking.get("thinkingLevel")
    if isinstance(level, str):
        found["effort"] = level.lower()
        if level.islower():
            del thinking["thinkingLevel"]
    if found:
        options["reasoning"] = found
    if thinking:
        config["thinkingConfig"] = thinking


def _read_choice(config: dict[str, Any], options: dict[str, Any], vendor: dict[str, Any]) -> None:
    calling = object_of(config.get("functionCallingConfig"))
    mode, named = calling.get("mode"), items_of(calling.get("allowedFunctionNames"))
    if isinstance(mode, str) and mode in _MODES and set(calling) == {"mode"}:
        options["tool_choice"] = _MODES[mode]
    elif mode == "ANY" and len(named) == 1 and set(calling) == {"mode", "allowedFunctionNames"}:
        options["tool_choice"] = {"name": named[0]}
    elif config:
        vendor["toolConfig"] = config
        return
    if rest := {key: value for key, value in config.items() if key != "functionCallingConfig"}:
        vendor["toolConfig"] = rest


def read_tools(tools: object, vendor: dict[str, Any]) -> list[ToolSpec]:
    """Return the functions that a program declares; what else is declared goes into `vendor`."""
    specs: list[ToolSpec] = []
    server: list[Any] = []
    extras: dict[str, Any] = {}
    order: list[int] = []
    for at, tool in enumerate(listed(tools)):
        told = camel(tool)
        if not told and tool != {}:
            raise malformed(f"tools[{at}]", "is no tool of the Gemini API: it is no object")
        declared = listed(told.pop("functionDeclarations", None))
        if declared:
            order.append(len(declared))
            specs += [_spec(camel(each), extras, f"tools[{at}]") for each in declared]
        if told:
            order.append(0)
            server.append({name: camel_all(value) for name, value in told.items()})
    if server:
        vendor["tools"] = server
    if extras:
        vendor["tool_extras"] = extras
    if specs and order != [len(specs)] + [0] * len(server):
        vendor["tool_order"] = (
            order  # of each tool: how many functions it declares; 0: it is the server's own
        )
    return specs


def _spec(told: dict[str, Any], extras: dict[str, Any], where: str) -> ToolSpec:
    name = told.get("name")
    if not isinstance(name, str) or not name:
        raise malformed(where, "declares a function without a name")
    more = {
        key: value
        for key, value in told.items()
        if key not in ("name", "description", "parametersJsonSchema")
    }
    if told.get("description") == "":
        more["description"] = ""
    if more:
        extras[name] = more
    schema = told.get("parametersJsonSchema")
    parameters = object_of(schema) if schema is not None else json_schema(told.get("parameters"))
    return ToolSpec(name=name, description=text_of(told.get("description")), parameters=parameters)


def render_tools(
    tools: Sequence[ToolSpec], vendor: Mapping[str, Any], names: ToolNames, losses: list[Loss]
) -> list[Any]:
    """Return the declarations of all tools."""
    extras = object_of(vendor.get("tool_extras"))
    ours: list[Any] = []
    for at, tool in enumerate(tools):
        if any(tool.name == earlier.name for earlier in tools[:at]):
            losses.append(
                _loss("dropped", f"tools[{at}]", "tool", "another of the same name stands before it")
            )
        else:
            ours.append(_tool(at, tool, object_of(extras.get(tool.name)), names, losses))
    server = items_of(vendor.get("tools"))
    order = cast("list[int]", items_of(vendor.get("tool_order")))
    if sum(order) == len(ours) and order.count(0) == len(server) and order:
        return _ordered(order, ours, server)
    return [*([{"functionDeclarations": ours}] if ours else []), *server]


def _ordered(order: list[int], ours: list[Any], server: list[Any]) -> list[Any]:
    found: list[Any] = []
    functions, others = iter(ours), iter(server)
    for count in order:
        if count:
            found.append({"functionDeclarations": [next(functions) for _ in range(count)]})
        else:
            found.append(next(others))
    return found


def _tool(
    at: int, tool: ToolSpec, extra: dict[str, Any], names: ToolNames, losses: list[Loss]
) -> dict[str, Any]:
    name = names.of(tool.name)
    if name != tool.name:
        losses.append(_loss("repaired", f"tools[{at}].name", "tool name", f"it is {name!r} here"))
    if tool.strict is not None:
        losses.append(_loss("dropped", f"tools[{at}].strict", "strict", "functions have no such mark here"))
    declared: dict[str, Any] = {"name": name}
    if tool.description:
        declared["description"] = tool.description
    if extra.get("parameters") is not None and json_schema(extra["parameters"]) == tool.parameters:
        return {**declared, **extra}
    if tool.parameters:
        declared["parametersJsonSchema"] = dict(tool.parameters)
    return {**declared, **{key: value for key, value in extra.items() if key != "parameters"}}


def render_options(context: Context, *, model: str, names: ToolNames, losses: list[Loss]) -> dict[str, Any]:
    """Return the fields of a request beside its contents and tools."""
    options = context.options
    vendor = object_of(object_of(options.get("vendor")).get(API))
    aside = ("system", "tools", "tool_order", "tool_extras", "generationConfig", "toolConfig")
    body: dict[str, Any] = {key: value for key, value in vendor.items() if key not in aside}
    config = dict(object_of(vendor.get("generationConfig")))
    for ours, theirs in _SAME.items():
        if options.get(ours) is not None:
            config[theirs] = options[ours]
    _clamp(config, losses)
    _render_output(options.get("output"), config, losses, in_words=is_asked_in_words(context, model))
    _render_thinking(object_of(options.get("reasoning")), config, model, losses)
    if config or "generationConfig" in vendor:
        body["generationConfig"] = config
    choice = _render_choice(context, object_of(vendor.get("toolConfig")), names, losses)
    if choice:
        body["toolConfig"] = choice
    _report(options, losses)
    losses += foreign_options(options, context.tools, API)
    return body


def _clamp(config: dict[str, Any], losses: list[Loss]) -> None:
    heat = config.get("temperature")
    if isinstance(heat, int | float) and not 0 <= heat <= 2:
        config["temperature"] = min(max(heat, 0), 2)
        losses.append(_loss("repaired", "options.temperature", "temperature", "it is between 0 and 2 here"))


def is_asked_in_words(context: Context, model: str) -> bool:
    """True if text asks for JSON: before Gemini 3 a request cannot have both functions and a form of the answer."""
    return context.options.get("output") is not None and bool(context.tools) and not is_third(model)


def _render_output(output: object, config: dict[str, Any], losses: list[Loss], *, in_words: bool) -> None:
    told = object_of(output)
    if in_words:
        for name in ("responseMimeType", *_SCHEMAS):
            config.pop(name, None)
        why = "asked for in words: this model takes no form of the answer beside functions"
        losses.append(_loss("converted", "options.output", "output", why))
    elif output == "json":
        config["responseMimeType"] = "application/json"
    elif told:
        config["responseMimeType"] = "application/json"
        schema = told.get("schema")
        if config.get("responseSchema") is None or json_schema(config["responseSchema"]) != schema:
            config.pop("responseSchema", None)
            config["responseJsonSchema"] = schema
        losses.extend(
            _loss("dropped", f"options.output.{name}", name, "an output's schema stands alone here")
            for name in ("name", "description", "strict")
            if told.get(name) is not None
        )


def _render_thinking(
    reasoning: dict[str, Any], config: dict[str, Any], model: str, losses: list[Loss]
) -> None:
    thinking = dict(object_of(config.get("thinkingConfig")))
    if reasoning.get("summary") not in (None, "none", False):
        thinking["includeThoughts"] = True
        if reasoning["summary"] != "auto":
            why = "thoughts are shown or not here, with no detail to choose"
            losses.append(_loss("converted", "options.reasoning.summary", "reasoning summary", why))
    budget, effort = reasoning.get("budget_tokens"), reasoning.get("effort")
    if reasoning.get("enabled") is False and budget is None and effort is None:
        budget = 0
    elif reasoning.get("enabled") is not None:
        why = "whether a model thinks is said by its budget or level here"
        losses.append(_loss("converted", "options.reasoning.enabled", "reasoning switch", why))
    if budget is not None:
        thinking["thinkingBudget"] = budget
        if effort is not None:
            why = "the budget stands beside it"
            losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
    elif isinstance(effort, str):
        _render_effort(effort, thinking, model, losses)
    if thinking:
        config["thinkingConfig"] = thinking


def _render_effort(effort: str, thinking: dict[str, Any], model: str, losses: list[Loss]) -> None:
    if text_of(thinking.get("thinkingLevel")).lower() == effort:
        return
    level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
    if level not in _EFFORTS:
        why = f"there is no effort {effort!r} here"
        losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
        return
    if re.search(r"gemini-(?:1|2)(?:\D|$)", model):
        thinking["thinkingBudget"] = 0 if effort == "none" else _EFFORTS.get(level, 8_192)
        level = f"a budget of {thinking['thinkingBudget']} tokens"
    else:
        thinking["thinkingLevel"] = level
    if level != effort:
        why = f"it is {level} here"
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))


def _render_choice(
    context: Context, config: dict[str, Any], names: ToolNames, losses: list[Loss]
) -> dict[str, Any]:
    choice = context.options.get("tool_choice")
    named = object_of(choice).get("name")
    calling: dict[str, Any] | None = None
    if isinstance(named, str):
        if any(tool.name == named for tool in context.tools):
            calling = {"mode": "ANY", "allowedFunctionNames": [names.of(named)]}
        else:
            why = f"no tool {named!r} is declared"
            losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    elif choice == "required" and not context.tools:
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", "no tools are declared"))
    elif isinstance(choice, str):
        calling = {"mode": {"none": "NONE", "required": "ANY"}.get(choice, "AUTO")}
    return {**config, "functionCallingConfig": calling} if calling else config


def _report(options: Mapping[str, Any], losses: list[Loss]) -> None:
    if options.get("stream"):
        why = "it is asked for by the address of the request here"
        losses.append(_loss("converted", "options.stream", "stream", why))
    losses.extend(
        _loss("dropped", f"options.{name}", name, "the Gemini API has no such option")
        for name, value in options.items()
        if name not in _SAME and name not in _HERE and value is not None
    )


def _loss(kind: str, where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)  # pyright: ignore[reportArgumentType]
