"""Fingerprints: whether two calls ask for the same thing.

Taken over the tool, its version and the arguments after validation and defaults.  1 and 1.0
are the same call, so integral floats count as integers; integers are exact whatever their
size; the order of keys means nothing.  The repeat guard and approvals stand on it.
"""

from __future__ import annotations

import json
from hashlib import sha256
from math import isfinite
from typing import cast

import msgspec

from perdure.errors import Invalid
from perdure.model.canonical import DEPTH_MAX, Json
from perdure.model.names import with_article

__all__ = ["fingerprint_of"]

_PREFIX = b"perdure/1\0fingerprint\0"

_encoder = msgspec.json.Encoder(order="sorted")


def fingerprint_of(tool: str, version: str | None, arguments: Json) -> str:
    """64 hex digits for this call; raises `Invalid` for arguments that JSON cannot hold."""
    floats: list[float] = []
    try:
        called: list[Json] = [tool, version, _normal(arguments, 1, floats)]
        text = _exact(called) if floats else _fast(called)
    except (ValueError, TypeError) as error:  # among others an integer of too many digits
        raise Invalid(f"the arguments of {tool} have no fingerprint: {error}; nothing was called.") from error
    return sha256(_PREFIX + text).hexdigest()


def _fast(called: list[Json]) -> bytes:
    try:
        return _encoder.encode(called)
    except UnicodeEncodeError:
        return _exact(called)


def _exact(called: list[Json]) -> bytes:
    """The same bytes, and floats, which the fast encoder writes in another way, as Python's `repr`."""
    text = json.dumps(called, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _normal(value: object, depth: int, floats: list[float]) -> Json:
    """`value` with integral floats as integers; the floats that are left are added to `floats`."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return cast("Json", value)
    if kind is float:
        return _number(cast("float", value), floats)
    if depth > DEPTH_MAX:
        raise Invalid(f"they are nested deeper than {DEPTH_MAX}")
    if kind is dict:
        items = cast("dict[object, object]", value).items()
        return {_key(key): _normal(item, depth + 1, floats) for key, item in items}
    if kind is list:
        return [_normal(item, depth + 1, floats) for item in cast("list[object]", value)]
    raise Invalid(f"they hold {with_article(kind.__qualname__)}")


def _number(value: float, floats: list[float]) -> int | float:
    if not isfinite(value):
        raise Invalid(f"they hold {value!r}")
    if value.is_integer():
        return int(value)
    floats.append(value)
    return value


def _key(key: object) -> str:
    if type(key) is not str:
        raise Invalid(f"they have the key {key!r}, which is not a string")
    return key
