"""Finds the wire format of a saved conversation by its content.

Each sign is a field that one format alone has.  A conversation of plain words has none: it is the same in several
formats, and a person has to name the one that is meant.  A call with its arguments as text is taken for
`openai-chat`, whose dialects write it in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from perdure.providers import registry

__all__ = ["formats_of"]

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


def formats_of(given: object) -> tuple[str, ...]:
    """Return the formats that a request, a reply or a list of messages can have: one alone if its content decides.

    None at all: nothing in it looks like a message.
    """
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
