"""The rules of Gemini's Interactions API, I01 to I08."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, cast

from perdure.providers.validator.rule import CheckedRequest, Found, Rule, items, numbered, object_at, words

__all__ = ["RULES"]

_CONTENTS = frozenset({"text", "image", "audio", "video", "document"})
_MODEL = frozenset({"thought", "model_output", "function_call"})
_SERVER = re.compile(
    r"(code_execution|file_search|google_maps|google_search|mcp_server_tool|processing|retrieval|url_context)"
    r"_(call|result)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")

Place = tuple[str, dict[str, Any]]


def _input(request: CheckedRequest) -> list[Place]:
    return list(numbered(request.body.get("input"), "input"))


def _steps(request: CheckedRequest, kind: str) -> list[Place]:
    return [(where, step) for where, step in _input(request) if step.get("type") == kind]


def _contents(request: CheckedRequest) -> Iterator[Place]:
    """All contents of a request, wherever they stand."""
    given = _input(request)
    yield from ((where, each) for where, each in given if words(each.get("type")) in _CONTENTS)
    for where, step in given:
        yield from numbered(step.get("content"), f"{where}.content")
        if step.get("type") == "function_result":
            yield from numbered(step.get("result"), f"{where}.result")


def i01(request: CheckedRequest) -> Iterator[Found]:
    """Steps of other formats, and contents among steps."""
    given = request.body.get("input")
    if isinstance(given, list) and not all(isinstance(each, dict) for each in cast("list[object]", given)):
        yield "input", "it holds something that is no object"
    kinds = [words(step.get("type")) for _, step in _input(request)]
    if any(kind in _CONTENTS for kind in kinds) and not all(kind in _CONTENTS for kind in kinds):
        yield "input", "it mixes contents with steps"
    for (where, _), kind in zip(_input(request), kinds, strict=True):
        is_known = kind in _CONTENTS or kind in _MODEL or kind in ("user_input", "function_result")
        if not is_known and not _SERVER.fullmatch(kind):
            yield f"{where}.type", f"{kind!r} is no kind of step"


def i02(request: CheckedRequest) -> Iterator[Found]:
    """Results without their calls."""
    if request.body.get("previous_interaction_id"):
        return
    called: set[str] = set()
    for where, step in _input(request):
        if step.get("type") == "function_call":
            called.add(words(step.get("id")))
        elif step.get("type") == "function_result" and words(step.get("call_id")) not in called:
            yield f"{where}.call_id", f"no call {step.get('call_id')!r} stands before it"


def i03(request: CheckedRequest) -> Iterator[Found]:
    """Calls without their results."""
    answered = {words(step.get("call_id")) for _, step in _steps(request, "function_result")}
    for where, step in _steps(request, "function_call"):
        if words(step.get("id")) not in answered:
            yield where, f"nothing answers the call {step.get('id')!r}"


def i04(request: CheckedRequest) -> Iterator[Found]:
    """Calls without id, name or an object of arguments."""
    for where, step in _steps(request, "function_call"):
        if not words(step.get("id")) or not words(step.get("name")):
            yield where, "it has no id, or no name"
        if not isinstance(step.get("arguments"), dict):
            yield f"{where}.arguments", "they are no object"


def i05(request: CheckedRequest) -> Iterator[Found]:
    """Two addressees, or settings that an agent does not take."""
    if request.body.get("agent") is None:
        return
    for name in ("model", "generation_config", "cached_content"):
        if request.body.get(name) is not None:
            yield name, "a request to an agent has no such field"


def i06(request: CheckedRequest) -> Iterator[Found]:
    """Functions without a legal name, or declared twice."""
    seen: set[str] = set()
    for where, tool in numbered(request.body.get("tools"), "tools"):
        if tool.get("type") != "function":
            continue
        name = words(tool.get("name"))
        if not _NAME.fullmatch(name):
            yield f"{where}.name", f"{name!r} is no legal name"
        elif name in seen:
            yield f"{where}.name", f"{name!r} is declared twice"
        seen.add(name)


def i07(request: CheckedRequest) -> Iterator[Found]:
    """Media without bytes or address, and bytes that are no base64."""
    for where, content in _contents(request):
        if words(content.get("type")) not in _CONTENTS - {"text"}:
            continue
        if content.get("data") is None and not words(content.get("uri")):
            yield where, "it has neither data nor a uri"
        elif content.get("data") is not None and not _is_base64(content["data"]):
            yield f"{where}.data", "it is not base64"


def i08(request: CheckedRequest) -> Iterator[Found]:
    """A schema in place of a form of the answer."""
    for form in items(request.body.get("response_format")):
        if form.get("type") not in ("text", "audio", "image", "video"):
            yield "response_format.type", f"{form.get('type')!r} is no form of an answer"
        elif object_at(form, "schema") and form.get("mime_type") != "application/json":
            yield "response_format.mime_type", "an answer with a schema is application/json"


def _is_base64(data: object) -> bool:
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


RULES = (
    Rule("I01", "error", "the input is text, contents or steps of known kinds", i01),
    Rule("I02", "error", "each function result stands behind the call that it names", i02),
    Rule("I03", "error", "each function call has a result", i03),
    Rule("I04", "error", "a function call has an id, a name and an object of arguments", i04),
    Rule("I05", "error", "a request goes to a model or to an agent, which takes no generation settings", i05),
    Rule("I06", "error", "a function has a legal name of its own", i06),
    Rule("I07", "error", "media have base64 data or a uri", i07),
    Rule("I08", "warn", "the form of the answer has a type, and a schema is one of JSON", i08),
)
