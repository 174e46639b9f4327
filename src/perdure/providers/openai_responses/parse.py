"""Answers of the Responses API, read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import StopKind, Usage
from perdure.providers.contract import Loss, ModelEvent, Reply
from perdure.providers.openai_responses.items import read_item
from perdure.providers.wire.fields.vendor_items import VendorTurn, items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.stream.reply_events import count_of, with_events

__all__ = ["DEFAULT_ENDPOINT", "VENDOR", "parse", "pending_in", "reply_of"]

VENDOR = "openai"
DEFAULT_ENDPOINT = "openai"


def parse(body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
    """The answer that a response object holds."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"this is no answer of the Responses API: it is a {type(body).__name__}, not an object."
        )
    if not isinstance(body.get("output"), list):
        raise Invalid(f"this is no answer of the Responses API: {_why(body)}.")
    return reply_of(body, provider=provider)


def _why(body: Mapping[str, Any]) -> str:
    error = object_of(body.get("error"))
    if error:
        return f"it is an error, {error.get('code') or error.get('type')}: {error.get('message')}"
    return "it has no list 'output'"


def reply_of(
    body: Mapping[str, Any],
    *,
    provider: str | None = None,
    events: Sequence[ModelEvent] | None = None,
    losses: Sequence[Loss] = (),
) -> Reply:
    """The answer; `events` is what a stream has told of it already."""
    turn, found = VendorTurn(), list(losses)
    items = items_of(body["output"])
    answered = frozenset(text_of(told.get("call_id")) for told in map(object_of, items) if _is_output(told))
    shells = [read_item(item, turn, found, f"output[{at}]", answered) for at, item in enumerate(items)]
    message = Message(
        "assistant",
        content=tuple(turn.content),
        tool_calls=tuple(turn.calls),
        vendor_metadata=keep(VENDOR, _facts(body, provider, shells, turn)),
    )
    reply = Reply(
        message=message,
        stop=_stop(body),
        stop_kind=_stop_kind(body),
        pending=pending_in(body),
        usage=_usage(object_of(body.get("usage"))),
        losses=tuple(found),
    )
    return with_events(reply, events)


def _facts(
    body: Mapping[str, Any], provider: str | None, shells: list[Any], turn: VendorTurn
) -> dict[str, Any]:
    return {
        "endpoint": provider or DEFAULT_ENDPOINT,
        "model": body.get("model"),
        "response_id": body.get("id"),
        "store": False if body.get("store") is False else None,
        "items": shells,
        "size": turn.size,
        "call_ids": call_ids(turn.calls),
    }


def _stop(body: Mapping[str, Any]) -> str | None:
    reason = object_of(body.get("incomplete_details")).get("reason")
    return text_of(reason) or text_of(body.get("status")) or None


def _is_output(item: Mapping[str, Any]) -> bool:
    return text_of(item.get("type")).endswith(("_call_output", "tool_search_output"))


def _stop_kind(body: Mapping[str, Any]) -> StopKind | None:
    """What the status does not say: that the words are a refusal, or that a call was cut off."""
    items = [object_of(item) for item in items_of(body.get("output"))]
    if any(str(item.get("type")).endswith("_call") and item.get("status") == "incomplete" for item in items):
        return "truncated"
    if body.get("status") not in ("completed", "complete"):
        return None
    parts = [object_of(part) for item in items for part in items_of(item.get("content"))]
    return "refused" if any(part.get("type") == "refusal" for part in parts) else None


def pending_in(body: Mapping[str, Any]) -> str | None:
    """The id by which a response is fetched that the server still works on; None: it does not."""
    is_working = body.get("status") in ("queued", "in_progress")
    return text_of(body.get("id")) or None if is_working else None


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cached_tokens=count_of(object_of(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=count_of(object_of(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
