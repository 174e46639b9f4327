"""Reads answers of the Gemini API, whole or streamed as server-sent events or as one JSON list.

Each part adds its blocks and calls to a turn and leaves the vendor's item with holes (see `vendor_items`).
The API accepts field names in camelCase and snake_case; here they are camelCase.  Arguments of a call may
arrive in pieces: each sets a value at a place such as `$.stops[0].name`, or appends to the text there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.message import File, Image, Message
from perdure.model.run import Usage
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningChunk, Reply, TextChunk
from perdure.providers.gemini.portable_parts import plain_parts
from perdure.providers.wire.fields.vendor_items import VendorTurn, is_list, items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import GrowingTexts, count_of, with_events
from perdure.providers.wire.stream.sse import Events

__all__ = [
    "DEFAULT_ENDPOINT",
    "VENDOR",
    "parse",
    "reply_of",
    "CALL",
    "DATA",
    "FILES",
    "native_part",
    "read_part",
    "camel",
    "camel_all",
    "listed",
    "GeminiStream",
    "add_pieces",
]


_SNAKE = re.compile(r"_([a-z0-9])")


def camel(value: object) -> dict[str, Any]:
    """Return an object with its own names in camelCase; what they hold stays as it is."""
    return {_name(name): held for name, held in object_of(value).items()}


def camel_all(value: Any) -> Any:
    """Return a value with all names in it in camelCase; only for what holds no words and no schemas of others."""
    if isinstance(value, dict):
        return {_name(name): camel_all(held) for name, held in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [camel_all(held) for held in cast("list[Any]", value)]
    return value


def listed(value: object) -> list[Any]:
    """Return a repeated field: where it holds one thing, the API takes it without the list."""
    if value is None:
        return []
    return cast("list[Any]", value) if is_list(value) else [value]


def _name(name: str) -> str:
    return _SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


CALL = "#call"  # in the shell of a call: which of the message's calls it is
DATA = (
    "text",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
FILES = ("https://generativelanguage.googleapis.com/", "gs://")  # what lives on Google's servers
_SERVER = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_DEFAULT_TYPE = "application/octet-stream"


def native_part(part: object, where: str) -> dict[str, Any]:
    """Return a part with all of the API's own names in camelCase."""
    if isinstance(part, str):
        return {"text": part}
    told = camel(part)
    if not told:
        raise malformed(where, f"is no part of the Gemini API: it is {type(part).__name__}, not an object")
    for name in ("inlineData", "fileData", "functionCall", "videoMetadata", *_SERVER):
        if name in told:
            told[name] = camel(told[name])
    if "functionResponse" in told:
        answer = camel(told["functionResponse"])
        if "parts" in answer:
            answer["parts"] = [
                native_part(each, f"{where}.parts[{at}]") for at, each in enumerate(listed(answer["parts"]))
            ]
        told["functionResponse"] = answer
    return told


def read_part(part: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str, *, model: bool) -> Any:
    """Add a part to its turn and return its item with holes.  Successive pieces of text become one text."""
    match next((name for name in DATA if name in part), None):
        case "text":
            return {**part, "text": _words(part, turn, model=model)}
        case "functionCall":
            return {**part, "functionCall": _call(object_of(part["functionCall"]), turn, where)}
        case "inlineData":
            return _inline(part, object_of(part["inlineData"]), turn)
        case "fileData":
            return _file(part, object_of(part["fileData"]), turn)
        case "executableCode" | "codeExecutionResult" | "toolCall" | "toolResponse" as kind:
            _server(kind, object_of(part[kind]), turn)
            return part
        case _:
            return _unknown(part, turn, losses, where)


def _words(part: dict[str, Any], turn: VendorTurn, *, model: bool) -> Any:
    words = text_of(part["text"])
    if part.get("thought"):
        return turn.more_reasoning(words)
    return turn.more_text(words) if model else turn.text(words)


def _call(call: dict[str, Any], turn: VendorTurn, where: str) -> dict[str, Any]:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise malformed(where, "is a call that names no tool")
    args = json.dumps(call.get("args") or {}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    at = turn.call(text_of(call.get("id")), name, args)
    rest = {key: value for key, value in call.items() if key not in ("args", "name")}
    return {**rest, CALL: at, **({} if "args" in call else {"args": None})}


def _inline(part: dict[str, Any], data: dict[str, Any], turn: VendorTurn) -> Any:
    declared = text_of(data.get("mimeType")) or _DEFAULT_TYPE
    text = text_of(data.get("data"))
    held = inline(data_url(declared, text.replace("-", "+").replace("_", "/")))
    if held is None:
        turn.add(account("inlineData", declared))
        return part
    kind = held.media_type if ";" not in declared else declared
    block = (Image if kind.startswith("image/") else File)(data_url(held.media_type, held.base64), kind)
    exact = {} if kind == declared else {"mimeType": kind}
    hole = turn.media(block, base64=True)
    return {**part, "inlineData": {**data, **exact, "data": hole}}


def _file(part: dict[str, Any], data: dict[str, Any], turn: VendorTurn) -> Any:
    uri, kind = text_of(data.get("fileUri")), text_of(data.get("mimeType"))
    block = Image if kind.startswith("image/") else File
    if uri.startswith(FILES):
        turn.add(block(f"file-id://google/{uri}", kind or _DEFAULT_TYPE))
        return part
    return {**part, "fileData": {**data, "fileUri": turn.media(block(uri, kind or _DEFAULT_TYPE))}}


def _server(kind: str, told: dict[str, Any], turn: VendorTurn) -> None:
    match kind:
        case "executableCode":
            turn.add(account(kind, "code_execution", input=told.get("code")))
        case "codeExecutionResult":
            turn.add(account(kind, "code_execution", result=told.get("output") or told.get("outcome")))
        case "toolCall":
            turn.add(account(kind, _tool(told), input=told.get("args")))
        case _:
            turn.add(account(kind, _tool(told), result=told.get("response")))


def _tool(told: dict[str, Any]) -> str:
    return text_of(told.get("toolType")).lower() or "tool"


def _unknown(part: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    told = {name: value for name, value in part.items() if name not in ("thought", "thoughtSignature")}
    if told:
        name = next(iter(told))
        turn.add(account(name, name, input=told[name] if len(told) == 1 else told))
        why = "its kind is not known; it is kept as it came for Google"
        losses.append(Loss(kind="converted", where=where, what=name, why=why))
    return part


VENDOR = "google"
DEFAULT_ENDPOINT = "google"

# Enumerations may come as numbers.
_STOPS = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
_SAID = ("content", "finishReason", "index")


def parse(body: Mapping[str, Any] | list[Any], *, provider: str | None = None) -> Reply:
    """Return the answer that a response holds; also the list of responses that a stream is without `alt=sse`."""
    if is_list(body):
        stream = GeminiStream(provider=provider)
        for chunk in items_of(body):
            stream.take(object_of(chunk))
        return stream.close()
    if not isinstance(body, Mapping):
        raise unreadable(
            "not_an_answer",
            f"this is no answer of the Gemini API: it is a {type(body).__name__}, not an object",
        )
    told = camel(body)
    known = {name for name in ("candidates", "promptFeedback", "usageMetadata") if told.get(name) is not None}
    if not known or "error" in told:
        raise unreadable("not_an_answer", f"this is no answer of the Gemini API: {_why(told)}")
    for at, candidate in enumerate(listed(told.get("candidates"))):
        if not isinstance(candidate, Mapping):
            raise malformed(f"candidates[{at}]", "is not an object")
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
    """Return the answer; `events` are those that a stream has yielded already."""
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
        stop_kind="refused" if is_blocked else None,  # the prompt was refused, for any reason
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
    turn = VendorTurn()
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


def _grounding(grounding: dict[str, Any], turn: VendorTurn) -> None:
    """Return a readable description of the results of Google's own search."""
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
    """Return the usage; Gemini counts thoughts beside the output, and what its own tools read beside the input."""
    thoughts = count_of(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count_of(usage.get("promptTokenCount")) + count_of(usage.get("toolUsePromptTokenCount")),
        output_tokens=count_of(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=count_of(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[['"]([^'"]*)['"]\]""")
_INDEX_MAX = 10_000
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def add_pieces(args: dict[str, Any], pieces: object, growing: GrowingTexts) -> None:
    """Put the pieces into the arguments; `growing` holds the unfinished texts."""
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
            raise unreadable(
                "stream_malformed", f"a piece of a call's arguments names no place: {told.get('jsonPath')!r}"
            )


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
    """Return the value at a place; `empty` is put there if there is none."""
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
    raise unreadable(
        "stream_malformed", f"a piece of a call's arguments names a place that is not there: {step!r}"
    )


_LIVE = ("serverContent", "setupComplete", "sessionResumptionUpdate", "goAway")
_PLACE = re.compile(rb'["\\{}]')


class _Objects:
    """Splits a JSON list that is cut anywhere into its objects."""

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
    """Parses a streamed answer."""

    def __init__(self, *, provider: str | None = None) -> None:
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
        """Return the events that these next bytes complete."""
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
        """Return the whole answer, at the end of the stream."""
        with suppress(Invalid):  # an event that was cut off was never whole
            for frame in self._frames.rest():
                self._frame(frame.data)
        for place in list(self._writing):
            self._lose("functionCall", "the stream was cut off before its arguments were whole")
            del self._writing[place]
        if not self._candidates and "promptFeedback" not in self._body and not self._live:
            raise unreadable(
                "stream_without_answer",
                "the stream of the Gemini API was cut off before anything was whole"
                f"{': ' + self._error if self._error else ''}",
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
        """Read one whole response of the stream."""
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
            self._events.append(ReasoningChunk(words) if part.get("thought") else TextChunk(words))

    def _call(self, place: int, part: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        """Read a call, whole or in pieces: first the name, then arguments, then an empty piece that ends it."""
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
        raise unreadable(
            "stream_malformed", f"the stream of the Gemini API holds an event that is no JSON: {error}"
        ) from error
    if not chunk:
        raise unreadable(
            "stream_malformed", "the stream of the Gemini API holds an event that is no JSON object"
        )
    return chunk
