"""Whether two calls are the same call: by fingerprint, by idempotency key, by the claim on a key.

A fingerprint is taken over the tool, its version and the arguments after validation and defaults.  1 and 1.0 are the
same call, so integral floats count as integers; integers of any size are exact; the order of keys has no meaning.
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
from collections.abc import Iterable
from hashlib import sha256
from math import isfinite
from typing import Literal, TypeAlias, cast
from urllib.parse import quote

import msgspec

from perdure.engines.contract import CellWrite, Instant, Write
from perdure.errors import Conflict, InDoubt, Invalid
from perdure.history import artifacts, cells
from perdure.history.artifacts import Staged
from perdure.history.space import Space
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
    "Age",
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


KEY = "key/"  # cells of claims, by the SHA-256 of the key


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a claim's cell."""

    space: str  # the thread's
    call: str
    at: int  # µs since 1970, UTC


class Free(msgspec.Struct, frozen=True):
    """Nobody has the key, or nobody any more."""

    revision: int = 0
    needed: bool = True  # False: no other call can have this key, so it is never claimed


class Mine(msgspec.Struct, frozen=True):
    """The call has claimed it already."""


class Reuse(msgspec.Struct, frozen=True):
    """A call with this key was done: its result is the result."""

    owner: Owner
    record: CallRecord


class Waits(msgspec.Struct, frozen=True):
    """A call with this key is under way, or nobody knows what became of it, or whether its key still stands for it."""

    owner: Owner
    record: CallRecord | None  # None: its thread was removed
    revision: int


Standing: TypeAlias = Free | Mine | Reuse | Waits

_owners = msgspec.json.Decoder(Owner)


def owner_of_key(home: Space, space: Space, record: CallRecord) -> Standing:
    """Whose the key of this call is.

    `space` is the call's thread; `home` the store's own space for keys of the store, else `space`.
    """
    if record.key is None or is_default(record, space.label):
        return Free(needed=False)
    cell = home.engine.cell(home.name, _name(record))
    if cell is None or cell.value is None:
        return Free(cell.revision if cell else 0)
    owner = cells.read(cell, _owners)
    if (owner.space, owner.call) == (space.name, record.id):
        return Mine()
    held = calls.find(_elsewhere(space, owner), owner.call)
    other = held.record if held else None
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
    """What the write of `started` must hold for a key of the thread; a `Conflict` means: ask again.

    After `Waits` only where somebody allowed it.
    """
    if isinstance(standing, Mine) or (isinstance(standing, Free) and not standing.needed):
        return ()
    value = canonical.encode_struct(Owner(space=space.name, call=record.id, at=at))
    return (CellWrite(name=_name(record), expected=standing.revision, value=value),)


def claim(home: Space, space: Space, record: CallRecord, standing: Free | Mine | Waits, *, at: int) -> None:
    """Claim a key of the store for a call that is in the ledger and not started yet.

    Raises `Conflict`, having claimed nothing, if another call was first, or if the call is not in
    the ledger: a claim that leads nowhere could never be told from one that matters.
    """
    wanted = claiming(space, record, standing, at=at)
    if not wanted:
        return
    if calls.find(space, record.id) is None:
        raise Conflict(
            f"call '{record.id}' is not in the ledger yet; its key was not claimed. Post it first."
        )
    intent = digest_of(Kind.BODY, canonical.encode([space.name, record.id, record.key]))
    write = Write(space=home.name, op_id=home.ids(), intent=intent, fences=home.fences, cells=wanted)
    try:
        home.engine.apply(write)
    except InDoubt:
        if home.engine.recorded(home.name, write.op_id) is None:
            raise


def borrowed(space: Space, reuse: Reuse) -> tuple[Staged | None, bytes | None]:
    """The result of the owner and what the model was shown of it, for a call of this space.

    What belongs to another thread is staged anew: spaces share nothing.
    """
    other, record = _elsewhere(space, reuse.owner), reuse.record
    told = shown(other, record)
    preview = None if told is None else canonical.encode_struct(told)
    if record.result is None:
        return None, preview
    digest = Digest(record.result.rpartition("/")[2])
    pieces: Iterable[bytes] = artifacts.get(other, digest)
    return artifacts.stage(space, pieces, media_type=artifacts.show(other, digest).media_type), preview


def _elsewhere(space: Space, owner: Owner) -> Space:
    if owner.space == space.name:
        return space
    space.engine.check(owner.space)
    return msgspec.structs.replace(space, name=owner.space)


def _name(record: CallRecord) -> str:
    return KEY + sha256((record.key or "").encode()).hexdigest()
