"""The rules of OpenAI's Responses API, R01 to R14."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perdure.providers.validator.rule import CheckedRequest, Found, Rule, numbered, words
from perdure.providers.wire.media import inline, kind_of

__all__ = ["RULES", "is_item_id"]

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL_ID_MAX = 64
_OF_OPENAI = ("openai", "azure", "azure-openai", "azure-foundry", "foundry", "openai-codex")
_PREFIXES = {
    "function_call": "fc",
    "reasoning": "rs",
    "message": "msg",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "computer_call": "cu",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
}
_CALLS = ("function_call", "custom_tool_call")
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")

Item = tuple[str, dict[str, Any]]


def _items(request: CheckedRequest) -> list[Item]:
    return list(numbered(request.body.get("input"), "input"))


def _kind(item: dict[str, Any]) -> str:
    return words(item.get("type")) or ("message" if "role" in item else "")


def _is_output(item: dict[str, Any]) -> bool:
    return _kind(item).endswith("_output")


def _continues(request: CheckedRequest) -> bool:
    """Whether a part of the history is on the server."""
    return any(request.body.get(field) for field in _ELSEWHERE)


def _refers(request: CheckedRequest) -> bool:
    return any(_kind(item) == "item_reference" for _, item in _items(request))


def _is_openai(request: CheckedRequest) -> bool:
    return request.provider in _OF_OPENAI


def r01(request: CheckedRequest) -> Iterator[Found]:
    """Results without calls."""
    if _continues(request) or _refers(request):
        return
    called: set[str] = set()
    for where, item in _items(request):
        if _is_output(item) and "call_id" in item and words(item["call_id"]) not in called:
            yield where, f"no call before it is called {item['call_id']}"
        elif not _is_output(item):
            called.add(words(item.get("call_id")))


def r02(request: CheckedRequest) -> Iterator[Found]:
    """Calls without results."""
    items = _items(request)
    for at, (where, item) in enumerate(items):
        answers = {words(each.get("call_id")) for _, each in items[at + 1 :] if _is_output(each)}
        if _kind(item) in _CALLS and words(item.get("call_id")) not in answers:
            yield where, f"the call {item.get('call_id')} has no output behind it"


def r03(request: CheckedRequest) -> Iterator[Found]:
    """Reasoning without what it led to."""
    items = _items(request)
    for at, (where, item) in enumerate(items):
        if _kind(item) != "reasoning" or not _is_openai(request):
            continue
        following = next((each for _, each in items[at + 1 :] if _kind(each) != "reasoning"), None)
        if following is None or not _is_of_model(following):
            yield where, "no item of the model follows this reasoning"
        elif item.get("id") and request.body.get("store") is not False and not following.get("id"):
            yield where, "the item that follows this reasoning has lost its id"


def _is_of_model(item: dict[str, Any]) -> bool:
    kind = _kind(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return not _is_output(item) or kind == "tool_search_output"


def r04(request: CheckedRequest) -> Iterator[Found]:
    """What is not stored and cannot be found."""
    if request.body.get("store") is not False:
        return
    for where, item in _items(request):
        if _kind(item) == "reasoning" and not item.get("encrypted_content") and _is_openai(request):
            yield where, "store is false, and it has no encrypted_content"
        if _kind(item) == "item_reference":
            yield where, "store is false, and it refers to an item"


def r05(request: CheckedRequest) -> Iterator[Found]:
    """Item ids of other kinds."""
    for where, item in _items(request):
        id, prefix = item.get("id"), _PREFIXES.get(_kind(item))
        if id is not None and _is_openai(request) and not is_item_id(_kind(item), id):
            yield f"{where}.id", f"{id!r} is no id of a {_kind(item)}: {prefix}_… of at most 64 characters"


def is_item_id(kind: str, id: object) -> bool:
    """True if OpenAI accepts it as the id of an item of that kind; kinds without a prefix have any."""
    prefix = _PREFIXES.get(kind)
    return prefix is None or (words(id).startswith(prefix) and _ID.fullmatch(words(id)) is not None)


def r06(request: CheckedRequest) -> Iterator[Found]:
    """Call ids that are empty or too long."""
    for where, item in _items(request):
        needed = _kind(item) in _CALLS or _kind(item) in ("function_call_output", "custom_tool_call_output")
        if needed and not 1 <= len(words(item.get("call_id"))) <= _CALL_ID_MAX:
            yield f"{where}.call_id", f"it has {len(words(item.get('call_id')))} characters"


def r07(request: CheckedRequest) -> Iterator[Found]:
    """Parts of the other side."""
    for where, item in _items(request):
        if _kind(item) != "message":
            continue
        is_own = item.get("role") == "assistant"
        for place, part in numbered(item.get("content"), f"{where}.content"):
            kind = words(part.get("type"))
            if kind.startswith("input_") if is_own else kind in ("output_text", "refusal"):
                yield place, f"a message of role {item.get('role')} holds no {kind}"


def r08(request: CheckedRequest) -> Iterator[Found]:
    """Item ids twice."""
    seen: set[str] = set()
    for where, item in _items(request) if _is_openai(request) else ():
        id = item.get("id")
        if isinstance(id, str) and id in seen:
            yield f"{where}.id", f"{id} stands twice"
        seen.add(words(id) or where)


def r09(request: CheckedRequest) -> Iterator[Found]:
    """Two histories."""
    if request.body.get("previous_response_id") and request.body.get("conversation"):
        yield "conversation", "previous_response_id is set too"


def r10(request: CheckedRequest) -> Iterator[Found]:
    """Reasoning that another vendor encrypted."""
    for where, item in _items(request):
        token = item.get("encrypted_content")
        if (
            _kind(item) == "reasoning"
            and token
            and _is_openai(request)
            and not words(token).startswith("gAAAA")
        ):
            yield f"{where}.encrypted_content", "it is no token of OpenAI's"


def r11(request: CheckedRequest) -> Iterator[Found]:
    """Calls that are answered twice."""
    seen: set[str] = set()
    for where, item in _items(request):
        if _kind(item) not in ("function_call_output", "custom_tool_call_output"):
            continue
        id = words(item.get("call_id"))
        if id in seen:
            yield where, f"the call {id} has been answered already"
        seen.add(id)


def r12(request: CheckedRequest) -> Iterator[Found]:
    """No input."""
    if not request.body.get("input") and not _continues(request):
        yield "input", "there is none"


def r13(request: CheckedRequest) -> Iterator[Found]:
    """What DeepSeek does not take between a call and its output."""
    if request.provider != "deepseek":
        return
    waiting: set[str] = set()
    for where, item in _items(request):
        if _kind(item) in _CALLS:
            waiting.add(words(item.get("call_id")))
        elif _is_output(item):
            waiting.discard(words(item.get("call_id")))
        elif waiting and item.get("role") == "assistant":
            yield where, "an assistant message stands between a call and its output"


def r14(request: CheckedRequest) -> Iterator[Found]:
    """Files that are no documents."""
    for where, item in _items(request):
        inner = [
            *numbered(item.get("content"), f"{where}.content"),
            *numbered(item.get("output"), f"{where}.output"),
        ]
        for place, part in inner:
            data = inline(words(part.get("file_data"))) if part.get("type") == "input_file" else None
            if data is not None and kind_of(data.media_type) in ("audio", "video", "image"):
                yield place, f"its bytes are {data.media_type}, which is no document"


RULES = (
    Rule(
        "R01",
        "error",
        "a call's output has its call earlier in input, unless previous_response_id or conversation is set",
        r01,
    ),
    Rule("R02", "error", "a function_call has its function_call_output later in input", r02),
    Rule(
        "R03",
        "error",
        "a reasoning item is followed by an output item of the model, which keeps its own id unless store is false",
        r03,
    ),
    Rule(
        "R04",
        "error",
        "with store=false a reasoning item carries encrypted_content, and there are no item_reference items",
        r04,
    ),
    Rule(
        "R05",
        "error",
        "item ids have the prefix of their type, only [A-Za-z0-9_-], and at most 64 characters",
        r05,
    ),
    Rule("R06", "error", "call_id is 1 to 64 characters", r06),
    Rule("R07", "error", "assistant messages hold output_text and refusal, other roles input_*", r07),
    Rule("R08", "error", "item ids are not repeated", r08),
    Rule("R09", "error", "previous_response_id and conversation exclude each other", r09),
    Rule("R10", "error", "encrypted_content is OpenAI's own token (gAAAA…)", r10),
    Rule("R11", "error", "a call is not answered twice", r11),
    Rule("R12", "error", "input is not empty", r12),
    Rule("R13", "error", "for DeepSeek no assistant message stands between a call and its output", r13),
    Rule("R14", "error", "input_file data is a document: no audio, video or image", r14),
)
