"""Traces one call: everything that the ledger says of it, with its texts.

A record names arguments, question and result by digest; a trace has the texts, or None where one is missing or was
forgotten.  The transitions of the call are read from the ledger, from shortly before its first entry to the entry
that left it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Engine, LedgerEntry
from perdure.errors import Forgotten
from perdure.history.ancestry import commits_of
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.ledger import calls, tickets
from perdure.ledger.calls import CALL
from perdure.ledger.results import shown
from perdure.ledger.tickets import TICKET
from perdure.model.call import UNCLEAR, CallRecord, CallState
from perdure.model.digest import Digest
from perdure.model.message import ToolResult
from perdure.model.names import id_meant
from perdure.model.ticket import Repeat, Ticket
from perdure.projections.calls import Book, Transition, decode_transition

__all__ = ["Passed", "Traced", "trace", "unclear"]

_SPAN = 16  # entries: of a round or two
_FOUND, _LATE = "its hook says that it was done", "its result came late"

_records = msgspec.json.Decoder(CallRecord)


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the ledger about a call."""

    at: int  # µs since 1970, UTC
    states: tuple[CallState, ...]  # the states that it passed, in order; none: its state did not change
    by: str | None = None  # the person who decided or resolved it, or had its tool asked
    why: str | None = None


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """One call, and the texts that belong to it."""

    record: CallRecord
    arguments: str | None  # JSON text, as they are now
    result: ToolResult | None  # what the model is shown
    ticket: Ticket | None  # the last one
    # What is known now of the call that the ticket asks about; None: it asks about no repeat.
    repeat: Repeat | None
    asked: str | None  # JSON text: the arguments that the ticket is about
    value: str | None  # JSON text: what was decided, for `edit` and `answer`
    named: str  # the whole id that was asked for: the call's, or that of one of its tickets
    passed: tuple[Passed, ...] = ()  # oldest first

    @property
    def last_attempt(self) -> tuple[int | None, int | None]:
        """When its tool was last called, and when what came of that was recorded, in µs; None: not, or not yet.

        The start of a call that only reads is recorded when the tool returns: such a call began when it was requested,
        or decided.  Both are None without the history, and for a call that was imported.
        """
        start: int | None = None
        end: int | None = None
        before = 0
        for each in self.passed if self.record.origin != "import" else ():
            for number, state in enumerate(each.states, 1):
                if state == "started":
                    start, end = (each.at if number == len(each.states) else before), None
                elif start is not None and end is None:
                    end = each.at
            before = each.at
        return start, end


def trace(space: Space, id: str, *, history: bool = True) -> Traced:
    """Read everything that the ledger says of a call, by its id or by that of its ticket; raises `NotFound`.

    The beginning or the end of an id that Perdure made is enough, or the part of another that listings show; raises `Invalid` if it fits several.  Without `history`
    the transitions are left out; to find them the ledger is read for the lifetime of the call.
    """
    id = _whole(space, id)
    asked = tickets.find(space, id) if calls.find(space, id) is None else None
    record = calls.read(space, asked.ticket.call if asked else id).record
    last = tickets.find(space, record.ticket) if record.ticket else None
    stored = asked or last
    ticket = None if stored is None else tickets.as_of_now(space, stored.ticket)
    return Traced(
        record=record,
        arguments=_text(space, record.args),
        result=shown(space, record),
        ticket=ticket,
        repeat=tickets.repeat_of(space, ticket) if ticket else None,
        asked=_text(space, ticket.args) if ticket else None,
        value=_text(space, ticket.decision.value) if ticket and ticket.decision else None,
        named=id,
        passed=tuple(_passed(space, record)) if history else (),
    )


def _whole(space: Space, id: str) -> str:
    """Return the whole id that `id` is, or is a part of."""
    if calls.find(space, id) or tickets.find(space, id):
        return id
    for prefix, what in ((CALL, "call"), (TICKET, "approval")):
        cells = loops.cells(space.engine, space.name, prefix=prefix, after=prefix)
        known = (cell.name.removeprefix(prefix) for cell in cells)
        if whole := id_meant(id, known, what=what, beginnings=True):
            return whole
    return id


def unclear(
    engine: Engine, *, after: tuple[str, str] = ("", ""), limit: int
) -> Sequence[tuple[str, CallRecord]]:
    """Read calls of unknown outcome of every thread, sorted by (id, space), each with the name of its space."""
    found = engine.listed(prefix=CALL, after=(CALL + after[0], after[1]), limit=limit)
    return [(cell.space, read_record(cell, _records)) for cell in found]


def _passed(space: Space, record: CallRecord) -> list[Passed]:
    """Read the transitions of a call, from its first entry to the one that left it as it is."""
    book, found = Book(), list[Passed]()
    for entry in loops.entries(space.engine, space.name, after=_before_entry(space, record)):
        step = decode_transition(entry.body)
        if step.call != record.id:
            continue
        before = book.calls[record.id].state if record.id in book.calls else None
        book.take(step)
        passing = _passing(step)
        if passing.why is None and record.origin != "child" and _is_found(step, before):
            why = _LATE if step.set.get("late") else _FOUND
            passing = msgspec.structs.replace(passing, why=why)
        found.append(passing)
        if book.calls[record.id] == record:
            break
    return found


def _is_found(step: Transition, before: CallState | None) -> bool:
    """True if an unknown call became known by its tool and not by a person."""
    return step.to == "succeeded" and (before in UNCLEAR or not UNCLEAR.isdisjoint(step.via))


def _passing(step: Transition) -> Passed:
    decided = step.decision
    return Passed(
        at=step.at,
        states=(*step.via, step.to) if step.to else (),
        by=step.by or (decided.by if decided else None),
        why=decided.why if decided else _word(step.set.get("why")),
    )


def _before_entry(space: Space, record: CallRecord) -> int:
    """Return a position in the log after which the call was entered, and not long after.

    A commit records how far the log went when it was made.  A call is entered after the commit that requested it and
    before the commit that holds its result.  So the search reads a few entries after the first, and then backwards
    from the second; backwards from the end if the log has neither.
    """
    by_hand = record.label is not None and record.label == record.run
    low = 0 if by_hand else _read_by(space, record.label) or 0
    if any(
        _enters(entry, record.id)
        for entry in islice(loops.entries(space.engine, space.name, after=low), _SPAN)
    ):
        return low
    high = _read_by(space, record.label if by_hand else record.result_label)
    newest_first = loops.entries(
        space.engine, space.name, after=low, before=high + 1 if high else None, descending=True
    )
    return next((entry.position - 1 for entry in newest_first if _enters(entry, record.id)), low)


def _read_by(space: Space, label: str | None) -> int | None:
    """How far the log went when the commit was made that `label` names; None if there is none."""
    commits = commits_of(space, label)
    return space.step(commits[0]).commit.ledger.position if commits else None


def _enters(entry: LedgerEntry, call: str) -> bool:
    """True if the call was entered into the ledger by this entry."""
    step = decode_transition(entry.body)
    return step.call == call and bool(step.record)


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
