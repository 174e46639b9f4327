"""The rules of Bedrock's Converse API, B01 to B12."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.providers.validator.rule import CheckedRequest, Found, Rule, items, numbered, object_at, words

__all__ = ["RULES"]

_DOCUMENT = re.compile(r"(?!.*\s\s)[A-Za-z0-9 _()\[\]-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_MARKS_MAX = 4
_FORMATS = {
    "image": ("png", "jpeg", "gif", "webp"),
    "document": ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
    "video": ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
    "audio": (
        "mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm", "webm",
    ),
}  # fmt: skip

Block = tuple[str, dict[str, Any]]


class _BedrockTurn(msgspec.Struct):
    """Messages of one role in a row."""

    role: str
    blocks: list[Block]

    def of(self, name: str) -> list[Block]:
        """What the blocks of this kind hold."""
        return [
            (where, object_at(block, name)) for where, block in self.blocks if block.get(name) is not None
        ]


def _messages(request: CheckedRequest) -> list[Block]:
    return list(numbered(request.body.get("messages"), "messages"))


def _blocks(request: CheckedRequest) -> list[Block]:
    found: list[Block] = []
    for where, message in _messages(request):
        found += numbered(message.get("content"), f"{where}.content")
    return found


def _turns(request: CheckedRequest) -> list[_BedrockTurn]:
    turns: list[_BedrockTurn] = []
    for where, message in _messages(request):
        role = words(message.get("role"))
        if not turns or turns[-1].role != role:
            turns.append(_BedrockTurn(role, []))
        turns[-1].blocks += numbered(message.get("content"), f"{where}.content")
    return turns


def b01(request: CheckedRequest) -> Iterator[Found]:
    """The first message."""
    for where, message in _messages(request)[:1]:
        if message.get("role") != "user":
            yield where, f"it is the first message, and its role is {message.get('role')}"


def b02(request: CheckedRequest) -> Iterator[Found]:
    """Two of one role."""
    before = None
    for where, message in _messages(request):
        if message.get("role") == before:
            yield where, f"two {before} messages follow each other"
        before = message.get("role")


def b03(request: CheckedRequest) -> Iterator[Found]:
    """Calls without results, and results without calls."""
    asked: dict[str, str] = {}
    for turn in _turns(request):
        results = turn.of("toolResult")
        answered = [words(held.get("toolUseId")) for _, held in results]
        for id, where in asked.items():
            if id not in answered:
                yield where, f"the call {id} has no toolResult in the next user message"
        for at, (where, _) in enumerate(results):
            if answered[at] not in asked or answered[at] in answered[:at]:
                yield where, f"{answered[at]} is no toolUse of the message before, or is answered already"
        asked = {words(held.get("toolUseId")): where for where, held in turn.of("toolUse")}
    yield from ((where, f"the call {id} has no toolResult") for id, where in asked.items())


def b04(request: CheckedRequest) -> Iterator[Found]:
    """Tool blocks without tools."""
    if object_at(request.body, "toolConfig").get("tools"):
        return
    for where, block in _blocks(request):
        if "toolUse" in block or "toolResult" in block:
            yield where, "it is of a tool, and toolConfig is not set"
            return


def b05(request: CheckedRequest) -> Iterator[Found]:
    """Empty texts."""
    for where, block in (*_blocks(request), *numbered(request.body.get("system"), "system")):
        if block.get("text") == "":
            yield where, "its text is empty"


def b06(request: CheckedRequest) -> Iterator[Found]:
    """Errors that say nothing."""
    for where, block in _blocks(request):
        result = object_at(block, "toolResult")
        if result.get("status") == "error" and not result.get("content"):
            yield where, "it is an error without content"


def _documents(request: CheckedRequest) -> Iterator[Block]:
    for where, block in _blocks(request):
        inner = numbered(object_at(block, "toolResult").get("content"), f"{where}.toolResult.content")
        for place, each in ((where, block), *inner):
            if each.get("document"):
                yield place, object_at(each, "document")


def b07(request: CheckedRequest) -> Iterator[Found]:
    """Names of documents."""
    seen: set[str] = set()
    for where, document in _documents(request):
        name = words(document.get("name"))
        if not _DOCUMENT.fullmatch(name):
            yield where, f"{name!r} has other characters than letters, digits, single spaces and _ - ( ) [ ]"
        if name in seen:
            yield where, f"another document is called {name!r} too"
        seen.add(name)


def b08(request: CheckedRequest) -> Iterator[Found]:
    """Documents without words."""
    for where, message in _messages(request):
        blocks = items(message.get("content"))
        if any("document" in each for each in blocks) and not any("text" in each for each in blocks):
            yield where, "it has a document, but no text"


def b09(request: CheckedRequest) -> Iterator[Found]:
    """Too many marks for the prompt cache."""
    tools = numbered(object_at(request.body, "toolConfig").get("tools"), "toolConfig.tools")
    places = [*tools, *numbered(request.body.get("system"), "system"), *_blocks(request)]
    marks = [where for where, each in places if "cachePoint" in each]
    if len(marks) > _MARKS_MAX:
        yield marks[_MARKS_MAX], f"there are {len(marks)} cachePoint blocks"


def b10(request: CheckedRequest) -> Iterator[Found]:
    """What the service's own model refuses."""
    for where, message in _messages(request):
        if message.get("role") not in ("user", "assistant"):
            yield f"{where}.role", f"{message.get('role')!r} is neither user nor assistant"
    for where, block in _blocks(request):
        inner = numbered(object_at(block, "toolResult").get("content"), f"{where}.toolResult.content")
        for place, each in ((where, block), *inner):
            yield from _faults(each, place)
    for where, tool in numbered(object_at(request.body, "toolConfig").get("tools"), "toolConfig.tools"):
        if len(tool) != 1:
            yield where, f"it has {len(tool)} members, not one"
        if "toolSpec" in tool and not _TOOL_NAME.fullmatch(words(object_at(tool, "toolSpec").get("name"))):
            yield where, "its name is none of 1 to 64 characters of [a-zA-Z0-9_-]"


def _faults(block: dict[str, Any], where: str) -> Iterator[Found]:
    if len(block) != 1:
        yield where, f"it has {len(block)} members, not one"
    for kind, formats in _FORMATS.items():
        held = object_at(block, kind)
        if held and (held.get("format") not in formats and (kind != "document" or "format" in held)):
            yield where, f"{held.get('format')!r} is no format of {kind}"
        if held and len(object_at(held, "source")) != 1:
            yield where, "its source has not one member"
    for kind in ("toolUse", "toolResult"):
        held = object_at(block, kind)
        if held and not _TOOL_ID.fullmatch(words(held.get("toolUseId"))):
            yield where, f"{held.get('toolUseId')!r} is no id of 1 to 64 characters of [a-zA-Z0-9_.:-]"
        if held and kind == "toolUse" and not _TOOL_NAME.fullmatch(words(held.get("name"))):
            yield where, f"{held.get('name')!r} is no name of 1 to 64 characters of [a-zA-Z0-9_-]"


def b11(request: CheckedRequest) -> Iterator[Found]:
    """A last turn of the assistant."""
    for where, message in _messages(request)[-1:]:
        if message.get("role") == "assistant":
            yield where, "the conversation ends with an assistant message"


def b12(request: CheckedRequest) -> Iterator[Found]:
    """Texts of white space."""
    for where, block in _blocks(request):
        text = words(block.get("text"))
        if text and not text.strip():
            yield where, "its text is only white space"


RULES = (
    Rule("B01", "warn", "the conversation starts with a user message", b01),
    Rule("B02", "warn", "user and assistant alternate", b02),
    Rule(
        "B03",
        "error",
        "every toolUse is answered by a toolResult in the next user message, and no more than that",
        b03,
    ),
    Rule("B04", "error", "toolConfig is set when the history has toolUse or toolResult", b04),
    Rule("B05", "error", "message and system text is not empty (that of a toolResult may be)", b05),
    Rule("B06", "error", "a toolResult with status error has content", b06),
    Rule(
        "B07",
        "error",
        "document names have letters, digits, single spaces and _ - ( ) [ ], and are unique",
        b07,
    ),
    Rule("B08", "error", "a message with a document also has text", b08),
    Rule("B09", "error", "there are at most 4 cachePoint blocks", b09),
    Rule("B10", "error", "a union has exactly one member; enums and patterns of the service model hold", b10),
    Rule("B11", "warn", "the conversation ends with a user message", b11),
    Rule("B12", "warn", "message text is not only white space", b12),
)
