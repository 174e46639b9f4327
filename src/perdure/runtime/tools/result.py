"""Converts what a tool returned to what the store keeps, and to what a model is shown of it.

The store keeps the whole, raw result.  The model is shown well-formed text that is never empty, and short: of a
long result it sees head and tail, and where the whole is.  No result is refused, because the tool's effect has
happened: a value that is not JSON is kept as its `repr`, with a note that says so.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeGuard, cast

import msgspec

from perdure.context.render.conversation import WAITING, kept_as
from perdure.model.artifact import sniff
from perdure.model.call import Status
from perdure.model.canonical import DEPTH_MAX, Json
from perdure.model.message import BLOCKS, Block, File, Image, Message, ReasoningSummary, Text, ToolResult
from perdure.model.names import with_article
from perdure.model.text import SHOWN_BYTES, cut, described, shortened, shown, well_formed
from perdure.providers.wire.call_pairs import NO_RESULT
from perdure.runtime.tools.signature import opened

__all__ = [
    "DONE_ELSEWHERE",
    "NEVER_RECORDED",
    "OUTCOME_UNKNOWN",
    "PREVIEW_BYTES",
    "NoResult",
    "StoredResult",
    "explain",
    "keep",
    "preview",
    "stands_for_none",
    "tells_no_outcome",
]

PREVIEW_BYTES = SHOWN_BYTES
TEXT_TYPE, JSON_TYPE = "text/plain; charset=utf-8", "application/json"

NoResult: TypeAlias = Literal[
    "failed",
    "unknown",
    "needs_human",
    "denied",
    "expired",
    "cancelled",
    "timed_out",
    "invalid",
    "no_such_tool",
    "cut_off",
    "waiting",
]

_STANDARD = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal)
_SNIFFED_BYTES = 4_096


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result as it is stored, and as a model would be shown all of it."""

    content: bytes
    media_type: str
    blocks: tuple[Block, ...] = ()  # empty: it is no text, and is shown by reference
    status: Status = "success"


def keep(value: object) -> StoredResult:
    """Return how any result of a tool is stored; a `StoredResult` is stored as it is."""
    match value:
        case StoredResult():
            return value
        case str():
            return _text(value)
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(cast("bytes", value)))
        case Message():
            return _blocks(value.content)
        case ToolResult():
            return msgspec.structs.replace(_blocks(value.content), status=value.status)
        case _ if type(value) in BLOCKS:
            return _blocks((cast("Block", value),))
        case _ if _are_blocks(value):
            return _blocks(value)
        case _:
            return _json(value)


def preview(kept: StoredResult, ref: str, *, preview_bytes: int = PREVIEW_BYTES) -> tuple[Block, ...]:
    """Return what a model is shown of `kept`, the whole of which is at `ref`."""
    if not kept.blocks:
        kind = Image if kept.media_type.startswith("image/") else File
        note = f"The tool gave back {_size(kept)} of {kept.media_type}, kept as {ref}."
        return Text(note), kind(ref, kept.media_type)
    words = "\n".join([block.text for block in kept.blocks if isinstance(block, Text | ReasoningSummary)])
    parts = cut(words, preview_bytes)
    if parts is None:
        return kept.blocks
    head, tail = parts
    note = f"[… the middle is left out here; the whole, {_size(kept)}, {kept_as(ref)}"
    others = [block for block in kept.blocks if isinstance(block, Image | File)]
    return Text(f"{head}\n{note}\n{tail}".rstrip("\n")), *others


def explain(state: NoResult, why: str, tool: str) -> tuple[Block, ...]:
    """Return what a model is shown of a call without a result: what happened, and what to do about it.

    `timed_out` is for calls that may be repeated; one that may not be repeated is `unknown`.
    """
    because = shown(well_formed(why)).rstrip().rstrip(".")
    return (Text(_WORDS[state].format(tool=tool, why=f": {because}" if because else "")),)


_WORDS: dict[NoResult, str] = {
    "failed": "Error: the call to {tool} failed{why}. It had no effect.",
    "unknown": (
        "Error: the outcome of this call to {tool} is unknown{why}. It may have happened. Do not simply call it "
        "again with the same intent: find out first whether it took effect, or tell the user that it is not known."
    ),
    "needs_human": (
        "Error: the outcome of this call to {tool} is unknown{why}. It may have happened, and a person has to find "
        "out. Do not call it again with the same intent; tell the user that it is not known."
    ),
    "denied": "Error: the call to {tool} was denied{why}. It was not run. Do not ask for it again unchanged.",
    "expired": "Error: no decision was made in time about the call to {tool}{why}. It was not run.",
    "cancelled": "Error: the call to {tool} was cancelled{why}. It gave no result.",
    "timed_out": "Error: {tool} did not answer in time{why}. It changes nothing outside, so it may be tried again.",
    "invalid": "Error: the call to {tool} was not run{why}. Mend the arguments and call it again.",
    "no_such_tool": "Error: there is no tool named {tool}{why}. Nothing was run. Use one of the tools you were given.",
    "cut_off": (
        "Error: the call to {tool} was not run{why}. It may have been incomplete, and had no effect. "
        "Ask for it again if it is still wanted."
    ),
    "waiting": "The call to {tool} waits for a decision{why}. It has not been run.",
}


# What a model is shown of a call that has no result in the conversation.
OUTCOME_UNKNOWN = "The outcome of this call is unknown. It may have happened. Do not simply repeat it."
NEVER_RECORDED = "What became of this call was never recorded. It may have happened. Do not simply repeat it."
DONE_ELSEWHERE = (
    "This call was carried out, on another line of this conversation; its result is not shown here. "
    "Do not repeat it."
)
_IN_PLACE_OF_NONE = frozenset({NO_RESULT, WAITING, OUTCOME_UNKNOWN, NEVER_RECORDED, DONE_ELSEWHERE})
_UNKNOWN_IN_A_RUN = re.compile(
    r"Error: the outcome of this call to .* is unknown.* It may have happened", re.DOTALL
)


def stands_for_none(result: ToolResult) -> bool:
    """True if a sentence of ours is in the place of a result that a call does not have.

    Formats without a mark of an error begin one with the word.
    """
    return _words(result).removeprefix("Error: ") in _IN_PLACE_OF_NONE


def tells_no_outcome(result: ToolResult) -> bool:
    """True if a result is a sentence of ours that leaves open what the call did."""
    return stands_for_none(result) or _UNKNOWN_IN_A_RUN.match(_words(result)) is not None


def _words(result: ToolResult) -> str:
    """Return the text of a result that is one text; empty for any other."""
    only = result.content[0] if len(result.content) == 1 else None
    return only.text if isinstance(only, Text) else ""


def _text(text: str) -> StoredResult:
    shown = well_formed(text) if text.strip() else "(the tool gave back an empty text)"
    return StoredResult(content=_raw(text), media_type=TEXT_TYPE, blocks=(Text(shown),))


def _bytes(body: bytes) -> StoredResult:
    media_type = sniff(body[:_SNIFFED_BYTES], whole=len(body) <= _SNIFFED_BYTES)
    if media_type.startswith("text/") or media_type == JSON_TYPE:
        try:
            return msgspec.structs.replace(_text(body.decode()), media_type=media_type)
        except UnicodeDecodeError:
            media_type = "application/octet-stream"
    return StoredResult(content=body, media_type=media_type)


def _blocks(blocks: Sequence[Block]) -> StoredResult:
    """Store blocks as the JSON that they are in a message, and a single text as that text."""
    if not blocks:
        return _text("")
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return _text(blocks[0].text)
    plain = msgspec.to_builtins(list(blocks))
    shown = tuple(block for block in map(_shown, blocks) if not _empty(block))
    return StoredResult(content=_dumps(plain), media_type=JSON_TYPE, blocks=shown or _text("").blocks)


def _json(value: object) -> StoredResult:
    try:
        content = _dumps(_plain(value, DEPTH_MAX))
    except Exception as error:  # noqa: BLE001  # the tool's own objects, which may raise anything; the result must not be lost
        return _described(value, error)
    return StoredResult(content=content, media_type=JSON_TYPE, blocks=(Text(_read(content)),))


def _described(value: object, why: Exception) -> StoredResult:
    kept = _text(described(value))
    reason = (
        str(why) if isinstance(why, _NotJsonError) else f"it cannot be written as JSON ({type(why).__name__})"
    )
    kind = with_article(type(value).__qualname__)
    note = f"(The tool gave back {kind}; {well_formed(reason)}. This is its Python repr.)"
    return msgspec.structs.replace(kept, blocks=(Text(note), *kept.blocks))


class _NotJsonError(Exception):
    """Why a value has no JSON form."""


def _plain(value: Any, depth: int) -> Json:
    """Return `value` in JSON's own types; raises `_NotJsonError` for what would have to be changed to fit."""
    if depth < 0:
        raise _NotJsonError(f"it is nested deeper than {DEPTH_MAX}")
    match value:
        case None | bool() | str():
            return value
        case enum.Enum():
            return _plain(value.value, depth - 1)
        case int():
            return int(value)
        case float():
            return _finite(value)
        case list() | tuple():
            return [_plain(item, depth - 1) for item in cast("Sequence[Any]", value)]
        case Mapping():
            return _mapping(cast("Mapping[Any, Any]", value), depth)
        case _:
            return _object(value, depth)


def _finite(value: float) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise _NotJsonError(f"it holds {value!r}, which is not JSON")
    return float(value)


def _mapping(value: Mapping[Any, Any], depth: int) -> Json:
    for key in value:
        if not isinstance(key, str):
            raise _NotJsonError(f"it has the key {shortened(described(key), 80)}, which is not a string")
    return {str(key): _plain(item, depth - 1) for key, item in value.items()}


def _object(value: Any, depth: int) -> Json:
    if isinstance(value, _STANDARD):
        return cast("Json", msgspec.to_builtins(value))
    fields = opened(value)
    if fields is not value:
        return _plain(fields, depth - 1)
    raise _NotJsonError(f"{with_article(type(value).__qualname__)} is not JSON")


def _are_blocks(value: object) -> TypeGuard[Sequence[Block]]:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(type(item) in BLOCKS for item in cast("Sequence[object]", value))


def _shown(block: Block) -> Block:
    return msgspec.structs.replace(block, text=well_formed(block.text)) if isinstance(block, Text) else block


def _empty(block: Block) -> bool:
    return isinstance(block, Text | ReasoningSummary) and not block.text.strip()


def _dumps(value: Json) -> bytes:
    return _raw(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _read(content: bytes) -> str:
    return well_formed(content.decode("utf-8", "surrogatepass"))


def _size(kept: StoredResult) -> str:
    return f"{len(kept.content):,} bytes"
