"""Values of a graph as plain data, and back: a closed list of types, so that stored bytes can construct nothing else.

JSON stays JSON, so that the state of a thread can be read, compared and exported.  Anything else is an object with the key
`$`, which names its type: the standard library's (datetimes, UUIDs, sets, …), LangChain's messages and documents,
LangGraph's own (`Send`, `Interrupt`, `Command`, …), and the classes that the program declared: those of the graph's state,
which LangGraph hands to `with_allowlist`, and those that the program passes itself.  A value of any other type is refused
by name before anything is written, unless the program gives a serializer of its own for such values.

Reading looks a name up in these tables and nowhere else: no module is imported, no pickle is loaded.  Only classes that the
program has imported itself are constructed, with data.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import math
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Protocol, cast

from langchain_core import messages as lc
from langchain_core.documents import Document
from langchain_core.messages.base import TextAccessor
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]
from langgraph.store.base import GetOp, Item
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy

from perdure.errors import Corrupt, Invalid, PerdureError, Unsupported
from perdure.model import canonical
from perdure.model.canonical import Json

__all__ = ["MARK", "Codec", "Serializer", "is_message"]

MARK = "$"
_INT_MAX = 2**53 - 1
_ONLY_TEXT = frozenset((str,))
_DEPTH_MAX = 40  # each level may take two of the 64 levels that a stored document has

_MESSAGES: dict[str, type[lc.BaseMessage]] = {
    each.__name__: each
    for each in (
        *(
            lc.HumanMessage,
            lc.AIMessage,
            lc.SystemMessage,
            lc.ToolMessage,
            lc.FunctionMessage,
            lc.ChatMessage,
        ),
        *(lc.HumanMessageChunk, lc.AIMessageChunk, lc.SystemMessageChunk, lc.ToolMessageChunk),
        *(lc.FunctionMessageChunk, lc.ChatMessageChunk, lc.RemoveMessage),
    )
}
_IP = {
    each.__name__: each
    for each in (
        *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
        *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
    )
}
# Classes whose fields are their constructor's arguments.
_FIELDS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "Send": (Send, ("node", "arg", "timeout")),
    "Interrupt": (Interrupt, ("value", "id", "response_schema")),
    "Command": (Command, ("graph", "update", "resume", "goto")),
    "Overwrite": (Overwrite, ("value",)),
    "TimeoutPolicy": (TimeoutPolicy, tuple(each.name for each in dataclasses.fields(TimeoutPolicy))),
    "PregelTask": (PregelTask, PregelTask._fields),
    "StateSnapshot": (StateSnapshot, StateSnapshot._fields),
    "GetOp": (GetOp, GetOp._fields),
    "Item": (Item, ("value", "key", "namespace", "created_at", "updated_at")),
    "Document": (Document, ("id", "metadata", "page_content")),
}
_FIELD_NAMES = {kind: name for name, (kind, _) in _FIELDS.items()}


class Serializer(Protocol):
    """A program's own serializer for values that are on no list; LangGraph's serializers have this shape."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the kind and the bytes of a value."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of these bytes."""
        ...


def is_message(value: object) -> bool:
    """True if `value` is a message of LangChain that can be stored."""
    return _MESSAGES.get(type(value).__name__) is type(value)


class Codec:
    """Turns the values of a graph into JSON documents and back."""

    def __init__(
        self,
        declared: Collection[type[Any] | tuple[str, ...]] = (),
        *,
        serializer: Serializer | None = None,
    ) -> None:
        """Accept the `declared` classes, given as such or by module and name, and anything else that `serializer` takes."""
        self._declared = frozenset(
            (each.__module__, each.__name__) if isinstance(each, type) else tuple(each) for each in declared
        )
        self._serializer = serializer

    def allowing(self, declared: Collection[tuple[str, ...]]) -> Codec:
        """Return a codec that accepts these classes too."""
        return Codec({*self._declared, *declared}, serializer=self._serializer)

    def joined(self, other: Codec) -> Codec:
        """Return a codec that accepts the classes of another one too, and has its serializer if this one has none."""
        return Codec({*self._declared, *other._declared}, serializer=self._serializer or other._serializer)

    def encode(self, value: object) -> Json:
        """Return a value as a JSON document; raises `Unsupported`, naming the type, for one that is on no list."""
        return self._encode(value, 0)

    def decode(self, stored: Json) -> Any:
        """Return the value that a document stands for; raises `Corrupt` or `Unsupported`, having constructed nothing else."""
        try:
            return self._decode(stored)
        except PerdureError:
            raise
        except Exception as error:  # classes of LangChain and of the program may raise any error
            raise Corrupt(
                f"a stored value of LangGraph cannot be read: {type(error).__name__}; nothing was changed.",
                code="foreign_value_damaged",
                why=str(error),
            ) from error

    def _encode(self, value: Any, depth: int) -> Json:
        kind = cast("type[Any]", type(value))
        if kind is str:
            return _text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -_INT_MAX <= value <= _INT_MAX else {MARK: "int", "v": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {MARK: "float", "v": repr(value)}
        if depth > _DEPTH_MAX:
            raise Invalid(
                f"a value of the graph is nested deeper than {_DEPTH_MAX} levels; nothing was written.",
                code="foreign_value_too_deep",
                limit=_DEPTH_MAX,
            )
        if kind is list:
            return [self._encode(each, depth + 1) for each in value]
        if kind is dict:
            return self._mapping(value, depth)
        return self._marked(value, kind, depth)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Json:
        if _ONLY_TEXT.issuperset(map(type, value)) and MARK not in value and _is_text("".join(value)):
            return {
                key: each if type(each) is str and each.isascii() else self._encode(each, depth + 1)
                for key, each in value.items()
            }
        pairs = [[self._encode(k, depth + 1), self._encode(v, depth + 1)] for k, v in value.items()]
        return {MARK: "dict", "v": cast("Json", pairs)}

    def _marked(self, value: Any, kind: type[Any], depth: int) -> Json:
        inner: Callable[[Any], Json] = lambda each: self._encode(each, depth + 1)  # noqa: E731
        if kind in _FIELD_NAMES:
            name = _FIELD_NAMES[kind]
            fields = {each: inner(getattr(value, each, None)) for each in _FIELDS[name][1]}
            return {MARK: name, "v": cast("Json", fields)}
        if kind is TextAccessor:  # the text of a message: what reads it needs no more than a text
            return _text(str(value))
        if _MESSAGES.get(kind.__name__) is kind:
            return {MARK: "message", "type": kind.__name__, "v": self._fields(value, kind, depth)}
        if kind is _DeltaSnapshot:
            return {MARK: "delta", "v": inner(value.value)}
        if (found := _standard(value, kind, inner)) is not None:
            return found
        if isinstance(value, BaseException):
            return repr(value)  # as LangGraph does: an error is told, not raised again
        if (kind.__module__, kind.__name__) in self._declared:
            return self._object(value, kind, depth)
        return self._foreign(value, kind)

    def _fields(self, value: Any, kind: type[Any], depth: int) -> dict[str, Json]:
        """Return the fields of a message, without the empty ones that its class begins with."""
        given: dict[str, Any] = {**value.__dict__, **(value.__pydantic_extra__ or {})}
        empty = _empty_fields(kind)
        return {
            key: each if type(each) is str and each.isascii() else self._encode(each, depth + 1)
            for key, each in given.items()
            if key not in empty or type(each) is not empty[key] or each
        }

    def _object(self, value: Any, kind: type[Any], depth: int) -> Json:
        name: list[Json] = [kind.__module__, kind.__name__]
        fields: dict[str, Any]
        if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
            return self._foreign(value, kind)  # a class inside a function: no reader could find it
        if isinstance(value, enum.Enum):
            return {MARK: "enum", "type": name, "v": self._encode(value.value, depth + 1)}
        if dataclasses.is_dataclass(value):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        elif hasattr(value, "__pydantic_fields__"):
            fields = {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
        elif hasattr(value, "_asdict"):
            fields = value._asdict()
        elif callable(getattr(value, "dict", None)):
            fields = value.dict()
        else:
            return self._foreign(value, kind)
        return {MARK: "object", "type": name, "v": self._encode(dict(fields), depth + 1)}

    def _foreign(self, value: Any, kind: type[Any]) -> Json:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if self._serializer is None:
            raise Unsupported(
                f"a value of the graph is a {name}, which is on no list of types; nothing was written.",
                code="foreign_type_refused",
                advice="Declare it in the state of the graph or with Saver(…, types=[…]), or pass a serializer.",
                type=name,
            )
        how, body = self._serializer.dumps_typed(value)
        return {MARK: "serialized", "type": how, "v": base64.b64encode(body).decode()}

    def _decode(self, stored: Json) -> Any:
        if isinstance(stored, list):
            return [self._decode(each) for each in stored]
        if not isinstance(stored, dict):
            return stored
        mark = stored.get(MARK)
        if mark is None:
            return {key: self._decode(each) for key, each in stored.items()}
        return self._constructed(str(mark), stored)

    def _constructed(self, mark: str, stored: Mapping[str, Json]) -> Any:
        body = stored["v"]
        if mark in _FIELDS:
            kind, names = _FIELDS[mark]
            given = dict[str, Json](**cast("dict[str, Json]", body))
            if set(given) - set(names):
                raise ValueError(f"unknown fields of {mark}")
            fields = {name: self._decode(each) for name, each in given.items()}
            return kind(
                **{name: each for name, each in fields.items() if name != "timeout" or each is not None}
            )
        match mark:
            case "message":
                fields = {"id": None, **self._decode(body)}  # RemoveMessage has no default for it
                if fields.get("content") is None:
                    fields["content"] = []
                return _MESSAGES[str(stored["type"])](**fields)
            case "dict":
                return {self._decode(k): self._decode(v) for k, v in map(_listed, _listed(body))}
            case "delta":
                return _DeltaSnapshot(self._decode(body))
            case "object" | "enum":
                return self._declared_object(mark, stored)
            case "serialized":
                if self._serializer is None:
                    raise Unsupported(
                        "a stored value needs the serializer that it was written with; nothing was read.",
                        code="serializer_missing",
                        advice="Pass it: Saver(store, serializer=…).",
                    )
                return self._serializer.loads_typed(
                    (_written(stored["type"]), base64.b64decode(_written(body)))
                )
            case _:
                return _READERS[mark](body, self._decode)

    def _declared_object(self, mark: str, stored: Mapping[str, Json]) -> Any:
        module, name = map(_written, _listed(stored["type"]))
        if (module, name) not in self._declared:
            raise Unsupported(
                f"a stored value is a {module}.{name}, which this program has not declared; nothing was read.",
                code="foreign_type_refused",
                advice="Declare it in the state of the graph or with Saver(…, types=[…]).",
                type=f"{module}.{name}",
            )
        kind = getattr(sys.modules[module], name, None)  # the program that declared it has imported it
        if kind is None:
            raise ValueError(f"{module} has no {name}")
        value = self._decode(stored["v"])
        if mark == "enum":
            return kind(value)
        if dataclasses.is_dataclass(kind):
            return _dataclass_of(kind, value)
        try:
            return kind(**value)
        except ValueError:  # the class has become stricter since
            construct = getattr(kind, "model_construct", None)
            if construct is None:
                raise
            return construct(**value)


@cache
def _empty_fields(kind: type[lc.BaseMessage]) -> dict[str, type[Any]]:
    """Return the fields whose default is None, `[]` or `{}`, with the type of that."""
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if not field.is_required()
    }
    return {name: type(each) for name, each in defaults.items() if each is None or each == [] or each == {}}


def _text(value: str) -> Json:
    return value if _is_text(value) else {MARK: "text", "v": value.encode("utf-8", "surrogatepass").hex()}


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _standard(value: Any, kind: type[Any], inner: Callable[[Any], Json]) -> Json:
    """Return a value of the standard library; None: it is none of these."""
    if kind is deque and value.maxlen is not None:
        return {MARK: "bounded deque", "v": [value.maxlen, [inner(each) for each in value]]}
    if kind in (tuple, deque):
        return {MARK: kind.__name__, "v": [inner(each) for each in value]}
    if kind in (set, frozenset):
        # By their bytes: a set has another order in each process, and equal sets are to be stored equally.
        return {MARK: kind.__name__, "v": sorted(map(inner, value), key=canonical.encode)}
    if kind in (bytes, bytearray, memoryview):
        name = "bytearray" if kind is bytearray else "bytes"
        return {MARK: name, "v": base64.b64encode(bytes(value)).decode()}
    if kind in (datetime.datetime, datetime.date, datetime.time):
        zone = getattr(value, "tzinfo", None)
        if isinstance(zone, zoneinfo.ZoneInfo) and zone.key:
            plain = value.replace(tzinfo=None, fold=0).isoformat()
            return {MARK: f"zoned {kind.__name__}", "v": [plain, zone.key, value.fold]}
        return {MARK: kind.__name__, "v": value.isoformat()}
    if kind is datetime.timedelta:
        return {MARK: "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if kind is datetime.timezone:
        return {MARK: "timezone", "v": [inner(value.utcoffset(None)), value.tzname(None)]}
    if kind in (type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath):
        name = "path" if isinstance(value, pathlib.Path) else kind.__name__
        return {MARK: name, "v": [inner(part) for part in value.parts]}
    if kind is re.Pattern:
        return {MARK: "pattern", "v": [inner(value.pattern), value.flags]}
    if kind is zoneinfo.ZoneInfo and not value.key:  # of a file: no reader could find it
        return None
    if kind in (uuid.UUID, decimal.Decimal, zoneinfo.ZoneInfo) or _IP.get(kind.__name__) is kind:
        return {MARK: kind.__name__, "v": str(value)}
    return None


def _dataclass_of(kind: Any, fields: dict[str, Any]) -> Any:
    """Return an object of a dataclass with exactly these fields; fields that the class has got since have their defaults."""
    known = {each.name: each for each in dataclasses.fields(kind)}
    if unknown := fields.keys() - known.keys():
        raise TypeError(f"{kind.__name__} has no field {min(unknown)}")
    try:
        made = kind(**{name: each for name, each in fields.items() if known[name].init})
    except Exception:  # it needs an InitVar, or refuses what it has allowed before
        if fields.keys() != known.keys():
            raise
        made = kind.__new__(kind)
    for name, each in fields.items():  # those that the constructor does not take, or has changed
        object.__setattr__(made, name, each)
    return made


def _written(stored: Json) -> str:
    """Return a stored text; raises `TypeError` for anything else, which has a text too, but not this one."""
    if not isinstance(stored, str):
        raise TypeError(f"a text is stored as {type(stored).__name__}")
    return stored


def _listed(stored: Json) -> list[Json]:
    """Return a stored list; raises `TypeError` for anything else, such as a text, which has elements too."""
    if not isinstance(stored, list):
        raise TypeError(f"a list is stored as {type(stored).__name__}")
    return stored


def _time(kind: type[Any]) -> Callable[[Json, Callable[[Json], Any]], Any]:
    return lambda body, _: kind.fromisoformat(_written(body))


def _zoned(kind: type[Any]) -> Callable[[Json, Callable[[Json], Any]], Any]:
    def read(body: Json, _: Callable[[Json], Any]) -> Any:
        text, zone, fold = _listed(body)
        zoned = zoneinfo.ZoneInfo(_written(zone))
        return kind.fromisoformat(_written(text)).replace(tzinfo=zoned, fold=fold)

    return read


def _sequence(kind: Callable[[Any], Any]) -> Callable[[Json, Callable[[Json], Any]], Any]:
    return lambda body, decode: kind([decode(each) for each in _listed(body)])


def _bounded(body: Json, decode: Callable[[Json], Any]) -> deque[Any]:
    most, elements = _listed(body)
    return deque([decode(each) for each in _listed(elements)], cast("int", most))


def _single(kind: Callable[[str], Any]) -> Callable[[Json, Callable[[Json], Any]], Any]:
    return lambda body, _: kind(_written(body))


def _parts(make: Callable[..., Any]) -> Callable[[Json, Callable[[Json], Any]], Any]:
    return lambda body, decode: make(*[decode(each) for each in _listed(body)])


_READERS: dict[str, Callable[[Json, Callable[[Json], Any]], Any]] = {
    "int": _single(int),
    "float": _single(float),
    "text": _single(lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass")),
    "bytes": _single(base64.b64decode),
    "bytearray": _single(lambda text: bytearray(base64.b64decode(text))),
    "tuple": _sequence(tuple),
    "set": _sequence(set),
    "frozenset": _sequence(frozenset),
    "deque": _sequence(deque),
    "bounded deque": _bounded,
    "datetime": _time(datetime.datetime),
    "date": _time(datetime.date),
    "time": _time(datetime.time),
    "zoned datetime": _zoned(datetime.datetime),
    "zoned time": _zoned(datetime.time),
    "timedelta": _parts(datetime.timedelta),
    "timezone": _parts(datetime.timezone),
    "path": _parts(pathlib.Path),
    "PurePosixPath": _parts(pathlib.PurePosixPath),
    "PureWindowsPath": _parts(pathlib.PureWindowsPath),
    "pattern": _parts(re.compile),
    "UUID": _single(uuid.UUID),
    "Decimal": _single(decimal.Decimal),
    "ZoneInfo": _single(zoneinfo.ZoneInfo),
    **{name: _single(kind) for name, kind in _IP.items()},
}
