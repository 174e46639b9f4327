"""Reads answers of the Interactions API, whole or streamed.

Each step adds its blocks and calls to a turn and leaves the vendor's item with holes (see `vendor_items`).  A step
of one of Google's own tools (a search, executed code, a fetched page) is stored whole, and the canonical message
holds a description of it for other vendors.  The last event of a stream holds the interaction without its steps,
so the steps are assembled from their deltas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.message import File, Image, Message
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
from perdure.providers.gemini.parse import FILES
from perdure.providers.wire.fields.vendor_items import (
    VendorTurn,
    is_list,
    items_of,
    json_or_text,
    object_of,
    text_of,
)
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import GrowingTexts, count_of, with_events
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = [
    "DEFAULT_ENDPOINT",
    "VENDOR",
    "parse",
    "pending_in",
    "reply_of",
    "CALL",
    "MEDIA",
    "SERVER_STEPS",
    "read_contents",
    "read_step",
    "Stream",
]


CALL = "#call"  # in the shell of a call: which of the message's calls it is
MEDIA = {
    "image": "image/*",
    "audio": "audio/*",
    "video": "video/*",
    "document": "application/octet-stream",
}  # the kinds of content beside text, and the media type of one that names none
_SERVER_TOOLS = (
    *("code_execution", "file_search", "google_maps", "google_search", "mcp_server_tool"),
    *("processing", "retrieval", "url_context"),
)
SERVER_STEPS = frozenset(f"{tool}_{half}" for tool in _SERVER_TOOLS for half in ("call", "result"))


def read_step(
    step: Any, turn: VendorTurn, losses: list[Loss], where: str, answered: frozenset[str] = frozenset()
) -> Any:
    """Add a step of the model to its turn; return the step with holes.

    `answered` are the ids of calls whose results are in the same answer: Google's agent ran them.
    """
    told = object_of(step)
    match told.get("type"):
        case "model_output" | "user_input":
            return {**told, "content": read_contents(told.get("content"), turn, losses, where)}
        case "thought":
            return _thought(told, turn, losses, where)
        case "function_call" if text_of(told.get("id")) not in answered:
            return _call(told, turn, where)
        case str(kind) if kind:
            _server_step(kind, told, turn)
            if kind not in SERVER_STEPS and not kind.startswith("function_"):
                losses.append(_unknown(where, kind))
            return told
        case _:
            raise malformed(where, "is no step of the Interactions API: it has no type")


def read_contents(contents: object, turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    """Return the contents of a step: one content, or a list of them."""
    if contents is not None and not object_of(contents) and not is_list(contents):
        raise malformed(where, "has a content that is neither an object nor a list")
    listed = [object_of(each) for each in items_of(contents)] or [object_of(contents)]
    return [_content(each, turn, losses, f"{where}.content[{at}]") for at, each in enumerate(listed) if each]


def _content(content: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    match content.get("type"):
        case "text":
            return {**content, "text": turn.text(text_of(content.get("text")))}
        case "image" | "audio" | "video" | "document" as kind if isinstance(content.get("data"), str):
            return _inline(kind, content, turn)
        case "image" | "audio" | "video" | "document" as kind if isinstance(content.get("uri"), str):
            return _by_address(kind, content, turn)
        case kind:
            named = text_of(kind) or "content"
            turn.add(account(named, named, input={k: v for k, v in content.items() if k != "type"}))
            losses.append(_unknown(where, named))
            return content


def _inline(kind: str, content: dict[str, Any], turn: VendorTurn) -> Any:
    declared = text_of(content.get("mime_type")) or MEDIA[kind]
    data = text_of(content["data"])
    held = inline(data_url(declared, data.replace("-", "+").replace("_", "/")))
    if held is None:
        turn.add(account(kind, declared))
        return content
    named = held.media_type if ";" not in declared else declared
    block = (Image if named.startswith("image/") else File)(data_url(held.media_type, held.base64), named)
    exact = {} if named == declared else {"mime_type": named}
    return {**content, **exact, "data": turn.media(block, base64=True)}


def _by_address(kind: str, content: dict[str, Any], turn: VendorTurn) -> Any:
    uri, named = text_of(content["uri"]), text_of(content.get("mime_type")) or MEDIA[kind]
    block = Image if kind == "image" else File
    if uri.startswith(FILES):
        turn.add(block(f"file-id://google/{uri}", named))
        return content
    return {**content, "uri": turn.media(block(uri, named))}


def _thought(step: dict[str, Any], turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    if "summary" not in step:
        return step
    shells: list[Any] = []
    for at, each in enumerate(items_of(step["summary"])):
        content = object_of(each)
        if content.get("type") in (None, "text"):
            shells.append({**content, "text": turn.reasoning(text_of(content.get("text")))})
        else:
            shells.append(_content(content, turn, losses, f"{where}.summary[{at}]"))
    return {**step, "summary": shells}


def _call(step: dict[str, Any], turn: VendorTurn, where: str) -> Any:
    name, arguments = step.get("name"), step.get("arguments")
    if not isinstance(name, str) or not name:
        raise malformed(where, "is a call that names no tool")
    if not isinstance(arguments, str):  # text is what was left of arguments that were cut off
        arguments = json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    at = turn.call(text_of(step.get("id")), name, arguments)
    rest = {key: value for key, value in step.items() if key not in ("id", "name", "arguments")}
    return {**rest, CALL: at}


def _server_step(kind: str, step: dict[str, Any], turn: VendorTurn) -> None:
    tool = text_of(step.get("name")) or kind.removesuffix("_call").removesuffix("_result")
    server = text_of(step.get("server_name"))
    name = f"{server}/{tool}" if server else tool
    known = {"type", "id", "call_id", "signature", "name", "server_name", "arguments", "result"}
    rest = {key: value for key, value in step.items() if key not in known} or None
    if kind.endswith("_result"):
        turn.add(account(kind, name, result=step.get("result", rest)))
    else:
        turn.add(account(kind, name, input=step.get("arguments", rest)))


def _unknown(where: str, kind: str) -> Loss:
    why = "its kind is not known; it is kept as it came for Google"
    return Loss(kind="converted", where=where, what=kind, why=why)


# Not the key of generateContent: a thought's signature is on another part there, and neither API takes
# what the other signed.
VENDOR = "google-interactions"
DEFAULT_ENDPOINT = "google"


def parse(body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
    """Return the answer that an interaction holds."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unreadable(
            "not_an_answer",
            f"this is no answer of the Interactions API: it is a {type(body).__name__}, not an object",
        )
    error = object_of(body.get("error"))
    if error:
        said = f"{error.get('status') or error.get('code')}: {error.get('message')}"
        raise unreadable("error_answer", f"this is no answer of the Interactions API: it is an error, {said}")
    if not isinstance(body.get("status"), str) or not isinstance(body.get("steps", []), list):
        raise unreadable(
            "not_an_answer",
            "this is no answer of the Interactions API: it has no 'status', or no list 'steps'",
        )
    return reply_of(body, provider=provider)


def reply_of(
    body: Mapping[str, Any],
    *,
    provider: str | None = None,
    events: Sequence[ModelEvent] | None = None,
    losses: Sequence[Loss] = (),
) -> Reply:
    """Return the answer; `events` are those that a stream has yielded already."""
    turn, found = VendorTurn(), list(losses)
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
    """Return the id by which an interaction is fetched that the server still works on; None: it does not."""
    is_working = body.get("status") in ("queued", "in_progress")
    return text_of(body.get("id")) or None if is_working else None


def _stop_kind(steps: Sequence[Mapping[str, Any]]) -> StopKind | None:
    """Return `failed` if a step of the model ended in an error, which the status may not report."""
    return (
        "failed" if any(step.get("type") == "model_output" and step.get("error") for step in steps) else None
    )


def _usage(usage: dict[str, Any]) -> Usage:
    """Return the usage; Gemini counts thoughts beside the output, and what its own tools read beside the input."""
    thoughts = count_of(usage.get("total_thought_tokens"))
    return Usage(
        input_tokens=count_of(usage.get("total_input_tokens")) + count_of(usage.get("total_tool_use_tokens")),
        output_tokens=count_of(usage.get("total_output_tokens")) + thoughts,
        cached_tokens=count_of(usage.get("total_cached_tokens")),
        reasoning_tokens=thoughts,
    )


_ENDS = ("completed", "requires_action", "failed", "cancelled", "incomplete", "budget_exceeded")


class Stream:
    """Parses a streamed answer."""

    def __init__(self, *, provider: str | None = None) -> None:
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
        """Return the events that these next bytes complete."""
        return self._take_all(self._frames.feed(data))

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
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
            raise unreadable(
                "stream_without_answer",
                f"the stream of the Interactions API was cut off before anything was whole{said}",
            )
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
            self._tell(TextChunk(text_of(object_of(content).get("text"))))
        for content in items_of(step.get("summary")):
            self._tell(ReasoningChunk(text_of(object_of(content).get("text"))))

    def _grow(self, at: int, delta: dict[str, Any]) -> None:
        if at not in self._steps:
            self._begin(at, {"type": "model_output"})
        step = self._steps[at]
        match delta.get("type"):
            case "text":
                words = text_of(delta.get("text"))
                self._growing.add(_last_text(step), "text", words)
                self._tell(TextChunk(words))
            case "text_annotation" | "text_annotation_delta":
                _last_text(step).setdefault("annotations", []).extend(items_of(delta.get("annotations")))
            case "thought_summary":
                content = object_of(delta.get("content"))
                step.setdefault("summary", []).append(content)
                self._tell(ReasoningChunk(text_of(content.get("text"))))
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

    def _tell(self, delta: TextChunk | ReasoningChunk) -> None:
        if delta.text:
            self._events.append(delta)

    def _lose(self, what: str, why: str, kind: str = "converted") -> None:
        loss = Loss(kind=kind, where="stream", what=what, why=why)  # pyright: ignore[reportArgumentType]
        self._losses.append(loss)


def _last_text(step: dict[str, Any]) -> dict[str, Any]:
    """Return the last text of a step; a new one if the step ends with something else."""
    contents: list[Any] = step.setdefault("content", [])
    if not contents or object_of(contents[-1]).get("type") != "text":
        contents.append({"text": "", "type": "text"})
    return contents[-1]


def _parsed(text: str) -> Any:
    """Return arguments as an object; as text if they are none."""
    value = json_or_text(text)
    return cast("object", value) if isinstance(value, dict) else text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _event(frame: ServerEvent) -> dict[str, Any]:
    try:
        event = object_of(json.loads(frame.data))
    except (ValueError, RecursionError) as error:
        raise unreadable(
            "stream_malformed", f"the stream of the Interactions API holds an event that is no JSON: {error}"
        ) from error
    if not event:
        raise unreadable(
            "stream_malformed", "the stream of the Interactions API holds an event that is no JSON object"
        )
    return event if event.get("event_type") else {**event, "event_type": frame.name}
