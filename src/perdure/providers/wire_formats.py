"""Reads what a program has of a conversation: objects of vendors' SDKs as JSON, and the wire format that it is in.

An object is known by what it can do, `model_dump`, so no SDK is imported; its package names the format.  In JSON each sign is a field that one format alone has.  A conversation of plain words has none: it is the same in several
formats, and a person has to name the one that is meant.  A call with its arguments as text is taken for
`openai-chat`, whose dialects write it in the same way.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, cast

from perdure.providers import registry

__all__ = ["as_json", "formats_of"]

_DEPTH_MAX = 200  # below it nothing is an object of an SDK
_PACKAGES = {  # of the classes of SDKs
    "openai.types.chat": "openai-chat",
    "openai.types.responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "google.genai": "gemini-generate",
    "mistralai": "mistral-chat",
    "ollama": "ollama-chat",
}
_OF_A_HELPER = frozenset(
    {"parsed", "parsed_arguments"}
)  # what an SDK made of an answer; no API takes it back

_CHATS = ("openai-chat", "anthropic-messages", "mistral-chat", "azure-inference-chat", "ollama-chat")
_BODIES = {
    "contents": "gemini-generate",
    "candidates": "gemini-generate",
    "choices": "openai-chat",
    "previous_response_id": "openai-responses",
    "previous_interaction_id": "gemini-interactions",
    "anthropic_version": "anthropic-messages",
    "stop_reason": "anthropic-messages",
    "inferenceConfig": "bedrock-converse",
    "toolConfig": "bedrock-converse",
    "stopReason": "bedrock-converse",
}
_FIELDS = ("output", "steps", "content", "message")  # of replies whose format their content does not decide
_ITEMS = ("function_call", "function_call_output")
_BLOCKS = {
    "tool_use": "anthropic-messages",
    "tool_result": "anthropic-messages",
    "redacted_thinking": "anthropic-messages",
    "image_url": "openai-chat",
    "input_audio": "openai-chat",
    "input_text": "openai-responses",
    "output_text": "openai-responses",
}
_UNTYPED = ("toolUse", "toolResult", "reasoningContent", "text")


def as_json(given: object, depth: int = 0) -> object:
    """Return `given` with each object of an SDK as the JSON that its API has; what is none stays as it is.

    Fields without a value are left out, as the SDKs do.
    """
    if depth > _DEPTH_MAX or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        fields = cast("Mapping[Any, object]", given)
        return {name: as_json(held, depth + 1) for name, held in fields.items()}
    if isinstance(given, list | tuple):
        return [as_json(held, depth + 1) for held in cast("Sequence[object]", given)]
    if isinstance(given, Enum):
        return given.value
    if isinstance(given, datetime):
        return given.isoformat().replace("+00:00", "Z")
    if isinstance(given, bytes | bytearray) and depth:
        return b64encode(given).decode()
    if not _is_of_an_sdk(given):
        return given
    # Bytes stay bytes, because pydantic writes them with the letters of URLs.
    made = cast("Any", given).model_dump(mode="python", by_alias=True, exclude_none=True, warnings=False)
    if type(given).__name__.startswith("Parsed") and isinstance(made, dict):
        made = _without_helpers(cast("dict[str, Any]", made))
    return as_json(made, depth + 1)


def _is_of_an_sdk(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "model_dump", None))


def _without_helpers(made: Any) -> Any:
    if isinstance(made, dict):
        fields = cast("dict[str, Any]", made)
        return {name: _without_helpers(held) for name, held in fields.items() if name not in _OF_A_HELPER}
    return [_without_helpers(each) for each in cast("list[Any]", made)] if isinstance(made, list) else made


def _packages(given: object, depth: int = 0) -> Iterator[str]:
    """Yield the formats of the SDKs whose objects are in `given`."""
    if _is_of_an_sdk(given):
        name = type(given).__module__
        yield from (api for package, api in _PACKAGES.items() if f"{name}.".startswith(f"{package}."))
    elif depth < _DEPTH_MAX and isinstance(given, Mapping):
        for held in cast("Mapping[Any, object]", given).values():
            yield from _packages(held, depth + 1)
    elif depth < _DEPTH_MAX and isinstance(given, list | tuple):
        for held in cast("Sequence[object]", given):
            yield from _packages(held, depth + 1)


def formats_of(given: object) -> tuple[str, ...]:
    """Return the formats that a request, a reply or a list of messages can have: one alone if its content decides.

    None at all: nothing in it looks like a message.
    """
    known = dict.fromkeys(_packages(given))
    if known:
        return tuple(known)
    body = _mapping(given)
    signs = dict.fromkeys((*_signs_of_body(body), *_signs_of_messages(_messages(given))))
    if signs:
        return tuple(signs)
    if "input" in body:
        return "openai-responses", "gemini-interactions"
    if set(body) <= {"messages"} and all(map(_is_plain, messages := _messages(given))) and messages:
        return ("openai-chat",)  # it means the same in each of them
    if "messages" in body or any("role" in each for each in _messages(given)):
        return _CHATS
    fits = any(field in body for field in _FIELDS) or any(
        field in each for each in _messages(given) for field in ("content", "parts", "type")
    )
    return registry.APIS if fits else ()


def _is_plain(message: Mapping[str, Any]) -> bool:
    """True for words of the system, the user or the assistant alone."""
    has_words = set(message) == {"role", "content"} and isinstance(message["content"], str)
    return has_words and message["role"] in ("system", "user", "assistant")


def _messages(given: object) -> list[Mapping[str, Any]]:
    body = _mapping(given)
    for field in ("messages", "input", "output", "content"):
        if isinstance(body.get(field), list):
            found = cast("list[object]", body[field])
            return [{"content": found}] if field == "content" else [_mapping(each) for each in found]
    listed = _list(given)
    return [_mapping(each) for each in listed]


def _signs_of_body(body: Mapping[str, Any]) -> Iterator[str]:
    yield from (api for field, api in _BODIES.items() if field in body)
    yield from ("anthropic-messages" for tool in _list(body.get("tools")) if "input_schema" in _mapping(tool))


def _signs_of_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        if (
            message.get("type") in _ITEMS
            and "call_id" in message
            and isinstance(message.get("arguments", ""), str)
        ):
            yield "openai-responses"
        if "parts" in message:
            yield "gemini-generate"
        if message.get("role") == "tool" and ("tool_call_id" in message or "tool_name" in message):
            yield "ollama-chat" if "tool_name" in message else "openai-chat"
        for call in _list(message.get("tool_calls")):
            arguments = _mapping(_mapping(call).get("function")).get("arguments")
            if isinstance(arguments, str | dict):
                yield "openai-chat" if isinstance(arguments, str) else "ollama-chat"
        yield from _signs_of_blocks([_mapping(block) for block in _list(message.get("content"))])


def _signs_of_blocks(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in blocks:
        kind = block.get("type")
        if isinstance(kind, str) and kind in _BLOCKS:
            yield _BLOCKS[kind]
        if kind is None and any(field in block for field in _UNTYPED):
            yield "bedrock-converse"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
