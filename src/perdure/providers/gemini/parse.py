"""Answers of the Gemini API, read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import Usage
from perdure.providers.contract import Loss, ModelEvent, Reply
from perdure.providers.gemini.names import camel, listed
from perdure.providers.gemini.parts import native_part, read_part
from perdure.providers.gemini.plain import plain_parts
from perdure.providers.wire.native import call_ids, keep
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.shells import Turn, is_list, items_of, object_of, text_of
from perdure.providers.wire.telling import count_of, with_events

__all__ = ["DEFAULT_ENDPOINT", "VENDOR", "parse", "reply_of"]

VENDOR = "google"
DEFAULT_ENDPOINT = "google"

# Enumerations may come as numbers.
_STOPS = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
_SAID = ("content", "finishReason", "index")


def parse(body: Mapping[str, Any] | list[Any], *, provider: str | None = None) -> Reply:
    """The answer that a response holds; also the list of responses that a stream is without `alt=sse`."""
    from perdure.providers.gemini.stream import Stream

    if is_list(body):
        stream = Stream(provider=provider)
        for chunk in items_of(body):
            stream.take(object_of(chunk))
        return stream.close()
    if not isinstance(body, Mapping):
        raise Invalid(f"this is no answer of the Gemini API: it is a {type(body).__name__}, not an object.")
    told = camel(body)
    if not told.keys() & {"candidates", "promptFeedback", "usageMetadata"} or "error" in told:
        raise Invalid(f"this is no answer of the Gemini API: {_why(told)}.")
    return reply_of(told, provider=provider)


def _why(body: dict[str, Any]) -> str:
    error = object_of(body.get("error"))
    if error:
        return f"it is an error, {error.get('status') or error.get('code')}: {error.get('message')}"
    return "it has no 'candidates'"


def reply_of(
    body: Mapping[str, Any],
    *,
    provider: str | None = None,
    events: Sequence[ModelEvent] | None = None,
    losses: Sequence[Loss] = (),
) -> Reply:
    """The answer; `events` is what a stream has told of it already."""
    found = list(losses)
    candidates = [camel(each) for each in listed(body.get("candidates"))] or [{}]
    messages = [
        _message(body, candidate, provider, found, f"candidates[{at}]")
        for at, candidate in enumerate(candidates)
    ]
    usage, stop = _usage(camel(body.get("usageMetadata"))), _stop(body, candidates[0])
    first, *others = messages
    is_blocked = stop is not None and candidates[0].get("finishReason") is None
    reply = Reply(
        message=first,
        stop=stop,
        stop_kind="refused" if is_blocked else None,  # the prompt was, whatever the reason is called
        usage=usage,
        losses=tuple(found),
        others=tuple(others),
    )
    return with_events(reply, events)


def _message(
    body: Mapping[str, Any],
    candidate: dict[str, Any],
    provider: str | None,
    losses: list[Loss],
    where: str,
) -> Message:
    turn = Turn()
    natives = [
        native_part(part, f"{where}.parts[{at}]")
        for at, part in enumerate(listed(camel(candidate.get("content")).get("parts")))
    ]
    shells = [
        read_part(part, turn, losses, f"{where}.parts[{at}]", model=True) for at, part in enumerate(natives)
    ]
    plain = plain_parts(Message("assistant", tuple(turn.content), tuple(turn.calls)))
    _grounding(camel(candidate.get("groundingMetadata")), turn)
    beside = {name: value for name, value in candidate.items() if name not in _SAID}
    facts = {
        "endpoint": provider or DEFAULT_ENDPOINT,
        "model": body.get("modelVersion"),
        "response_id": body.get("responseId"),
        "candidate": beside or None,
        "prompt_feedback": body.get("promptFeedback"),
        "live": body.get("live"),
        "call_ids": call_ids(turn.calls),
    }
    if plain != natives:
        facts |= {"parts": shells, "size": turn.size}
    return Message("assistant", tuple(turn.content), tuple(turn.calls), vendor_metadata=keep(VENDOR, facts))


def _grounding(grounding: dict[str, Any], turn: Turn) -> None:
    """What a search of Google's own found, for others to be told of."""
    queries = listed(grounding.get("webSearchQueries")) + listed(grounding.get("retrievalQueries"))
    sources: list[Any] = []
    for chunk in listed(grounding.get("groundingChunks")):
        for source in object_of(chunk).values():
            told = object_of(source)
            sources.append({key: told[key] for key in ("title", "uri") if told.get(key)})
    if queries or sources:
        turn.add(account("groundingMetadata", "google_search", input=queries or None, result=sources or None))


def _stop(body: Mapping[str, Any], candidate: dict[str, Any]) -> str | None:
    reason = candidate.get("finishReason")
    if reason is None:
        reason = camel(body.get("promptFeedback")).get("blockReason")
    if isinstance(reason, int):
        return _STOPS.get(reason, str(reason))
    return text_of(reason) or None


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_of(usage.get("promptTokenCount")),
        output_tokens=count_of(usage.get("candidatesTokenCount")),
        cached_tokens=count_of(usage.get("cachedContentTokenCount")),
        reasoning_tokens=count_of(usage.get("thoughtsTokenCount")),
    )
