"""Queues messages for a live run, durably; the run takes them in at its next step.

A message waits in a cell of its own, numbered in the order of arrival by the run's record, which
counts them.  So a run learns from its own record that a message waits, and cannot end without having taken
it in; and a message cannot be queued for a run that has released its timeline.
The commit that puts a message into the conversation empties its cell in the same write, so the run takes it
in exactly once.  The same message again is the same input, whether it comes to steer or to run, and whether its run
lives or has ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines import loops
from perdure.engines.contract import Cell, CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, OpReused
from perdure.history.artifacts import Staged
from perdure.history.reader import head_of, is_ancestor
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.message import Message, Text, check_message, decode_message, encode_message
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.inputs import Inbound, given_before_as, inbound, naming
from perdure.runtime.session.lease import Lease

__all__ = ["STEER", "Queued", "queue", "queued"]

STEER = "steer/"  # cells, by run and number


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
    """Queue a message for the run on `timeline`, and return the message's id.

    The same id with the same words again changes nothing, also after the run has ended.  Raises `Conflict`, having
    queued nothing, if no run is on the timeline, or the id was given with other words.
    """
    message = _checked(text)
    kept, staged = brought_in(space, message)
    attempts = Attempts(f"the run on '{timeline}'", f"no message was queued for the run on '{timeline}'")
    arrived = inbound(space, timeline, message, id=id, state=None)
    while True:
        attempts.begin()
        lease = leases.current(space, timeline)
        if id is not None and _is_known(space, lease, timeline, arrived, encode_message(kept)):
            return id
        if lease is None:
            raise Conflict(
                f"no run is on '{timeline}' to steer; nothing was queued.",
                code="run_to_steer_missing",
                advice="Use run(), with the same id.",
                timeline=timeline,
            )
        try:
            _add(space, lease, timeline, arrived, kept, staged)
        except OpReused as error:  # given with other words just now
            raise _other_words(arrived) from error
        except Moved:
            continue  # another message was queued, or the run has ended
        return arrived.ids[0]


def _checked(text: str | Message) -> Message:
    """Return the message that a run is steered by; raise `Invalid` for what steers none."""
    if isinstance(text, str) and not text.strip():
        raise Invalid(
            "the text is empty; nothing was queued.", code="input_empty", advice="Give what the user says."
        )
    message = Message("user", (Text(text),)) if isinstance(text, str) else text
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"a run is steered by text or a message, not by {text!r}; nothing was queued.",
            code="input_invalid",
        )
    if message.role not in ("user", "system"):
        raise Invalid(
            f"a run is steered by a user, not by {message.role}; nothing was queued.",
            code="input_role_invalid",
            role=message.role,
        )
    check_message(message)
    return message


def queued(space: Space, run: str) -> list[Queued]:
    """Return the messages that wait for a run, in the order of arrival."""
    return [_queued(cell) for cell in _waiting(space, run)]


def _waiting(space: Space, run: str) -> Iterator[Cell]:
    prefix = f"{STEER}{run}/"
    return loops.cells(space.engine, space.name, prefix=prefix, after=prefix)


def _add(
    space: Space, lease: Lease, timeline: str, arrived: Inbound, message: Message, staged: list[Staged]
) -> None:
    """Write the message and count it, while the run holds its lease; raise `Moved` if the record has changed.

    A message with an id of the caller's is written as an input that has led to this run.
    """
    kept = records.read(space, lease.run)
    number = kept.record.steered + 1
    count, _ = records.changed(kept, steered=number)
    steer = _Steer(id=arrived.ids[0], message=encode_message(message).decode())
    fenced = msgspec.structs.replace(space, fences=(*space.fences, leases.fence(lease)))
    records.apply(
        fenced,
        "steer",
        count,
        CellWrite(name=f"{STEER}{lease.run}/{number:012d}", expected=0, value=canonical.encode_struct(steer)),
        *naming(arrived, lease.run),
        *(each for artifact in staged for each in artifact.cells),
        op_id=arrived.op_id,
        intent=arrived.intent(timeline) if arrived.op_id else None,
        objects=tuple(each for artifact in staged for each in artifact.objects),
    )


def _is_known(space: Space, lease: Lease | None, timeline: str, arrived: Inbound, body: bytes) -> bool:
    """True if the message was given before: to a run that it has steered, or while a run lives in any way.

    An input that began a run of its own is not known once no run is here: `run` gives that run, and retries it if it
    failed.  Raises `Conflict` if the id came with other words.
    """
    id = arrived.ids[0]
    try:
        run = given_before_as(space, timeline, arrived)
    except Conflict as error:
        raise _other_words(arrived) from error
    if run is not None:
        return lease is not None or id not in records.read(space, run).record.input
    if lease is None:
        return False
    # Without an op_id: by hand, on the timeline that this one was forked from, or by an earlier version.
    # The queue first: a message that leaves it before the next read is in the history then.
    queued = [steer.message.encode() for steer in _steered(space, lease.run) if steer.id == id]
    known = [digest_of(Kind.BODY, each) for each in queued] or _heard(space, lease.timeline, id)
    if known and digest_of(Kind.BODY, body) not in known:
        raise _other_words(arrived)
    return bool(known)


def _other_words(arrived: Inbound) -> Conflict:
    id = arrived.ids[0]
    return Conflict(
        f"message '{id}' was given before with other words; nothing was queued.",
        code="message_id_reused",
        advice="Give it another id.",
        id=id,
    )


def _steered(space: Space, run: str) -> Iterator[_Steer]:
    return (read_record(cell, _steers) for cell in _waiting(space, run))


def _heard(space: Space, timeline: str, id: str) -> list[Digest]:
    """Return the bodies that the timeline's history has under that id."""
    head = head_of(space, timeline).commit
    commits = [each for each in space.engine.labelled(space.name, id) if is_ancestor(space, each, head)]
    events = [event for commit in commits for event in space.step(commit).changeset.events]
    return [event.body for event in events if isinstance(event, MessageAppended) and event.id == id]


def _queued(cell: Cell) -> Queued:
    steer = read_record(cell, _steers)
    taken = CellWrite(name=cell.name, expected=cell.revision, value=None)
    return Queued(steer.id, decode_message(steer.message.encode()), taken)
