"""Translates between Ollama's native chat and OpenAI's Chat, in both directions.

native                                   Chat
message.thinking                         message.reasoning_content
message.images: [base64]                 parts of the kind image_url
tool_calls[].function.arguments: {…}     the same as JSON text
tool_name                                name
options: {num_predict, seed, …}          max_tokens, seed, … at the top; what Chat lacks stays in `options`
format, think                            response_format, thinking or reasoning_effort; `settings` writes them
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, cast

from perdure.model.artifact import sniff
from perdure.providers.openai_chat.vendor_fields import objects_of
from perdure.providers.wire.fields.vendor_items import items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import id_of_tool

__all__ = ["chat_answer", "chat_chunk", "chat_request", "native_request"]

# Chat's names of what stands in `options` here; all other options of Ollama's stay where they are.
_OPTIONS = {
    "max_tokens": "num_predict",
    **{name: name for name in ("temperature", "top_p", "top_k", "seed", "stop")},
    **{name: name for name in ("presence_penalty", "frequency_penalty")},
}
_ANSWER = frozenset({"message", "done", "done_reason", "prompt_eval_count", "eval_count", "error", "model"})


def native_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """A Chat request as a native one; its form of the answer and its thinking are `native_settings`."""
    rest = dict(body)
    native: dict[str, Any] = {
        "model": rest.pop("model", ""),
        "messages": _named([_native_message(each) for each in objects_of(rest.pop("messages", []))]),
        "stream": rest.pop("stream", False),
    }
    options = dict(object_of(rest.pop("options", None)))
    options |= {_OPTIONS[name]: rest.pop(name) for name in tuple(rest) if name in _OPTIONS}
    return {**native, **rest, **({"options": options} if options else {})}


def chat_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """A native request as a Chat one."""
    chat = {name: value for name, value in body.items() if name not in ("messages", "format", "think")}
    chat.setdefault("stream", True)  # which is what Ollama does where a request does not say
    if isinstance(body.get("options"), dict):
        options = dict(object_of(chat.pop("options")))
        if options.get("num_predict") in (-1, -2):  # no limit, or as much as the context holds
            chat["options"] = {"num_predict": options.pop("num_predict")}
        chat |= {name: options.pop(own) for name, own in _OPTIONS.items() if own in options}
        if options:
            chat["options"] = {**object_of(chat.get("options")), **options}
    messages: object = body.get("messages")
    chat["messages"] = messages  # what is no list is left for Chat's reader to refuse
    if isinstance(messages, list):
        chat["messages"] = _paired([_chat_message(each) for each in cast("list[object]", messages)])
    match body.get("format"):
        case "json":
            chat["response_format"] = {"type": "json_object"}
        case dict():
            chat["response_format"] = {"type": "json_schema", "json_schema": {"schema": body["format"]}}
        case _:
            pass
    match body.get("think"):
        case bool(enabled):
            chat["thinking"] = {"type": "enabled" if enabled else "disabled"}
        case str(effort):
            chat["reasoning_effort"] = effort
        case _:
            pass
    return chat


def chat_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole native answer as one of Chat."""
    if isinstance(body.get("error"), str):
        return {"error": {"message": body["error"]}}
    if not isinstance(body.get("message"), dict):
        return {}
    message = _chat_message(body["message"])
    calls = [call | {"type": "function"} for call in items_of(message.pop("tool_calls", []))]
    told = message | ({"tool_calls": calls} if calls else {})
    return _told(body) | {
        "choices": [{"index": 0, "message": told, "finish_reason": body.get("done_reason")}],
    }


def chat_chunk(chunk: Mapping[str, Any], calls_before: int) -> dict[str, Any]:
    """One piece of a native stream as a chunk of Chat; `calls_before` is how many calls were told before."""
    if isinstance(chunk.get("error"), str):
        return {"error": {"message": chunk["error"]}}
    delta = _chat_message(chunk.get("message") or {})
    calls = [object_of(each) for each in items_of(delta.pop("tool_calls", []))]
    if calls:
        delta["tool_calls"] = [call | {"index": calls_before + at} for at, call in enumerate(calls)]
    reason = chunk.get("done_reason") or "stop" if chunk.get("done") else None
    told = _told(chunk) if chunk.get("done") else {"model": chunk.get("model")}
    return told | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def _paired(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with an id for each call and result; a result without one is that of the first open call.

    A result that names its tool is that of the first open call of this tool.
    """
    waiting: dict[tuple[str, str], deque[str]] = defaultdict(deque)
    answered: set[str] = set()
    tools: dict[str, str] = {}
    for at, message in enumerate(messages):
        for number, call in enumerate(objects_of(message.get("tool_calls"))):
            call["id"] = id = text_of(call.get("id")) or f"call_{at}_{number}"
            tools[id] = text_of(object_of(call.get("function")).get("name"))
            waiting["any", ""].append(id)
            waiting["tool", tools[id]].append(id)
        if message.get("role") != "tool":
            continue
        name = text_of(message.get("name"))
        candidates = waiting["tool", name] if name else waiting["any", ""]
        while not message.get("tool_call_id") and candidates:
            id = candidates.popleft()
            if id not in answered:
                message["tool_call_id"] = id
        if name and not message.get("tool_call_id"):
            message["tool_call_id"] = id_of_tool(name)  # its call came before these messages
        own = text_of(message.get("tool_call_id"))
        answered.add(own)
        if tools.get(own) == name:
            message.pop("name", None)  # the call says it
    return messages


def _named(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the name of its tool in each result: templates of models show it."""
    names: dict[str, str] = {}
    for message in messages:
        for call in objects_of(message.get("tool_calls")):
            names[text_of(call.get("id"))] = text_of(object_of(call.get("function")).get("name"))
        if message.get("role") == "tool" and (name := names.get(text_of(message.get("tool_call_id")))):
            message["tool_name"] = name
    return messages


def _told(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer tells beside its message."""
    beside = {name: value for name, value in body.items() if name not in _ANSWER}
    usage = {"prompt_tokens": body.get("prompt_eval_count"), "completion_tokens": body.get("eval_count")}
    return {**beside, "model": body.get("model"), "usage": usage}


def _native_message(message: dict[str, Any]) -> dict[str, Any]:
    native = {name: value for name, value in message.items() if name not in ("content", "tool_calls", "name")}
    parts = objects_of(message.get("content"))
    words = [text_of(part.get("text")) for part in parts if part.get("type") == "text"]
    native["content"] = "\n\n".join(words) if parts else text_of(message.get("content"))
    images = [_bytes_of(part) for part in parts if part.get("type") == "image_url"]
    if images:
        native["images"] = images
    if "reasoning_content" in native:
        native["thinking"] = native.pop("reasoning_content")
    if message.get("name") and message.get("role") == "tool":
        native["tool_name"] = message["name"]
    calls = [object_of(call) for call in items_of(message.get("tool_calls"))]
    if calls:
        native["tool_calls"] = [_native_call(call) for call in calls]
    return native


def _native_call(call: dict[str, Any]) -> dict[str, Any]:
    function = object_of(call.get("function"))
    rest = {name: value for name, value in call.items() if name not in ("type", "function", "index")}
    return rest | {"function": function | {"arguments": _object(function.get("arguments"))}}


def _chat_message(message: object) -> dict[str, Any]:
    """A native message as one of Chat; what is none is left for Chat's reader to refuse."""
    known = object_of(message)
    chat = {name: value for name, value in known.items() if name not in ("images", "thinking", "tool_name")}
    images = [each for each in items_of(known.get("images")) if isinstance(each, str)]
    if images:
        words = [{"type": "text", "text": known["content"]}] if known.get("content") else []
        chat["content"] = [*words, *(_image(each) for each in images)]
    if known.get("thinking"):
        chat["reasoning_content"] = known["thinking"]
    if known.get("tool_name"):
        chat["name"] = known["tool_name"]
    calls = [object_of(call) for call in items_of(known.get("tool_calls"))]
    if calls:
        chat["tool_calls"] = [_chat_call(call) for call in calls]
    return chat


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in object_of(call.get("function")).items() if name != "index"}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {**call, "type": "function", "function": function | {"arguments": text}}


def _image(data: str) -> dict[str, Any]:
    try:
        kind = sniff(base64.b64decode(data[:64]), whole=False)
    except ValueError:
        kind = ""
    kind = kind if kind.startswith("image/") else "image/png"
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _bytes_of(part: dict[str, Any]) -> str:
    return text_of(object_of(part.get("image_url")).get("url")).partition(";base64,")[2]


def _object(arguments: object) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments or {}
    except (ValueError, RecursionError):
        return {}
