"""Answers of the Gemini API, read.

Parts of the Gemini API, read: each adds its blocks and calls to a turn and leaves a shell.

Names of fields: the API takes camelCase and snake_case alike; here they are camelCase.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.message import File, Image, Message
from perdure.model.run import Usage
from perdure.providers.contract import Loss, ModelEvent, Reply
from perdure.providers.gemini.portable_parts import plain_parts
from perdure.providers.wire.fields.vendor_items import VendorTurn, is_list, items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import count_of, with_events

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
]


_SNAKE = re.compile(r"_([a-z0-9])")


def camel(value: object) -> dict[str, Any]:
    """An object with its own names in camelCase; what they hold stays as it is."""
    return {_name(name): held for name, held in object_of(value).items()}


def camel_all(value: Any) -> Any:
    """A value with all names in it in camelCase; only for what holds no words and no schemas of others."""
    if isinstance(value, dict):
        return {_name(name): camel_all(held) for name, held in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [camel_all(held) for held in cast("list[Any]", value)]
    return value


def listed(value: object) -> list[Any]:
    """A repeated field: where it holds one thing, the API takes it without the list."""
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
    """A part with all of the API's own names in camelCase."""
    if isinstance(part, str):
        return {"text": part}
    told = camel(part)
    if not told:
        raise Invalid(f"{where} is no part of the Gemini API: it is {type(part).__name__}, not an object.")
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
    """Add what a part says to its turn; its shell.  What a model says piece by piece is one text."""
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
        raise Invalid(f"{where} is a call that names no tool.")
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
    """The answer that a response holds; also the list of responses that a stream is without `alt=sse`."""
    from perdure.providers.gemini.stream import GeminiStream

    if is_list(body):
        stream = GeminiStream(provider=provider)
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
