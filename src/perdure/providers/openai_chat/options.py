"""Writes and reads the options of a Chat request, between canonical names and a server's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from perdure.model.canonical import Json
from perdure.providers.contract import Loss
from perdure.providers.openai_chat.servers import Server, refused
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.options import own_options

__all__ = ["SAME", "read_options", "render_options"]

SAME = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "user",
    "metadata",
    "stream",
    "n",
    "logprobs",
    "top_logprobs",
    "service_tier",
)
_EFFORTS = ((1_024, "low"), (8_192, "medium"))
_RANKS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_CANONICAL = frozenset({*SAME, "max_tokens", "stop", "tool_choice", "output", "reasoning", "vendor", "cache"})


def read_options(body: Mapping[str, Any], place: Server) -> tuple[dict[str, Json], dict[str, Any]]:
    """Return the canonical options of a request, and the fields that only its format has."""
    fields = {name: value for name, value in body.items() if value is not None and name not in _ELSEWHERE}
    options: dict[str, Json] = {}
    for name in SAME:
        wire = place.names.get(name, name)
        if wire in fields:
            options[name] = fields.pop(wire)
    limits = [fields.pop(name) for name in ("max_completion_tokens", "max_tokens") if name in fields]
    if limits:
        options["max_tokens"] = limits[0]
    _read_stop(fields, options)
    for name, read in _READERS.items():
        if name in fields and (value := read(fields[name], options)) is not None:
            options[_BECOMES[name]] = value
            del fields[name]
    return options, fields


def render_options(
    options: Mapping[str, Any], place: Server, model: str, losses: list[Loss]
) -> dict[str, Any]:
    """Return the fields of a request for canonical options; tool_choice and output apart."""
    body: dict[str, Any] = {}
    no = refused(place, model)
    for name in ("max_tokens", *SAME, "stop"):
        value = options.get(name)
        if value is None or value == []:
            continue
        if name in no and not _is_default(name, value):
            losses.append(_dropped(f"options.{name}", name, "this model or server does not take it"))
        elif name == "service_tier" and value not in place.tiers:
            losses.append(_dropped("options.service_tier", name, f"this server has no tier '{value}'"))
        elif name not in no:
            body[_field(name, place)] = value
    _render_reasoning(options.get("reasoning"), place, no, body, losses)
    losses.extend(
        _dropped(f"options.{name}", name, "it is no canonical option")
        for name in options
        if name not in _CANONICAL
    )
    return body


def own_fields(options: Mapping[str, Any], api: str, endpoint: str, losses: list[Loss]) -> dict[str, Any]:
    """Return the fields that only this format has, as a request of it gave them; those of another server are left out."""
    own = dict(object_of(object_of(options.get("vendor")).get(api)))
    asked = own.pop("endpoint", None)
    if asked is None:
        return own_options(own, api, endpoint, losses)
    if asked == endpoint:
        return own
    strange = [name for name in own if name not in _COMMON]
    losses.extend(_dropped(f"options.vendor.{api}.{name}", name, f"only {asked} has it") for name in strange)
    return {name: value for name, value in own.items() if name in _COMMON}


_DEFAULTS = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
}


def _field(name: str, place: Server) -> str:
    return place.limit if name == "max_tokens" else place.names.get(name, name)


def _is_default(name: str, value: object) -> bool:
    """True if leaving it out has the same meaning."""
    return value is False or _DEFAULTS.get(name) == value


def _render_reasoning(
    reasoning: object, place: Server, no: frozenset[str], body: dict[str, Any], losses: list[Loss]
) -> None:
    if not isinstance(reasoning, dict):
        return
    asked = {name: value for name, value in cast("dict[str, Any]", reasoning).items() if value is not None}
    if "reasoning" in no and asked:
        losses.append(_dropped("options.reasoning", "reasoning", "this model or server has no such option"))
        return
    if place.reasoning_option == "reasoning":
        _nested_reasoning(asked, body, losses)
        return
    if place.thinking_option and isinstance(asked.get("enabled"), bool):
        body["thinking"] = {"type": "enabled" if asked.pop("enabled") else "disabled"}
    effort = asked.pop("effort", None)
    if effort is None and "budget_tokens" in asked:
        effort = _effort(asked.pop("budget_tokens"))
        losses.append(
            _said("options.reasoning.budget_tokens", "reasoning budget", f"said as effort '{effort}'")
        )
    if effort is None and asked.get("enabled") is False:
        asked.pop("enabled")
        effort = "none"
        losses.append(_said("options.reasoning.enabled", "reasoning", "said as effort 'none'"))
    if effort is not None:
        _say_effort(str(effort), place, body, losses)
        asked.pop("enabled", None)
    losses.extend(
        _dropped(f"options.reasoning.{name}", f"reasoning {name}", "this server has no such option")
        for name in asked
    )


def _say_effort(effort: str, place: Server, body: dict[str, Any], losses: list[Loss]) -> None:
    """Write the effort as the nearest that the server has."""
    known = [word for word in _RANKS if word in place.efforts]
    if not known or effort in known:
        body["reasoning_effort"] = effort
    elif effort in _RANKS:
        rank = _RANKS.index(effort)
        nearest = min(known, key=lambda word: (abs(_RANKS.index(word) - rank), -_RANKS.index(word)))
        body["reasoning_effort"] = nearest
        losses.append(
            _said("options.reasoning.effort", "reasoning effort", f"'{effort}' said as '{nearest}'")
        )
    else:
        losses.append(
            _dropped("options.reasoning.effort", "reasoning effort", f"'{effort}' is no word of this server")
        )


def _nested_reasoning(asked: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    """Write reasoning as an object of its own."""
    nested = {"effort": "effort", "budget_tokens": "max_tokens", "enabled": "enabled"}
    found = {wire: asked.pop(name) for name, wire in nested.items() if name in asked}
    if "effort" in found and "max_tokens" in found:
        found.pop("max_tokens")
        losses.append(_dropped("options.reasoning.budget_tokens", "reasoning budget", "the effort is given"))
    if found:
        body["reasoning"] = found
    losses.extend(
        _dropped(f"options.reasoning.{name}", f"reasoning {name}", "this server has no such option")
        for name in asked
    )


def _effort(budget: object) -> str:
    size = budget if isinstance(budget, int | float) else 0
    return next((word for most, word in _EFFORTS if size <= most), "high")


def _read_stop(fields: dict[str, Any], options: dict[str, Json]) -> None:
    stop = fields.pop("stop", None)
    if isinstance(stop, str):
        options["stop"] = [stop]
    elif isinstance(stop, list) and stop:
        options["stop"] = cast("list[Json]", stop)


def _read_choice(choice: object, options: dict[str, Json]) -> Json:
    match choice:
        case "auto" | "none" | "required":
            return str(choice)
        case "any":
            return "required"
        case {"type": "function", "function": {"name": str(name)}} if (
            len(cast("dict[str, Any]", choice)) == 2
        ):
            return {"name": name}
        case _:
            return None


def _read_format(format: object, options: dict[str, Json]) -> Json:
    match format:
        case {"type": "json_object"} if len(cast("dict[str, Any]", format)) == 1:
            return "json"
        case {"type": "json_schema"}:
            known = object_of(object_of(format).get("json_schema"))
            schema = known.get("schema", known.get("schema_definition"))
            if not isinstance(schema, dict):
                return None
            rest = {
                name: known[name] for name in ("name", "strict", "description") if known.get(name) is not None
            }
            return cast("Json", {"schema": schema} | rest)
        case _:
            return None


def _read_effort(effort: object, options: dict[str, Json]) -> Json:
    return _joined(options, {"effort": effort}) if isinstance(effort, str) else None


def _read_reasoning(reasoning: object, options: dict[str, Json]) -> Json:
    if not isinstance(reasoning, dict):
        return None
    asked = cast("dict[str, Any]", reasoning)
    if not set(asked) <= {"effort", "max_tokens", "enabled"}:
        return None
    renamed = {"max_tokens": "budget_tokens"}
    return _joined(options, {renamed.get(name, name): value for name, value in asked.items()})


def _read_thinking(thinking: object, options: dict[str, Json]) -> Json:
    match thinking:
        case {"type": "enabled" | "disabled"} if len(object_of(thinking)) == 1:
            return _joined(options, {"enabled": object_of(thinking)["type"] == "enabled"})
        case _:
            return None


def _joined(options: Mapping[str, Json], more: dict[str, Any]) -> Json:
    there = options.get("reasoning")
    return cast("Json", (cast("dict[str, Any]", there) if isinstance(there, dict) else {}) | more)


_READERS: dict[str, Callable[[object, dict[str, Json]], Json]] = {
    "tool_choice": _read_choice,
    "response_format": _read_format,
    "reasoning_effort": _read_effort,
    "reasoning": _read_reasoning,
    "thinking": _read_thinking,
}
_BECOMES = {"tool_choice": "tool_choice", "response_format": "output"} | dict.fromkeys(
    ("reasoning_effort", "reasoning", "thinking"), "reasoning"
)
_COMMON = frozenset({"system", "response_format", "tool_choice", "stream_options", "logit_bias"})
_ELSEWHERE = frozenset({"messages", "model", "tools", "functions"})


def _dropped(where: str, what: str, why: str) -> Loss:
    return Loss(kind="dropped", where=where, what=what, why=why)


def _said(where: str, what: str, why: str) -> Loss:
    return Loss(kind="converted", where=where, what=what, why=why)
