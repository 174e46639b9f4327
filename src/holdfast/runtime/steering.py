"""Steering: what somebody says to a run in mid-flight, queued durably, used at its next step.

A message waits in a cell of its own.  The commit that puts it into the conversation empties the
cell in the same write, so it is heard once, whatever happens in between.
"""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import Cell, CellWrite
from holdfast.errors import Conflict, Invalid
from holdfast.history import cells
from holdfast.history.space import Space
from holdfast.ledger import lease as leases
from holdfast.model import canonical, names
from holdfast.model.message import Message, Text, decode_message, encode_message
from holdfast.runtime import records

__all__ = ["STEER", "Queued", "queue", "queued"]

STEER = "steer/"  # cells, by timeline and message id

_PAGE = 100


class _Steer(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a steering cell."""

    id: str
    message: str  # its canonical bytes, as text


class Queued(msgspec.Struct, frozen=True):
    """A message that waits for the next step, and the write that takes it out of the queue."""

    id: str
    message: Message
    taken: CellWrite


_steers = msgspec.json.Decoder(_Steer)


def queue(space: Space, timeline: str, text: str | Message, *, id: str | None = None) -> str:
    """Have the run on `timeline` hear something at its next step; the message's id.

    The same id again changes nothing.  Raises `Conflict` if no run is there to hear it.
    """
    message = Message("user", (Text(text),)) if isinstance(text, str) else text
    if message.role not in ("user", "system"):
        raise Invalid(f"a run is steered by a user, not by {message.role}; nothing was queued.")
    if leases.current(space, timeline) is None:
        raise Conflict(f"no run is on '{timeline}' to steer; nothing was queued. Use run().")
    name = names.check_id("message id", id) if id else space.ids()
    cell = space.engine.cell(space.name, f"{STEER}{timeline}/{name}")
    if cell is not None:
        return name
    value = canonical.encode_struct(_Steer(id=name, message=encode_message(message).decode()))
    records.apply(space, "steer", CellWrite(name=f"{STEER}{timeline}/{name}", expected=0, value=value))
    return name


def queued(space: Space, timeline: str) -> list[Queued]:
    """What waits to be heard, in the order of the ids."""
    found = space.engine.cells(space.name, prefix=f"{STEER}{timeline}/", limit=_PAGE)
    return [_queued(cell) for cell in found]


def _queued(cell: Cell) -> Queued:
    steer = cells.read(cell, _steers)
    taken = CellWrite(name=cell.name, expected=cell.revision, value=None)
    return Queued(steer.id, decode_message(steer.message.encode()), taken)
