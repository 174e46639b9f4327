"""Bedrock's answers, whole ones; streams are put together and read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import Invalid
from holdfast.model.message import Block, File, Image, Message, ReasoningSummary, Text
from holdfast.model.run import Usage
from holdfast.providers.bedrock.blocks import Raw, Reading, as_object
from holdfast.providers.contract import (
    CallDelta,
    Finished,
    Loss,
    ModelEvent,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from holdfast.providers.wire.entry import CallNames
from holdfast.providers.wire.layout import shown
from holdfast.providers.wire.native import call_ids, keep

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
    reply = reply_of(raw, provider=provider)
    message = reply.message
    events: list[ModelEvent] = [event for block in message.content for event in _told(block)]
    events += [CallDelta(at, call.name, call.args) for at, call in enumerate(message.tool_calls)]
    events.append(Finished(message=message, usage=reply.usage, stop=reply.stop))
    return Reply(
        message=message, stop=reply.stop, usage=reply.usage, losses=reply.losses, events=tuple(events)
    )


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
        input_tokens=_count(told.get("inputTokens")),
        output_tokens=_count(told.get("outputTokens")),
        cached_tokens=_count(told.get("cacheReadInputTokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _told(block: Block) -> list[ModelEvent]:
    match block:
        case Text():
            return [TextDelta(block.text)] if block.text else []
        case ReasoningSummary():
            return [ReasoningDelta(block.text)] if block.text else []
        case Image() | File():
            return []
