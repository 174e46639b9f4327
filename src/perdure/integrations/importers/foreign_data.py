"""Reads values that LangGraph's serializer wrote, as data: no class is imported, constructed or called.

LangGraph writes MessagePack with extension types, each of which names a module, a class and its arguments, and in early
versions JSON with `lc` constructors.  Both become a `ForeignObject` here: the names and the arguments, and nothing more.
Pickles are never read.
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
from perdure.model.canonical import DEPTH_MAX

__all__ = ["ForeignObject", "decode_typed", "plain"]

_ARRAY, _SNAPSHOT = 6, 7
_NAMED = frozenset({0, 1, 2, 3, 4, 5})  # extension types that name a module and a class
_DEPTH_MAX = 60  # of extension values inside extension values
_LISTS = frozenset({"set", "frozenset", "deque", "tuple", "list"})
_STANDARD = frozenset(
    {"builtins", "uuid", "datetime", "decimal", "collections", "pathlib", "ipaddress", "zoneinfo"}
)
_INT_MAX = 2**63


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
