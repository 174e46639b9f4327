"""Builds the adapter for Ollama's native chat, which translates to and from OpenAI's Chat.

Ollama has fields of its own for the form of the answer and for thinking.  It has no choice of tools, and only
`gpt-oss` takes levels of thinking: any other model takes on or off.  A native stream is one JSON object a line;
each becomes a chunk for the parser of Chat.

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
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import msgspec

from perdure.errors import Invalid
from perdure.model.artifact import sniff
from perdure.model.context import Context
from perdure.model.message import Image, Text
from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.contract import Asked, Loss, ModelEvent, Rendered, Reply, StreamParser, losses_of
from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.openai_chat.servers import CAPABILITIES as CHAT
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import objects_of
from perdure.providers.wire.fields.vendor_items import items_of, object_of, text_of
from perdure.providers.wire.fields.vendor_metadata import id_of_tool
from perdure.providers.wire.malformed import unreadable
from perdure.providers.wire.nesting import GuardedStream, check_depth, too_deep
from perdure.providers.wire.sanitize import detached, sendable

__all__ = [
    "CAPABILITIES",
    "SERVERS",
    "ADAPTER",
    "OllamaAdapter",
    "APART",
    "native_settings",
    "NativeStream",
    "chat_answer",
    "chat_chunk",
    "chat_request",
    "native_request",
]

_OLLAMA = Server(
    empty_content="",
    reasoning=("reasoning_content",),  # `thinking` on the wire
    web_images=False,
    files="",
    audio="none",
    refused=frozenset({"n", "user", "metadata", "parallel_tool_calls"}),
    top_k=True,
    strict="none",
    parses_arguments=True,
)

SERVERS = {"": _OLLAMA, "ollama": _OLLAMA, "ollama-cloud": _OLLAMA}

CAPABILITIES: Levels = {
    **CHAT,
    Capability.IMAGE_URLS: "none",
    Capability.DOCUMENTS: "none",
    Capability.AUDIO: "none",
    Capability.TOOL_CHOICE: "none",
    Capability.STRICT_TOOLS: "none",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.REFUSALS: "lossy",
    Capability.CHOICES: "none",
    Capability.PROMPT_CACHE: "none",
    Capability.TOP_K: "full",
}


APART = frozenset({"output", "reasoning", "tool_choice"})  # the options that are read here

_LEVELS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_BUDGETS = ((1_024, "low"), (8_192, "medium"))  # the most tokens of each level


def native_settings(options: Mapping[str, Any], model: str) -> tuple[dict[str, Any], list[Loss]]:
    """Return the fields of a request for these options, and what they do not hold."""
    losses: list[Loss] = []
    fields: dict[str, Any] = {}
    if (wanted := _format(options.get("output"), losses)) is not None:
        fields["format"] = wanted
    reasoning = object_of(options.get("reasoning"))
    asked = {name: value for name, value in reasoning.items() if value is not None}
    has_levels = re.search(r"(^|[/_-])gpt-?oss(?![a-z])", model, re.IGNORECASE) is not None
    if asked and (think := _level(asked, losses) if has_levels else _switch(asked, losses)) is not None:
        fields["think"] = think
    if options.get("tool_choice") not in (None, "auto"):
        why = "there is no such option here: the model decides"
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    return fields, losses


def _format(output: object, losses: list[Loss]) -> Any:
    if output is None or output == "json":
        return output
    asked = object_of(output)
    if not isinstance(asked.get("schema"), dict):
        why = "it is neither 'json' nor a schema"
        losses.append(_loss("dropped", "options.output", "output form", why))
        return None
    losses.extend(
        _loss("dropped", f"options.output.{name}", name, "an output's schema stands alone here")
        for name in ("name", "description", "strict")
        if asked.get(name) is not None
    )
    return asked["schema"]


def _level(asked: dict[str, Any], losses: list[Loss]) -> str | None:
    """Return the level of thinking for a model with levels, which cannot turn it off."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    level = _LEVELS.get(str(effort))
    if effort is not None and level is None:
        why = f"'{effort}' is no level of this model"
        losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
    elif level is not None and level != effort:
        why = f"'{effort}' said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        size = budget if isinstance(budget, int | float) else 0
        level = level or next((word for most, word in _BUDGETS if size <= most), "high")
        why = f"said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if level is None and enabled is not None:
        level = "medium" if enabled else "low"
        why = f"said as '{level}': this model always thinks"
        losses.append(_loss("converted", "options.reasoning.enabled", "reasoning", why))
    return level


def _switch(asked: dict[str, Any], losses: list[Loss]) -> bool | None:
    """True if a model without levels thinks."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    why = "this model thinks or does not, with no level to choose"
    if effort not in (None, "none"):
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if enabled is not None:
        return bool(enabled)
    return None if effort is None and budget is None else effort != "none" and budget != 0


def _drop(rest: dict[str, Any], losses: list[Loss]) -> None:
    losses.extend(
        _loss("dropped", f"options.reasoning.{name}", f"reasoning {name}", "there is no such option here")
        for name in rest
    )


def _loss(kind: Literal["converted", "dropped"], where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)


class NativeStream:
    """Parses a streamed answer."""

    def __init__(self, chat: StreamParser) -> None:
        """Read into Chat's own parser."""
        self._chat = chat
        self._line = bytearray()
        self._calls = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        *whole, rest = data.split(b"\n")
        told: list[ModelEvent] = []
        for line in whole:
            told += self._take(bytes(self._line) + line)
            self._line.clear()
        self._line += rest
        return told

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        with suppress(Invalid):  # the last line may have been cut off
            self._take(bytes(self._line))
        return self._chat.close()

    def _take(self, line: bytes) -> list[ModelEvent]:
        if not line.strip():
            return []
        try:
            chunk: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise unreadable(
                "stream_malformed", f"a line of this ollama-chat stream is not JSON: {error}"
            ) from error
        if not isinstance(chunk, dict):
            raise unreadable("stream_malformed", "a line of this ollama-chat stream is no object")
        known = object_of(cast("object", chunk))
        event = chat_chunk(known, self._calls)
        self._calls += len(items_of(object_of(known.get("message")).get("tool_calls")))
        told = self._chat.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        if known.get("done"):
            told += self._chat.feed(b"data: [DONE]\n\n")
        return told


_API = "ollama-chat"
_CHAT = ChatAdapter(api=_API, vendor="ollama", provider="ollama", servers=SERVERS, capabilities=CAPABILITIES)


class OllamaAdapter(msgspec.Struct, frozen=True):
    """Ollama's `/api/chat`."""

    @property
    def api(self) -> str:
        """Return its name."""
        return _API

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """Return a request that the server accepts, for any history."""
        try:
            shown, early = detached(context)
            plain = {name: value for name, value in shown.options.items() if name not in APART}
            rest = msgspec.structs.replace(shown, options=plain)
            rendered = _CHAT.render(rest, model=model, provider=provider)
            fields, late = native_settings(shown.options, model)
            late += _moved_images(context)
            body = {**native_request(rendered.body), **fields}
        except RecursionError as error:
            raise too_deep("the context", "nothing was rendered") from error
        losses = losses_of(early, rendered.losses, late)
        return sendable(msgspec.structs.replace(rendered, body=body, losses=losses))

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Asked:
        """Return the context that a request shows; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unreadable("not_a_request", f"a request is an object, not {type(body).__name__}")
        check_depth(body, "the request", "nothing was read")
        return _CHAT.read_request(chat_request(body), model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """Return the answer; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unreadable("not_an_answer", f"this is no {_API} answer but {type(body).__name__}")
        check_depth(body, "the answer", "nothing was read")
        return _CHAT.parse(chat_answer(body), provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """Return a parser for a streamed answer."""
        return GuardedStream(NativeStream(_CHAT.stream(provider=provider)))

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """Return the same as `stream`, fed with all chunks."""
        stream = self.stream(provider=provider)
        for chunk in chunks:
            stream.feed(chunk)
        return stream.close()

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """Return the level of a capability for the format, or for that model on that server."""
        return _CHAT.supports(capability, model=model, provider=provider)


def _moved_images(context: Context) -> list[Loss]:
    """Return the images that stood before words: a message has its images behind all of its words."""
    why = "the images of a message stand behind its words here"
    losses: list[Loss] = []
    for at, message in enumerate(context.messages):
        texts = [number for number, block in enumerate(message.content) if isinstance(block, Text)]
        losses.extend(
            Loss(kind="converted", where=f"messages[{at}].content[{number}]", what="media", why=why)
            for number, block in enumerate(message.content)
            if message.role == "user" and isinstance(block, Image) and texts and number < texts[-1]
            if block.uri.startswith("data:")
        )
    return losses


ADAPTER = OllamaAdapter()


# Chat's names of fields in `options` here; other options of Ollama's stay there.
_OPTIONS = {
    "max_tokens": "num_predict",
    **{name: name for name in ("temperature", "top_p", "top_k", "seed", "stop")},
    **{name: name for name in ("presence_penalty", "frequency_penalty")},
}
_ANSWER = frozenset({"message", "done", "done_reason", "prompt_eval_count", "eval_count", "error", "model"})


def native_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Chat request as a native one; its form of the answer and its thinking are `native_settings`."""
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
    """Return a native request as a Chat one."""
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
    """Return a whole native answer as one of Chat."""
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
    """Return one piece of a native stream as a chunk of Chat; `calls_before` is the number of earlier calls."""
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
    """Return the messages with an id for each call and result; a result without one is that of the first open call.

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
            message.pop("name", None)  # the call names it
    return messages


def _named(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the name of its tool in each result: templates of models show it."""
    names: dict[str, str] = {}
    for message in messages:
        for call in objects_of(message.get("tool_calls")):
            names[text_of(call.get("id"))] = text_of(object_of(call.get("function")).get("name"))
        if message.get("role") == "tool" and (name := names.get(text_of(message.get("tool_call_id")))):
            message["tool_name"] = name
    return messages


def _told(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer beside its message."""
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
    """Return a native message as one of Chat; what is none is left for Chat's reader to refuse."""
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
