"""Streams of the Gemini API, read as they come: server-sent events, or one JSON list.

Arguments that come in pieces: each says a value at a place, `$.stops[0].name`, or goes on with a text there.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from perdure.errors import Invalid
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningDelta, Reply, TextDelta
from perdure.providers.gemini.parse import camel, listed, native_part, reply_of
from perdure.providers.wire.fields.vendor_items import object_of, text_of
from perdure.providers.wire.stream.reply_events import GrowingTexts
from perdure.providers.wire.stream.sse import Events

__all__ = ["GeminiStream", "add_pieces"]


_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[['"]([^'"]*)['"]\]""")
_INDEX_MAX = 10_000
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def add_pieces(args: dict[str, Any], pieces: object, growing: GrowingTexts) -> None:
    """Put what the pieces say into the arguments; texts that go on are `growing`."""
    for piece in listed(pieces):
        told = camel(piece)
        kind = next((name for name in _VALUES if name in told), None)
        path = [
            int(index) if index else name or key
            for name, index, key in _STEP.findall(text_of(told.get("jsonPath")))
        ]
        if kind is not None and path:
            _put(args, path, None if kind == "nullValue" else told[kind], growing)
        elif kind is not None:
            raise Invalid(f"a piece of a call's arguments names no place: {told.get('jsonPath')!r}.")


def _put(args: dict[str, Any], path: list[str | int], value: Any, growing: GrowingTexts) -> None:
    at: Any = args
    for step, after in pairwise(path):
        at = _step(at, step, [] if isinstance(after, int) else {})
    last = path[-1]
    before = _step(at, last, None)
    if isinstance(before, str) and isinstance(value, str):
        growing.add(at, last, value)
    else:
        growing.put(at, last, value)


def _step(at: Any, step: str | int, empty: Any) -> Any:
    """What stands at a place; `empty` is put where nothing does."""
    if isinstance(step, int) and isinstance(at, list) and step <= _INDEX_MAX:
        items = cast("list[Any]", at)
        items.extend([None] * (step + 1 - len(items)))
        if items[step] is None:
            items[step] = empty
        return items[step]
    if isinstance(step, str) and isinstance(at, dict):
        fields = cast("dict[str, Any]", at)
        if fields.get(step) is None and empty is not None:
            fields[step] = empty
        return fields.get(step)
    raise Invalid(f"a piece of a call's arguments names a place that is not there: {step!r}.")


_LIVE = ("serverContent", "setupComplete", "sessionResumptionUpdate", "goAway")
_PLACE = re.compile(rb'["\\{}]')


class _Objects:
    """The objects of a JSON list that is cut anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._seen = 0  # of what is held, the bytes that were looked at
        self._begun = -1
        self._depth = 0
        self._in_text = False
        self._escaped_at = -2  # where a backslash stood: the byte after it means nothing

    def feed(self, data: bytes) -> list[bytes]:
        self._held += data
        found: list[bytes] = []
        for mark in list(_PLACE.finditer(self._held, self._seen)):
            self._mark(mark[0], mark.start(), found)
        self._seen = len(self._held)
        if self._depth == 0:
            self._held = bytearray()
            self._seen = 0
        return found

    def _mark(self, byte: bytes, at: int, found: list[bytes]) -> None:
        if self._in_text:
            if at == self._escaped_at + 1:
                self._escaped_at = -2
            elif byte == b"\\":
                self._escaped_at = at
            elif byte == b'"':
                self._in_text = False
        elif byte == b'"':
            self._in_text = True
        elif byte == b"{":
            if self._depth == 0:
                self._begun = at
            self._depth += 1
        elif byte == b"}" and self._depth:
            self._depth -= 1
            if self._depth == 0:
                found.append(bytes(self._held[self._begun : at + 1]))


class GeminiStream:
    """A stream that is being read."""

    def __init__(self, *, provider: str | None = None) -> None:
        """Begin with nothing."""
        self._provider = provider
        self._frames, self._objects = Events(), _Objects()
        self._is_list: bool | None = None  # not known before the first byte
        self._body: dict[str, Any] = {}
        self._candidates: dict[int, dict[str, Any]] = {}
        self._live: list[Any] = []
        self._writing: dict[int, dict[str, Any]] = {}  # calls whose arguments still come
        self._growing = GrowingTexts()  # texts of these arguments
        self._calls = 0
        self._pieces: dict[int, list[str]] = {}  # the words of a part that came in several, by the part
        self._events: list[ModelEvent] = []
        self._losses: list[Loss] = []
        self._error = ""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        before = len(self._events)
        if self._is_list is None and data.strip():
            self._is_list = data.lstrip()[:1] in (b"[", b"{")
        if self._is_list:
            for body in self._objects.feed(data):
                self.take(_chunk(body))
        else:
            for frame in self._frames.feed(data):
                self._frame(frame.data)
        return self._events[before:]

    def close(self) -> Reply:
        """What was said in all."""
        with suppress(Invalid):  # an event that was cut off was never whole
            for frame in self._frames.rest():
                self._frame(frame.data)
        for place in list(self._writing):
            self._lose("functionCall", "the stream was cut off before its arguments were whole")
            del self._writing[place]
        if not self._candidates and "promptFeedback" not in self._body and not self._live:
            raise Invalid(
                "the stream of the Gemini API was cut off before anything was whole"
                f"{': ' + self._error if self._error else ''}."
            )
        for candidate in self._candidates.values():
            for part in candidate["content"]["parts"]:
                if id(part) in self._pieces:
                    part["text"] = "".join(self._pieces[id(part)])
        body = {**self._body, "candidates": [self._candidates[at] for at in sorted(self._candidates)]}
        if self._live:
            body["live"] = self._live
            self._lose("serverContent", "it is of the live API; it is kept as it came for Google")
        return reply_of(body, provider=self._provider, events=self._events, losses=self._losses)

    def take(self, chunk: dict[str, Any]) -> None:
        """Take a whole response."""
        told = camel(chunk)
        if "error" in told:
            error = object_of(told["error"])
            self._error = f"{error.get('status') or error.get('code')}: {error.get('message')}"
            self._lose("error", f"the stream ended in an error, {self._error}")
            return
        self._live += [chunk for name in _LIVE if name in told]
        for name, value in told.items():
            if name != "candidates" and name not in _LIVE and value is not None:
                self._body[name] = value
        for at, candidate in enumerate(listed(told.get("candidates"))):
            self._candidate(at, camel(candidate))

    def _frame(self, data: str) -> None:
        if data.strip() != "[DONE]":
            self.take(_chunk(data))

    def _candidate(self, at: int, candidate: dict[str, Any]) -> None:
        index = candidate.get("index")
        place = index if isinstance(index, int) else at
        whole = self._candidates.setdefault(place, {"content": {"role": "model", "parts": []}})
        parts: list[dict[str, Any]] = whole["content"]["parts"]
        for number, part in enumerate(listed(camel(candidate.get("content")).get("parts"))):
            self._part(place, native_part(part, f"candidates[{place}].parts[{number}]"), parts)
        for name, value in candidate.items():
            if name != "content" and value is not None:
                whole[name] = value

    def _part(self, place: int, part: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        if "functionCall" in part:
            self._call(place, part, parts)
            return
        last = parts[-1] if parts else {}
        if set(part) <= {"text", "thought"} and part.keys() == last.keys() and _are_words(part, last):
            self._pieces.setdefault(id(last), [last["text"]]).append(part["text"])
        else:
            parts.append(part)
        words = text_of(part.get("text"))
        if words and place == 0:
            self._events.append(ReasoningDelta(words) if part.get("thought") else TextDelta(words))

    def _call(self, place: int, part: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        """A call, whole or in pieces: a name first, then arguments, then an empty one that ends it."""
        call = object_of(part["functionCall"])
        open_one = self._writing.get(place)
        if open_one is None or call.get("name"):
            rest = {key: value for key, value in call.items() if key not in ("partialArgs", "willContinue")}
            open_one = {**part, "functionCall": rest}
        written = object_of(open_one["functionCall"])
        if "partialArgs" in call:
            add_pieces(written.setdefault("args", {}), call["partialArgs"], self._growing)
        if call.get("willContinue"):
            self._writing[place] = open_one
            return
        self._writing.pop(place, None)
        self._growing.settle()
        parts.append(open_one)
        if place == 0:
            args = json.dumps(
                written.get("args") or {}, ensure_ascii=False, separators=(",", ":"), sort_keys=True
            )
            self._events.append(CallDelta(self._calls, text_of(written.get("name")), args))
            self._calls += 1

    def _lose(self, what: str, why: str) -> None:
        self._losses.append(Loss(kind="converted", where="stream", what=what, why=why))


def _are_words(*parts: dict[str, Any]) -> bool:
    return all(isinstance(part.get("text"), str) for part in parts)


def _chunk(data: str | bytes) -> dict[str, Any]:
    try:
        chunk = object_of(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the stream of the Gemini API holds an event that is no JSON: {error}.") from error
    if not chunk:
        raise Invalid("the stream of the Gemini API holds an event that is no JSON object.")
    return chunk
