"""An audit of a render: what the context holds and neither the request nor a loss accounts for.

Words must stand in the request as they are, bytes and addresses too, arguments as the same JSON;
whatever does not must be named by a loss at its place, or at a place that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from holdfast.model.context import Context
from holdfast.model.message import Block, File, Image, Message, ReasoningSummary, Text
from holdfast.providers.contract import Rendered
from holdfast.providers.wire.media import inline
from holdfast.providers.wire.server_tools import is_account, told

__all__ = ["unaccounted"]

# Options that are no field of every body: what is kept for one vendor, marks, and how the answer is to come.
_OURS = ("vendor", "cache", "stream")
# Options that say the same as their absence.
_DEFAULTS = {"n": 1, "parallel_tool_calls": True, "temperature": 1, "tool_choice": "auto"}
# What a forced, forbidden or named call is called.
_CHOICES = {"required": ("required", "any", "ANY"), "none": ("none", "NONE")}
# Notes of the readers, and words that the context holds too.
_NOTES = ("endpoint", "system")


def unaccounted(context: Context, rendered: Rendered) -> list[str]:
    """The places of what is lost in silence."""
    seen = _Seen(rendered.body)
    places = {loss.where for loss in rendered.losses}
    missing = [where for where, is_there in _held(context, seen) if not is_there]
    return [where for where in missing if not _covered(where, places)]


def _covered(where: str, places: set[str]) -> bool:
    """Whether a loss is at the place, within it, or at what holds it."""
    return any(where == each or _within(where, each) or _within(each, where) for each in places)


def _within(inner: str, outer: str) -> bool:
    return inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in (".", "[")


class _Seen:
    """What a request says: its texts, and its JSON objects, those within texts too."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.texts: list[str] = []
        self.values: list[object] = []
        self._objects: set[str] = set()
        self._look(body)
        self._all = "\0".join(self.texts)

    def says(self, words: str) -> bool:
        """Whether the words stand somewhere, whole."""
        return not words.strip() or words.strip() in self._all or _plain(words).strip() in self._all

    def holds(self, value: object) -> bool:
        """Whether an object stands somewhere, as JSON or as text."""
        return json.dumps(value, sort_keys=True) in self._objects

    def _look(self, value: object) -> None:
        if isinstance(value, str):
            self.texts.append(value)
            if value.lstrip().startswith(("{", "[")):
                self._parse(value)
        elif isinstance(value, Mapping):
            held = cast("Mapping[str, Any]", value)
            self._objects.add(json.dumps(held, sort_keys=True))
            self.texts.extend(held)
            for each in held.values():
                self._look(each)
        elif isinstance(value, list):
            for each in cast("list[object]", value):
                self._look(each)
        self.values.append(value)

    def _parse(self, text: str) -> None:
        try:
            self._look(json.loads(text))
        except (ValueError, RecursionError):
            return


def _plain(words: str) -> str:
    return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _held(context: Context, seen: _Seen) -> Iterator[tuple[str, bool]]:
    """Everything that the context holds, with its place, and whether the request has it."""
    for part in context.system.split("\n\n"):
        yield "system", seen.says(part)
    for at, message in enumerate(context.messages):
        yield from _message(message, f"messages[{at}]", seen)
    for at, tool in enumerate(context.tools):
        yield f"tools[{at}].name", seen.says(tool.name)
        yield f"tools[{at}].description", seen.says(tool.description)
        for words in _words(tool.parameters):
            yield f"tools[{at}].parameters", seen.says(words)
        yield f"tools[{at}].strict", tool.strict is not True or True in seen.values
    for name, value in context.options.items():
        if name not in _OURS and value not in (None, {}, [], _DEFAULTS.get(name)):
            yield f"options.{name}", _option(name, value, seen)
    for api, fields in cast("Mapping[str, Any]", context.options.get("vendor") or {}).items():
        for name in fields.keys() - set(_NOTES):
            yield f"options.vendor.{api}.{name}", False


def _message(message: Message, where: str, seen: _Seen) -> Iterator[tuple[str, bool]]:
    for at, block in enumerate(message.content):
        yield f"{where}.content[{at}]", _block(block, seen)
    for at, call in enumerate(message.tool_calls):
        yield f"{where}.tool_calls[{at}].name", seen.says(call.name)
        yield f"{where}.tool_calls[{at}].args", seen.says(call.args) or _arguments(call.args, seen)
    for at, result in enumerate(message.tool_results):
        for number, block in enumerate(result.content):
            yield f"{where}.tool_results[{at}].content[{number}]", _block(block, seen)


def _arguments(args: str, seen: _Seen) -> bool:
    try:
        return seen.holds(json.loads(args))
    except (ValueError, RecursionError):
        return False


def _block(block: Block, seen: _Seen) -> bool:
    match block:
        case Text(text) | ReasoningSummary(text):
            return seen.says(text) or _arguments(text, seen)
        case File() if is_account(block):
            return seen.says(told(block))
        case Image(uri) | File(uri):
            held = inline(uri)
            return (
                seen.says(uri)
                or _by_id(uri, seen)
                or (held is not None and _bytes(held.base64, held.bytes, seen))
            )


def _by_id(uri: str, seen: _Seen) -> bool:
    return uri.startswith("file-id://") and seen.says(uri.rpartition("/")[2])


def _bytes(base64: str, body: bytes, seen: _Seen) -> bool:
    return seen.says(base64) or seen.says(body.decode("utf-8", "replace"))


def _option(name: str, value: object, seen: _Seen) -> bool:
    """Whether a value stands somewhere; of a schema, all its words."""
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        return all(seen.says(words) for words in _words(held.get("schema", held)))
    if isinstance(value, list):
        return all(each in seen.values for each in cast("list[object]", value))
    if isinstance(value, bool):
        return not value or any(name in text.lower() for text in seen.texts)
    words = _CHOICES.get(str(value), (value,)) if name == "tool_choice" else (value,)
    return any(each in seen.values or each in seen.texts for each in words) or value == "json"


def _words(value: object) -> Iterator[str]:
    """The names and descriptions within a schema, or the texts of an object."""
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        properties = held.get("properties")
        if isinstance(properties, Mapping):
            yield from cast("Mapping[str, Any]", properties)
        for name, each in held.items():
            if name == "description" and isinstance(each, str):
                yield each
            yield from _words(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _words(each)
