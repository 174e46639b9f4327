"""Clearance: whether a call may start now, and what its start must be fenced by.

Asked before every start, also of a call that somebody approved: meanwhile another line may
have sent the same thing, or another call with the same key have come to a result.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.ledger import claims, guard, tickets
from perdure.ledger.claims import Free, Mine, Reuse, Waits
from perdure.ledger.guard import Repeats
from perdure.model import canonical
from perdure.model.call import CallRecord
from perdure.model.effect import within
from perdure.model.ticket import Ticket
from perdure.runtime.desk import Desk
from perdure.runtime.meaning import learn
from perdure.runtime.tool import Tool

__all__ = ["Ask", "Borrow", "Clearance", "Deny", "Go", "clearance"]


class Go(msgspec.Struct, frozen=True):
    """It may start, if these cells are written in the same write."""

    cells: tuple[CellWrite, ...] = ()
    claim: Free | Mine | Waits | None = None  # of a key that holds store-wide: to be claimed first


class Ask(msgspec.Struct, frozen=True):
    """Somebody has to be asked."""

    ticket: Ticket


class Deny(msgspec.Struct, frozen=True):
    """It is not made."""

    why: str


class Borrow(msgspec.Struct, frozen=True):
    """A call with the same key was done: its result is this one's."""

    reuse: Reuse


Clearance: TypeAlias = Go | Ask | Deny | Borrow


def clearance(desk: Desk, tool: Tool, record: CallRecord) -> Clearance:
    """Whether `record` may start."""
    most = desk.ground.effect_max
    if not within(record.effect, most):
        return Deny(f"on this line no call beyond {most} is made")
    asked = tickets.find(desk.space, record.ticket) if record.ticket else None
    ticket = asked.ticket if asked else None
    seen = guard.seen(record, ticket)
    if record.reach.guarded and tool.repeat_guard != "allow":
        learn(desk, tool)
    verdict = guard.check(
        desk.space,
        record,
        head=desk.journal.head.commit,
        backend=record.backend,
        policy=tool.repeat_guard,
        seen=seen,
    )
    if isinstance(verdict, Repeats):
        return _repeats(desk, tool, record, verdict)
    home = desk.ground.store if record.key_scope == "store" else desk.space
    standing = claims.owner_of_key(home, desk.space, record)
    match standing:
        case Reuse():
            return Borrow(standing)
        case Waits() if not seen and guard.allowed(record, ticket).get("claim") != standing.revision:
            return Ask(_question(desk, tool, record, standing))
        case _:
            cells = guard.starting(record, verdict)
            if record.key_scope == "store":
                return Go(cells, standing)
            return Go((*cells, *claims.claiming(desk.space, record, standing, at=desk.now())))


def _repeats(desk: Desk, tool: Tool, record: CallRecord, found: Repeats) -> Clearance:
    if tool.repeat_guard == "deny":
        return Deny(_words(found))
    ticket = tickets.repetition(
        record,
        found,
        id=desk.space.ids(),
        at=desk.now(),
        message=_words(found),
        arguments_schema=tool.arguments_schema,
    )
    return Ask(ticket)


def _question(desk: Desk, tool: Tool, record: CallRecord, waits: Waits) -> Ticket:
    """The question whether this call may run though another has its key; approving covers that claim and no later one."""
    state = waits.record.state if waits.record else "gone with its thread"
    if waits.record is not None and guard.done(waits.record):
        state += ", and nobody can tell whether its key still stands for it"
    return tickets.question(
        record,
        id=desk.space.ids(),
        at=desk.now(),
        action="repeat",
        parameters=canonical.encode({"case": "key", "claim": waits.revision}).decode(),
        arguments_schema=tool.arguments_schema,
        message=f"a call with the same key ({record.key}), '{waits.owner.call}', is {state}",
    )


def _words(found: Repeats) -> str:
    earlier = found.earlier
    match found.case:
        case "unclear":
            what = f"is {earlier.state}: it may have happened"
        case "elsewhere":
            what = "was done, but is not in the history of this line"
        case "backend" if earlier.origin == "import":
            what = "was done elsewhere, before it was brought in"
        case "backend":
            what = f"was done, asked for by {earlier.backend or 'another backend'}"
    return f"the same call to {earlier.tool}, '{earlier.id}', {what}"
