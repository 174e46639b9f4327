"""Reads streams of the Interactions API as they come.

The last event holds the interaction without its steps, so the steps are put together from their deltas.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, cast

from perdure.errors import Invalid
from perdure.providers.contract import (
    CallDelta,
    Loss,
    ModelEvent,
    PendingReply,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from perdure.providers.gemini_interactions.parse import MEDIA, pending_in, reply_of
from perdure.providers.wire.fields.vendor_items import is_list, items_of, object_of, text_of
from perdure.providers.wire.stream.reply_events import GrowingTexts
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = ["Stream"]

_ENDS = ("completed", "requires_action", "failed", "cancelled", "incomplete", "budget_exceeded")


class Stream:
    """A stream that is being read."""

    def __init__(self, *, provider: str | None = None) -> None:
        """Begin with nothing."""
        self._provider = provider
        self._frames = Events()
        self._head: dict[str, Any] = {}  # the interaction as it was announced
        self._last: dict[str, Any] | None = None  # the interaction as it ended
        self._steps: dict[int, dict[str, Any]] = {}  # by their places
        self._open: set[int] = set()  # the steps that have not ended
        self._arguments: dict[int, list[str]] = {}  # of calls, in pieces, by the places of their steps
        self._growing = GrowingTexts()  # all other texts of steps
        self._calls = 0
        self._events: list[ModelEvent] = []
        self._losses: list[Loss] = []
        self._error = ""
        self._is_announced = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        return self._take_all(self._frames.feed(data))

    def close(self) -> Reply:
        """What was said in all."""
        with suppress(Invalid):  # an event that was cut off was never whole
            self._take_all(self._frames.rest())
        body = {**self._head, **(self._last or {"status": None})}
        for at in sorted(self._open):
            if self._last is None and self._steps[at].get("type") == "function_call":
                self._lose("function_call", "the stream was cut off before its arguments were whole")
                del self._steps[at]
            else:
                self._end(at)
        self._growing.settle()
        body["steps"] = items_of(body.get("steps")) or [self._steps[at] for at in sorted(self._steps)]
        if self._last is None and not body["steps"]:
            said = f": {self._error}" if self._error else ""
            raise Invalid(f"the stream of the Interactions API was cut off before anything was whole{said}.")
        return reply_of(body, provider=self._provider, events=self._events, losses=self._losses)

    def _take_all(self, frames: list[ServerEvent]) -> list[ModelEvent]:
        before = len(self._events)
        for frame in frames:
            if frame.data.strip() != "[DONE]":
                self._take(_event(frame))
        return self._events[before:]

    def _take(self, event: dict[str, Any]) -> None:
        at = event["index"] if isinstance(event.get("index"), int) else 0
        match event.get("event_type"):
            case "step.start":
                self._begin(at, object_of(event.get("step")))
            case "step.delta":
                self._grow(at, object_of(event.get("delta")))
            case "step.stop":
                self._end(at)
            case "interaction.created" | "interaction.completed" | "interaction.status_update":
                self._tell_status(event)
            case "error":
                error = object_of(event.get("error"))
                self._error = f"{error.get('code')}: {error.get('message')}"
            case kind:
                why = "its kind is not known; what it says is not in the answer"
                self._lose(text_of(kind) or "event", why, kind="dropped")

    def _tell_status(self, event: dict[str, Any]) -> None:
        interaction = object_of(event.get("interaction"))
        if event["event_type"] == "interaction.status_update":
            told = {name: event[name] for name in ("status", "usage") if event.get(name)}
            interaction = {**self._head, **told}
        if event["event_type"] == "interaction.completed" or interaction.get("status") in _ENDS:
            self._last = {**(self._last or {}), **interaction}
        else:
            self._head = interaction
        pending = (
            pending_in(interaction) if interaction.get("agent") else None
        )  # agents work in the background
        if pending is not None and not self._is_announced:
            self._is_announced = True
            self._events.append(PendingReply(pending))

    def _begin(self, at: int, step: dict[str, Any]) -> None:
        self._steps[at] = step = dict(step)
        self._open.add(at)
        for content in items_of(step.get("content")):
            self._tell(TextDelta(text_of(object_of(content).get("text"))))
        for content in items_of(step.get("summary")):
            self._tell(ReasoningDelta(text_of(object_of(content).get("text"))))

    def _grow(self, at: int, delta: dict[str, Any]) -> None:
        if at not in self._steps:
            self._begin(at, {"type": "model_output"})
        step = self._steps[at]
        match delta.get("type"):
            case "text":
                words = text_of(delta.get("text"))
                self._growing.add(_last_text(step), "text", words)
                self._tell(TextDelta(words))
            case "text_annotation" | "text_annotation_delta":
                _last_text(step).setdefault("annotations", []).extend(items_of(delta.get("annotations")))
            case "thought_summary":
                content = object_of(delta.get("content"))
                step.setdefault("summary", []).append(content)
                self._tell(ReasoningDelta(text_of(content.get("text"))))
            case "thought_signature":
                self._growing.add(step, "signature", text_of(delta.get("signature")))
            case "arguments_delta":
                self._arguments.setdefault(at, []).append(text_of(delta.get("arguments")))
            case str(kind) if kind in MEDIA:
                step.setdefault("content", []).append(delta)
            case _:
                self._merge(step, delta)

    def _merge(self, step: dict[str, Any], delta: dict[str, Any]) -> None:
        """Add the fields of a delta to a step: texts and lists go on, objects are joined."""
        for name, value in delta.items():
            before = step.get(name)
            if name == "type":
                continue
            if isinstance(value, str) and isinstance(before, str | None):
                self._growing.add(step, name, value)
            elif is_list(value) and is_list(before):
                items_of(before).extend(items_of(value))
            elif object_of(value) and object_of(before):
                object_of(before).update(object_of(value))
            else:
                self._growing.put(step, name, value)

    def _end(self, at: int) -> None:
        if at not in self._open:
            return
        self._open.discard(at)
        step = self._steps[at]
        if text := "".join(self._arguments.pop(at, [])):
            step["arguments"] = _parsed(text)
        if step.get("type") == "function_call":
            given = step.get("arguments")
            args = given if isinstance(given, str) else _json(given or {})
            self._events.append(CallDelta(self._calls, text_of(step.get("name")), args))
            self._calls += 1

    def _tell(self, delta: TextDelta | ReasoningDelta) -> None:
        if delta.text:
            self._events.append(delta)

    def _lose(self, what: str, why: str, kind: str = "converted") -> None:
        loss = Loss(kind=kind, where="stream", what=what, why=why)  # pyright: ignore[reportArgumentType]
        self._losses.append(loss)


def _last_text(step: dict[str, Any]) -> dict[str, Any]:
    """The text that a step says last; a new one if it says something else last."""
    contents: list[Any] = step.setdefault("content", [])
    if not contents or object_of(contents[-1]).get("type") != "text":
        contents.append({"text": "", "type": "text"})
    return contents[-1]


def _parsed(text: str) -> Any:
    """Arguments as the object that they are; as text where they are none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return cast("object", value) if isinstance(value, dict) else text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _event(frame: ServerEvent) -> dict[str, Any]:
    try:
        event = object_of(json.loads(frame.data))
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"the stream of the Interactions API holds an event that is no JSON: {error}."
        ) from error
    if not event:
        raise Invalid("the stream of the Interactions API holds an event that is no JSON object.")
    return event if event.get("event_type") else {**event, "event_type": frame.name}
