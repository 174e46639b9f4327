"""Reads and writes JSON: canonical bytes for what Perdure stores, strict reading of what people and programs write.

Canonical bytes are UTF-8 with keys sorted by their UTF-8 bytes, no spaces, floats as Python's `repr` with -0.0
written 0.0; 1 and 1.0 are distinct.  `encode` accepts only dict, list, str, int, float, bool and None within stated
limits.  It checks the whole value *before* encoding, because encoders quietly turn NaN into null and a UUID into a
string.

`loads` reads JSON text strictly: no key twice in one object, no NaN or Infinity.  `parse` also requires that the
value can be stored.  Tool arguments, results and vendorMetadata never pass through `encode`: the store keeps the text
that the vendor sent.

msgspec reads the fields of a type when the type is first decoded, and other threads see the description half made: two
threads that decode the same type for the first time at once end the process (SIGSEGV).  So a module prepares the types
that it defines and others decode, while threads that import the module wait for it; and a function that decodes a type
prepares it first, one thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.model.fork_safety import ThreadLock

__all__ = [
    "DEPTH_MAX",
    "INT_MAX",
    "Json",
    "decode",
    "decode_struct",
    "encode",
    "encode_struct",
    "loads",
    "parse",
    "prepare",
    "prepared",
]

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

DEPTH_MAX = 64
INT_MAX = 2**53 - 1

_STR: frozenset[object] = frozenset((str,))

_T = TypeVar("_T")
_type: Callable[[object], object] = type

_sorted = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()
_preparing = ThreadLock()


def encode(value: object) -> bytes:
    """Return the canonical bytes of `value`; raises `Invalid`, naming the place, for what JSON cannot hold."""
    plain = _judge(value)
    if plain is None:
        plain = _check(value, 1, ())
    try:
        return _sorted.encode(value) if plain else _by_repr(value)
    except UnicodeEncodeError as error:
        raise _surrogate(error) from error


def encode_struct(value: msgspec.Struct) -> bytes:
    """Return the canonical bytes of one of our structs, whose fields hold no floats; raises `Invalid` as `encode`."""
    try:
        return _sorted.encode(value)
    except UnicodeEncodeError as error:
        raise _surrogate(error) from error


def decode(body: bytes) -> Json:
    """Return the value whose canonical bytes are `body`; raises `Corrupt` if it is not JSON."""
    try:
        return cast("Json", _decoder.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"stored JSON cannot be read: {error}.", code="json_unreadable", advice="Run `perdure verify`."
        ) from error


def decode_struct(decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
    """Return the struct that `body` holds; raises `Corrupt`, calling it `what`, if it is not one."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"a stored {what} cannot be read: {error}.",
            code="record_unreadable",
            advice="Run `perdure verify`.",
            what=what,
        ) from error


def loads(text: str | bytes) -> Json:
    """Return the value of strict JSON text; raises `ValueError` or `RecursionError`.

    `Invalid` is a `ValueError`: it is raised for a key that appears twice, NaN and Infinity.  Its message is a part of
    a sentence, for the caller to end.
    """
    return cast(
        "Json", json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    )


def parse(text: str) -> Json:
    """Return the value of strict JSON text if it can be stored; raises `Invalid`."""
    try:
        value = loads(text)
    except Invalid as error:
        raise Invalid(
            f"{error.message}; nothing was written.", code=error.code, advice=error.advice, **error.facts
        ) from None
    except (ValueError, RecursionError) as error:  # an integer of too many digits is a plain ValueError
        raise Invalid(f"not JSON: {error}; nothing was written.", code="not_json") from error
    encode(value)
    return value


def _judge(value: Any) -> bool | None:
    """Return what `_check` returns, but None where it refuses: faster, because it does not track the place.

    It is one call however many objects a document has; what one level has of them is the next level.
    """
    if _type(value) is not dict and _type(value) is not list:
        return _judge_one(value)
    plain, depth, level = True, 0, [value]
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            return None
        below: list[Any] = []
        for items in level:
            if _type(items) is dict:
                if not _STR.issuperset(map(_type, items)):
                    return None
                items = items.values()
            for item in items:
                kind = _type(item)
                if kind is str:
                    continue
                if kind is int:
                    if not -INT_MAX <= item <= INT_MAX:
                        return None
                elif kind is dict or kind is list:
                    below.append(item)
                elif kind is not bool and item is not None:
                    judged = _judge_one(item)
                    if judged is None:
                        return None
                    plain = plain and judged
        level = below
    return plain


def _judge_one(value: object) -> bool | None:
    try:
        return _check(value, 1, ())
    except Invalid:
        return None


def _check(value: object, depth: int, where: tuple[str | int, ...]) -> bool:
    """Refuse what is not canonical; True if no float in `value` needs writing by `repr`."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return _check_int(cast("int", value), where)
    if kind is float:
        return _check_float(cast("float", value), where)
    if depth > DEPTH_MAX:
        raise _refused(where, "json_too_deep", f"is nested deeper than {DEPTH_MAX}")
    if kind is dict:
        return _check_dict(cast("dict[object, object]", value), depth, where)
    if kind is list:
        items = cast("list[object]", value)
        # A list, not a generator inside all(): every item is checked even after the first that is not plain.
        return all([_check(item, depth + 1, (*where, index)) for index, item in enumerate(items)])
    raise _refused(
        where,
        "json_type_unsupported",
        f"is of the type {kind.__qualname__}, not dict, list, str, int, float, bool or None",
    )


def _check_dict(value: dict[object, object], depth: int, where: tuple[str | int, ...]) -> bool:
    plain = True
    for key, item in value.items():
        if type(key) is not str:
            raise _refused(where, "json_key_not_text", f"has the key {key!r}, which is not a string")
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        plain = _check(item, depth + 1, (*where, key)) and plain
    return plain


def _check_int(value: int, where: tuple[str | int, ...]) -> bool:
    if not -INT_MAX <= value <= INT_MAX:
        raise _refused(where, "json_integer_too_large", "is an integer beyond ±(2^53-1)")
    return True


def _check_float(value: float, where: tuple[str | int, ...]) -> bool:
    if value != value or value in (float("inf"), float("-inf")):
        raise _refused(where, "json_not_finite", f"is {value!r}")
    size = abs(value)
    return 1e-4 <= size < 1e16 or (value == 0 and str(value) == "0.0")


_ADVICE = {
    "json_too_deep": "Put the inner parts under paths of their own.",
    "json_type_unsupported": "Make a list of a tuple or a set, and text of a date.",
    "json_key_not_text": "Make the key text.",
    "json_integer_too_large": "Write it as text.",
    "json_not_finite": "Write null, or text.",
}


def _refused(where: tuple[str | int, ...], code: str, what: str) -> Invalid:
    place = "the value" + "".join(f"[{step!r}]" for step in where)
    return Invalid(
        f"{place} {what}; nothing was written.",
        code=code,
        advice=_ADVICE[code],
        place=where,
    )


def _surrogate(error: UnicodeEncodeError) -> Invalid:
    return Invalid(
        f"a string holds a lone surrogate ({error.object[error.start : error.end]!r}), which is not text; "
        "nothing was written.",
        code="lone_surrogate",
        advice="Replace it, or keep the text as bytes.",
    )


def _by_repr(value: object) -> bytes:
    """Encode with every float as Python's `repr`, which the fast encoder writes another way."""
    text = json.dumps(_without_minus_zero(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _without_minus_zero(value: object) -> object:
    match value:
        case float():
            return value + 0.0
        case dict():
            return {key: _without_minus_zero(item) for key, item in cast("dict[str, object]", value).items()}
        case list():
            return [_without_minus_zero(item) for item in cast("list[object]", value)]
        case _:
            return value


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise Invalid(f"the key {twice!r} appears twice in one object", code="json_key_repeated", key=twice)
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise Invalid(f"{text} is not JSON", code="json_not_finite")


# ---- types


def prepare(*types: Any) -> None:
    """Read the fields of types, where their module is imported."""
    for each in types:
        msgspec.json.Decoder(each)


def prepared(type: _T) -> _T:
    """Return the type, whose fields were read; one that msgspec cannot decode is returned as it is."""
    try:
        _prepare_once(type)
    except TypeError:  # what annotates it cannot be hashed
        _prepare_alone(type)
    return type


def _prepare_alone(type: Any) -> None:
    with _preparing, suppress(Exception):  # what is wrong with a type is raised where it is used
        msgspec.json.Decoder(type)


_prepare_once = lru_cache(maxsize=1_024)(_prepare_alone)
