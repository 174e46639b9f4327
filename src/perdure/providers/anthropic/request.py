"""A request of Anthropic Messages as a context: import is the same as switching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.context import ToolSpec
from perdure.model.message import Message, Role
from perdure.providers.anthropic.parse import VENDOR, AnthropicBlocks, Raw, as_list, as_object
from perdure.providers.contract import Asked, Loss
from perdure.providers.wire.block_order import shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep

__all__ = ["API", "FIELDS", "joined", "read_request", "reasoning_of"]

API = "anthropic-messages"

_SAME = ("max_tokens", "temperature", "top_p", "top_k", "stream", "service_tier")
_HANDLED = frozenset(
    {
        *_SAME,
        "messages",
        "model",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "metadata",
        "cache_control",
    }
)
_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id", "content"})

# What is read of a request where nothing else is kept.
FIELDS = {
    "messages[]": frozenset({"role", "content"}),
    "messages[].content[].source": _SOURCE,
    "messages[].content[].content[].source": _SOURCE,
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
    "output_config.format": frozenset({"type", "schema"}),
    "output_format": frozenset({"type", "schema"}),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_SPEC_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})


def read_request(body: Raw, *, model: str | None = None, provider: str | None = None) -> Asked:
    """The context that a request shows."""
    raw = as_object(body, "the request")
    if "messages" not in raw:
        raise Invalid("this is no request of Anthropic Messages: it has no messages. Nothing was read.")
    facts = {"endpoint": provider or VENDOR, "model": model or raw.get("model")}
    ids = CallNames()
    losses: list[Loss] = []
    messages = [
        _message(message, f"messages[{at}]", ids, facts, losses)
        for at, message in enumerate(as_list(raw["messages"], "messages"))
    ]
    specs, tools = _tools(raw.get("tools"))
    options, vendor = _options(raw)
    if tools:
        vendor["tools"] = tools
    system, blocks = _system(raw.get("system"))
    if blocks:
        vendor["system"] = blocks
    if vendor:
        options["vendor"] = {API: vendor}
    if _is_cached(raw):
        options["cache"] = True
    return Asked(system=system, messages=messages, tools=specs, options=options, losses=tuple(losses))


def joined(system: object) -> str:
    """The system words of a request, as one text."""
    if isinstance(system, str):
        return system
    blocks = as_list(system or [], "system")
    texts = [as_object(block, f"system[{at}]").get("text") for at, block in enumerate(blocks)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def reasoning_of(thinking: object) -> dict[str, Any]:
    """What a `thinking` says, in canonical options."""
    raw = as_object(thinking, "thinking")
    made: dict[str, Any] = {"enabled": raw.get("type") != "disabled"}
    if isinstance(raw.get("budget_tokens"), int):
        made["budget_tokens"] = raw["budget_tokens"]
    return made


def _message(message: object, where: str, ids: CallNames, facts: Raw, losses: list[Loss]) -> Message:
    raw = as_object(message, where)
    role = raw.get("role")
    if role not in ("user", "assistant", "system"):
        raise Invalid(f"{where}.role is {role!r}, none of Anthropic Messages. Nothing was read.")
    reading = AnthropicBlocks(ids, where=f"{where}.content")
    reading.read(raw.get("content") or [])
    losses += reading.losses
    blocks = shown(reading.pieces, results_first=True)
    ids_here = call_ids(reading.calls)
    kept_here = blocks is not None or ids_here is not None
    said: Role = "tool" if role == "user" and reading.results and not reading.content else role
    return Message(
        role=said,
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        tool_results=tuple(reading.results),
        vendor_metadata=keep(VENDOR, {**facts, "blocks": blocks, "call_ids": ids_here})
        if kept_here
        else None,
    )


def _system(system: object) -> tuple[str, list[dict[str, Any]] | None]:
    """The system words, and their blocks where there are several or they say more."""
    words = joined(system)
    if not isinstance(system, list):
        return words, None
    blocks = [_uncached(cast("Raw", block)) for block in cast("list[object]", system)]
    rich = len(blocks) > 1 or any(block.keys() - {"type", "text"} for block in blocks)
    return words, blocks if rich else None


def _uncached(block: Raw) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control" and value is not None}


def _tools(tools: object) -> tuple[list[ToolSpec], list[dict[str, Any]] | None]:
    """The tools of the caller, and the list as Anthropic has it, where that says more.

    In it, a tool of Anthropic's own stands as it is; one of the caller's is a name and what is said beside it.
    """
    specs: list[ToolSpec] = []
    listed: list[dict[str, Any]] = []
    for at, tool in enumerate(as_list(tools or [], "tools")):
        raw = as_object(tool, f"tools[{at}]")
        if "input_schema" not in raw:
            listed.append(_uncached(raw))
            continue
        specs.append(_spec(raw, f"tools[{at}]"))
        more = {key: value for key, value in raw.items() if key not in _SPEC_FIELDS and value is not None}
        listed.append({"name": specs[-1].name, **more})
    plain = all(entry.keys() == {"name"} for entry in listed)
    return specs, None if plain else listed


def _spec(raw: Raw, where: str) -> ToolSpec:
    name, strict = raw.get("name"), raw.get("strict")
    if not isinstance(name, str):
        raise Invalid(f"{where}.name is not text; this is no tool of Anthropic Messages. Nothing was read.")
    return ToolSpec(
        name=name,
        description=str(raw.get("description") or ""),
        parameters=dict(as_object(raw["input_schema"], f"{where}.input_schema")),
        strict=strict if isinstance(strict, bool) else None,
    )


def _options(raw: Raw) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options in canonical names, and what has none, as it is."""
    options: dict[str, Any] = {name: raw[name] for name in _SAME if raw.get(name) is not None}
    vendor = {name: value for name, value in raw.items() if name not in _HANDLED and value is not None}
    if raw.get("stop_sequences"):
        options["stop"] = list(raw["stop_sequences"])
    if raw.get("tool_choice"):
        _choice(as_object(raw["tool_choice"], "tool_choice"), options)
    if raw.get("metadata"):
        _metadata(as_object(raw["metadata"], "metadata"), options, vendor)
    _reasoning(raw, options, vendor)
    _output(raw, options, vendor)
    return options, vendor


def _choice(choice: Raw, options: dict[str, Any]) -> None:
    kind = choice.get("type")
    if kind == "tool":
        options["tool_choice"] = {"name": choice.get("name")}
    elif isinstance(kind, str) and kind in _CHOICES:
        options["tool_choice"] = _CHOICES[kind]
    else:
        raise Invalid(f"tool_choice is of type {kind!r}, none of Anthropic Messages. Nothing was read.")
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        options["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _metadata(metadata: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    if isinstance(metadata.get("user_id"), str):
        options["user"] = metadata["user_id"]
    more = {key: value for key, value in metadata.items() if key != "user_id"}
    if more:
        vendor["metadata"] = more


def _reasoning(raw: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    reasoning: dict[str, Any] = {}
    if raw.get("thinking"):
        thinking = as_object(raw["thinking"], "thinking")
        reasoning = reasoning_of(thinking)
        if thinking.get("type") == "adaptive" or thinking.keys() - {"type", "budget_tokens"}:
            vendor["thinking"] = dict(thinking)
    config = as_object(raw.get("output_config") or {}, "output_config")
    if isinstance(config.get("effort"), str):
        reasoning["effort"] = config["effort"]
    rest = {key: value for key, value in config.items() if key != "format" and value is not None}
    if rest:
        vendor["output_config"] = rest
    if reasoning:
        options["reasoning"] = reasoning


def _output(raw: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    config = as_object(raw.get("output_config") or {}, "output_config")
    wanted: object = config.get("format") or raw.get("output_format")
    if not wanted:
        return
    described = as_object(wanted, "output_format")
    older = not config.get("format")
    if described.get("type") == "json_schema" and isinstance(described.get("schema"), Mapping):
        options["output"] = {"schema": dict(described["schema"])}
        if older:
            vendor["output_format"] = True  # the older place of the same thing
    elif older:
        vendor["output_format"] = dict(described)
    else:
        vendor["output_config"] = {**vendor.get("output_config", {}), "format": dict(described)}


def _is_cached(value: object) -> bool:
    """Whether any part of a request carries a mark for the prompt cache."""
    if isinstance(value, Mapping):
        found = cast("Raw", value)
        if found.get("cache_control"):
            return True
        return any(_is_cached(part) for key, part in found.items() if key not in ("input", "input_schema"))
    return isinstance(value, list) and any(_is_cached(part) for part in cast("list[object]", value))
