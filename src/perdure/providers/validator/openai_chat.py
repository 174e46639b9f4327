"""The rules of Chat Completions and its servers, C01 to C19, of Mistral, M01 to M04, and of Ollama, O01 to O05."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any

from perdure.providers.validator.rule import (
    CheckedRequest,
    Found,
    Rule,
    items,
    not_strict,
    numbered,
    object_at,
    url_fault,
    words,
)
from perdure.providers.wire.fields.vendor_items import items_of

__all__ = ["RULES", "SHARED", "MISTRAL_RULES", "OLLAMA_RULES"]


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID_MAX = 40
_OF_OPENAI = ("openai", "azure", "azure-openai", "azure-foundry", "foundry")
_LAX = ("mistral", "huggingface")  # servers that take empty lists
_LOCAL = ("llama.cpp", "vllm", "ollama", "lmstudio", "gpustack", "local")
_OF_GROQ = frozenset(
    (
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "reasoning",
        "refusal",
        "annotations",
    )
)
_SAYING = ("content", "tool_calls", "function_call", "refusal", "audio")

Message = tuple[str, dict[str, Any]]


def _messages(request: CheckedRequest) -> list[Message]:
    return list(numbered(request.body.get("messages"), "messages"))


def _calls(message: dict[str, Any], where: str) -> list[Message]:
    return list(numbered(message.get("tool_calls"), f"{where}.tool_calls"))


def _is_openai(request: CheckedRequest) -> bool:
    return request.provider in _OF_OPENAI


def _parts(request: CheckedRequest) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every part of every message: its place, the role, and the part."""
    for where, message in _messages(request):
        for place, part in numbered(message.get("content"), f"{where}.content"):
            yield place, words(message.get("role")), part


def c01(request: CheckedRequest) -> Iterator[Found]:
    """Results without calls."""
    asked: set[str] = set()
    for where, message in _messages(request):
        if message.get("role") == "assistant":
            asked = {words(call.get("id")) for _, call in _calls(message, where)}
        elif message.get("role") == "tool":
            if words(message.get("tool_call_id")) not in asked:
                yield (
                    where,
                    f"no call of the assistant message before it is called {message.get('tool_call_id')}",
                )
        else:
            asked = set()


def c02(request: CheckedRequest) -> Iterator[Found]:
    """Calls without results."""
    waiting: dict[str, str] = {}
    for where, message in _messages(request):
        if message.get("role") == "tool":
            waiting.pop(words(message.get("tool_call_id")), None)
            continue
        yield from ((place, f"the call {id} is not answered before {where}") for id, place in waiting.items())
        waiting = {}
        if message.get("role") == "assistant":
            waiting = {words(call.get("id")): place for place, call in _calls(message, where)}
    yield from ((place, f"the call {id} is not answered") for id, place in waiting.items())


def c03(request: CheckedRequest) -> Iterator[Found]:
    """Call ids that are empty or too long."""
    longest = _ID_MAX if _is_openai(request) else 10_000
    for where, message in _messages(request):
        for place, call in _calls(message, where):
            if not 1 <= len(words(call.get("id"))) <= longest:
                yield f"{place}.id", f"it has {len(words(call.get('id')))} characters"
        if message.get("role") == "tool" and not words(message.get("tool_call_id")):
            yield f"{where}.tool_call_id", "it is empty"


def c04(request: CheckedRequest) -> Iterator[Found]:
    """Assistants that say nothing."""
    for where, message in _messages(request):
        if message.get("role") == "assistant" and all(message.get(field) is None for field in _SAYING):
            yield where, f"it has none of {', '.join(_SAYING)}"


def c05(request: CheckedRequest) -> Iterator[Found]:
    """Lists of nothing."""
    if request.provider in _LAX:
        return
    if request.body.get("tools") == []:
        yield "tools", "it is an empty list"
    for where, message in _messages(request):
        if message.get("tool_calls") == []:
            yield f"{where}.tool_calls", "it is an empty list"


def c06(request: CheckedRequest) -> Iterator[Found]:
    """Choices among tools that are not there."""
    tools = items(request.body.get("tools"))
    if not tools:
        for field in ("tool_choice", "parallel_tool_calls"):
            if request.body.get(field) is not None:
                yield field, "no tools are declared"
        return
    named = {words(object_at(tool, "function", "custom").get("name")) for tool in tools}
    choice = object_at(request.body, "tool_choice")
    name = object_at(choice, "function", "custom").get("name")
    if name is not None and words(name) not in named:
        yield "tool_choice", f"no declared tool is called {name}"


def c07(request: CheckedRequest) -> Iterator[Found]:
    """Names of functions."""
    named = list(numbered(request.body.get("tools"), "tools"))
    for where, message in _messages(request):
        named += _calls(message, where)
    for where, each in named:
        name = object_at(each, "function").get("name")
        if each.get("function") is not None and not _NAME.fullmatch(words(name)):
            yield f"{where}.function.name", f"{name!r} is no name of 1 to 64 characters of [a-zA-Z0-9_-]"


def c08(request: CheckedRequest) -> Iterator[Found]:
    """Messages and content of nothing."""
    if not _messages(request):
        yield "messages", "there are none"
    for where, message in _messages(request):
        if message.get("content") == [] and request.provider not in _LAX:
            yield f"{where}.content", "it is an empty list"


def c09(request: CheckedRequest) -> Iterator[Found]:
    """Pictures that cannot be looked at."""
    for where, _, part in _parts(request):
        if part.get("type") == "image_url":
            image = part.get("image_url")
            fault = url_fault(
                image if isinstance(image, str) else words(object_at(part, "image_url").get("url"))
            )
            if fault:
                yield where, fault


def c10(request: CheckedRequest) -> Iterator[Found]:
    """Pictures where there may be none."""
    for where, role, part in _parts(request):
        if part.get("type") == "image_url" and role != "user":
            yield where, f"it is an image in a message of role {role}"


def c11(request: CheckedRequest) -> Iterator[Found]:
    """A request for JSON without the word in any message."""
    if object_at(request.body, "response_format").get("type") != "json_object" or not _is_openai(request):
        return
    said = json.dumps([message.get("content") for _, message in _messages(request)], ensure_ascii=False)
    if "json" not in said.lower():
        yield "response_format", 'it is json_object, and no message has the word "json"'


def c12(request: CheckedRequest) -> Iterator[Found]:
    """Strict schemas that are not strict."""
    for where, tool in numbered(request.body.get("tools"), "tools"):
        function = object_at(tool, "function")
        if function.get("strict") is True and _is_openai(request):
            yield from not_strict(function.get("parameters"), f"{where}.function.parameters")
    wanted = object_at(object_at(request.body, "response_format"), "json_schema")
    if wanted.get("strict") is True and _is_openai(request):
        yield from not_strict(wanted.get("schema"), "response_format.json_schema.schema")


def c13(request: CheckedRequest) -> Iterator[Found]:
    """Calls that are answered twice."""
    seen: set[str] = set()
    for where, message in _messages(request):
        if message.get("role") != "tool":
            seen = set()
            continue
        id = words(message.get("tool_call_id"))
        if id in seen:
            yield where, f"the call {id} has been answered already"
        seen.add(id)


def c14(request: CheckedRequest) -> Iterator[Found]:
    """Arguments that are no JSON object."""
    for where, message in _messages(request):
        for place, call in _calls(message, where):
            given = object_at(call, "function").get("arguments")
            if call.get("function") is not None and not _is_object(given):
                yield f"{place}.function.arguments", "it is no JSON object in a string"


def _is_object(given: object) -> bool:
    try:
        return isinstance(given, str) and isinstance(json.loads(given), dict)
    except (ValueError, RecursionError):
        return False


def c15(request: CheckedRequest) -> Iterator[Found]:
    """Developers where there are none."""
    for where, message in _messages(request):
        if message.get("role") == "developer" and not _is_openai(request):
            yield where, f"{request.provider} may not know the role developer"


def c16(request: CheckedRequest) -> Iterator[Found]:
    """What local chat templates do not take."""
    if request.provider not in _LOCAL:
        return
    before = ""
    for at, (where, message) in enumerate(_messages(request)):
        role = words(message.get("role"))
        if role in ("system", "developer") and at:
            yield where, "a system message stands behind others"
        if role == before and role in ("user", "assistant"):
            yield where, f"two {role} messages follow each other"
        before = role


def c17(request: CheckedRequest) -> Iterator[Found]:
    """Fields that Groq does not know."""
    if request.provider != "groq":
        return
    for where, message in _messages(request):
        for field in message.keys() - _OF_GROQ:
            yield f"{where}.{field}", "Groq refuses fields of messages that it does not know"


def c18(request: CheckedRequest) -> Iterator[Found]:
    """Reasoning that DeepSeek wants back."""
    thinks = object_at(request.body, "thinking").get("type") == "enabled" or "reasoner" in request.model
    if request.provider != "deepseek" or not thinks:
        return
    for where, message in _messages(request):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            yield where, "it has tool calls, but no reasoning_content"


def c19(request: CheckedRequest) -> Iterator[Found]:
    """Pictures that Ollama does not fetch."""
    if request.provider != "ollama":
        return
    for where, _, part in _parts(request):
        url = words(object_at(part, "image_url").get("url"))
        if part.get("type") == "image_url" and not url.startswith("data:"):
            yield where, "it is an address, and Ollama takes bytes only"


RULES = (
    Rule("C01", "error", "a tool message answers a tool_call of the assistant message before it", c01),
    Rule("C02", "error", "every tool_call is answered before any other message", c02),
    Rule("C03", "error", "tool_call ids are not empty, and at most 40 characters at OpenAI", c03),
    Rule(
        "C04", "error", "an assistant message has content, tool_calls, function_call, refusal or audio", c04
    ),
    Rule("C05", "error", "tool_calls and tools are not empty arrays", c05),
    Rule(
        "C06",
        "error",
        "tool_choice and parallel_tool_calls come only with tools; a named tool_choice names a declared tool",
        c06,
    ),
    Rule("C07", "error", "function names match ^[a-zA-Z0-9_-]{1,64}$", c07),
    Rule("C08", "error", "messages is not empty; content arrays are not empty", c08),
    Rule(
        "C09", "error", "an image url is http(s) or a data URL of png, jpeg, gif or webp whose bytes fit", c09
    ),
    Rule("C10", "error", "images stand in user messages only", c10),
    Rule("C11", "error", 'json_object needs the word "json" in a message', c11),
    Rule("C12", "error", "in strict schemas every object is closed and all its properties are required", c12),
    Rule("C13", "error", "a tool_call_id is not answered twice", c13),
    Rule("C14", "warn", "tool call arguments are a JSON object in a string", c14),
    Rule(
        "C15", "warn", "there is no message with role developer for servers other than OpenAI and Azure", c15
    ),
    Rule(
        "C16",
        "warn",
        "for local chat templates there is one system message, first, and user and assistant alternate",
        c16,
    ),
    Rule("C17", "error", "for Groq messages have no unknown fields such as reasoning_content", c17),
    Rule(
        "C18",
        "warn",
        "for DeepSeek in thinking mode, assistant turns with tool calls carry reasoning_content",
        c18,
    ),
    Rule("C19", "warn", "for Ollama images are base64", c19),
)

# What Mistral and Azure's model inference demand of the same format.
SHARED = tuple(
    rule for rule in RULES if rule.code in ("C01", "C02", "C04", "C05", "C07", "C08", "C09", "C13", "C14")
)


_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _mistral_messages(request: CheckedRequest) -> list[tuple[str, dict[str, Any]]]:
    return list(numbered(request.body.get("messages"), "messages"))


def m01(request: CheckedRequest) -> Iterator[Found]:
    """Call ids of other vendors."""
    for where, message in _mistral_messages(request):
        for place, call in numbered(message.get("tool_calls"), f"{where}.tool_calls"):
            if not _ID.fullmatch(words(call.get("id"))):
                yield f"{place}.id", f"{call.get('id')!r} is not 9 characters of [a-zA-Z0-9]"


def m02(request: CheckedRequest) -> Iterator[Found]:
    """Users who cut in."""
    before = None
    for where, message in _mistral_messages(request):
        if message.get("role") == "user" and before == "tool":
            yield where, "a user message follows a tool message"
        before = message.get("role")


def m03(request: CheckedRequest) -> Iterator[Found]:
    """A last message of the assistant."""
    for where, message in _mistral_messages(request)[-1:]:
        role = message.get("role")
        if role not in ("user", "tool") and not (role == "assistant" and message.get("prefix") is True):
            yield where, f"the last message is of role {role}"


def m04(request: CheckedRequest) -> Iterator[Found]:
    """Other numbers of results than of calls."""
    asked, answered, place = 0, 0, ""
    for where, message in (*_mistral_messages(request), ("messages", {})):
        if message.get("role") == "tool":
            answered += 1
            continue
        if asked != answered:
            yield place or where, f"there are {asked} tool calls and {answered} tool messages"
        listed = message.get("tool_calls")
        asked, answered, place = len(list(numbered(listed, ""))), 0, where


MISTRAL_RULES = (
    Rule("M01", "error", "tool call ids are 9 characters of [a-zA-Z0-9]", m01),
    Rule("M02", "warn", "no user message comes right after a tool message", m02),
    Rule("M03", "error", "the last message is user or tool, or an assistant with prefix true", m03),
    Rule("M04", "error", "there are as many tool messages as tool calls", m04),
)


_ROLES = ("system", "user", "assistant", "tool")


def _ollama_messages(request: CheckedRequest) -> list[tuple[str, dict[str, Any]]]:
    return list(numbered(request.body.get("messages"), "messages"))


def o01(request: CheckedRequest) -> Iterator[Found]:
    """Roles of other formats."""
    for where, message in _ollama_messages(request):
        if message.get("role") not in _ROLES:
            yield f"{where}.role", f"{message.get('role')!r} is none of {', '.join(_ROLES)}"


def o02(request: CheckedRequest) -> Iterator[Found]:
    """Content in parts."""
    for where, message in _ollama_messages(request):
        if not isinstance(message.get("content", ""), str):
            yield f"{where}.content", "it is no text"


def o03(request: CheckedRequest) -> Iterator[Found]:
    """Images by their address."""
    for where, message in _ollama_messages(request):
        for at, image in enumerate(items_of(message.get("images"))):
            if not _is_base64(image):
                yield f"{where}.images[{at}]", "it is not base64"


def o04(request: CheckedRequest) -> Iterator[Found]:
    """Arguments as text."""
    for where, message in _ollama_messages(request):
        for place, call in numbered(message.get("tool_calls"), f"{where}.tool_calls"):
            if not isinstance(object_at(call, "function").get("arguments"), dict):
                yield f"{place}.function.arguments", "they are no object"


def o05(request: CheckedRequest) -> Iterator[Found]:
    """Tools without a name."""
    for place, tool in numbered(request.body.get("tools"), "tools"):
        if tool.get("type") != "function" or not words(object_at(tool, "function").get("name")):
            yield place, "it is no function with a name"


def _is_base64(image: object) -> bool:
    try:
        return isinstance(image, str) and bool(base64.b64decode(image, validate=True))
    except (binascii.Error, ValueError):
        return False


OLLAMA_RULES = (
    Rule("O01", "error", "a role is system, user, assistant or tool", o01),
    Rule("O02", "error", "the content of a message is text", o02),
    Rule("O03", "error", "images are base64 without an address", o03),
    Rule("O04", "error", "the arguments of a call are an object", o04),
    Rule("O05", "error", "a tool is a function with a name", o05),
)
