"""Reads answers of the Interactions API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import StopKind, Usage
from perdure.providers.contract import Loss, ModelEvent, Reply
from perdure.providers.interactions.steps import read_step
from perdure.providers.wire.native import call_ids, keep
from perdure.providers.wire.shells import Turn, items_of, object_of, text_of
from perdure.providers.wire.telling import count_of, with_events

__all__ = ["DEFAULT_ENDPOINT", "VENDOR", "parse", "pending_in", "reply_of"]

# Not the key of generateContent: a thought's signature stands on another part there, and neither API takes
# what the other signed.
VENDOR = "google-interactions"
DEFAULT_ENDPOINT = "google"


def parse(body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
    """The answer that an interaction holds."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"this is no answer of the Interactions API: it is a {type(body).__name__}, not an object."
        )
    error = object_of(body.get("error"))
    if error:
        said = f"{error.get('status') or error.get('code')}: {error.get('message')}"
        raise Invalid(f"this is no answer of the Interactions API: it is an error, {said}.")
    if not isinstance(body.get("status"), str) or not isinstance(body.get("steps", []), list):
        raise Invalid("this is no answer of the Interactions API: it has no 'status', or no list 'steps'.")
    return reply_of(body, provider=provider)


def reply_of(
    body: Mapping[str, Any],
    *,
    provider: str | None = None,
    events: Sequence[ModelEvent] | None = None,
    losses: Sequence[Loss] = (),
) -> Reply:
    """The answer; `events` is what a stream has told of it already."""
    turn, found = Turn(), list(losses)
    steps = [object_of(step) for step in items_of(body.get("steps"))]
    answered = frozenset(
        text_of(step.get("call_id")) for step in steps if step.get("type") == "function_result"
    )
    shells: list[Any] = []
    for at, step in enumerate(steps):
        if step.get("type") == "user_input":
            why = "it repeats what the request said, which the conversation holds"
            found.append(Loss(kind="dropped", where=f"steps[{at}]", what="user_input", why=why))
        else:
            shells.append(read_step(step, turn, found, f"steps[{at}]", answered))
    facts = {
        "endpoint": provider or DEFAULT_ENDPOINT,
        "model": body.get("model") or body.get("agent"),
        "response_id": body.get("id") or None,
        "steps": shells,
        "size": turn.size,
        "call_ids": call_ids(turn.calls),
    }
    message = Message(
        "assistant",
        content=tuple(turn.content),
        tool_calls=tuple(turn.calls),
        vendor_metadata=keep(VENDOR, facts),
    )
    reply = Reply(
        message=message,
        stop=text_of(body.get("status")) or None,
        stop_kind=_stop_kind(steps),
        pending=pending_in(body),
        usage=_usage(object_of(body.get("usage"))),
        losses=tuple(found),
    )
    return with_events(reply, events)


def pending_in(body: Mapping[str, Any]) -> str | None:
    """The id by which an interaction is fetched that the server still works on; None: it does not."""
    is_working = body.get("status") in ("queued", "in_progress")
    return text_of(body.get("id")) or None if is_working else None


def _stop_kind(steps: Sequence[Mapping[str, Any]]) -> StopKind | None:
    """`failed` where a step of the model ended in an error, which the status need not say."""
    return (
        "failed" if any(step.get("type") == "model_output" and step.get("error") for step in steps) else None
    )


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_of(usage.get("total_input_tokens")),
        output_tokens=count_of(usage.get("total_output_tokens")),
        cached_tokens=count_of(usage.get("total_cached_tokens")),
        reasoning_tokens=count_of(usage.get("total_thought_tokens")),
    )
