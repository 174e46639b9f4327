"""The rules of Anthropic's Messages API, A01 to A24."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from perdure.providers.validator.rule import (
    CheckedRequest,
    Found,
    Rule,
    items,
    looks_like_token,
    numbered,
    object_at,
    picture_fault,
    words,
)

__all__ = ["RULES"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MARKS_MAX = 4
_BUDGET_MIN = 1024
_SIGNATURE_MIN = 40  # characters; the shortest that were seen are far longer
_THOUGHTS = ("thinking", "redacted_thinking")

Block = tuple[str, dict[str, Any]]


class _RoleRun(msgspec.Struct):
    """Messages of one role in a row, which the API takes as one."""

    role: str
    where: str
    blocks: list[Block]

    def of(self, *kinds: str) -> list[Block]:
        return [each for each in self.blocks if each[1].get("type") in kinds]


def _messages(request: CheckedRequest) -> list[Block]:
    return list(numbered(request.body.get("messages"), "messages"))


def _blocks(holder: dict[str, Any], where: str, field: str = "content") -> list[Block]:
    content = holder.get(field)
    if isinstance(content, str):
        return [(f"{where}.{field}", {"type": "text", "text": content})]
    return list(numbered(content, f"{where}.{field}"))


def _turns(request: CheckedRequest) -> list[_RoleRun]:
    turns: list[_RoleRun] = []
    for where, message in _messages(request):
        role = words(message.get("role"))
        if role == "system":
            continue  # words of the system may stand between turns
        if not turns or turns[-1].role != role:
            turns.append(_RoleRun(role, where, []))
        turns[-1].blocks += _blocks(message, where)
    return turns


def _texts(request: CheckedRequest) -> Iterator[Block]:
    """Every text block of messages and of their tool results, and of the system."""
    for where, message in _messages(request):
        for place, block in _blocks(message, where):
            if isinstance(message.get("content"), list):
                yield place, block
            if block.get("type") == "tool_result":
                yield from numbered(block.get("content"), f"{place}.content")
    yield from numbered(request.body.get("system"), "system")


def _ids(blocks: list[Block], field: str) -> list[str]:
    return [words(block.get(field)) for _, block in blocks]


def a01(request: CheckedRequest) -> Iterator[Found]:
    """The first message."""
    for where, message in _messages(request)[:1]:
        if message.get("role") != "user":
            yield where, f"it is the first message, and its role is {message.get('role')}"


def a02(request: CheckedRequest) -> Iterator[Found]:
    """Calls without results."""
    turns = _turns(request)
    for at, turn in enumerate(turns):
        following = turns[at + 1].of("tool_result") if at + 1 < len(turns) else []
        answered = set(_ids(following, "tool_use_id"))
        for where, block in turn.of("tool_use") if turn.role == "assistant" else ():
            if words(block.get("id")) not in answered:
                yield where, f"the call {block.get('id')} has no tool_result in the next user turn"


def a03(request: CheckedRequest) -> Iterator[Found]:
    """Results without calls."""
    before: set[str] = set()
    for turn in _turns(request):
        for where, block in turn.of("tool_result"):
            if turn.role != "user" or words(block.get("tool_use_id")) not in before:
                yield where, f"no tool_use of the turn before it is called {block.get('tool_use_id')}"
        before = set(_ids(turn.of("tool_use"), "id"))


def a04(request: CheckedRequest) -> Iterator[Found]:
    """Results behind other blocks."""
    for turn in _turns(request):
        other: str | None = None
        for where, block in turn.blocks:
            if block.get("type") != "tool_result":
                other = words(block.get("type"))
            elif other is not None:
                yield where, f"a {other} block stands before it"


def a05(request: CheckedRequest) -> Iterator[Found]:
    """Empty text blocks."""
    for where, block in _texts(request):
        if block.get("type") == "text" and block.get("text") == "":
            yield where, "its text is empty"


def a06(request: CheckedRequest) -> Iterator[Found]:
    """Empty content."""
    messages = _messages(request)
    for at, (where, message) in enumerate(messages):
        is_last = at == len(messages) - 1 and message.get("role") == "assistant"
        if message.get("content") in ("", [], None) and not is_last:
            yield where, "its content is empty"


def a07(request: CheckedRequest) -> Iterator[Found]:
    """Call ids of other vendors."""
    for turn in _turns(request):
        for where, block in turn.of("tool_use", "tool_result"):
            field = "id" if block["type"] == "tool_use" else "tool_use_id"
            if not _ID.fullmatch(words(block.get(field))):
                yield (
                    f"{where}.{field}",
                    f"{block.get(field)!r} has other characters than [a-zA-Z0-9_-], or none",
                )


def a08(request: CheckedRequest) -> Iterator[Found]:
    """Call ids, or results, twice in one turn."""
    for turn in _turns(request):
        for kind, field in (("tool_use", "id"), ("tool_result", "tool_use_id")):
            seen: set[str] = set()
            for where, block in turn.of(kind):
                id = words(block.get(field))
                if id in seen:
                    yield where, f"{id} stands twice in this turn"
                seen.add(id)


def _marked(request: CheckedRequest) -> Iterator[Block]:
    places = [*numbered(request.body.get("tools"), "tools"), *_texts(request)]
    seen = {where for where, _ in places}
    for where, message in _messages(request):
        places += [each for each in _blocks(message, where) if each[0] not in seen]
    return (each for each in places if each[1].get("cache_control"))


def a09(request: CheckedRequest) -> Iterator[Found]:
    """Too many marks for the prompt cache."""
    marks = list(_marked(request))
    if len(marks) > _MARKS_MAX:
        yield marks[_MARKS_MAX][0], f"there are {len(marks)} cache_control marks"


def a10(request: CheckedRequest) -> Iterator[Found]:
    """Marks on nothing."""
    for where, block in _marked(request):
        if block.get("type") == "text" and not words(block.get("text")):
            yield where, "cache_control stands on an empty text"


def a11(request: CheckedRequest) -> Iterator[Found]:
    """A tool loop whose last step has no thinking."""
    turns = _turns(request)
    if object_at(request.body, "thinking").get("type") != "enabled" or len(turns) < 2:
        return
    asked, answer = turns[-2:]
    if answer.role == "user" and answer.of("tool_result") and asked.blocks:
        where, block = asked.blocks[0]
        if block.get("type") not in _THOUGHTS:
            yield where, "thinking is on, tools have just answered this turn, and it begins without thinking"


def a12(request: CheckedRequest) -> Iterator[Found]:
    """Thinking that Anthropic did not sign."""
    for turn in _turns(request):
        for where, block in turn.of(*_THOUGHTS):
            field = "signature" if block["type"] == "thinking" else "data"
            token = words(block.get(field))
            if len(token) < _SIGNATURE_MIN or not looks_like_token(token):
                yield f"{where}.{field}", "it is no signature of Anthropic's"


def a13(request: CheckedRequest) -> Iterator[Found]:
    """A budget for thinking that is too small or too large."""
    thinking = object_at(request.body, "thinking")
    budget, most = thinking.get("budget_tokens"), request.body.get("max_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return
    if budget < _BUDGET_MIN:
        yield "thinking.budget_tokens", f"it is {budget}, less than {_BUDGET_MIN}"
    if isinstance(most, int) and budget >= most:
        yield "thinking.budget_tokens", f"it is {budget}, not less than max_tokens, which is {most}"


def a14(request: CheckedRequest) -> Iterator[Found]:
    """Thinking with a forced call."""
    choice = object_at(request.body, "tool_choice").get("type")
    if object_at(request.body, "thinking").get("type") == "enabled" and choice in ("any", "tool"):
        yield "tool_choice", f"thinking is on, and tool_choice is {choice}"


def a15(request: CheckedRequest) -> Iterator[Found]:
    """Pictures that are not what they are declared to be."""
    for where, message in _messages(request):
        for place, block in _blocks(message, where):
            for spot, each in ((place, block), *numbered(block.get("content"), f"{place}.content")):
                source = object_at(each, "source")
                if each.get("type") == "image" and source.get("type") == "base64":
                    fault = picture_fault(source.get("data"), words(source.get("media_type")))
                    if fault:
                        yield spot, fault


def a16(request: CheckedRequest) -> Iterator[Found]:
    """Tools that cannot be declared."""
    tools = list(numbered(request.body.get("tools"), "tools"))
    counted = Counter(words(tool.get("name")) for _, tool in tools if tool.get("name"))
    for where, tool in tools:
        name = words(tool.get("name"))
        if counted[name] > 1:
            yield where, f"{counted[name]} tools are called {name}"
        if tool.get("type") not in (None, "custom"):
            continue
        if not _NAME.fullmatch(name):
            yield f"{where}.name", f"{name!r} is no name of 1 to 128 characters of [a-zA-Z0-9_-]"
        if object_at(tool, "input_schema").get("type") != "object":
            yield f"{where}.input_schema", "it is no schema of an object"


def a17(request: CheckedRequest) -> Iterator[Found]:
    """Calls of Anthropic's own tools without their results."""
    for turn in [turn for turn in _turns(request) if turn.role == "assistant"][:-1]:
        results = {words(block.get("tool_use_id")) for _, block in turn.blocks}
        for where, block in turn.of("server_tool_use"):
            if words(block.get("id")) not in results:
                yield where, f"{block.get('id')} has no result in the same turn"


def a18(request: CheckedRequest) -> Iterator[Found]:
    """A last turn of the assistant."""
    for where, message in _messages(request)[-1:]:
        if message.get("role") == "assistant":
            yield where, "the conversation ends with an assistant turn"


def a19(request: CheckedRequest) -> Iterator[Found]:
    """White space at the end of a prefilled turn."""
    turns = _turns(request)
    if turns and turns[-1].role == "assistant" and turns[-1].blocks:
        where, block = turns[-1].blocks[-1]
        text = words(block.get("text"))
        if block.get("type") == "text" and text != text.rstrip():
            yield where, "the last assistant text ends in white space"


def a20(request: CheckedRequest) -> Iterator[Found]:
    """A choice of a tool that is not there."""
    choice = object_at(request.body, "tool_choice")
    named = {words(tool.get("name")) for tool in items(request.body.get("tools"))}
    if choice.get("type") == "tool" and words(choice.get("name")) not in named:
        yield "tool_choice.name", f"no declared tool is called {choice.get('name')}"


def a21(request: CheckedRequest) -> Iterator[Found]:
    """Tool blocks without tools."""
    if request.body.get("tools"):
        return
    for turn in _turns(request):
        for where, block in turn.of("tool_use", "tool_result")[:1]:
            yield where, f"there is a {block['type']}, but no tools are declared"


def a22(request: CheckedRequest) -> Iterator[Found]:
    """Call ids of earlier turns."""
    seen: set[str] = set()
    for turn in _turns(request):
        here = turn.of("tool_use")
        for where, block in here:
            if words(block.get("id")) in seen:
                yield where, f"an earlier turn has a call {block.get('id')} too"
        seen.update(_ids(here, "id"))


def a23(request: CheckedRequest) -> Iterator[Found]:
    """Texts of white space."""
    for where, block in _texts(request):
        text = words(block.get("text"))
        if block.get("type") == "text" and text and not text.strip():
            yield where, "its text is only white space"


def a24(request: CheckedRequest) -> Iterator[Found]:
    """Temperatures out of bounds."""
    given: object = request.body.get("temperature")
    if isinstance(given, int | float) and not 0 <= cast("float", given) <= 1:
        yield "temperature", f"it is {given}"


RULES = (
    Rule("A01", "warn", "the first message is a user message", a01),
    Rule(
        "A02",
        "error",
        "every tool_use of an assistant turn is answered by a tool_result in the very next user turn",
        a02,
    ),
    Rule("A03", "error", "a tool_result names a tool_use of the turn just before it", a03),
    Rule("A04", "error", "tool_result blocks come before any other block of their user turn", a04),
    Rule("A05", "error", "text blocks are not empty", a05),
    Rule("A06", "error", "content is not empty; only that of a last assistant message may be", a06),
    Rule("A07", "error", "tool_use ids match ^[a-zA-Z0-9_-]+$", a07),
    Rule("A08", "error", "tool_use ids are unique within a turn, and each has one tool_result", a08),
    Rule(
        "A09", "error", "there are at most 4 cache_control marks in tools, system and messages together", a09
    ),
    Rule("A10", "error", "cache_control stands on no empty text block", a10),
    Rule(
        "A11",
        "error",
        "with thinking enabled, the assistant turn of an unfinished tool loop starts with a thinking block",
        a11,
    ),
    Rule("A12", "error", "thinking blocks carry a signature of Anthropic's own", a12),
    Rule("A13", "error", "budget_tokens is at least 1024 and below max_tokens", a13),
    Rule("A14", "error", "thinking goes with no forced tool_choice", a14),
    Rule("A15", "error", "a base64 image is valid base64, and its bytes are of the declared media type", a15),
    Rule(
        "A16",
        "error",
        "tool names are unique and match ^[a-zA-Z0-9_-]{1,128}$, and input_schema is an object schema",
        a16,
    ),
    Rule(
        "A17",
        "error",
        "every server_tool_use has its result in the same assistant turn, unless no assistant turn follows",
        a17,
    ),
    Rule("A18", "warn", "the conversation ends with a user turn", a18),
    Rule("A19", "error", "a last assistant text does not end in white space", a19),
    Rule("A20", "error", "tool_choice names a declared tool", a20),
    Rule("A21", "warn", "tools are declared when the history has tool blocks", a21),
    Rule("A22", "warn", "a tool_use id is not used again in a later turn", a22),
    Rule("A23", "warn", "text blocks are not only white space", a23),
    Rule("A24", "error", "temperature is between 0 and 1", a24),
)
