"""Reads Chat answers, whole or streamed: text, reasoning, calls, the reason to stop and the usage.

The chunks of a stream are assembled into the whole answer, which is then read like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from perdure.model.message import File, Message, Text
from perdure.model.run import Usage
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningChunk, Reply, TextChunk
from perdure.providers.openai_chat.content import sound_of
from perdure.providers.openai_chat.request import ChatMessageParts, read_message, unknown_parts
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Origin, objects_of, with_beside
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.malformed import unreadable
from perdure.providers.wire.stream.reply_events import GrowingTexts, count_of, with_events
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = ["parse", "reply_of", "ChatStream", "Choice"]

_BODY = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation", "p"})
_CHOICE = frozenset({"index", "finish_reason", "message", "delta"})


def parse(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Reply:
    """Return the answer that a body holds; raises `Invalid` if it is none."""
    return with_events(reply_of(body, origin, place, api))


def reply_of(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Reply:
    """Return the answer without its events."""
    choices = _choices(body, api)
    if choices is None:
        return _filtered(body, origin)
    losses: list[Loss] = []
    messages = [_message(body, choice, origin, place, losses) for choice in choices]
    return Reply(
        message=messages[0],
        stop=_stop(choices[0].get("finish_reason")),
        stop_kind="refused" if _is_refusal(choices[0]) else None,
        usage=_usage(body.get("usage")),
        losses=tuple(losses),
        others=tuple(messages[1:]),
    )


def _is_refusal(choice: Mapping[str, Any]) -> bool:
    """True if a choice is a refusal in words: its finish reason is `stop` then, as that of any answer."""
    held = object_of(choice.get("message") or choice.get("delta"))
    parts = objects_of(held.get("content")) if isinstance(held.get("content"), list) else []
    return bool(held.get("refusal")) or any(part.get("type") == "refusal" for part in parts)


def _choices(body: Mapping[str, Any], api: str) -> list[dict[str, Any]] | None:
    """Return the choices of an answer, in order; None for an answer that a filter withheld."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable("not_an_answer", f"this is no {api} answer but {type(body).__name__}")
    choices, error = body.get("choices"), body.get("error")
    if objects_of(choices):
        return sorted(objects_of(choices), key=lambda each: count_of(each.get("index")))
    if told := object_of(error):
        if told.get("code") == "content_filter":
            return None
        raise unreadable("error_answer", f"the server answered with an error: {told.get('message') or told}")
    raise unreadable("not_an_answer", f"this is no {api} answer: it has no choices")


def _filtered(body: Mapping[str, Any], origin: Origin) -> Reply:
    """Return an answer that the server's filter withheld: a refusal without text."""
    message = with_beside(Message(role="assistant"), Beside(said={"error": body["error"]}), origin)
    return Reply(message=message, stop="content_filter")


def _message(
    body: Mapping[str, Any], choice: Mapping[str, Any], origin: Origin, place: Server, losses: list[Loss]
) -> Message:
    held = object_of(choice.get("message") or choice.get("delta"))
    if not held and not choice.get("finish_reason"):
        raise unreadable("not_an_answer", "a choice of the answer has no message")
    id = body.get("id")
    said = read_message(held, "choices.message", origin.endpoint, salt=f"{id}\n{choice.get('index')}")
    _audio(held.get("audio"), said)
    back = {name: value for name, value in said.fields.items() if name in place.back or name == "audio"}
    told = {name: value for name, value in said.fields.items() if name not in back}
    said.fields = back
    told |= _rest(choice, _CHOICE) | _rest(body, _BODY)
    losses += unknown_parts(said, "message")
    message = Message(role="assistant", content=tuple(said.content), tool_calls=tuple(said.calls))
    made = Origin(origin.vendor, origin.endpoint, _word(body.get("model")) or origin.model)
    return with_beside(message, said.beside(said=told), made, response_id=_word(id) or "")


def _audio(audio: object, said: ChatMessageParts) -> None:
    """Read spoken sound and its text; the server accepts it back by its id."""
    said.fields.pop("audio", None)
    known = object_of(audio)
    if isinstance(data := known.get("data"), str) and data:
        said.content.append(File(sound_of(data, "audio/wav"), "audio/wav"))
    if isinstance(words := known.get("transcript"), str) and words:
        said.content.append(Text(words))
    if known.get("id"):
        said.fields["audio"] = {"id": known["id"]}


def _rest(told: Mapping[str, Any], read: frozenset[str]) -> dict[str, Any]:
    return {
        name: value for name, value in told.items() if name not in read and value not in (None, [], {}, "")
    }


def _usage(usage: object) -> Usage:
    """Return the usage; some servers count sound beside the input, or reasoning beside the output, as their total shows."""
    told = object_of(usage)
    inner = object_of(told.get("prompt_tokens_details"))
    outer = object_of(told.get("completion_tokens_details"))
    cached = [inner.get("cached_tokens"), *(told.get(name) for name in _CACHED)]
    read, written = count_of(told.get("prompt_tokens")), count_of(told.get("completion_tokens"))
    reasoning = count_of(outer.get("reasoning_tokens")) or count_of(told.get("reasoning_tokens"))
    beside = max(0, count_of(told.get("total_tokens")) - read - written)
    is_sound = beside == count_of(inner.get("audio_tokens"))
    return Usage(
        input_tokens=read + (beside if is_sound else 0),
        output_tokens=written + (0 if is_sound else beside),
        cached_tokens=max(map(count_of, cached)),
        reasoning_tokens=reasoning,
    )


_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")


def _stop(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_WORDS = ("reasoning_content", "reasoning", "refusal")
_JOINED = ("text", "summary", "data")


class Choice:
    """Assembles one choice of a stream."""

    __slots__ = (
        "_by_index",
        "_detailed",
        "_growing",
        "calls",
        "extra",
        "fields",
        "finish",
        "logprobs",
        "news",
        "parts",
        "words",
    )

    def __init__(self) -> None:
        self.words: dict[str, list[str]] = {}
        self.parts: list[_StreamedPart] = []
        self.calls: list[_StreamedCall] = []
        self.fields: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        self.logprobs: dict[str, list[Any]] = {}
        self.finish: str | None = None
        self.news: dict[str, Any] = {}  # events of the last piece
        self._by_index: dict[object, _StreamedCall] = {}  # the last call of each index
        self._detailed: dict[
            tuple[str, str, str], dict[str, Any]
        ] = {}  # the last item of each list, place and kind
        self._growing = GrowingTexts()

    def take(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        """Add a piece."""
        self.news = {}
        for name, value in delta.items():
            if value is not None:
                self._field(name, value)
        for name, value in choice.items():
            match name:
                case "delta" | "message" | "index":
                    pass
                case "finish_reason":
                    self.finish = value if isinstance(value, str) and value else self.finish
                case "logprobs":
                    self._logprobs(value)
                case _:
                    if value not in (None, [], {}, ""):
                        self.extra[name] = value

    def whole(self, index: int) -> dict[str, Any]:
        """Return the choice as an answer that is not streamed would hold it."""
        self._growing.settle()
        message: dict[str, Any] = {"role": "assistant", "content": self._content(), **self.fields}
        message |= {name: "".join(pieces) for name, pieces in self.words.items()}
        if self.calls:
            message["tool_calls"] = [call.whole() for call in self.calls]
        logprobs = {"logprobs": self.logprobs} if any(self.logprobs.values()) else {}
        return {"index": index, "message": message, "finish_reason": self.finish, **self.extra, **logprobs}

    def _content(self) -> Any:
        if all(part.is_text for part in self.parts):
            return "".join("".join(part.words) for part in self.parts)
        return [part.whole() for part in self.parts if part.native is not None or part.words]

    def _field(self, name: str, value: Any) -> None:
        match name, value:
            case "role", _:
                pass
            case "content", str():
                self._text(value)
            case "content", list():
                for part in cast("list[Any]", value):
                    self._part(part)
            case _, str() if name in _WORDS:
                self.words.setdefault(name, []).append(value)
                if name == "refusal":
                    self._tell("text", value)
                elif "reasoning" not in self.news:
                    self._tell("reasoning", value)
            case "tool_calls", list():
                for call in cast("list[Any]", value):
                    self._call(_object(call))
            case "function_call", dict():
                self._function_call(cast("dict[str, Any]", value))
            case "reasoning_details" | "executed_tools", list():
                self._details(name, cast("list[Any]", value))
            case "audio", dict():
                self._audio(cast("dict[str, Any]", value))
            case "annotations", list():
                self._held(name, []).extend(value)
            case _:
                self.fields[name] = value

    def _held(self, name: str, empty: Any) -> Any:
        """Return the value under a name; an earlier value of another kind is moved beside the message."""
        there = self.fields.get(name)
        if type(there) is not type(empty):
            if there is not None:
                self.extra[name] = there
            there = self.fields[name] = empty
        return there

    def _tell(self, kind: str, words: str) -> None:
        if words:
            self.news[kind] = self.news.get(kind, "") + words

    def _text(self, words: str) -> None:
        if not self.parts or not self.parts[-1].is_text:
            self.parts.append(_StreamedPart("text"))
        self.parts[-1].words.append(words)
        self._tell("text", words)

    def _part(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        known = cast("dict[str, Any]", part)
        match known:
            case {"type": "text", "text": str(words)}:
                self._text(words)
            case {"type": "thinking", "thinking": list()} if _plain(known["thinking"]):
                self._thinking("".join(chunk["text"] for chunk in known["thinking"]), known)
            case {"type": "thinking", "thinking": str(words)}:
                self._thinking(words, known)
            case _:
                self.parts.append(_StreamedPart(str(known.get("type")), native=known))

    def _thinking(self, words: str, part: dict[str, Any]) -> None:
        last = self.parts[-1] if self.parts else None
        if last is None or last.kind != "thinking" or last.native is not None:
            self.parts.append(_StreamedPart("thinking"))
        self.parts[-1].words.append(words)
        more = {
            name: value
            for name, value in part.items()
            if name not in ("type", "thinking") and value is not None
        }
        self.parts[-1].more.update(more)
        self._tell("reasoning", words)

    def _call(self, piece: dict[str, Any]) -> None:
        spoken = object_of(piece.get("function")) or object_of(piece.get("custom"))
        call = self._call_of(piece, spoken)
        for name, value in piece.items():
            if name not in ("index", "id", "type", "function", "custom") and value is not None:
                call.more[name] = value
        if piece.get("type") == "custom":
            call.custom = True
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(spoken.get("name") or "")
        arguments = spoken.get("arguments", spoken.get("input"))
        text = arguments if isinstance(arguments, str) else ""
        call.arguments.append(text)
        self.news.setdefault("calls", []).append((call.place, call.name, text))

    def _call_of(self, piece: dict[str, Any], spoken: dict[str, Any]) -> _StreamedCall:
        """Return the call that a piece belongs to: by its index, unless its id differs."""
        index, id = piece.get("index"), piece.get("id")
        key = index if isinstance(index, int | float | str) else repr(index)
        found = self.calls[-1] if index is None and self.calls else self._by_index.get(key)
        if found is not None and not (id and found.id and id != found.id and spoken.get("name")):
            return found
        call = self._by_index[key] = _StreamedCall(len(self.calls))
        self.calls.append(call)
        return call

    def _function_call(self, piece: dict[str, Any]) -> None:
        whole = self._held("function_call", {"name": "", "arguments": ""})
        if isinstance(name := piece.get("name"), str):
            whole["name"] += name
        if isinstance(arguments := piece.get("arguments"), str):
            self._growing.add(whole, "arguments", arguments)
        self.news.setdefault("calls", []).append(
            (len(self.calls), whole["name"], piece.get("arguments") or "")
        )

    def _details(self, name: str, pieces: list[Any]) -> None:
        """Join lists whose items are streamed in pieces: items of one place and kind belong together."""
        whole = cast("list[dict[str, Any]]", self._held(name, []))
        for piece in pieces:
            if not isinstance(piece, dict):
                continue
            known = cast("dict[str, Any]", piece)
            place = (name, repr(known.get("index")), repr(known.get("type")))
            last = self._detailed.get(place)
            if last is None:
                last = self._detailed[place] = dict(known)
                whole.append(last)
            else:
                self._join(last, known)
            told = known.get("text") or known.get("summary")
            if name == "reasoning_details" and isinstance(told, str) and "reasoning" not in self.news:
                self.news["details"] = self.news.get("details", "") + told
        if (
            self.news.get("details")
            and not self.words.get("reasoning")
            and not self.words.get("reasoning_content")
        ):
            self._tell("reasoning", self.news.pop("details"))

    def _audio(self, piece: dict[str, Any]) -> None:
        whole = self._held("audio", {})
        for name, value in piece.items():
            joined = name in ("data", "transcript") and isinstance(value, str)
            if joined and isinstance(whole.get(name, ""), str):
                self._growing.add(whole, name, value)
            else:
                self._growing.put(whole, name, value)

    def _join(self, there: dict[str, Any], piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in _JOINED and isinstance(value, str) and isinstance(there.get(name), str):
                self._growing.add(there, name, value)
            elif value is not None:
                self._growing.put(there, name, value)

    def _logprobs(self, value: Any) -> None:
        if not isinstance(value, dict):
            return
        for name, listed in cast("dict[str, Any]", value).items():
            if isinstance(listed, list):
                self.logprobs.setdefault(name, []).extend(cast("list[Any]", listed))


class _StreamedPart:
    """One part of the content."""

    __slots__ = ("kind", "more", "native", "words")

    def __init__(self, kind: str, native: dict[str, Any] | None = None) -> None:
        self.kind, self.native = kind, native
        self.words: list[str] = []
        self.more: dict[str, Any] = {}

    @property
    def is_text(self) -> bool:
        return self.kind == "text" and self.native is None

    def whole(self) -> dict[str, Any]:
        words = "".join(self.words)
        if self.native is not None:
            return self.native
        if self.is_text:
            return {"type": "text", "text": words}
        return {"type": "thinking", "thinking": [{"type": "text", "text": words}], **self.more}


class _StreamedCall:
    """A call of a stream that is not complete yet."""

    __slots__ = ("arguments", "custom", "id", "more", "name", "place")

    def __init__(self, place: int) -> None:
        self.place = place  # among the calls of its choice
        self.id, self.name, self.custom = "", "", False
        self.arguments: list[str] = []
        self.more: dict[str, Any] = {}

    def whole(self) -> dict[str, Any]:
        text = "".join(self.arguments)
        if self.custom:
            return {
                "id": self.id,
                "type": "custom",
                "custom": {"name": self.name, "input": text},
                **self.more,
            }
        function = {"name": self.name, "arguments": text}
        return {"id": self.id, "type": "function", "function": function, **self.more}


def _object(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise unreadable(
            "stream_malformed", f"a tool call in the stream is {type(call).__name__}, not an object"
        )
    return cast("dict[str, Any]", call)


def _plain(chunks: list[Any]) -> bool:
    return all(
        isinstance(chunk, dict) and isinstance(cast("dict[str, Any]", chunk).get("text"), str)
        for chunk in chunks
    )


_PER_CHUNK = frozenset({"choices", "obfuscation", "p", "object", "created"})


class ChatStream:
    """Parses a streamed answer."""

    def __init__(self, origin: Origin, place: Server, api: str) -> None:
        self._origin, self._place, self._api = origin, place, api
        self._events = Events()
        self._emitted: list[ModelEvent] = []
        self._choices: dict[int, Choice] = {}
        self._body: dict[str, Any] = {}
        self._error: dict[str, Any] | None = None
        self._done = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        told: list[ModelEvent] = []
        for event in self._events.feed(data):
            self._take(event, told, last=False)
        self._emitted.extend(told)
        return told

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        for event in self._events.rest():
            self._take(event, self._emitted, last=True)
        if not self._choices:
            self._nothing()
        choices = [choice.whole(at) for at, choice in sorted(self._choices.items())]
        reply = reply_of(self._body | {"choices": choices}, self._origin, self._place, self._api)
        return with_events(self._mended(reply), self._emitted)

    def _nothing(self) -> None:
        if self._error is None:
            raise unreadable(
                "stream_without_answer", f"this {self._api} stream ended before it said anything"
            )
        why = self._error.get("message") or self._error
        raise unreadable("error_answer", f"the server answered with an error: {why}")

    def _take(self, event: ServerEvent, told: list[ModelEvent], *, last: bool) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            if last:  # it was cut off
                return
            raise unreadable(
                "stream_malformed", f"an event of this {self._api} stream is not JSON: {error}"
            ) from error
        if not isinstance(chunk, dict):
            raise unreadable("stream_malformed", f"an event of this {self._api} stream is no object")
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
        """Return the usage, which some servers report beside the answer."""
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
        """Return a reply that was cut off, without the call that was being written; and what went wrong."""
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
        events.append(ReasoningChunk(words))
    if words := news.get("text"):
        events.append(TextChunk(words))
    for index, name, arguments in news.get("calls", ()):
        events.append(CallDelta(index, name, arguments))
    return events


def _is_whole(args: str) -> bool:
    try:
        json.loads(args)
    except (ValueError, RecursionError):
        return False
    return True
