"""Everything that a context holds, leaf by leaf, and what a rendered request says: the two sides of the accounting.

Nothing here knows an adapter.  A context is walked as the plain data that it is; a request is walked as JSON.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple, cast

from perdure.model.context import Context
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text

__all__ = ["ACCOUNT", "Leaf", "Said", "given", "is_account", "walk"]

ACCOUNT = "application/vnd.perdure.server-tool+json"


class Leaf(NamedTuple):
    """One thing that a context holds."""

    where: str  # its place in the context
    kind: str  # text, reasoning, media, account, call, args, error, name, schema, option, vendor option, metadata
    path: tuple[str, ...]  # the keys that lead to it, below its place
    value: object

    @property
    def key(self) -> str:
        """The nearest key."""
        return next((each for each in reversed(self.path) if not each.isdigit()), "")


def walk(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The scalars within a value, each with the keys that lead to it."""
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, object]", value).items():
            yield from walk(each, (*path, name))
    elif isinstance(value, list | tuple):
        for at, each in enumerate(cast("list[object]", value)):
            yield from walk(each, (*path, str(at)))
    else:
        yield path, value


def is_account(block: Block) -> bool:
    """Whether a block tells what a vendor's own tool did."""
    return isinstance(block, File) and block.mime_type == ACCOUNT


def given(context: Context) -> Iterator[Leaf]:
    """All leaves of a context."""
    for part in context.system.split("\n\n"):
        yield Leaf("system", "text", (), part)
    for at, message in enumerate(context.messages):
        yield from _message(message, f"messages[{at}]")
    for at, tool in enumerate(context.tools):
        where = f"tools[{at}]"
        yield Leaf(f"{where}.name", "name", (), tool.name)
        yield Leaf(f"{where}.description", "text", (), tool.description)
        if tool.strict:
            yield Leaf(f"{where}.strict", "option", ("strict",), True)
        for path, value in walk(tool.parameters):
            yield Leaf(f"{where}.parameters", "schema", path, value)
    for name, value in context.options.items():
        if name != "vendor":
            yield from (Leaf(f"options.{name}", "option", (name, *path), each) for path, each in walk(value))
    for path, value in walk(context.options.get("vendor") or {}):
        yield Leaf(f"options.vendor.{path[0]}", "vendor option", path[1:], value)


def _message(message: Message, where: str) -> Iterator[Leaf]:
    for at, block in enumerate(message.content):
        yield from _block(block, f"{where}.content[{at}]")
    for at, call in enumerate(message.tool_calls):
        yield Leaf(f"{where}.tool_calls[{at}]", "name", (), call.name)
        yield Leaf(f"{where}.tool_calls[{at}]", "args", (), call.args)
    for at, result in enumerate(message.tool_results):
        place = f"{where}.tool_results[{at}]"
        if result.status == "error":
            yield Leaf(place, "error", (), "error")
        for number, block in enumerate(result.content):
            yield from _block(block, f"{place}.content[{number}]")
    if message.vendor_metadata is not None:
        for path, value in walk(json.loads(message.vendor_metadata)):
            yield Leaf(where, "metadata", path, value)


def _block(block: Block, where: str) -> Iterator[Leaf]:
    match block:
        case Text(text):
            yield Leaf(where, "text", (), text)
        case ReasoningSummary(text):
            yield Leaf(where, "reasoning", (), text)
        case File() if is_account(block):
            facts = json.loads(base64.b64decode(block.uri.partition(",")[2]))
            for name in ("input", "result"):
                path = (str(facts.get("type")), name)
                yield from (Leaf(where, "account", *each) for each in walk(facts.get(name), path))
        case Image(uri) | File(uri):
            yield Leaf(where, "media", (), uri)


class Said:
    """What a request says: its texts, its scalars by their keys, its JSON objects, those within texts too."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        """Look at all of it."""
        self.texts: list[str] = []
        self.whole: set[str] = set()
        self.direct: set[str] = set()  # those that stand in no text
        self.pairs: set[tuple[str, str]] = set()
        self.keys: set[str] = set()
        self._runs: list[str] = []  # texts that stand in parts one behind the other, as one
        self._objects: Counter[str] = Counter()
        self._schemas: list[Mapping[str, Any]] = []
        self._look(body, "")
        self.all = "\0".join(self.texts)
        self._escaped = self.all.casefold()
        self._joined = "\0".join(self._runs)

    def words(self, words: str) -> bool:
        """Whether the words stand somewhere, as they are or as JSON text has them."""
        bare = words.strip()
        plain = bare.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        quoted = json.dumps(plain, ensure_ascii=False)[1:-1]
        return bare in self._joined or any(
            each in self.all for each in (bare, plain, quoted, json.dumps(quoted, ensure_ascii=False)[1:-1])
        )

    def quoted(self, words: str) -> int:
        """How often the words stand as JSON text has them, or as the JSON that they are."""
        text = json.dumps(words, ensure_ascii=False)[1:-1]
        as_text = self.all.count(text) if text != words else 0
        try:
            return as_text + self._objects[_dumped(json.loads(words))]
        except (ValueError, RecursionError):
            return as_text

    def json(self, text: str) -> bool:
        """Whether an object stands somewhere, given as JSON text."""
        try:
            return _dumped(json.loads(text or "{}")) in self._objects
        except (ValueError, RecursionError):
            return False

    def pair(self, key: str, value: object) -> bool:
        """Whether a scalar stands under a key."""
        return (key, _dumped(value)) in self.pairs

    def value(self, value: object) -> bool:
        """Whether a scalar stands anywhere; a text in any case."""
        if isinstance(value, str):
            return value.casefold() in self._escaped
        return any(each == _dumped(value) for _, each in self.pairs)

    def schema_with(self, name: str, value: object) -> bool:
        """Whether a schema stands somewhere with that field beside it."""
        return any(each.get(name) == value for each in self._schemas)

    def _look(self, value: object, key: str, *, in_text: bool = False) -> None:
        if isinstance(value, Mapping):
            held = cast("Mapping[str, Any]", value)
            self._objects[_dumped(held)] += 1
            if "schema" in held and not in_text:
                self._schemas.append(held)
            self.keys |= set(held)
            self.texts.extend(held)
            for name, each in held.items():
                self._look(each, name, in_text=in_text)
        elif isinstance(value, list):
            listed = cast("list[object]", value)
            for is_text, run in groupby(listed, key=_is_text):
                self._runs.append(
                    "".join(cast("dict[str, str]", each)["text"] for each in run) if is_text else ""
                )
            for each in listed:
                self._look(each, key, in_text=in_text)
        else:
            self.pairs.add((key, _dumped(value)))
            if isinstance(value, str):
                self.direct |= set() if in_text else {value}
                self._text(value)

    def _text(self, text: str) -> None:
        self.texts.append(text)
        self.whole.add(text)
        start = text.find("{")
        if start >= 0 and len(text) < 200_000:
            try:
                self._look(json.JSONDecoder().raw_decode(text[start:])[0], "", in_text=True)
            except (ValueError, RecursionError):
                return


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(cast("Mapping[str, object]", part).get("text"), str)


def _dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True)
