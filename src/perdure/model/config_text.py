"""Reads YAML and TOML that people write as plain JSON values, and writes YAML.

The line of every value is recorded, so that an error can name it.  Only the part of YAML that JSON can
express is accepted: no anchors, aliases, tags or second documents, and `yes` is a text, not a boolean.
Reading never imports, calls or constructs anything.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from perdure.errors import Invalid, PerdureError
from perdure.model.canonical import DEPTH_MAX, Json

__all__ = ["Document", "Place", "read_toml", "read_yaml", "write_yaml"]

Place: TypeAlias = tuple[str | int, ...]

_BYTES_MAX = 4 * 1024 * 1024
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_HEX = re.compile(r"0[xo][0-9a-fA-F]+\Z")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*(?:[ :][A-Za-z0-9_./@+-]+)*\Z")  # needs no quotes
# Words that readers of older YAML do not read as text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Controls, marks of direction, characters without width: written by their codes, so that a reader sees them.
_UNSEEN = re.compile(
    "[^ -~\u00a0-\uffff\U00010000-\U000dffff\U000e1000-\U0010ffff]|"
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?\Z")
_KEY = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)


class Document(msgspec.Struct, frozen=True):
    """The value of a text, and the lines of its parts."""

    value: Json
    lines: Mapping[Place, int]  # from 1; if a place has none, the nearest place around it has
    name: str = "the document"

    def line(self, place: Place) -> int:
        """Return the line of a place in the value."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def wrong(self, place: Place, why: str) -> Invalid:
        """Return the error that names a place."""
        where = ".".join(str(part) for part in place)
        return Invalid(
            f"{self.name}, line {self.line(place)}: {where + ': ' if where else ''}{why}; nothing was changed.",
            code="document_invalid",
            line=self.line(place),
            place=place,
        )

    def refused(self, place: Place, error: PerdureError) -> Invalid:
        """The error that names a place at which another check, which says why, refuses the value."""
        where = ".".join(str(part) for part in place)
        return Invalid(
            f"{self.name}, line {self.line(place)}: {where} is refused; nothing was changed: {error.message}",
            code=error.code,
            advice=error.advice,
            **error.facts,
        )


def read_yaml(text: str, *, name: str = "the document") -> Document:
    """Return the value of a YAML text; raises `Invalid`, naming the line, if it is no YAML or not expressible in JSON."""
    import yaml  # slow to import, and few commands need it

    _check_size(text, name)
    lines: dict[Place, int] = {}
    try:
        events = cast("Iterator[Any]", yaml.parse(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        value = _Yaml(events, lines, name).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error)
        raise _invalid(name, line, f"this is no YAML: {problem}") from error
    return Document(value, lines, name)


def read_toml(text: str, *, name: str = "the document") -> Document:
    """Return the value of a TOML text; raises `Invalid`, naming the line."""
    _check_size(text, name)
    try:
        value = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(
            f"{name}: this is no TOML: {error}; nothing was changed.", code="document_invalid"
        ) from error
    document = Document(cast("Json", value), _toml_lines(text), name)
    _check_toml(document, value, ())
    return document


def write_yaml(value: Json) -> str:
    """Return the value as YAML, keys in their order; `read_yaml` of it returns the same value."""
    return "\n".join(_written(value, 0)) + "\n"


class _Yaml:
    """Builds a value from the events of a YAML text."""

    def __init__(self, events: Iterator[Any], lines: dict[Place, int], name: str) -> None:
        self._events, self._lines, self._name = events, lines, name

    def document(self) -> Json:
        import yaml

        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), ())
        next(self._events)  # the document ends
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._wrong(after, "there is a second document; keep one to a file")
        return value

    def _value(self, event: Any, place: Place) -> Json:
        import yaml

        self._lines[place] = _line(event)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._wrong(event, "anchors and aliases are not taken; write the value out")
        if event.tag is not None:
            raise self._wrong(event, f"the tag {event.tag} is not taken; write a plain value")
        if len(place) >= DEPTH_MAX:
            raise self._wrong(event, f"this is more than {DEPTH_MAX} levels deep")
        if isinstance(event, yaml.ScalarEvent):
            return event.value if event.style is not None else self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return list(self._items(place))
        return self._mapping(place)

    def _items(self, place: Place) -> Iterator[Json]:
        import yaml

        index = 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._value(event, (*place, index))
            index += 1

    def _mapping(self, place: Place) -> dict[str, Json]:
        import yaml

        found: dict[str, Json] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if type(event) is not yaml.ScalarEvent or event.tag is not None or event.anchor is not None:
                raise self._wrong(event, "a key is a word")
            key: str = event.value
            if key in found:
                raise self._wrong(event, f"'{key}' is there twice")
            line = _line(event)
            found[key] = self._value(next(self._events), (*place, key))
            self._lines[(*place, key)] = line
        return found

    def _scalar(self, event: Any) -> Json:
        text = str(event.value)
        if text in _NULL:
            return None
        if text in _TRUTH:
            return _TRUTH[text]
        if _INTEGER.match(text):
            return int(text) if len(text) < 400 else self._too_long(event)
        if _HEX.match(text):
            return int(text, 0)
        if _NUMBER.match(text):
            number = float(text)
            if not math.isfinite(number):
                raise self._wrong(event, f"{text[:40]} is larger than any number that can be kept")
            return number
        return text

    def _too_long(self, event: Any) -> Json:
        raise self._wrong(event, "a number of more than 400 digits is not taken")

    def _wrong(self, event: Any, why: str) -> Invalid:
        return _invalid(self._name, _line(event), why)


def _invalid(name: str, line: int, why: str) -> Invalid:
    return Invalid(f"{name}, line {line}: {why}; nothing was changed.", code="document_invalid", line=line)


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def _check_size(text: str, name: str) -> None:
    if len(text) > _BYTES_MAX:
        raise Invalid(
            f"{name} has more than {_BYTES_MAX} characters; nothing was changed.",
            code="document_too_large",
            limit=_BYTES_MAX,
        )


def _toml_lines(text: str) -> dict[Place, int]:
    """Return the lines of keys, as far as each line shows its own key."""
    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _TABLE.match(line)
        if header:
            table = _parts(header[1])
            if line.lstrip().startswith("[["):
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault((*table, *_parts(key[1])), number)
    return lines


def _parts(key: str) -> Place:
    found = re.findall(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*\.?""", key)
    return tuple(part.strip("\"'") for part in found)


def _check_toml(document: Document, value: object, place: Place) -> None:
    """Raise `Invalid` for what JSON cannot express: dates, NaN and infinities."""
    if isinstance(value, dict):
        for key, each in cast("dict[str, object]", value).items():
            _check_toml(document, each, (*place, key))
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            _check_toml(document, each, (*place, index))
    elif isinstance(value, float) and not math.isfinite(value):
        raise document.wrong(place, f"{value} is no number that can be kept")
    elif not isinstance(value, str | int | float | bool):
        raise document.wrong(place, f"a {type(value).__name__} is not taken; write it as text")


def _written(value: Json, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{indent}{_key(key)}:", each, depth)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for each in value:
            yield from _entry(f"{indent}-", each, depth)
    else:
        yield indent + _leaf(value)


def _entry(start: str, value: Json, depth: int) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        if start.endswith("-"):  # the content of an item begins on its line
            first, *rest = _written(value, depth + 1)
            yield f"{start} {first.lstrip()}"
            yield from rest
        else:
            yield start
            yield from _written(value, depth + 1)
    elif isinstance(value, str) and _as_block(value):
        yield f"{start} |{'' if value.endswith(chr(10)) else '-'}"
        yield from (
            f"{'  ' * (depth + 1)}{line}" if line else "" for line in value.removesuffix("\n").split("\n")
        )
    else:
        yield f"{start} {_leaf(value)}"


def _key(key: str) -> str:
    return key if _is_plain(key) else _quoted(key)


def _leaf(value: Json) -> str:
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    """Return the text in double quotes, as JSON writes it, with characters escaped that YAML does not accept."""
    return _UNSEEN.sub(_code, json.dumps(text, ensure_ascii=False))


def _code(letter: re.Match[str]) -> str:
    code = ord(letter[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.match(text)) and text.lower() not in _WORDS


def _as_block(text: str) -> bool:
    """True if the text can be written as a literal block."""
    body = text.removesuffix("\n")
    return (
        "\n" in body
        and not text.endswith("\n\n")
        and not body.startswith((" ", "\n", "\t"))
        and not _UNSEEN.search(body.replace("\n", ""))
    )
