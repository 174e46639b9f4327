"""Reads values that LangGraph's serializer wrote, as data: no class is imported, constructed or called.

LangGraph writes MessagePack with extension types, each of which names a module, a class and its arguments, and in early
versions JSON with `lc` constructors.  Both become a `ForeignObject` here: the names and the arguments, and nothing more.
Pickles are never read.

`saver_form` writes such data as Perdure's saver stores values, so that a graph can go on with it.  It names classes and
constructs none: the saver does so only for the types of its own list and those that the program declared.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.canonical import DEPTH_MAX

__all__ = ["ForeignObject", "decode_typed", "plain", "saver_form"]

_ARRAY, _SNAPSHOT = 6, 7
_NAMED = frozenset({0, 1, 2, 3, 4, 5})  # extension types that name a module and a class
_DEPTH_MAX = 60  # of extension values inside extension values
_LISTS = frozenset({"set", "frozenset", "deque", "tuple", "list"})
_STANDARD = frozenset(
    {"builtins", "uuid", "datetime", "decimal", "collections", "pathlib", "ipaddress", "zoneinfo"}
)
_INT_MAX = 2**63
_MARK = "$"  # the key that names a type in the saver's form
_SAFE_INT_MAX = 2**53 - 1
_SAVER_DEPTH_MAX = 40  # as deep as the saver stores values
_FROM_TEXT = frozenset({"UUID", "Decimal", "ZoneInfo", "datetime"}) | {
    f"IPv{version}{kind}" for version in (4, 6) for kind in ("Address", "Interface", "Network")
}
_FROM_PARTS = {"timedelta": "timedelta", "timezone": "timezone", "compile": "pattern"} | {
    "PosixPath": "path",
    "WindowsPath": "path",
    "PurePosixPath": "PurePosixPath",
    "PureWindowsPath": "PureWindowsPath",
}
_SEND = ("node", "arg", "timeout")  # the arguments of LangGraph's Send, by position
_OF_LANGGRAPH = frozenset({"Interrupt", "Command", "Overwrite", "TimeoutPolicy", "Item"})


class ForeignObject(msgspec.Struct, frozen=True):
    """An object of another program: the names of its module and class, and what it was made from."""

    module: str
    name: str
    value: Any


def decode_typed(kind: str, body: bytes) -> Any:
    """Return a stored value as data; raise `Invalid` if its encoding is not known or its bytes are damaged."""
    match kind:
        case "null" | "empty":
            return None
        case "bytes" | "bytearray":
            return body
        case "msgpack":
            return _unpacked(body, 0)
        case "json":
            return _from_json(body)
        case _:
            raise _unreadable(kind, "values of this kind are not read")


def _unpacked(body: bytes | memoryview, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise _unreadable("msgpack", "it is nested too deeply")

    def extension(code: int, data: memoryview) -> Any:
        if code in _NAMED:
            parts = _unpacked(data, depth + 1)
            if isinstance(parts, list) and len(cast("list[Any]", parts)) >= 3:
                module, name, value, *_ = cast("list[Any]", parts)
                return ForeignObject(str(module), str(name), value)
        if code == _SNAPSHOT:
            return ForeignObject("langgraph", "DeltaSnapshot", _unpacked(data, depth + 1))
        return ForeignObject("numpy" if code == _ARRAY else "", f"extension {code}", bytes(data))

    try:
        return msgspec.msgpack.Decoder(ext_hook=extension).decode(body)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise _unreadable("msgpack", str(error)[:200]) from error


def _from_json(body: bytes) -> Any:
    try:
        return json.loads(body, object_hook=_constructed)
    except (ValueError, RecursionError) as error:
        raise _unreadable("json", str(error)[:200]) from error


def _constructed(value: dict[str, Any]) -> Any:
    """Return an object that names a constructor as data."""
    path = value.get("id")
    if value.get("type") != "constructor" or "lc" not in value or not isinstance(path, list) or not path:
        return value
    names = [str(each) for each in cast("list[Any]", path)]
    return ForeignObject(".".join(names[:-1]), names[-1], value.get("kwargs") or value.get("args"))


def _unreadable(kind: str, why: str) -> Invalid:
    return Invalid(
        f"a stored value ({kind[:40]}) cannot be read: {why}.", code="import_value_unreadable", kind=kind[:40]
    )


def plain(value: Any, depth: int = 0) -> Any:
    """Return data as JSON can hold it; an object of another program becomes its type and its arguments."""
    if depth > DEPTH_MAX:
        raise _unreadable("value", "it is nested too deeply")
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_INT_MAX <= value < _INT_MAX else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(bytes(cast("bytes", value))).decode()}
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {str(key): plain(each, depth + 1) for key, each in items}
        case list() | tuple() | set() | frozenset():
            return [plain(each, depth + 1) for each in cast("list[Any]", value)]
        case ForeignObject():
            return _plain_object(value, depth)
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case _:
            return str(value)


def _plain_object(value: ForeignObject, depth: int) -> Any:
    inner: Any = plain(value.value, depth + 1)
    is_nested = isinstance(inner, list | dict)
    if value.module in _STANDARD and (value.name in _LISTS or not is_nested):
        return inner
    return {"type": f"{value.module}.{value.name}", "value": inner}


def saver_form(value: Any, depth: int = 0) -> Any:
    """Return data as the saver stores it; raise `Invalid` if it has no form there."""
    if depth > _SAVER_DEPTH_MAX:
        raise _unreadable("value", "it is nested too deeply")
    inner = depth + 1
    match value:
        case None | bool():
            return value
        case str():
            return (
                value
                if _is_text(value)
                else {_MARK: "text", "v": value.encode("utf-8", "surrogatepass").hex()}
            )
        case int():
            return value if abs(value) <= _SAFE_INT_MAX else {_MARK: "int", "v": str(value)}
        case float():
            return value if math.isfinite(value) else {_MARK: "float", "v": repr(value)}
        case bytes() | bytearray() | memoryview():
            return {_MARK: "bytes", "v": base64.b64encode(bytes(cast("bytes", value))).decode()}
        case list() | tuple():
            return [saver_form(each, inner) for each in cast("list[Any]", value)]
        case dict():
            given = cast("dict[Any, Any]", value)
            if all(isinstance(key, str) and key != _MARK and _is_text(key) for key in given):
                return {key: saver_form(each, inner) for key, each in given.items()}
            return {
                _MARK: "dict",
                "v": [[saver_form(k, inner), saver_form(v, inner)] for k, v in given.items()],
            }
        case ForeignObject():
            return _saver_object(value, inner)
        case _:
            raise _unreadable("value", f"a {type(value).__name__} has no form in a checkpoint")


def _saver_object(value: ForeignObject, depth: int) -> Any:
    """Return an object by the name of its type; one of no known type is for the program that declares it."""
    name, given = value.name, value.value
    inner = saver_form(given, depth)
    if value.module.startswith("langchain") and name.removesuffix("Chunk").endswith("Message"):
        return {_MARK: "message", "type": name, "v": inner}
    if value.module.startswith("langchain") and name == "Document":
        return {
            _MARK: name,
            "v": {field: inner[field] for field in ("id", "metadata", "page_content") if field in inner},
        }
    if value.module.startswith("langgraph"):
        if name == "DeltaSnapshot":
            return {_MARK: "delta", "v": inner}
        if name == "Send" and isinstance(inner, list):
            return {_MARK: name, "v": dict(zip(_SEND, cast("list[Any]", inner), strict=False))}
        if name in _OF_LANGGRAPH and isinstance(inner, dict):
            return {_MARK: name, "v": cast("Any", inner)}
    if value.module in _STANDARD | {"re"} and (found := _standard_form(name, given, inner)) is not None:
        return found
    if isinstance(given, list | bytes):
        raise _unreadable("value", f"a {value.module}.{name} has no form in a checkpoint")
    kind = "object" if isinstance(given, dict) else "enum"
    return {_MARK: kind, "type": [value.module, name], "v": inner}


def _standard_form(name: str, given: Any, inner: Any) -> Any:
    if name in ("set", "frozenset") and isinstance(given, list):
        return {_MARK: name, "v": sorted(inner, key=canonical.encode)}
    if name in ("tuple", "deque") and isinstance(given, list):
        return {_MARK: name, "v": inner}
    if name in _FROM_TEXT and isinstance(given, str):
        return {_MARK: name, "v": inner}
    if name in _FROM_PARTS and isinstance(given, list):
        return {_MARK: _FROM_PARTS[name], "v": inner}
    try:
        if name == "date":
            return {_MARK: name, "v": datetime.date(*given).isoformat()}
        if name == "time" and not given.get("tzinfo"):
            return {_MARK: name, "v": datetime.time(**given).isoformat()}
    except (TypeError, ValueError, AttributeError) as error:
        raise _unreadable("value", f"it is no {name}") from error
    return None


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)
