"""A streamed Chat answer: chunks become the whole answer that they are pieces of, which is then read like any other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningDelta, Reply, TextDelta
from perdure.providers.openai_chat.beside import Origin
from perdure.providers.openai_chat.parse import reply_of
from perdure.providers.openai_chat.pieces import Choice
from perdure.providers.openai_chat.servers import Server
from perdure.providers.wire.sse import Events, ServerEvent
from perdure.providers.wire.telling import with_events

__all__ = ["ChatStream"]

_PER_CHUNK = frozenset({"choices", "obfuscation", "p", "object", "created"})


class ChatStream:
    """An answer that is being streamed."""

    def __init__(self, origin: Origin, place: Server, api: str) -> None:
        """Begin with nothing."""
        self._origin, self._place, self._api = origin, place, api
        self._events = Events()
        self._told: list[ModelEvent] = []
        self._choices: dict[int, Choice] = {}
        self._body: dict[str, Any] = {}
        self._error: dict[str, Any] | None = None
        self._done = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        told: list[ModelEvent] = []
        for event in self._events.feed(data):
            self._take(event, told, last=False)
        self._told.extend(told)
        return told

    def close(self) -> Reply:
        """The stream has ended; what was said in all."""
        for event in self._events.rest():
            self._take(event, self._told, last=True)
        if not self._choices:
            self._nothing()
        choices = [choice.whole(at) for at, choice in sorted(self._choices.items())]
        reply = reply_of(self._body | {"choices": choices}, self._origin, self._place, self._api)
        return with_events(self._mended(reply), self._told)

    def _nothing(self) -> None:
        if self._error is None:
            raise Invalid(f"this {self._api} stream ended before it said anything; nothing was read.")
        why = self._error.get("message") or self._error
        raise Invalid(f"the server answered with an error: {why}; nothing was read.")

    def _take(self, event: ServerEvent, told: list[ModelEvent], *, last: bool) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            if last:  # it was cut off
                return
            raise Invalid(
                f"an event of this {self._api} stream is not JSON: {error}; nothing was read."
            ) from error
        if not isinstance(chunk, dict):
            raise Invalid(f"an event of this {self._api} stream is no object; nothing was read.")
        self._chunk(cast("dict[str, Any]", chunk), told)

    def _chunk(self, chunk: dict[str, Any], told: list[ModelEvent]) -> None:
        wrapped = chunk.get("data")
        if "choices" not in chunk and isinstance(wrapped, dict):
            chunk = cast("dict[str, Any]", wrapped)
        if isinstance(error := chunk.get("error"), dict):
            self._error = cast("dict[str, Any]", error)
        for name, value in chunk.items():
            if name not in _PER_CHUNK and value not in (None, [], {}, ""):
                self._body[name] = value
        self._usage(chunk.get("x_groq"))
        choices = chunk.get("choices")
        for choice in cast("list[Any]", choices) if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._choice(cast("dict[str, Any]", choice), told)

    def _usage(self, aside: object) -> None:
        """Some report what was used beside the answer."""
        if isinstance(aside, dict) and isinstance(usage := cast("dict[str, Any]", aside).get("usage"), dict):
            self._body.setdefault("usage", usage)

    def _choice(self, choice: dict[str, Any], told: list[ModelEvent]) -> None:
        index = choice.get("index")
        at = index if isinstance(index, int) else 0
        into = self._choices.setdefault(at, Choice())
        delta = choice.get("delta", choice.get("message"))
        into.take(choice, cast("dict[str, Any]", delta) if isinstance(delta, dict) else {})
        if at == min(self._choices):
            told.extend(_events(into.news))

    def _mended(self, reply: Reply) -> Reply:
        """A reply that was cut off, without the call that was being written; and what went wrong."""
        losses = list(reply.losses)
        if self._error is not None:
            why = str(self._error.get("message") or self._error)
            losses.append(
                Loss(kind="dropped", where="message", what="rest of the answer", why=f"error: {why}")
            )
        calls = reply.message.tool_calls
        if not self._done and reply.stop is None and calls and not _is_whole(calls[-1].args):
            losses.append(
                Loss(
                    kind="dropped",
                    where="message.tool_calls",
                    what="tool call",
                    why="the stream ended inside it",
                )
            )
            message: Message = msgspec.structs.replace(reply.message, tool_calls=calls[:-1])
            reply = msgspec.structs.replace(reply, message=message)
        return msgspec.structs.replace(reply, losses=tuple(losses))


def _events(news: Mapping[str, Any]) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    if words := news.get("reasoning"):
        events.append(ReasoningDelta(words))
    if words := news.get("text"):
        events.append(TextDelta(words))
    for index, name, arguments in news.get("calls", ()):
        events.append(CallDelta(index, name, arguments))
    return events


def _is_whole(args: str) -> bool:
    try:
        json.loads(args)
    except (ValueError, RecursionError):
        return False
    return True
