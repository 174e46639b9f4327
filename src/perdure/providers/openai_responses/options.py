"""Writes and reads the options and tools of the Responses API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.contract import Loss
from perdure.providers.openai_responses.items import choice_of, declarations
from perdure.providers.wire.fields.vendor_items import items_of, object_of, text_of
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.options import foreign_options, own_options
from perdure.providers.wire.tool_names import ToolNames

__all__ = [
    "API",
    "CUSTOM_SCHEMA",
    "custom_tools",
    "read_options",
    "read_tools",
    "render_options",
    "render_tools",
]

API = "openai-responses"

_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
_TIERED = ("openai", "azure-openai", "openai-codex")  # servers that have tiers of service
_LIMIT_MIN = 16
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Canonical name → the API's, where the value is the same.
_SAME = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "stream": "stream",
    "user": "user",
    "metadata": "metadata",
    "service_tier": "service_tier",
    "top_logprobs": "top_logprobs",
}
_OWN = {"input", "instructions", "model", "tools", "text", "reasoning", "tool_choice", *_SAME.values()}
_LOGPROBS = "message.output_text.logprobs"
# These think before they answer, and refuse to have their sampling set.
_NO_SAMPLING = re.compile(r"(?:.*/)?(?:o[134](?:-.*)?|gpt-5(?:-(?!chat).*)?)")

CUSTOM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


def read_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical options of a request; what only this API knows is under `vendor`."""
    options: dict[str, Any] = {}
    vendor: dict[str, Any] = {name: value for name, value in body.items() if name not in _OWN}
    for ours, theirs in _SAME.items():
        if body.get(theirs) is not None:
            options[ours] = body[theirs]
    for name in _OWN - {"input", "model"}:
        if name in body and body[name] is None:
            vendor[name] = None
    _read_choice(body.get("tool_choice"), options, vendor)
    _read_text(object_of(body.get("text")), options, vendor)
    _read_reasoning(object_of(body.get("reasoning")), options, vendor)
    if _LOGPROBS in items_of(body.get("include")):
        options["logprobs"] = True
    if vendor:
        options["vendor"] = {API: vendor}
    return options


def _read_choice(choice: object, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    told = object_of(choice)
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        options["tool_choice"] = choice
    elif told.get("type") == "function" and set(told) == {"type", "name"}:
        options["tool_choice"] = {"name": told["name"]}
    elif choice is not None:
        vendor["tool_choice"] = choice


def _read_text(text: dict[str, Any], options: dict[str, Any], vendor: dict[str, Any]) -> None:
    form = object_of(text.get("format"))
    rest = {key: value for key, value in text.items() if key != "format"}
    match form.get("type"):
        case "json_schema":
            options["output"] = {key: value for key, value in form.items() if key != "type"}
        case "json_object":
            options["output"] = "json"
        case _:
            rest = text
    if rest:
        vendor["text"] = rest


def _read_reasoning(reasoning: dict[str, Any], options: dict[str, Any], vendor: dict[str, Any]) -> None:
    ours = {key: reasoning[key] for key in ("effort", "summary") if reasoning.get(key) is not None}
    rest = {key: value for key, value in reasoning.items() if key not in ours}
    if ours:
        options["reasoning"] = ours
    if rest:
        vendor["reasoning"] = rest


def read_tools(tools: object, vendor: dict[str, Any]) -> list[ToolSpec]:
    """Return the tools that a program declares; what else is declared goes into `vendor`."""
    specs: list[ToolSpec] = []
    server: list[Any] = []
    extras: dict[str, Any] = {}
    order: list[int] = []  # of each tool as it came, its place here: functions first
    for at, tool in enumerate(items_of(tools)):
        told = object_of(tool)
        if told.get("type") in ("function", "custom") and isinstance(told.get("name"), str):
            order.append(len(specs))
            specs.append(_spec(told, extras))
        elif told.get("type"):
            order.append(-1 - len(server))
            server.append(tool)
        else:
            raise malformed(f"tools[{at}]", "is no tool of the Responses API: it has no type")
    if server:
        vendor["tools"] = server
        if order != [*range(len(specs)), *(-1 - at for at in range(len(server)))]:
            vendor["tool_order"] = order
    if extras:
        vendor["tool_extras"] = extras
    if any(
        "strict" not in object_of(tool)
        for tool in items_of(tools)
        if object_of(tool).get("type") == "function"
    ):
        vendor["strict_by_default"] = True
    return specs


def _spec(tool: dict[str, Any], extras: dict[str, Any]) -> ToolSpec:
    known = {"type", "name", "description", "parameters", "strict"}
    more = {
        key: value for key, value in tool.items() if key not in known or (value is None and key != "type")
    }
    parameters = tool.get("parameters")
    if tool["type"] == "custom":
        more, parameters = {**more, "type": "custom"}, CUSTOM_SCHEMA
    elif "parameters" not in tool:
        more["parameters"] = False
    if tool.get("description") == "":
        more["description"] = ""
    if more:
        extras[tool["name"]] = more
    strict = tool.get("strict")
    return ToolSpec(
        name=tool["name"],
        description=text_of(tool.get("description")),
        parameters=object_of(parameters),
        strict=strict if isinstance(strict, bool) else None,
    )


def custom_tools(vendor: Mapping[str, Any]) -> frozenset[str]:
    """Return the tools that take text as it is, not JSON."""
    extras = object_of(vendor.get("tool_extras"))
    return frozenset(name for name, told in extras.items() if object_of(told).get("type") == "custom")


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
            if tool.serves is not None:
                continue  # the model knows it as OpenAI's own
            declared = _tool(at, tool, object_of(extras.get(tool.name)), names, losses)
            if declared["type"] == "function" and not vendor.get("strict_by_default"):
                declared.setdefault("strict", False)
            ours.append(declared)
    server = items_of(vendor.get("tools"))
    server = [*server, *declarations(tools, server)]
    order = cast("list[int]", items_of(vendor.get("tool_order")))
    if sorted(each for each in order if type(each) is int) == [*range(-len(server), len(ours))]:
        return [ours[at] if at >= 0 else server[-1 - at] for at in order]
    return [*ours, *server]


def _tool(
    at: int, tool: ToolSpec, extra: dict[str, Any], names: ToolNames, losses: list[Loss]
) -> dict[str, Any]:
    name = names.of(tool.name)
    if name != tool.name:
        losses.append(_loss("repaired", f"tools[{at}].name", "tool name", f"it is {name!r} here"))
    if extra.get("type") == "custom":
        described = {"description": tool.description} if tool.description else {}
        return {"type": "custom", "name": name, **described, **extra}
    parameters = dict(tool.parameters) or {"type": "object", "properties": {}}
    if parameters.get("type") != "object":
        parameters["type"] = "object"
        why = "the arguments of a function are an object"
        losses.append(_loss("repaired", f"tools[{at}].parameters", "schema", why))
    declared: dict[str, Any] = {"type": "function", "name": name, "parameters": parameters}
    if tool.description:
        declared["description"] = tool.description
    if tool.strict is not None:
        declared["strict"] = tool.strict
    if tool.strict and not _is_strict(parameters):
        declared["strict"] = False
        why = "a strict schema has closed objects that require every property"
        losses.append(_loss("converted", f"tools[{at}].strict", "strict tool", why))
    if extra.get("parameters") is False:
        extra = {key: value for key, value in extra.items() if key != "parameters"}
        if not tool.parameters:
            del declared["parameters"]
    return {**declared, **extra}


def _is_strict(schema: object) -> bool:
    """True if every object in a schema is closed and requires all that it has."""
    if isinstance(schema, list):
        return all(_is_strict(each) for each in cast("list[object]", schema))
    told = object_of(schema)
    if not told:
        return True
    properties = object_of(told.get("properties"))
    kinds = told.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        if told.get("additionalProperties") is not False:
            return False
        if {*properties} != {name for name in items_of(told.get("required")) if isinstance(name, str)}:
            return False
    below = [*properties.values(), told.get("items"), *items_of(told.get("anyOf"))]
    below += [*object_of(told.get("$defs")).values(), *object_of(told.get("definitions")).values()]
    return all(_is_strict(each) for each in below)


def render_options(
    context: Context, *, model: str, endpoint: str, names: ToolNames, losses: list[Loss]
) -> dict[str, Any]:
    """Return the fields of a request beside its input and tools; `endpoint` is whose server it goes to."""
    options = context.options
    vendor = object_of(object_of(options.get("vendor")).get(API))
    body: dict[str, Any] = {
        key: value
        for key, value in own_options(vendor, API, endpoint, losses).items()
        if key not in ("system", "tools", "tool_order", "tool_extras", "strict_by_default")
    }
    for ours, theirs in _SAME.items():
        if options.get(ours) is not None:
            body[theirs] = options[ours]
    _raise_limit(body, losses)
    _drop_sampling(body, model, losses)
    _render_choice(context, body, names, losses)
    _render_text(options.get("output"), body, losses)
    _render_reasoning(object_of(options.get("reasoning")), body, losses)
    _drop_foreign_words(body, endpoint, losses)
    _render_logprobs(options, body)
    _report_unknown(options, losses)
    losses += foreign_options(options, context.tools, API)
    return body


def _drop_sampling(body: dict[str, Any], model: str, losses: list[Loss]) -> None:
    if not _NO_SAMPLING.fullmatch(model):
        return
    for name in ("temperature", "top_p"):
        if body.get(name) is not None:
            del body[name]
            losses.append(_loss("dropped", f"options.{name}", name, f"{model} does not take it"))


def _raise_limit(body: dict[str, Any], losses: list[Loss]) -> None:
    """Raise a limit to the least that the API accepts."""
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < _LIMIT_MIN:
        body["max_output_tokens"] = _LIMIT_MIN
        why = f"it is {_LIMIT_MIN} here, which is the least that is taken"
        losses.append(_loss("repaired", "options.max_tokens", "limit of the answer", why))


def _drop_foreign_words(body: dict[str, Any], endpoint: str, losses: list[Loss]) -> None:
    """Leave out tiers and efforts that only another vendor has."""
    tiers = _TIERS if endpoint in _TIERED else ()
    if (tier := body.get("service_tier")) is not None and tier not in tiers:
        del body["service_tier"]
        losses.append(
            _loss("dropped", "options.service_tier", "service tier", f"there is no tier {tier!r} here")
        )
    reasoning = object_of(body.get("reasoning"))
    if (effort := reasoning.get("effort")) is not None and effort not in _EFFORTS:
        body["reasoning"] = {key: value for key, value in reasoning.items() if key != "effort"}
        losses.append(
            _loss(
                "dropped",
                "options.reasoning.effort",
                "reasoning effort",
                f"there is no effort {effort!r} here",
            )
        )
        if not body["reasoning"]:
            del body["reasoning"]


def _render_choice(context: Context, body: dict[str, Any], names: ToolNames, losses: list[Loss]) -> None:
    choice = context.options.get("tool_choice")
    named = object_of(choice).get("name")
    if isinstance(named, str):
        if any(tool.name == named for tool in context.tools):
            vendor = object_of(object_of(context.options.get("vendor")).get(API))
            kind = "custom" if named in custom_tools(vendor) else "function"
            own = next((choice_of(tool) for tool in context.tools if tool.name == named), None)
            body["tool_choice"] = own or {"type": kind, "name": names.of(named)}
        else:
            why = f"no tool {named!r} is declared"
            losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    elif isinstance(choice, str):
        body["tool_choice"] = choice


def _render_text(output: object, body: dict[str, Any], losses: list[Loss]) -> None:
    told = object_of(output)
    if output == "json":
        body["text"] = {**object_of(body.get("text")), "format": {"type": "json_object"}}
    elif told:
        form: dict[str, Any] = {"type": "json_schema", "name": "output", **told}
        if form.get("strict") and not _is_strict(form.get("schema")):
            form["strict"] = False
            why = "a strict schema has closed objects that require every property"
            losses.append(_loss("converted", "options.output.strict", "strict output", why))
        body["text"] = {**object_of(body.get("text")), "format": form}


def _render_reasoning(reasoning: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    if not reasoning:
        return
    told = {key: reasoning[key] for key in ("effort", "summary") if reasoning.get(key) is not None}
    if "effort" not in told and reasoning.get("budget_tokens") is not None:
        told["effort"] = _effort(reasoning["budget_tokens"])
        why = f"efforts have names here; it is {told['effort']!r}"
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    elif reasoning.get("budget_tokens") is not None:
        why = "the effort stands beside it"
        losses.append(_loss("dropped", "options.reasoning.budget_tokens", "reasoning budget", why))
    if reasoning.get("enabled") is not None:
        why = "whether a model thinks is its own matter here, within its effort"
        losses.append(_loss("dropped", "options.reasoning.enabled", "reasoning switch", why))
    if told:
        body["reasoning"] = {**object_of(body.get("reasoning")), **told}


def _effort(budget: object) -> str:
    tokens = budget if isinstance(budget, int | float) else 0
    return "low" if tokens <= 2_048 else "medium" if tokens <= 8_192 else "high"


def _render_logprobs(options: Mapping[str, Any], body: dict[str, Any]) -> None:
    asked = items_of(body.get("include"))
    if options.get("logprobs") and _LOGPROBS not in asked:
        body["include"] = [*asked, _LOGPROBS]


def _report_unknown(options: Mapping[str, Any], losses: list[Loss]) -> None:
    known = {*_SAME, "tool_choice", "output", "reasoning", "logprobs", "vendor", "cache"}
    losses.extend(
        _loss("dropped", f"options.{name}", name, "the Responses API has no such option")
        for name, value in options.items()
        if name not in known and value not in (None, []) and (name, value) != ("n", 1)
    )


def _loss(kind: str, where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)  # pyright: ignore[reportArgumentType]
