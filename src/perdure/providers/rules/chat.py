"""What OpenAI's Chat Completions demand, and servers that speak the same format, C01 to C19."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from perdure.providers.rules.pictures import url_fault
from perdure.providers.rules.rule import Found, Request, Rule, items, numbered, object_at, words
from perdure.providers.rules.schemas import not_strict

__all__ = ["RULES", "SHARED"]

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


def _messages(request: Request) -> list[Message]:
    return list(numbered(request.body.get("messages"), "messages"))


def _calls(message: dict[str, Any], where: str) -> list[Message]:
    return list(numbered(message.get("tool_calls"), f"{where}.tool_calls"))


def _is_openai(request: Request) -> bool:
    return request.provider in _OF_OPENAI


def _parts(request: Request) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every part of every message: its place, the role, and the part."""
    for where, message in _messages(request):
        for place, part in numbered(message.get("content"), f"{where}.content"):
            yield place, words(message.get("role")), part


def c01(request: Request) -> Iterator[Found]:
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


def c02(request: Request) -> Iterator[Found]:
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


def c03(request: Request) -> Iterator[Found]:
    """Call ids that are empty or too long."""
    longest = _ID_MAX if _is_openai(request) else 10_000
    for where, message in _messages(request):
        for place, call in _calls(message, where):
            if not 1 <= len(words(call.get("id"))) <= longest:
                yield f"{place}.id", f"it has {len(words(call.get('id')))} characters"
        if message.get("role") == "tool" and not words(message.get("tool_call_id")):
            yield f"{where}.tool_call_id", "it is empty"


def c04(request: Request) -> Iterator[Found]:
    """Assistants that say nothing."""
    for where, message in _messages(request):
        if message.get("role") == "assistant" and all(message.get(field) is None for field in _SAYING):
            yield where, f"it has none of {', '.join(_SAYING)}"


def c05(request: Request) -> Iterator[Found]:
    """Lists of nothing."""
    if request.provider in _LAX:
        return
    if request.body.get("tools") == []:
        yield "tools", "it is an empty list"
    for where, message in _messages(request):
        if message.get("tool_calls") == []:
            yield f"{where}.tool_calls", "it is an empty list"


def c06(request: Request) -> Iterator[Found]:
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


def c07(request: Request) -> Iterator[Found]:
    """Names of functions."""
    named = list(numbered(request.body.get("tools"), "tools"))
    for where, message in _messages(request):
        named += _calls(message, where)
    for where, each in named:
        name = object_at(each, "function").get("name")
        if each.get("function") is not None and not _NAME.fullmatch(words(name)):
            yield f"{where}.function.name", f"{name!r} is no name of 1 to 64 characters of [a-zA-Z0-9_-]"


def c08(request: Request) -> Iterator[Found]:
    """Messages and content of nothing."""
    if not _messages(request):
        yield "messages", "there are none"
    for where, message in _messages(request):
        if message.get("content") == [] and request.provider not in _LAX:
            yield f"{where}.content", "it is an empty list"


def c09(request: Request) -> Iterator[Found]:
    """Pictures that cannot be looked at."""
    for where, _, part in _parts(request):
        if part.get("type") == "image_url":
            image = part.get("image_url")
            fault = url_fault(
                image if isinstance(image, str) else words(object_at(part, "image_url").get("url"))
            )
            if fault:
                yield where, fault


def c10(request: Request) -> Iterator[Found]:
    """Pictures where there may be none."""
    for where, role, part in _parts(request):
        if part.get("type") == "image_url" and role != "user":
            yield where, f"it is an image in a message of role {role}"


def c11(request: Request) -> Iterator[Found]:
    """JSON that nobody asked for."""
    if object_at(request.body, "response_format").get("type") != "json_object" or not _is_openai(request):
        return
    said = json.dumps([message.get("content") for _, message in _messages(request)], ensure_ascii=False)
    if "json" not in said.lower():
        yield "response_format", 'it is json_object, and no message has the word "json"'


def c12(request: Request) -> Iterator[Found]:
    """Strict schemas that are not strict."""
    for where, tool in numbered(request.body.get("tools"), "tools"):
        function = object_at(tool, "function")
        if function.get("strict") is True and _is_openai(request):
            yield from not_strict(function.get("parameters"), f"{where}.function.parameters")
    wanted = object_at(object_at(request.body, "response_format"), "json_schema")
    if wanted.get("strict") is True and _is_openai(request):
        yield from not_strict(wanted.get("schema"), "response_format.json_schema.schema")


def c13(request: Request) -> Iterator[Found]:
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


def c14(request: Request) -> Iterator[Found]:
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


def c15(request: Request) -> Iterator[Found]:
    """Developers where there are none."""
    for where, message in _messages(request):
        if message.get("role") == "developer" and not _is_openai(request):
            yield where, f"{request.provider} may not know the role developer"


def c16(request: Request) -> Iterator[Found]:
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


def c17(request: Request) -> Iterator[Found]:
    """Fields that Groq does not know."""
    if request.provider != "groq":
        return
    for where, message in _messages(request):
        for field in message.keys() - _OF_GROQ:
            yield f"{where}.{field}", "Groq refuses fields of messages that it does not know"


def c18(request: Request) -> Iterator[Found]:
    """Reasoning that DeepSeek wants back."""
    thinks = object_at(request.body, "thinking").get("type") == "enabled" or "reasoner" in request.model
    if request.provider != "deepseek" or not thinks:
        return
    for where, message in _messages(request):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            yield where, "it has tool calls, but no reasoning_content"


def c19(request: Request) -> Iterator[Found]:
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
