"""The ledger's log as data: what one entry says, and what all of them together say of calls and tickets.

Every transition of a call is one entry.  The first holds the whole record, each later one the
fields that changed, so folding the entries in order gives exactly the records that the cells
hold.  A ticket comes with the transition that it suspends a call by, and its decision with
the one that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.errors import Corrupt
from perdure.model.call import TRANSITIONS, CallRecord, CallState
from perdure.model.ticket import Decision, Ticket

__all__ = ["NOTHING", "Book", "Transition", "decode_transition", "fold"]

NOTHING = msgspec.Raw(b"")


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the ledger.  An entry without a call is somebody else's."""

    call: str = ""
    at: int = 0  # µs since 1970, UTC
    to: CallState | None = None  # None: the call stays where it is, and something was learnt of it
    via: tuple[CallState, ...] = ()  # the states that it passed on the way
    record: msgspec.Raw = NOTHING  # a CallRecord, where the call enters the ledger
    set: dict[str, str | int | bool | None] = {}  # otherwise: the fields that changed
    ticket: msgspec.Raw = NOTHING  # a Ticket, where one was opened
    decided: str | None = None  # the ticket that `decision` is about, unless it was opened here
    decision: Decision | None = None
    by: str | None = None  # who resolved it, or had its tool asked


_transitions = msgspec.json.Decoder(Transition)
_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


def decode_transition(body: bytes) -> Transition:
    """Return what an entry says; raises `Corrupt` if it cannot be read."""
    try:
        return _transitions.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"an entry of the ledger cannot be read: {error}. Run `perdure verify`.") from error


class Book:
    """What the entries taken so far say; raises `Corrupt` for one that cannot follow them."""

    def __init__(self) -> None:
        """Begin with no call."""
        self.calls: dict[str, CallRecord] = {}
        self.tickets: dict[str, Ticket] = {}

    def take(self, step: Transition) -> None:
        """Add the next entry."""
        if not step.call:
            return
        try:
            self._turn(step)
            self._ask(step)
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError) as error:
            raise _unfit(step, str(error)) from error

    def _turn(self, step: Transition) -> None:
        before = self.calls.get(step.call)
        _check_hops(step, before)
        if before is None:
            after = _records.decode(step.record)
        else:
            changed = {**step.set, "at": step.at, "state": step.to or before.state}
            after = msgspec.structs.replace(before, **changed)
        self.calls[step.call] = after

    def _ask(self, step: Transition) -> None:
        if step.ticket:
            ticket = _tickets.decode(step.ticket)
            self.tickets[ticket.id] = ticket
        if step.decided is not None:
            asked = self.tickets.get(step.decided)
            if asked is None:
                raise _unfit(step, f"it decides ticket '{step.decided}', which was never opened")
            self.tickets[step.decided] = msgspec.structs.replace(asked, decision=step.decision)


def fold(entries: Iterable[bytes]) -> dict[str, CallRecord]:
    """Return every call by its id, as the entries leave it; raises `Corrupt` where they do not fit together."""
    book = Book()
    for body in entries:
        book.take(decode_transition(body))
    return book.calls


def _check_hops(step: Transition, before: CallRecord | None) -> None:
    if (before is None) != bool(step.record):
        raise _unfit(step, "it begins a call that is known" if before else "it goes on with an unknown call")
    state = before.state if before else None
    for hop in (*step.via, *((step.to,) if step.to else ())):
        if hop not in TRANSITIONS[state]:
            raise _unfit(step, f"a call that is {state or 'not known'} cannot become {hop}")
        state = hop


def _unfit(step: Transition, why: str) -> Corrupt:
    return Corrupt(f"an entry of the ledger about call '{step.call}' does not fit: {why}.")
