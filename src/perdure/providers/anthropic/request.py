"""Reads a request of Anthropic Messages as a context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.model.context import ToolSpec
from perdure.model.message import Message, Role
from perdure.providers.anthropic.options import API, read_options
from perdure.providers.anthropic.parse import VENDOR, AnthropicBlocks, Raw, as_list, as_object
from perdure.providers.contract import Asked, Loss
from perdure.providers.wire.block_order import shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable

__all__ = ["FIELDS", "joined", "read_request"]
_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id", "content"})

# The fields that the reader knows, in places where it keeps no others.
FIELDS = {
    "messages[]": frozenset({"role", "content"}),
    "messages[].content[].source": _SOURCE,
    "messages[].content[].content[].source": _SOURCE,
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
    "output_config.format": frozenset({"type", "schema"}),
    "output_format": frozenset({"type", "schema"}),
}
_SPEC_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})


def read_request(body: Raw, *, model: str | None = None, provider: str | None = None) -> Asked:
    """Return the context that a request shows."""
    raw = as_object(body, "the request")
    if "messages" not in raw:
        raise unreadable("not_a_request", "this is no request of Anthropic Messages: it has no messages")
    facts = {"endpoint": provider or VENDOR, "model": model or raw.get("model")}
    ids = CallNames()
    losses: list[Loss] = []
    messages = [
        _message(message, f"messages[{at}]", ids, facts, losses)
        for at, message in enumerate(as_list(raw["messages"], "messages"))
    ]
    specs, tools = _tools(raw.get("tools"))
    options, vendor = read_options(raw)
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
    """Return the system words of a request, as one text."""
    if isinstance(system, str):
        return system
    blocks = as_list(system or [], "system")
    texts = [as_object(block, f"system[{at}]").get("text") for at, block in enumerate(blocks)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _message(message: object, where: str, ids: CallNames, facts: Raw, losses: list[Loss]) -> Message:
    raw = as_object(message, where)
    role = raw.get("role")
    if role not in ("user", "assistant", "system"):
        raise malformed(f"{where}.role", f"is {role!r}, none of Anthropic Messages")
    if role == "user" and raw.get("content") is None:
        raise malformed(where, "has no content")
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
    """Return the system words, and their blocks where there are several or they say more."""
    words = joined(system)
    if not isinstance(system, list):
        return words, None
    blocks = [_uncached(cast("Raw", block)) for block in cast("list[object]", system)]
    rich = len(blocks) > 1 or any(block.keys() - {"type", "text"} for block in blocks)
    return words, blocks if rich else None


def _uncached(block: Raw) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control" and value is not None}


def _tools(tools: object) -> tuple[list[ToolSpec], list[dict[str, Any]] | None]:
    """Return the tools of the caller, and the list as Anthropic has it, where that says more.

    In it, Anthropic's own tools are unchanged; the caller's are a name and their other fields.
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
        raise malformed(f"{where}.name", "is not text; this is no tool of Anthropic Messages")
    return ToolSpec(
        name=name,
        description=str(raw.get("description") or ""),
        parameters=dict(as_object(raw["input_schema"], f"{where}.input_schema")),
        strict=strict if isinstance(strict, bool) else None,
    )


def _is_cached(value: object) -> bool:
    """True if any part of a request carries a mark for the prompt cache."""
    if isinstance(value, Mapping):
        found = cast("Raw", value)
        if found.get("cache_control"):
            return True
        return any(_is_cached(part) for key, part in found.items() if key not in ("input", "input_schema"))
    return isinstance(value, list) and any(_is_cached(part) for part in cast("list[object]", value))
