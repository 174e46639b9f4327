"""Stores the fields that only their vendor reads, verbatim beside a message, and returns them to it alone.

    {"anthropic": {"endpoint": "anthropic", "model": "claude-…", "message_id": "msg_…", …}}

The top key is the vendor.  No decision depends on any of it: without it every other vendor's
request is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.model.message import Message, ToolCall
from perdure.providers.wire.nesting import is_shallow, is_shallow_text

__all__ = ["call_ids", "id_of_tool", "keep", "kept", "made_by", "own_ids", "parsed_metadata", "tool_of_id"]

_TOOL = "tool:"


def keep(vendor: str, facts: Mapping[str, Any]) -> str:
    """Return the vendorMetadata that holds `facts` of `vendor`, as JSON text; absent ones are left out."""
    told = {name: value for name, value in facts.items() if value is not None}
    return json.dumps({vendor: told}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def kept(message: Message, vendor: str, *, endpoint: str | None = None) -> Mapping[str, Any] | None:
    """Return the fields of `vendor`, if that endpoint wrote the message; None matches any."""
    told = parsed_metadata(message)
    own = cast("dict[str, Any]", told).get(vendor) if isinstance(told, dict) else None
    if not isinstance(own, dict):
        return None
    facts = cast("dict[str, Any]", own)
    return facts if endpoint is None or facts.get("endpoint") == endpoint else None


def made_by(message: Message, model: str) -> Message:
    """Return the message marked as that model's, if its stored fields name no model."""
    told = parsed_metadata(message)
    if not isinstance(told, dict) or len(cast("dict[str, Any]", told)) != 1:
        return message
    ((vendor, facts),) = cast("dict[str, Any]", told).items()
    if not isinstance(facts, dict) or cast("dict[str, Any]", facts).get("model") is not None:
        return message
    return msgspec.structs.replace(message, vendor_metadata=keep(vendor, {**facts, "model": model}))


def id_of_tool(name: str) -> str:
    """Return the id of a result that names only its tool, and whose call is not in the same request."""
    return _TOOL + name


def tool_of_id(id: str) -> str | None:
    """Return the tool of such a result; None for the id of a call."""
    return id.removeprefix(_TOOL) if id.startswith(_TOOL) else None


def parsed_metadata(message: Message) -> object:
    """Return the vendorMetadata of a message; None where it has none, or that is no JSON, or nested too deeply."""
    text = message.vendor_metadata
    if text is None:
        return None
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = _leniently(text)  # the strict reader takes no half of a character
    return value if is_shallow_text(text) or is_shallow(value) else None


def _leniently(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


def call_ids(calls: Sequence[ToolCall]) -> list[str] | None:
    """Return the vendor's own ids of a message's calls, to be stored with it; None if it has no calls."""
    return [call.id for call in calls] or None


def own_ids(messages: Sequence[Message], vendor: str, *, endpoint: str | None = None) -> dict[str, str]:
    """Return the ids that `vendor` gave to its calls at that endpoint, by their canonical ids."""
    found: dict[str, str] = {}
    for message in messages:
        facts = kept(message, vendor, endpoint=endpoint) if message.tool_calls else None
        told: object = facts.get("call_ids") if facts is not None else None
        if isinstance(told, list) and len(cast("list[Any]", told)) == len(message.tool_calls):
            ids = zip(message.tool_calls, cast("list[Any]", told), strict=True)
            found |= {call.id: own for call, own in ids if isinstance(own, str)}
    return found
