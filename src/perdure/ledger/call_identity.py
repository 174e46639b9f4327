"""Whether two calls are the same call: by fingerprint, by idempotency key, by the claim on a key.

A fingerprint is taken over the tool, its version and the arguments after validation and defaults.  1 and 1.0 are the
same call, so integral floats count as integers; integers of any size are exact; the order of keys has no meaning; text
counts in its composed form (NFC), so é is é whether it is one character or two.
The repeat guard and approvals compare fingerprints.

An idempotency key is the text by which an outside service recognises a call.  It is computed once, stored with the
call and passed to the tool at every attempt.  By default it follows from the thread and the call, so two equal calls
that are both intended stay two.  A template declares that calls with these arguments are one; its keys belong to the
agent's thread unless their scope is the store.  The lifetime of a key is counted from the call's first start on the
engine's clock; an age that was measured on another clock is unknown.  A key is printable ASCII of at most
`KEY_BYTES_MAX` bytes, because tools put it into headers.

A claim says which call a templated key belongs to, so that calls with equal keys are one.  A key of the thread is
claimed by the write that starts the call.  A key of the store is claimed in the store's own space, by a separate write
before the call starts.  That claim names the thread's space and the call, so a crash between the two writes loses
nothing: the same call finds its claim again, and other calls look up the state of the call that owns the key.

A call that failed, or was denied, expired or cancelled, gives up its key; so does any settled call when the key's
lifetime ends.  If no clock can tell whether it has ended, the call waits for an approval.
"""

from __future__ import annotations

import json
import re
from collections.abc import ItemsView, Iterable
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from typing import Literal, TypeAlias, cast
from unicodedata import normalize
from urllib.parse import quote

import msgspec

from perdure.engines.contract import Cell, CellOf, CellWrite, Instant, Question, Write
from perdure.errors import Conflict, InDoubt, Invalid
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.history.space import Space, label_of, read_record
from perdure.ledger import calls
from perdure.ledger.repeat_guard import done
from perdure.ledger.results import shown
from perdure.model import canonical
from perdure.model.call import SETTLED, CallRecord
from perdure.model.canonical import DEPTH_MAX, Json
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.names import with_article

__all__ = [
    "KEY",
    "KEY_BYTES_MAX",
    "Free",
    "Mine",
    "Owner",
    "Reuse",
    "Standing",
    "Waits",
    "borrowed",
    "check_template",
    "claim",
    "claiming",
    "default_key",
    "fingerprint_of",
    "is_default",
    "owner_of_key",
    "stands",
    "templated_key",
]


_PREFIX = b"perdure/1\0fingerprint\0"

_encoder = msgspec.json.Encoder(order="sorted")


def fingerprint_of(tool: str, version: str | None, arguments: Json) -> str:
    """Return 64 hex digits that identify this call; raises `Invalid` for arguments that JSON cannot represent."""
    floats: list[float] = []
    try:
        called: list[Json] = [tool, version, _normal(arguments, 1, floats)]
        text = _exact(called) if floats else _fast(called)
    except (ValueError, TypeError) as error:  # among others an integer of too many digits
        raise Invalid(
            f"the arguments of {tool} have no fingerprint: {error}; nothing was called.",
            code="arguments_not_json",
            tool=tool,
        ) from error
    return sha256(_PREFIX + text).hexdigest()


def _fast(called: list[Json]) -> bytes:
    try:
        return _encoder.encode(called)
    except UnicodeEncodeError:
        return _exact(called)


def _exact(called: list[Json]) -> bytes:
    """Encode as `_fast` does, except that floats are written as Python's `repr` writes them."""
    text = json.dumps(called, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _normal(value: object, depth: int, floats: list[float]) -> Json:
    """Return `value` with integral floats as integers and text in NFC; append the other floats to `floats`."""
    kind = type(value)
    if kind is str:
        return _composed(cast("str", value))
    if kind is int or kind is bool or value is None:
        return cast("Json", value)
    if kind is float:
        return _number(cast("float", value), floats)
    if depth > DEPTH_MAX:
        raise ValueError(f"they are nested deeper than {DEPTH_MAX}")
    if kind is dict:
        normal: dict[str, Json] = {}
        is_ascii = True
        for key, item in _items(value):
            name = _key(key)
            if type(item) is str and item.isascii():  # as most arguments are
                normal[name] = item
            else:
                normal[name] = _normal(item, depth + 1, floats)
            is_ascii = is_ascii and name.isascii()
        if is_ascii:
            return normal
        composed = {_composed(key): item for key, item in normal.items()}
        return composed if len(composed) == len(normal) else normal  # two spellings of one key are two keys
    if kind is list:
        return [_normal(item, depth + 1, floats) for item in cast("list[object]", value)]
    raise ValueError(f"they contain {with_article(kind.__qualname__)}")


def _number(value: float, floats: list[float]) -> int | float:
    if not isfinite(value):
        raise ValueError(f"they contain {value!r}")
    if value.is_integer():
        return int(value)
    floats.append(value)
    return value


def _items(value: object) -> ItemsView[object, object]:
    return cast("dict[object, object]", value).items()


def _composed(text: str) -> str:
    return text if text.isascii() else normalize("NFC", text)


def _key(key: object) -> str:
    if type(key) is not str:
        raise ValueError(f"they have the key {key!r}, which is not a string")
    return key


Age: TypeAlias = Literal["alive", "over", "unknown"]

KEY_BYTES_MAX = 200

_DIGITS = 40  # of a SHA-256, where a digest replaces text
_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%")


@lru_cache(maxsize=64)  # a call that starts needs it three times
def default_key(thread: str, call: str) -> str:
    """Return the key of a call without a template.  It never changes, and no other call has it."""
    owner = thread.encode()
    named = len(owner).to_bytes(4, "big") + owner + call.encode()
    return "pd-" + sha256(b"perdure/1\0key\0" + named).hexdigest()[:_DIGITS]


def is_default(record: CallRecord, thread: str) -> bool:
    """True if no other call can have the key of this one, or it has no key."""
    return record.key is None or record.key == default_key(thread, record.id)


def templated_key(template: str, arguments: dict[str, Json], *, agent: str, thread: str, scope: str) -> str:
    """Return the key that `template` forms from these arguments.

    Text is used in NFC, percent-encoded where it is not printable ASCII; other values as JSON, with 1.0 written 1.
    Two fields without a separator between them can give two calls the same key.  Raises `Invalid` if the call lacks
    an argument that the template names.
    """
    filled = _FIELD.sub(lambda found: _filled(found, template, arguments), template)
    if scope != "store":
        filled = f"{quote(agent, safe='/')}:{quote(thread, safe='')}:{filled}"
    if len(filled) <= KEY_BYTES_MAX:
        return filled
    return f"{filled[: KEY_BYTES_MAX - _DIGITS - 1]}~{sha256(filled.encode()).hexdigest()[:_DIGITS]}"


def check_template(template: str) -> frozenset[str]:
    """Return the names of the arguments in `template`; raises `Invalid` if it is malformed or names none."""
    found = list(_FIELD.finditer(template))
    if any(each.group() in ("{", "}") for each in found):
        raise Invalid(
            f"the key template {template!r} has a brace that names no argument; nothing was declared.",
            code="key_template_brace",
            advice="Write {name} for an argument, {{ and }} for braces.",
            template=template,
        )
    fields = frozenset(name for each in found if (name := each.group(1)))
    if not fields:
        raise Invalid(
            f"the key template {template!r} names no argument, so all calls would be one; nothing was declared.",
            code="key_template_constant",
            template=template,
        )
    return fields


def stands(record: CallRecord, now: Instant) -> Age:
    """Say whether the outside service still recognises the call by its key; `unknown` if the clock changed since."""
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
            f"the key template {template!r} names {name!r}, which the call does not have; it was not run.",
            code="key_argument_missing",
            template=template,
            argument=name,
        )
    value = _plain(arguments[name])
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return quote(text.encode("utf-8", "surrogatepass"), safe=_SAFE)


def _plain(value: Json) -> Json:
    match value:
        case float() if value.is_integer():
            return int(value)
        case str():
            return _composed(value)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


KEY = "key/"  # cells of claims, by the SHA-256 of the key


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a claim's cell."""

    space: str  # the thread's
    call: str
    at: int  # µs since 1970, UTC


class Free(msgspec.Struct, frozen=True):
    """No call owns the key, or the call that owned it gave it up."""

    revision: int = 0
    needed: bool = True  # False: no other call can have this key, so no claim is written


class Mine(msgspec.Struct, frozen=True):
    """The call has claimed the key already."""


class Reuse(msgspec.Struct, frozen=True):
    """A call with this key is done; its result is reused."""

    owner: Owner
    record: CallRecord


class Waits(msgspec.Struct, frozen=True):
    """A call with this key is under way, or its outcome or the age of its key is unknown."""

    owner: Owner
    record: CallRecord | None  # None: the thread of that call was removed
    revision: int


Standing: TypeAlias = Free | Mine | Reuse | Waits

_owners = msgspec.json.Decoder(Owner)


def questions(space: Space, record: CallRecord) -> list[Question]:
    """Return what `owner_of_key` asks the call's thread, for a caller that asks more in the same call."""
    is_here = record.key_scope != "store" and record.key is not None and not is_default(record, space.label)
    return [CellOf(space.name, _name(record))] if is_here else []


def owner_of_key(home: Space, space: Space, record: CallRecord) -> Standing:
    """Find out which call owns the key of this one.

    `space` is the call's thread.  `home` is the store's own space for a key of the store, else `space`.
    """
    if record.key is None or is_default(record, space.label):
        return Free(needed=False)
    cell: Cell | None = home.ask(CellOf(home.name, _name(record)))[0]
    if cell is None or cell.value is None:
        return Free(cell.revision if cell else 0)
    owner = read_record(cell, _owners)
    if (owner.space, owner.call) == (space.name, record.id):
        return Mine()
    found = calls.find(_space_of(space, owner), owner.call)
    other = found.record if found else None
    if other is None or other.state not in SETTLED:
        return Waits(owner, other, cell.revision)
    if not done(other):
        return Free(cell.revision)
    match stands(other, home.engine.instant()):
        case "alive":
            return Reuse(owner, other)
        case "over":
            return Free(cell.revision)
        case "unknown":
            return Waits(owner, other, cell.revision)


def claiming(
    space: Space, record: CallRecord, standing: Free | Mine | Waits, *, at: int
) -> tuple[CellWrite, ...]:
    """Return the cells that the write of `started` needs for a key of the thread; after a `Conflict` look again.

    After `Waits` call it only if a person has allowed the call.
    """
    if isinstance(standing, Mine) or (isinstance(standing, Free) and not standing.needed):
        return ()
    value = canonical.encode_struct(Owner(space=space.name, call=record.id, at=at))
    return (CellWrite(name=_name(record), expected=standing.revision, value=value),)


def claim(home: Space, space: Space, record: CallRecord, standing: Free | Mine | Waits, *, at: int) -> None:
    """Claim a key of the store for a call that is in the ledger and not started yet.

    Raises `Conflict`, having claimed nothing, if another call was first, or if the call is not in the ledger: a claim
    without a call would look like the claim of a call whose thread was removed.
    """
    claimed = claiming(space, record, standing, at=at)
    if not claimed:
        return
    if calls.find(space, record.id) is None:
        raise Conflict(
            f"call '{record.id}' is not in the ledger yet; its key was not claimed.",
            code="call_not_in_ledger",
            advice="Post it first.",
            call=record.id,
        )
    intent = digest_of(Kind.BODY, canonical.encode([space.name, record.id, record.key]))
    write = Write(space=home.name, op_id=home.ids(), intent=intent, fences=home.fences, cells=claimed)
    try:
        home.engine.apply(write)
    except InDoubt:
        if home.engine.recorded(home.name, write.op_id) is None:
            raise


def borrowed(space: Space, reuse: Reuse) -> tuple[Staged | None, bytes | None]:
    """Return the owner's result, staged in this space, and the part of it that the model was shown.

    The result of another thread is copied: spaces share no objects.
    """
    other, record = _space_of(space, reuse.owner), reuse.record
    result = shown(other, record)
    preview = None if result is None else canonical.encode_struct(result)
    if record.result is None:
        return None, preview
    digest = Digest(record.result.rpartition("/")[2])
    pieces: Iterable[bytes] = artifacts.get(other, digest)
    return artifacts.stage(space, pieces, media_type=artifacts.show(other, digest).media_type), preview


def _space_of(space: Space, owner: Owner) -> Space:
    if owner.space == space.name:
        return space
    space.engine.check(owner.space)
    return msgspec.structs.replace(space, name=owner.space, label=label_of(space.engine, owner.space))


def _name(record: CallRecord) -> str:
    return KEY + sha256((record.key or "").encode()).hexdigest()
