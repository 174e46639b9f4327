"""The rules of Gemini's two APIs: generateContent, G01 to G17, and Interactions, I01 to I08.

generateContent reads field names in both spellings, functionCall and function_call, and takes one object
where a list is meant.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from perdure.providers.validator.rule import (
    PICTURES,
    CheckedRequest,
    Found,
    Rule,
    decoded,
    items,
    looks_like_token,
    numbered,
    object_at,
    picture_fault,
    within,
    words,
)

__all__ = ["RULES", "INTERACTIONS_RULES"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_NAME_MAX, _NAME_MAX_VERTEX = 64, 128
_SKIP = "skip_thought_signature_validator"
_BESIDE = frozenset(
    ("thought", "thoughtsignature", "videometadata", "mediaresolution", "partmetadata")
)  # fields of a part that are not its data
_SCHEMA = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxitems",
        "minitems",
        "properties",
        "required",
        "minproperties",
        "maxproperties",
        "minlength",
        "maxlength",
        "pattern",
        "example",
        "anyof",
        "propertyordering",
        "default",
        "items",
        "minimum",
        "maximum",
        "additionalproperties",
        "$ref",
        "$defs",
        "ref",
        "defs",
        "prefixitems",
    ]
)

Place = tuple[str, dict[str, Any]]


class _Content(msgspec.Struct):
    """One entry of contents."""

    where: str
    role: str | None
    parts: list[Place]

    def of(self, *names: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        """The parts that hold one of these: place, what it holds, and the part."""
        found = ((where, object_at(part, *names), part) for where, part in self.parts)
        return [each for each in found if any(isinstance(each[2].get(name), dict) for name in names)]

    @property
    def calls(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        return self.of("functionCall", "function_call")

    @property
    def responses(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        return self.of("functionResponse", "function_response")


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _field(holder: object, name: str) -> Any:
    """A field in either spelling."""
    held = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
    if name in held:
        return held[name]
    return next((value for key, value in held.items() if _bare(key) == _bare(name)), None)


def _listed(value: object) -> object:
    return [cast("object", value)] if isinstance(value, dict) else value


def _contents(request: CheckedRequest) -> list[_Content]:
    found: list[_Content] = []
    for where, each in numbered(_listed(_field(request.body, "contents")), "contents"):
        parts = _field(each, "parts")
        held = numbered(_listed(parts), f"{where}.parts")
        role = each.get("role")
        found.append(_Content(where, role if isinstance(role, str) else None, list(held)))
    return found


def _turns(request: CheckedRequest) -> list[_Content]:
    """Contents of the model in a row are one turn."""
    turns: list[_Content] = []
    for content in _contents(request):
        if turns and content.role == turns[-1].role == "model":
            turns[-1].parts += content.parts
        else:
            turns.append(content)
    return turns


def _declarations(request: CheckedRequest) -> Iterator[Place]:
    tools = _field(request.body, "tools")
    for where, tool in numbered(_listed(tools), "tools"):
        listed = _field(tool, "functionDeclarations")
        yield from numbered(_listed(listed), f"{where}.functionDeclarations")


def _config(request: CheckedRequest) -> dict[str, Any]:
    return object_at(request.body, "generationConfig", "generation_config")


def _schemas(request: CheckedRequest) -> Iterator[Place]:
    """Every schema in Gemini's own dialect."""
    for where, each in _declarations(request):
        yield from within(_field(each, "parameters"), f"{where}.parameters")
    yield from within(_field(_config(request), "responseSchema"), "generationConfig.responseSchema")


def _inline(request: CheckedRequest) -> Iterator[Place]:
    for content in _contents(request):
        yield from ((where, held) for where, held, _ in content.of("inlineData", "inline_data"))


def _is_three(request: CheckedRequest) -> bool:
    return "gemini-3" in request.model


def g01(request: CheckedRequest) -> Iterator[Found]:
    """Roles of other vendors."""
    for content in _contents(request):
        if content.role not in ("user", "model", "function", None):
            yield f"{content.where}.role", f"{content.role!r} is neither user nor model"


def g02(request: CheckedRequest) -> Iterator[Found]:
    """Contents and parts of nothing."""
    contents = _contents(request)
    if not contents:
        yield "contents", "there are none"
    for content in contents:
        if not content.parts:
            yield content.where, "it has no parts"
        for where, part in content.parts:
            data = [name for name, value in part.items() if _bare(name) not in _BESIDE and value is not None]
            if len(data) != 1:
                yield where, f"it has {len(data)} data fields, not one"


def g03(request: CheckedRequest) -> Iterator[Found]:
    """Responses that follow no call."""
    before: _Content | None = None
    for content in _turns(request):
        if content.responses and (before is None or not (before.calls or before.responses)):
            yield content.where, "it holds function responses, and no function calls stand right before it"
        before = content


def g04(request: CheckedRequest) -> Iterator[Found]:
    """Other numbers of responses than of calls."""
    contents = _turns(request)
    for at, content in enumerate(contents[:-1]):
        if not content.calls:
            continue
        answered = 0
        for following in contents[at + 1 :]:
            if not following.responses:
                break
            answered += len(following.responses)
        if answered != len(content.calls):
            yield (
                content.where,
                f"it has {len(content.calls)} function calls, and {answered} responses follow",
            )


def g05(request: CheckedRequest) -> Iterator[Found]:
    """Calls at the wrong moment."""
    before: _Content | None = None
    for content in _turns(request):
        if content.calls and (before is None or before.role == "model"):
            yield content.where, "its function calls follow neither a user turn nor function responses"
        before = content


def g06(request: CheckedRequest) -> Iterator[Found]:
    """Calls that Gemini 3 did not sign."""
    contents = _contents(request)
    begun = max(
        (at for at, each in enumerate(contents) if each.role != "model" and not each.responses), default=-1
    )
    for content in contents[begun + 1 :] if _is_three(request) else ():
        for where, _, part in content.calls[:1]:
            if not _field(part, "thoughtSignature"):
                yield (
                    where,
                    "it is the first function call of a step of the current turn, and has no thoughtSignature",
                )


def g07(request: CheckedRequest) -> Iterator[Found]:
    """Names of functions."""
    longest = _NAME_MAX_VERTEX if "vertex" in request.provider else _NAME_MAX
    named = list(_declarations(request))
    for content in _contents(request):
        named += [(where, held) for where, held, _ in (*content.calls, *content.responses)]
    for where, held in named:
        name = words(held.get("name"))
        if not _NAME.fullmatch(name) or len(name) > longest:
            yield (
                where,
                f"{held.get('name')!r} is no name: a letter or _, then letters, digits, _ . : -, at most {longest}",
            )


def g08(request: CheckedRequest) -> Iterator[Found]:
    """Responses of other functions."""
    asked: Counter[str] = Counter()
    ids: set[str] = set()
    for content in _turns(request):
        if content.calls:
            asked = Counter(words(held.get("name")) for _, held, _ in content.calls)
            ids = {words(held.get("id")) for _, held, _ in content.calls} - {""}
        for where, held, _ in content.responses:
            name, id = words(held.get("name")), words(held.get("id"))
            if not asked[name]:
                yield where, f"no function call that waits is of {name}"
            elif id and ids and id not in ids:
                yield where, f"no function call before it has the id {id}"
            asked[name] -= 1


def g09(request: CheckedRequest) -> Iterator[Found]:
    """A last turn of the model."""
    for content in _contents(request)[-1:]:
        if content.role == "model":
            yield content.where, "the conversation ends with a model turn"


def g10(request: CheckedRequest) -> Iterator[Found]:
    """Schemas of another dialect."""
    for where, schema in _schemas(request):
        for key in schema:
            if _bare(key) not in _SCHEMA:
                yield f"{where}.{key}", "Gemini's schemas have no such keyword"
        if words(schema.get("type")).upper() == "ARRAY" and not isinstance(schema.get("items"), dict):
            yield where, "an array has no items"


def g11(request: CheckedRequest) -> Iterator[Found]:
    """Bytes that are no picture."""
    for where, held in _inline(request):
        declared = words(_field(held, "mimeType"))
        if decoded(held.get("data")) is None:
            yield where, "its data is not base64"
        elif declared in PICTURES and (picture_fault(held.get("data"), declared) or "").endswith(
            "that is taken"
        ):
            yield where, f"it is declared as {declared}, and its bytes are no picture"


def g12(request: CheckedRequest) -> Iterator[Found]:
    """What Gemini did not do together before 3."""
    if _is_three(request) or not list(_declarations(request)):
        return
    for where, tool in numbered(_field(request.body, "tools"), "tools"):
        if own := [key for key in tool if _bare(key) != "functiondeclarations"]:
            yield where, f"{own[0]} is a tool of Gemini's own, beside functions"
    if _field(_config(request), "responseMimeType") == "application/json":
        yield "generationConfig.responseMimeType", "it is JSON, and there are functions"


def g13(request: CheckedRequest) -> Iterator[Found]:
    """Enumerations of what is no text."""
    for where, schema in _schemas(request):
        values = schema.get("enum")
        if not isinstance(values, list):
            continue
        kind = words(schema.get("type")).upper()
        if not all(isinstance(each, str) for each in cast("list[object]", values)):
            yield f"{where}.enum", "it has values that are no text"
        elif kind not in ("STRING", "INTEGER", ""):
            yield f"{where}.enum", f"it stands on {kind}"


def g14(request: CheckedRequest) -> Iterator[Found]:
    """Signatures of others."""
    for content in _contents(request):
        for where, part in content.parts:
            token = _field(part, "thoughtSignature")
            if token is not None and token != _SKIP and not looks_like_token(token):
                yield where, "its thoughtSignature is no base64"


def g15(request: CheckedRequest) -> Iterator[Found]:
    """Pictures of another type."""
    for where, held in _inline(request):
        fault = picture_fault(held.get("data"), declared := words(_field(held, "mimeType")))
        if declared in PICTURES and fault and "declared as" in fault:
            yield where, fault


def g16(request: CheckedRequest) -> Iterator[Found]:
    """Responses in several contents."""
    before: _Content | None = None
    for content in _contents(request):
        if content.responses and before is not None and before.responses:
            yield content.where, "the content before it holds function responses too"
        before = content


def g17(request: CheckedRequest) -> Iterator[Found]:
    """Temperatures out of bounds."""
    given: object = _config(request).get("temperature")
    if isinstance(given, int | float) and not 0 <= cast("float", given) <= 2:
        yield "generationConfig.temperature", f"it is {given}"


RULES = (
    Rule("G01", "error", "role is user or model (function is an old word for user)", g01),
    Rule("G02", "error", "contents and each parts array are not empty; each part has one data field", g02),
    Rule("G03", "error", "a functionResponse turn comes right after a functionCall turn", g03),
    Rule(
        "G04",
        "error",
        "there are as many functionResponse parts as functionCall parts in the turn before",
        g04,
    ),
    Rule("G05", "error", "a functionCall turn comes right after a user turn or a functionResponse turn", g05),
    Rule(
        "G06",
        "error",
        "for Gemini 3 the first functionCall of each step of the current turn has a thoughtSignature",
        g06,
    ),
    Rule(
        "G07",
        "error",
        "function names start with a letter or _, then letters, digits, _ . : -, at most 64 (128 on Vertex)",
        g07,
    ),
    Rule("G08", "error", "functionResponse names match the calls, and ids where both sides have one", g08),
    Rule("G09", "error", "the request does not end with a model turn", g09),
    Rule(
        "G10",
        "error",
        "parameters use the OpenAPI subset (no $schema, const, propertyNames, …); arrays have items",
        g10,
    ),
    Rule("G11", "error", "inlineData is valid base64, of an image where an image is declared", g11),
    Rule(
        "G12",
        "warn",
        "before Gemini 3, function tools go with no built-in tools and no JSON response type",
        g12,
    ),
    Rule("G13", "error", "enum stands on STRING (or integer) schemas, with string values", g13),
    Rule("G14", "warn", "thoughtSignature is base64", g14),
    Rule("G15", "warn", "inlineData bytes are of the declared image type", g15),
    Rule("G16", "warn", "the responses to parallel calls stand in one content", g16),
    Rule("G17", "error", "temperature is between 0 and 2", g17),
)


_INPUT_CONTENTS = frozenset({"text", "image", "audio", "video", "document"})
_MODEL = frozenset({"thought", "model_output", "function_call"})
_SERVER = re.compile(
    r"(code_execution|file_search|google_maps|google_search|mcp_server_tool|processing|retrieval|url_context)"
    r"_(call|result)"
)
_INTERACTIONS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


def _input(request: CheckedRequest) -> list[Place]:
    return list(numbered(request.body.get("input"), "input"))


def _steps(request: CheckedRequest, kind: str) -> list[Place]:
    return [(where, step) for where, step in _input(request) if step.get("type") == kind]


def _input_contents(request: CheckedRequest) -> Iterator[Place]:
    """All contents of a request, wherever they stand."""
    given = _input(request)
    yield from ((where, each) for where, each in given if words(each.get("type")) in _INPUT_CONTENTS)
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
    if any(kind in _INPUT_CONTENTS for kind in kinds) and not all(kind in _INPUT_CONTENTS for kind in kinds):
        yield "input", "it mixes contents with steps"
    for (where, _), kind in zip(_input(request), kinds, strict=True):
        is_known = kind in _INPUT_CONTENTS or kind in _MODEL or kind in ("user_input", "function_result")
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
        if not _INTERACTIONS_NAME.fullmatch(name):
            yield f"{where}.name", f"{name!r} is no legal name"
        elif name in seen:
            yield f"{where}.name", f"{name!r} is declared twice"
        seen.add(name)


def i07(request: CheckedRequest) -> Iterator[Found]:
    """Media without bytes or address, and bytes that are no base64."""
    for where, content in _input_contents(request):
        if words(content.get("type")) not in _INPUT_CONTENTS - {"text"}:
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


INTERACTIONS_RULES = (
    Rule("I01", "error", "the input is text, contents or steps of known kinds", i01),
    Rule("I02", "error", "each function result stands behind the call that it names", i02),
    Rule("I03", "error", "each function call has a result", i03),
    Rule("I04", "error", "a function call has an id, a name and an object of arguments", i04),
    Rule("I05", "error", "a request goes to a model or to an agent, which takes no generation settings", i05),
    Rule("I06", "error", "a function has a legal name of its own", i06),
    Rule("I07", "error", "media have base64 data or a uri", i07),
    Rule("I08", "warn", "the form of the answer has a type, and a schema is one of JSON", i08),
)
