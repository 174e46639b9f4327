"""Bedrock's answers, whole ones; streams are put together and read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import Usage
from perdure.providers.bedrock.blocks import Raw, Reading, as_object
from perdure.providers.contract import Loss, Reply
from perdure.providers.wire.entry import CallNames
from perdure.providers.wire.layout import shown
from perdure.providers.wire.native import call_ids, keep
from perdure.providers.wire.telling import count_of, with_events

__all__ = ["VENDOR", "parse", "reply_of"]

VENDOR = "bedrock"

# What an answer says beside its message, and what is kept of it.
_BESIDE = ("additionalModelResponseFields", "trace", "performanceConfig", "serviceTier", "metrics", "usage")


def parse(body: Raw, *, provider: str | None = None) -> Reply:
    """A whole answer."""
    raw = as_object(body, "the answer")
    if "output" not in raw:
        told = raw.get("message") or raw.get("Message")
        raise Invalid(
            f"this is no answer of Bedrock Converse: it has no output. It says: {told or 'nothing'}."
        )
    return with_events(reply_of(raw, provider=provider))


def reply_of(
    raw: Raw,
    *,
    provider: str | None = None,
    raw_arguments: Mapping[int, str] | None = None,
    losses: tuple[Loss, ...] = (),
) -> Reply:
    """The reply that an answer's fields make, without events."""
    said = as_object(as_object(raw["output"], "output").get("message") or {}, "output.message")
    reading = Reading(CallNames(), where="output.message.content", assistant=True)
    reading.read(said.get("content") or [], raw_arguments)
    headers = as_object(as_object(raw.get("ResponseMetadata") or {}, "it").get("HTTPHeaders") or {}, "it")
    facts: dict[str, Any] = {
        "endpoint": provider or VENDOR,
        "model": raw.get("modelId"),  # an answer does not say it; whoever asked may add it
        "response_id": raw.get("requestId") or headers.get("x-amzn-requestid"),
        "blocks": shown(reading.pieces),
        "call_ids": call_ids(reading.calls),
        **{name: raw.get(name) for name in _BESIDE},
    }
    message = Message(
        role="assistant",
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        vendor_metadata=keep(VENDOR, facts),
    )
    stop = raw.get("stopReason")
    return Reply(
        message=message,
        stop=stop if isinstance(stop, str) else None,
        usage=_usage(as_object(raw.get("usage") or {}, "usage")),
        losses=(*reading.losses, *losses),
    )


def _usage(told: Raw) -> Usage:
    return Usage(
        input_tokens=count_of(told.get("inputTokens")),
        output_tokens=count_of(told.get("outputTokens")),
        cached_tokens=count_of(told.get("cacheReadInputTokens")),
    )
