"""Fingerprints: whether two calls ask for the same thing.

Taken over the tool, its version and the arguments after validation and defaults.  1 and 1.0
are the same call, so integral floats count as integers; integers are exact whatever their
size; the order of keys means nothing.  The repeat guard and approvals stand on it.

Idempotency keys: the text by which an outside service knows a call again.

A key is made once, stored with the call and handed to the tool at every attempt.  By default
it follows from thread and call, so that two intended equal calls stay two.  A template says
that calls with these arguments are one; its keys belong to the agent's thread unless their
scope is the store.  How long a service knows it is counted from the call's first start, on the
engine's clock: an age that was taken on another clock is not known.  A key is printable ASCII of at most `KEY_BYTES_MAX` bytes, because tools
put it into headers.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from math import isfinite
from typing import Literal, TypeAlias, cast
from urllib.parse import quote

import msgspec

from perdure.engines.contract import Instant
from perdure.errors import Invalid
from perdure.model.call import CallRecord
from perdure.model.canonical import DEPTH_MAX, Json
from perdure.model.names import with_article

__all__ = [
    "fingerprint_of",
    "KEY_BYTES_MAX",
    "Age",
    "check_template",
    "default_key",
    "is_default",
    "stands",
    "templated_key",
]


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


Age: TypeAlias = Literal["alive", "over", "unknown"]

KEY_BYTES_MAX = 200

_DIGITS = 40  # of a SHA-256, where a digest stands for text
_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%")


def default_key(thread: str, call: str) -> str:
    """The key of a call that has no template: the same for ever, and no other call's."""
    owner = thread.encode()
    told = len(owner).to_bytes(4, "big") + owner + call.encode()
    return "pd-" + sha256(b"perdure/1\0key\0" + told).hexdigest()[:_DIGITS]


def is_default(record: CallRecord, thread: str) -> bool:
    """Whether no other call can have the key of this one; a call without a key has none to share."""
    return record.key is None or record.key == default_key(thread, record.id)


def templated_key(template: str, arguments: dict[str, Json], *, agent: str, thread: str, scope: str) -> str:
    """The key that `template` makes of these arguments.

    Text is taken as it is, percent-encoded where it is not printable ASCII; everything else as
    JSON with 1.0 written 1.  Two fields that are not kept apart by what stands between them
    can make one key of two calls.  Raises `Invalid` for an argument that is not there.
    """
    filled = _FIELD.sub(lambda found: _filled(found, template, arguments), template)
    if scope != "store":
        filled = f"{quote(agent, safe='/')}:{quote(thread, safe='')}:{filled}"
    if len(filled) <= KEY_BYTES_MAX:
        return filled
    return f"{filled[: KEY_BYTES_MAX - _DIGITS - 1]}~{sha256(filled.encode()).hexdigest()[:_DIGITS]}"


def check_template(template: str) -> frozenset[str]:
    """The arguments that `template` names; raises `Invalid` if it cannot be filled or names none."""
    found = list(_FIELD.finditer(template))
    if any(each.group() in ("{", "}") for each in found):
        raise Invalid(
            f"the key template {template!r} has a brace that names no argument; nothing was declared. "
            "Write {name} for an argument, {{ and }} for braces."
        )
    fields = frozenset(name for each in found if (name := each.group(1)))
    if not fields:
        raise Invalid(
            f"the key template {template!r} names no argument, so all calls would be one; nothing was declared."
        )
    return fields


def stands(record: CallRecord, now: Instant) -> Age:
    """Whether the outside service still knows the call by its key; `unknown` where no clock that we have can tell."""
    if record.key is None:
        return "over"
    if record.key_until is None:
        return "alive"
    if record.key_clock != now.clock:
        return "unknown"
    return "alive" if now.at < record.key_until else "over"


def _filled(found: re.Match[str], template: str, arguments: dict[str, Json]) -> str:
    name = found.group(1)
    if name is None:
        return found.group()[0]
    if name not in arguments:
        raise Invalid(
            f"the key template {template!r} names {name!r}, which the call does not have; it was not run."
        )
    value = _plain(arguments[name])
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return quote(text.encode("utf-8", "surrogatepass"), safe=_SAFE)


def _plain(value: Json) -> Json:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
