"""Claims: which call a templated key belongs to, so that calls with equal keys are one.

A key of the thread is claimed in the write that starts the call.  A key of the store is claimed
in the store's own space, by a write of its own before the call starts; the claim names the
thread's space and the call, so a process that dies in between leaves nothing that could not be
told: the same call finds its claim again, and others see what became of its owner.

A call that failed, or was denied, expired or cancelled, gives its key up; so does any settled
one when the key's lifetime ends.  Where nobody can tell whether it has, somebody is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite, Write
from perdure.errors import Conflict, InDoubt
from perdure.history import artifacts, cells
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.ledger import call_identity, calls
from perdure.ledger.repeat_guard import done
from perdure.ledger.results import shown
from perdure.model import canonical
from perdure.model.call import SETTLED, CallRecord
from perdure.model.digest import Digest, Kind, digest_of

__all__ = [
    "KEY",
    "Free",
    "Mine",
    "Owner",
    "Reuse",
    "Standing",
    "Waits",
    "borrowed",
    "claim",
    "claiming",
    "owner_of_key",
]

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
    if record.key is None or call_identity.is_default(record, space.label):
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
    match call_identity.stands(other, home.engine.instant()):
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
