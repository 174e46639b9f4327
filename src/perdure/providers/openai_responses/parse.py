"""Reads answers of the Responses API, whole or streamed.

The last event of a stream holds the whole response.  If it is missing, or has no items, the answer consists of
the items that were reported as done, and of the text so far of an unfinished message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.model.run import StopKind, Usage
from perdure.providers.contract import (
    CallDelta,
    Loss,
    ModelEvent,
    PendingReply,
    ReasoningChunk,
    Reply,
    TextChunk,
)
from perdure.providers.openai_responses.items import CALLS, arguments_of, is_client_call, name_of, read_item
from perdure.providers.wire.fields.vendor_items import VendorTurn, items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import unreadable
from perdure.providers.wire.stream.reply_events import count_of, with_events
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = ["DEFAULT_ENDPOINT", "VENDOR", "parse", "pending_in", "reply_of", "ResponsesStream"]

VENDOR = "openai"
DEFAULT_ENDPOINT = "openai"


def parse(body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
    """Return the answer that a response object holds."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable(
            "not_an_answer",
            f"this is no answer of the Responses API: it is a {type(body).__name__}, not an object",
        )
    if not isinstance(body.get("output"), list):
        raise unreadable("not_an_answer", f"this is no answer of the Responses API: {_why(body)}")
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
    """Return the answer; `events` are those that a stream has yielded already."""
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
    """Return the meaning that the status lacks: the text is a refusal, or a call was cut off."""
    items = [object_of(item) for item in items_of(body.get("output"))]
    if any(str(item.get("type")).endswith("_call") and item.get("status") == "incomplete" for item in items):
        return "truncated"
    if body.get("status") not in ("completed", "complete"):
        return None
    parts = [object_of(part) for item in items for part in items_of(item.get("content"))]
    return "refused" if any(part.get("type") == "refusal" for part in parts) else None


def pending_in(body: Mapping[str, Any]) -> str | None:
    """Return the id by which a response is fetched that the server still works on; None: it does not."""
    is_working = body.get("status") in ("queued", "in_progress")
    return text_of(body.get("id")) or None if is_working else None


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cached_tokens=count_of(object_of(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=count_of(object_of(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )


_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")


class ResponsesStream:
    """Parses a streamed answer."""

    def __init__(self, *, provider: str | None = None) -> None:
        self._provider = provider
        self._frames = Events()
        self._head: dict[str, Any] = {}  # the response as it was announced
        self._last: dict[str, Any] | None = None  # the response as it ended
        self._items: dict[int, dict[str, Any]] = {}  # announced, by their place
        self._done: dict[int, dict[str, Any]] = {}
        self._said: dict[tuple[int, int], list[str]] = {}  # words so far, by item and part
        self._emitted: dict[int, int] = {}  # characters of each item that events have given
        self._calls: dict[
            int, int
        ] = {}  # by their places, the numbers of calls in the order in which they began
        self._events: list[ModelEvent] = []
        self._is_announced = False
        self._error = ""
        self._losses: list[Loss] = []

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        return self._take_all(self._frames.feed(data))

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        with suppress(Invalid):  # an event that was cut off was never whole
            self._take_all(self._frames.rest())
        body = dict(self._last or self._head)
        if not items_of(body.get("output")):
            body["output"] = self._whole()
        if self._last is None:
            body.update({"status": None, "incomplete_details": None})
            if not body["output"]:
                raise unreadable(
                    "stream_without_answer",
                    f"the stream of the Responses API was cut off before anything was whole"
                    f"{': ' + self._error if self._error else ''}",
                )
        return reply_of(body, provider=self._provider, events=self._events, losses=self._losses)

    def _take_all(self, frames: list[ServerEvent]) -> list[ModelEvent]:
        before = len(self._events)
        for frame in frames:
            if frame.data.strip() != "[DONE]":
                self._take(_event(frame))
        return self._events[before:]

    def _take(self, event: dict[str, Any]) -> None:
        kind = text_of(event.get("type"))
        at = _place(event)
        if kind in _TEXTS:
            self._say(at, event)
        elif kind == "response.reasoning_summary_text.delta":
            self._tell(at, ReasoningChunk(text_of(event.get("delta"))))
        elif kind in _ARGUMENTS:
            self._write(at, text_of(event.get("delta")))
        elif kind == "response.output_item.added":
            self._begin(at, object_of(event.get("item")))
        elif kind == "response.output_item.done":
            self._end(at, object_of(event.get("item")))
        elif kind in _ENDS:
            self._last = object_of(event.get("response"))
            for place, item in enumerate(items_of(self._last.get("output"))):
                self._end(place, object_of(item))
        elif kind == "error":
            error = object_of(event.get("error")) or event
            self._error = f"{error.get('code') or error.get('type')}: {error.get('message')}"
        elif isinstance(event.get("response"), dict):
            self._head = object_of(event["response"])
            self._announce(self._head)
        elif not kind.startswith("response.") and kind != "keepalive":
            why = "its kind is not known; what it says is not in the answer"
            self._losses.append(Loss(kind="dropped", where="stream", what=kind or "event", why=why))

    def _announce(self, response: dict[str, Any]) -> None:
        """Return once the id by which the answer can be fetched, even if this stream breaks off."""
        pending = pending_in(response) if response.get("background") is True else None
        if pending is not None and not self._is_announced:
            self._is_announced = True
            self._events.append(PendingReply(pending))

    def _begin(self, at: int, item: dict[str, Any]) -> None:
        self._items[at] = item
        if (str(item.get("type")) in CALLS or is_client_call(item)) and at not in self._calls:
            self._calls[at] = len(self._calls)

    def _say(self, at: int, event: dict[str, Any]) -> None:
        words, part = text_of(event.get("delta")), event.get("content_index")
        key = (at, part if isinstance(part, int) else 0)
        self._said.setdefault(key, []).append(words)
        self._tell(at, TextChunk(words))

    def _tell(self, at: int, delta: TextChunk | ReasoningChunk) -> None:
        self._emitted[at] = self._emitted.get(at, 0) + len(delta.text)
        if delta.text:
            self._events.append(delta)

    def _write(self, at: int, part: str) -> None:
        if at not in self._calls:
            self._begin(at, {"type": "function_call"})
        self._emitted[at] = self._emitted.get(at, 0) + len(part)
        item = self._items[at]
        name = name_of(item) if is_client_call(item) else text_of(item.get("name"))
        self._events.append(CallDelta(self._calls[at], name, part))

    def _end(self, at: int, item: dict[str, Any]) -> None:
        """End an item; return the events that no delta has given."""
        self._begin(at, item)
        self._done[at] = item
        told = self._emitted.get(at, 0)
        match item.get("type"):
            case "function_call" | "custom_tool_call":
                if rest := text_of(item.get(CALLS[item["type"]]))[told:]:
                    self._write(at, rest)
            case "message":
                if rest := _words(item.get("content"), "text", "refusal")[told:]:
                    self._tell(at, TextChunk(rest))
            case "reasoning":
                if rest := _words(item.get("summary"), "text")[told:]:
                    self._tell(at, ReasoningChunk(rest))
            case _ if is_client_call(item) and not told:
                self._write(at, arguments_of(item))
            case _:
                pass

    def _whole(self) -> list[dict[str, Any]]:
        found = dict(self._done)
        for (at, _), pieces in sorted(self._said.items()):
            words = "".join(pieces)
            if at not in self._done and words:
                item = found.setdefault(
                    at, {"type": "message", "role": "assistant", **self._items.get(at, {}), "content": []}
                )
                item["content"].append({"type": "output_text", "text": words, "annotations": []})
        return [found[at] for at in sorted(found)]


def _words(parts: object, *fields: str) -> str:
    found = [object_of(part) for part in items_of(parts)]
    return "".join(text_of(part.get(field)) for part in found for field in fields)


def _place(event: dict[str, Any]) -> int:
    place = event.get("output_index")
    return place if isinstance(place, int) else 0


def _event(frame: ServerEvent) -> dict[str, Any]:
    try:
        event = object_of(json.loads(frame.data))
    except (ValueError, RecursionError) as error:
        raise unreadable(
            "stream_malformed", f"the stream of the Responses API holds an event that is no JSON: {error}"
        ) from error
    if not event:
        raise unreadable(
            "stream_malformed", "the stream of the Responses API holds an event that is no JSON object"
        )
    return event if event.get("type") else {**event, "type": frame.name}
