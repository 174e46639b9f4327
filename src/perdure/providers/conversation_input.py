"""Reads what a program has of a conversation: as JSON, in which wire format it is, and what is lost on the way.

An object of a vendor's SDK is known by what it can do, `model_dump`, so no SDK is imported; its package names the format.
Messages of frameworks become `openai-chat`.  Text that is no Unicode is repaired.

In JSON each sign of a format is a field that one format alone has.  A conversation of plain words has none: it is the
same in several formats.  The name of a model decides if its maker has one of them; else a person has to name the one that
is meant.  A call with its arguments as text is taken for `openai-chat`, whose dialects write it in the same way.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeGuard, cast

import msgspec

from perdure.errors import Invalid
from perdure.model.text import well_formed
from perdure.providers import catalog, registry
from perdure.providers.contract import Loss
from perdure.providers.framework_messages import chat_messages, is_of_framework
from perdure.providers.wire.malformed import malformed

__all__ = ["PreparedInput", "as_json", "formats_of", "prepared"]

_DEPTH_MAX = 200  # below it nothing is an object of an SDK
_PACKAGES = {  # of the classes of SDKs
    "openai.types.chat": "openai-chat",
    "openai.types.responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "google.genai": "gemini-generate",
    "mistralai": "mistral-chat",
    "ollama": "ollama-chat",
}
# What an SDK made of an answer; no API takes it back.
_OF_A_HELPER = frozenset({"parsed", "parsed_arguments"})
_OF_USE_CHAT = frozenset(
    {"id", "trigger", "messageId"}
)  # beside the messages that it sends to a program's server

_DIALECTS = ("mistral-chat", "azure-inference-chat", "ollama-chat")  # of openai-chat
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
_MAKERS = {  # of models, by the formats of their own servers
    "openai": ("openai-responses", "openai-chat"),
    "anthropic": ("anthropic-messages",),
    "google": ("gemini-interactions", "openai-chat"),
    "mistral": ("mistral-chat",),
}
_FIELDS = ("output", "steps", "content", "message")  # of replies whose format their content does not decide
_OF_BODIES = ("messages", "input", "contents", "choices", "candidates", "output", "steps", "message")
_OF_ANTHROPICS_REPLY = ("model", "stop_reason", "usage")
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
_PARTS = frozenset(  # of Gemini, each with one of these
    {
        *("text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode"),
        *("codeExecutionResult", "toolCall", "toolResponse", "thought", "thoughtSignature"),
        *("function_call", "function_response", "inline_data", "file_data", "executable_code"),
        *("code_execution_result", "tool_call", "tool_response", "thought_signature"),
    }
)


class PreparedInput(msgspec.Struct, frozen=True, kw_only=True):
    """What was given, as adapters read it."""

    value: Any
    formats: tuple[str, ...]  # that it can have
    losses: tuple[Loss, ...] = ()

    def unlike(self, format: str) -> str | None:
        """Return the format that its content decides if it is another than `format`; dialects count as one."""
        found = self.formats[0] if len(self.formats) == 1 else format
        is_dialect = found == "openai-chat" and format in _DIALECTS
        return None if found == format or is_dialect else found


def prepared(given: object) -> PreparedInput:
    """Return `given` as JSON that can be stored, and the formats that it can have."""
    plain = as_json(given)
    losses = [
        Loss(kind="repaired", where=where, what="character", why="a part of it is no text; it became U+FFFD")
        for where in _halves(plain, "")
    ]
    value = _whole(plain) if losses else plain
    value = [value] if _is_message(value) else value
    chat = chat_messages(_listed(value), losses)
    if chat is None:
        formats = tuple(dict.fromkeys(_packages(given))) or _formats(value)
        return PreparedInput(value=value, formats=formats, losses=tuple(losses))
    body = {name: held for name, held in _mapping(value).items() if name not in _OF_USE_CHAT}
    value = {**body, "messages": chat} if body else chat
    return PreparedInput(value=value, formats=("openai-chat",), losses=tuple(losses))


def _is_message(value: object) -> bool:
    """True for one message alone, which is no request and no reply: of these, Anthropic's alone has a role."""
    body = _mapping(value)
    if any(field in body for field in _OF_BODIES):
        return False
    is_reply = body.get("role") == "assistant" and any(field in body for field in _OF_ANTHROPICS_REPLY)
    return is_of_framework(body) or (isinstance(body.get("role"), str) and not is_reply)


def _listed(value: object) -> list[object]:
    return _list(_mapping(value).get("messages")) or _list(value)


def _halves(value: object, where: str, depth: int = 0) -> Iterator[str]:
    """Yield the places of texts with half a character; programs cut texts between the two."""
    if isinstance(value, str):
        if not value.isascii() and well_formed(value) is not value:
            yield where or "text"
    elif depth < _DEPTH_MAX and isinstance(value, dict):
        for name, held in cast("dict[Any, object]", value).items():
            yield from _halves(name, where, depth)
            yield from _halves(held, f"{where}.{name}".lstrip("."), depth + 1)
    elif depth < _DEPTH_MAX and isinstance(value, list):
        for at, held in enumerate(cast("list[object]", value)):
            yield from _halves(held, f"{where or 'messages'}[{at}]", depth + 1)


def _whole(value: object, depth: int = 0) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if depth > _DEPTH_MAX:
        return value
    if isinstance(value, dict):
        fields = cast("dict[Any, object]", value)
        return {_whole(name, depth): _whole(held, depth + 1) for name, held in fields.items()}
    if isinstance(value, list):
        return [_whole(held, depth + 1) for held in cast("list[object]", value)]
    return value


def as_json(given: object, where: str = "", depth: int = 0) -> object:
    """Return `given`, which is at `where`, with each object of an SDK as the JSON that its API has.

    Fields without a value are left out, as the SDKs do.  Raises `Invalid` for something in it that has no form in JSON.
    """
    if depth > _DEPTH_MAX or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        fields = cast("Mapping[Any, object]", given)
        odd = [type(name).__name__ for name in fields if not isinstance(name, str)]
        if odd:
            raise malformed(
                where or "the conversation", f"has a field whose name is of the type {odd[0]}, not text"
            )
        return {
            name: as_json(held, f"{where}.{name}".lstrip("."), depth + 1) for name, held in fields.items()
        }
    if _is_list(given):
        return [as_json(held, f"{where or 'messages'}[{at}]", depth + 1) for at, held in enumerate(given)]
    if isinstance(given, Enum):
        return as_json(given.value, where, depth)
    if isinstance(given, datetime):
        return given.isoformat().replace("+00:00", "Z")
    if isinstance(given, Decimal):
        return str(given)
    if isinstance(given, bytes | bytearray) and depth:
        return b64encode(given).decode()
    if is_dataclass(given) and not isinstance(given, type):  # messages of pydantic-ai
        held = {each.name.lstrip("_"): getattr(given, each.name) for each in fields_of(given)}
        return as_json({name: each for name, each in held.items() if each is not None}, where, depth)
    if not _is_of_an_sdk(given):
        if depth and not isinstance(given, int | float | None):
            raise malformed(where, f"is a value of the type {type(given).__name__}, which JSON does not have")
        return given
    # Bytes stay bytes, because pydantic writes them with the letters of URLs.
    made = cast("Any", given).model_dump(mode="python", by_alias=True, exclude_none=True, warnings=False)
    if type(given).__name__.startswith("Parsed") and isinstance(made, dict):
        made = _without_helpers(cast("dict[str, Any]", made))
    return as_json(made, where, depth + 1)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


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
    return prepared(given).formats


def _formats(given: object) -> tuple[str, ...]:
    body = _mapping(given)
    signs = dict.fromkeys((*_signs_of_body(body), *_signs_of_messages(_messages(given))))
    if signs:
        return tuple(signs)
    if "input" in body:
        return _of_model(body.get("model"), ("openai-responses", "gemini-interactions"))
    if "messages" in body or any("role" in each for each in _messages(given)):
        fits = _of_model(body.get("model"), _CHATS)
        is_plain = set(body) <= {"messages", "model"} and all(map(_is_plain, _messages(given)))
        # Plain words mean the same in each of them.
        return ("openai-chat",) if len(fits) > 1 and is_plain and _messages(given) else fits
    fits = any(field in body for field in _FIELDS) or any(
        field in each for each in _messages(given) for field in ("content", "parts", "type")
    )
    return registry.APIS if fits else ()


def _of_model(name: object, fits: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the formats in `fits` that the maker's own server of a model speaks; all if its name decides none.

    A size in a name is another server's, as Ollama has it.
    """
    if not isinstance(name, str) or ":" in name:
        return fits
    try:
        target = registry.find_target(name)
    except Invalid:  # several servers have it
        return fits
    if target is None:
        apis = _MAKERS.get(_maker(name), ())
    elif target.provider == "ollama":
        return fits  # which has two formats of chat
    else:
        apis = _MAKERS.get(target.provider, (target.api,))
    return tuple(api for api in fits if api in apis) or fits


def _maker(model: str) -> str:
    """Return who makes the models whose names begin with the same word, for one that the catalog does not have.

    Empty: nobody, or several, or the name has a folder, as those of servers that serve others' models.
    """
    word = _first_word(model) if "/" not in model else ""
    known = catalog.shipped().models
    found = [maker for maker in _MAKERS if word in map(_first_word, known.get(maker, {}))]
    return found[0] if word and len(found) == 1 else ""


def _first_word(model: str) -> str:
    found = re.match("[a-z]+", model.lower())
    return found[0] if found else ""


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
    return [_mapping(each) for each in _list(given)]


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
        if any(map(_is_geminis, _list(message.get("parts")) or [message.get("parts")])):
            yield "gemini-generate"
        if message.get("role") == "tool" and ("tool_call_id" in message or "tool_name" in message):
            yield "ollama-chat" if "tool_name" in message else "openai-chat"
        for call in _list(message.get("tool_calls")):
            arguments = _mapping(_mapping(call).get("function")).get("arguments")
            if isinstance(arguments, str | dict):
                yield "openai-chat" if isinstance(arguments, str) else "ollama-chat"
        yield from _signs_of_blocks([_mapping(block) for block in _list(message.get("content"))])


def _is_geminis(part: object) -> bool:
    """True for a part that Gemini knows; parts of other programs say their kind."""
    fields = _mapping(part)
    return isinstance(part, str) or ("type" not in fields and not _PARTS.isdisjoint(fields))


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
