"""Reads answers of the Interactions API.

Reads steps of the Interactions API: each adds its blocks and calls to a turn and leaves a shell.

A step of one of Google's own tools (a search, executed code, a fetched page) is kept whole in its shell, and the
canonical message holds an account of it for other vendors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import File, Image, Message
from perdure.model.run import StopKind, Usage
from perdure.providers.contract import Loss, ModelEvent, Reply
from perdure.providers.gemini.parse import FILES
from perdure.providers.wire.fields.vendor_items import VendorTurn, is_list, items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import count_of, with_events

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
    """Add what a step of the model says to its turn; the step's shell.

    `answered` are the ids of calls whose results stand in the same answer: Google's agent carried them out.
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
            raise Invalid(f"{where} is no step of the Interactions API: it has no type.")


def read_contents(contents: object, turn: VendorTurn, losses: list[Loss], where: str) -> Any:
    """The contents of a step: one content, or a list of them."""
    if contents is not None and not object_of(contents) and not is_list(contents):
        raise Invalid(f"{where} has a content that is neither an object nor a list.")
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
        raise Invalid(f"{where} is a call that names no tool.")
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
