"""Anthropic's answers, whole ones; streams are put together and read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import Usage
from perdure.providers.anthropic.blocks import Raw, Reading, as_object
from perdure.providers.contract import Loss, Reply
from perdure.providers.wire.entry import CallNames
from perdure.providers.wire.layout import shown
from perdure.providers.wire.native import call_ids, keep
from perdure.providers.wire.telling import count_of, with_events

__all__ = ["PAUSED", "VENDOR", "parse", "reply_of", "usage_of"]

VENDOR = "anthropic"
PAUSED = ("pause_turn", "compaction")  # the turn is sent back as it is, and goes on

_BESIDE = ("stop_sequence", "stop_details", "container", "context_management", "usage")


def parse(body: Raw, *, provider: str | None = None) -> Reply:
    """A whole answer."""
    raw = as_object(body, "the answer")
    if raw.get("type") == "error":
        told = as_object(raw.get("error") or {}, "error")
        raise Invalid(
            f"Anthropic answered with an error, no message: {told.get('type')}: {told.get('message')}."
        )
    if raw.get("type", "message") != "message" or "content" not in raw:
        raise Invalid("this is no answer of Anthropic Messages: it has no type 'message' with content.")
    return with_events(reply_of(raw, provider=provider))


def reply_of(
    raw: Raw,
    *,
    provider: str | None = None,
    raw_arguments: Mapping[int, str] | None = None,
    losses: tuple[Loss, ...] = (),
) -> Reply:
    """The reply that an answer's fields make, without events."""
    reading = Reading(CallNames(), where="content")
    reading.read(raw.get("content") or [], raw_arguments)
    stop = raw.get("stop_reason")
    facts: dict[str, Any] = {
        "endpoint": provider or VENDOR,
        "model": raw.get("model"),
        "message_id": raw.get("id"),
        "blocks": shown(reading.pieces),
        "call_ids": call_ids(reading.calls),
        "stop_reason": stop if stop in PAUSED else None,
        **{name: raw.get(name) for name in _BESIDE},
    }
    message = Message(
        role="assistant",
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        vendor_metadata=keep(VENDOR, facts),
    )
    return Reply(
        message=message,
        stop=stop if isinstance(stop, str) else None,
        usage=usage_of(raw.get("usage")),
        losses=(*reading.losses, *losses),
    )


def usage_of(raw: object) -> Usage:
    """What the answer took; Anthropic counts what came from the cache beside the input."""
    told = as_object(raw or {}, "usage")
    more = as_object(told.get("output_tokens_details") or {}, "usage.output_tokens_details")
    return Usage(
        input_tokens=count_of(told.get("input_tokens")),
        output_tokens=count_of(told.get("output_tokens")),
        cached_tokens=count_of(told.get("cache_read_input_tokens")),
        reasoning_tokens=count_of(more.get("thinking_tokens")),
    )
