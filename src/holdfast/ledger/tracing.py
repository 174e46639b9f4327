"""Tracing one call: everything that the ledger says of it, words included.

A record names arguments, question and result by digest; here they are read, each None where it is
not there or was forgotten.  The way that the call took is read from the log, entry by entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.engines.contract import Engine
from holdfast.errors import Forgotten, Invalid
from holdfast.history import cells
from holdfast.history.space import Space
from holdfast.ledger import calls, tickets
from holdfast.ledger.calls import CALL
from holdfast.ledger.shown import shown
from holdfast.ledger.tickets import TICKET
from holdfast.model.call import CallRecord, CallState
from holdfast.model.digest import Digest
from holdfast.model.message import ToolResult
from holdfast.model.ticket import Ticket
from holdfast.projections.calls import decode_transition

__all__ = ["Passed", "Traced", "trace", "unclear"]

_PAGE = 200
_BEGINNING_MIN = 4  # characters of an id that is not given whole

_records = msgspec.json.Decoder(CallRecord)


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log about a call."""

    at: int  # µs since 1970, UTC
    states: tuple[CallState, ...]  # that it passed, in order; none: it stayed where it was
    by: str | None = None  # who decided or resolved it
    why: str | None = None


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """One call, and the words that belong to it."""

    record: CallRecord
    arguments: str | None  # JSON text, as they stand now
    result: ToolResult | None  # what the model is shown
    ticket: Ticket | None  # the last one
    asked: str | None  # JSON text: the arguments that the ticket is about
    value: str | None  # JSON text: what was decided, for `edit` and `answer`
    passed: tuple[Passed, ...] = ()  # oldest first


def trace(space: Space, id: str, *, history: bool = True) -> Traced:
    """What the ledger says of the call of that id, or of the ticket of that id; raises `NotFound`.

    A beginning of the id is enough if no other begins like it; raises `Invalid` if several do.  Without `history` the way that it took is left out, for which the whole log is read.
    """
    id = _whole(space, id)
    asked = tickets.find(space, id) if calls.find(space, id) is None else None
    record = calls.read(space, asked.ticket.call if asked else id).record
    last = tickets.find(space, record.ticket) if record.ticket else None
    ticket = asked.ticket if asked else last.ticket if last else None
    return Traced(
        record=record,
        arguments=_text(space, record.args),
        result=shown(space, record),
        ticket=ticket,
        asked=_text(space, ticket.args) if ticket else None,
        value=_text(space, ticket.decision.value) if ticket and ticket.decision else None,
        passed=tuple(_passed(space, record.id)) if history else (),
    )


def _whole(space: Space, id: str) -> str:
    """The id that `id` is, or is the beginning of."""
    if len(id) < _BEGINNING_MIN or calls.find(space, id) or tickets.find(space, id):
        return id
    found = [
        cell.name.removeprefix(prefix)
        for prefix in (CALL, TICKET)
        for cell in space.engine.cells(space.name, prefix=prefix + id, after=prefix + id, limit=2)
    ]
    if len(found) > 1:
        raise Invalid(
            f"several ids of '{space.label}' begin with '{id}': {', '.join(found)}; nothing was done. Give more of it."
        )
    return found[0] if found else id


def unclear(
    engine: Engine, *, after: tuple[str, str] = ("", ""), limit: int
) -> Sequence[tuple[str, CallRecord]]:
    """Calls of every thread that nobody knows the outcome of, by (id, space), each with the name of its space."""
    found = engine.listed(prefix=CALL, after=(CALL + after[0], after[1]), limit=limit)
    return [(cell.space, cells.read(cell, _records)) for cell in found]


def _passed(space: Space, call: str) -> Iterator[Passed]:
    after = 0
    while page := space.engine.entries(space.name, after=after, limit=_PAGE):
        for entry in page:
            step = decode_transition(entry.body)
            if step.call == call:
                decided = step.decision
                yield Passed(
                    at=step.at,
                    states=(*step.via, step.to) if step.to else (),
                    by=step.by or (decided.by if decided else None),
                    why=decided.why if decided else _word(step.set.get("why")),
                )
        after = page[-1].position


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text(space: Space, digest: Digest | None) -> str | None:
    found = _body(space, digest)
    return None if found is None else found.decode("utf-8", "surrogatepass")


def _body(space: Space, digest: Digest | None) -> bytes | None:
    try:
        return None if digest is None else space.body(digest)
    except Forgotten:
        return None
