"""Stores a vendor's own items with holes in place of what the canonical message holds.

    {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "annotations": [], "text": {"#": 0}}]}

A hole names a block of the message's content, or a piece of one.  Filling the holes restores what the vendor sent, and
nothing is stored twice.  If the message has changed since, filling raises `Changed`, and the message is
rendered from its canonical form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec

from perdure.errors import Invalid
from perdure.model import names
from perdure.model.message import Block, File, Image, ReasoningSummary, Text, ToolCall
from perdure.providers.wire.media import inline, is_web
from perdure.providers.wire.nesting import is_shallow, is_shallow_text

__all__ = [
    "Changed",
    "TakenIds",
    "VendorTurn",
    "fill",
    "holes_of",
    "is_list",
    "is_object",
    "items_of",
    "object_of",
    "size_of",
    "text_of",
    "json_or_text",
]

_TEXT, _JSON, _URI, _BASE64 = "#", "#json", "#uri", "#base64"
_CUT = "cut"


class Changed(Exception):
    """The message has changed since the item was stored."""


class VendorTurn:
    """Collects the content and calls of a message, and returns a hole for each."""

    def __init__(self, taken: TakenIds | None = None) -> None:
        """Start empty; `taken` are the ids of earlier calls, which no later one gets."""
        self.content: list[Block] = []
        self.calls: list[ToolCall] = []
        self._taken = TakenIds() if taken is None else taken

    def text(self, words: str) -> Any:
        """Add text; an empty one stays in the item, since no block is empty."""
        return self._hole(_TEXT, Text(words)) if words else words

    def more_text(self, words: str) -> Any:
        """Append text to the last block if that is text; return the hole for it."""
        return self._more(Text, words)

    def reasoning(self, words: str) -> Any:
        """Add a summary of reasoning; return the hole for it."""
        return self._hole(_TEXT, ReasoningSummary(words)) if words else words

    def more_reasoning(self, words: str) -> Any:
        """Return the same, going on where the last block ended."""
        return self._more(ReasoningSummary, words)

    def json(self, value: Any) -> Any:
        """Return a value, shown as JSON text."""
        return self._hole(
            _JSON, Text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
        )

    def media(self, block: Image | File, *, base64: bool = False) -> Any:
        """Return a picture or a file, by its address; `base64`: the vendor has the bytes alone there."""
        return self._hole(_BASE64 if base64 else _URI, block)

    def add(self, block: Block) -> None:
        """Add a block that no hole refers to."""
        self.content.append(block)

    def call(self, id: str, name: str, args: str) -> int:
        """Return a call; its place among the calls.  An id that is missing, repeated or not legal is made up."""
        self.calls.append(ToolCall(self._taken.give(id, name, args), name, args))
        return len(self.calls) - 1

    @property
    def size(self) -> list[int]:
        """Return the size by which a changed message is recognised."""
        return size_of(self.content, self.calls)

    def _more(self, kind: type[Text | ReasoningSummary], words: str) -> Any:
        if not words:
            return words
        last = self.content[-1] if self.content else None
        before = ""
        if isinstance(last, kind):
            before = last.text
            self.content.pop()
        hole = self._hole(_TEXT, kind(before + words))
        return {**hole, _CUT: [len(before), len(before) + len(words)]}

    def _hole(self, kind: str, block: Block) -> dict[str, int]:
        self.content.append(block)
        return {kind: len(self.content) - 1}


def size_of(content: Sequence[Block], calls: Sequence[ToolCall] = ()) -> list[int]:
    """Return the numbers of blocks, calls and characters."""
    words = sum(len(block.text) for block in content if isinstance(block, Text | ReasoningSummary))
    return [len(content), len(calls), words]


class TakenIds:
    """The ids of the calls of one conversation: the vendor's own where that is legal and new, else derived ones."""

    __slots__ = ("_salts", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._salts: dict[str, int] = {}  # by what an id is derived from, how many were

    def give(self, id: str, name: str, args: str) -> str:
        """Return the id of a call that the vendor calls `id`; the same calls in the same order always get the same ones."""
        made = id
        while made in self._taken or not _is_legal(made):
            seed = f"{id}\n{name}\n{args}"
            salt = self._salts[seed] = self._salts.get(seed, 0) + 1
            digest = sha256(f"{salt}\n{seed}".encode("utf-8", "surrogatepass")).hexdigest()
            made = f"call_{digest[:24]}"
        self._taken.add(made)
        return made


def _is_legal(id: str) -> bool:
    try:
        names.check_id("call id", id)
    except Invalid:
        return False
    return True


def fill(shell: Any, content: Sequence[Block]) -> Any:
    """Return the vendor's item again; raises `Changed` where a hole finds no block of its kind."""
    if isinstance(shell, dict):
        held = cast("dict[str, Any]", shell)
        hole = _hole_in(held)
        if hole is not None:
            return _filled(*hole, content)
        return {name: fill(value, content) for name, value in held.items()}
    if isinstance(shell, list):
        return [fill(value, content) for value in cast("list[Any]", shell)]
    return shell


def holes_of(shell: object) -> list[int]:
    """Return the blocks that a vendor's item has holes for, in its order."""
    held = object_of(shell)
    at = next((held[kind] for kind in (_TEXT, _JSON, _URI, _BASE64) if isinstance(held.get(kind), int)), None)
    if at is not None:
        return [at]
    return [hole for value in (*held.values(), *items_of(shell)) for hole in holes_of(value)]


def _hole_in(shell: dict[str, Any]) -> tuple[str, int, list[int] | None] | None:
    if not 1 <= len(shell) <= 2:
        return None
    kind = next(iter(shell))
    at, cut = shell[kind], shell.get(_CUT)
    if kind not in (_TEXT, _JSON, _URI, _BASE64) or type(at) is not int or (len(shell) == 2 and cut is None):
        return None
    if cut is not None and not (is_list(cut) and [type(each) for each in items_of(cut)] == [int, int]):
        raise Changed
    return kind, at, cut


def _filled(kind: str, at: int, cut: list[int] | None, content: Sequence[Block]) -> Any:
    if not 0 <= at < len(content):
        raise Changed
    match content[at], kind:
        case ((Text(text) | ReasoningSummary(text)), "#"):
            return text if cut is None else text[cut[0] : cut[1]]
        case (Text(text), "#json"):
            return _parsed(text)
        case ((Image(uri) | File(uri)), "#uri") if is_web(uri) or uri.startswith("data:"):
            return uri
        case ((Image(uri) | File(uri)), "#base64") if (bytes_ := inline(uri)) is not None:
            return bytes_.base64
        case _:
            raise Changed


def _parsed(text: str) -> Any:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise Changed from None
    if not is_shallow_text(text) and not is_shallow(value):
        raise Changed
    return value


def object_of(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, Mapping) else {}


def json_or_text(text: str) -> object:
    """Return the JSON value that `text` spells, as leniently as vendors write it; the text itself if it spells none."""
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text


def is_object(text: str) -> bool:
    """True if a text is a JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # the strict reader takes no half of a character, and no NaN
    else:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def is_list(value: object) -> bool:
    """True if it is a JSON list."""
    return isinstance(value, list)


def items_of(value: object) -> list[Any]:
    """Return a JSON list; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list | tuple) else []


def text_of(value: object) -> str:
    """Return the value if it is text; an empty text otherwise."""
    return value if isinstance(value, str) else ""
