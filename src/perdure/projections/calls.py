"""Folds the entries of the ledger into the records of calls and tickets.

Every transition of a call is one entry.  The first holds the whole record, each later one the
fields that changed, so folding the entries in order gives exactly the records that the cells
hold.  The entry that suspends a call holds its ticket, and the entry after a decision holds the
decision.
"""

from __future__ import annotations

import msgspec

from perdure.errors import Corrupt
from perdure.model import canonical
from perdure.model.call import TRANSITIONS, CallRecord, CallState
from perdure.model.ticket import Decision, Ticket

__all__ = ["NOTHING", "Book", "Transition", "decode_transition"]

NOTHING = msgspec.Raw(b"")


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the ledger.  An entry without a call is not about calls."""

    call: str = ""
    at: int = 0  # µs since 1970, UTC
    to: CallState | None = None  # None: the state stays, other fields changed
    via: tuple[CallState, ...] = ()  # the states that it passed through
    record: msgspec.Raw = NOTHING  # a CallRecord, in the first entry of a call
    set: dict[str, str | int | bool | None] = {}  # in later entries: the fields that changed
    ticket: msgspec.Raw = NOTHING  # a Ticket, if one was opened
    decided: str | None = None  # the ticket that `decision` is about, unless it was opened here
    decision: Decision | None = None
    by: str | None = None  # the person who resolved or reconciled it


_transitions = msgspec.json.Decoder(Transition)
_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


def decode_transition(body: bytes) -> Transition:
    """Return the transition that an entry holds; raises `Corrupt` if it cannot be read."""
    return canonical.decode_struct(_transitions, body, "entry of the ledger")


class Book:
    """The calls and tickets after the entries taken so far; raises `Corrupt` for an entry that cannot follow them."""

    def __init__(self) -> None:
        """Begin with no call."""
        self.calls: dict[str, CallRecord] = {}
        self.tickets: dict[str, Ticket] = {}

    def take(self, step: Transition) -> None:
        """Add the next entry."""
        if not step.call:
            return
        before = self.calls.get(step.call)
        _check_hops(step, before)
        try:
            if before is None:
                after = _records.decode(step.record)
            else:
                changed = {**step.set, "at": step.at, "state": step.to or before.state}
                after = msgspec.structs.replace(before, **changed)
            self.calls[step.call] = after
            if step.ticket or step.decided is not None:
                self._ask(step)
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError) as error:
            raise _unfit(step, str(error)) from error

    def _ask(self, step: Transition) -> None:
        if step.ticket:
            ticket = _tickets.decode(step.ticket)
            self.tickets[ticket.id] = ticket
        if step.decided is not None:
            asked = self.tickets.get(step.decided)
            if asked is None:
                raise _unfit(step, f"it decides ticket '{step.decided}', which was never opened")
            self.tickets[step.decided] = msgspec.structs.replace(asked, decision=step.decision)


def _check_hops(step: Transition, before: CallRecord | None) -> None:
    if (before is None) != bool(step.record):
        raise _unfit(step, "it begins a call that is known" if before else "it continues an unknown call")
    state = before.state if before else None
    for hop in step.via if step.to is None else (*step.via, step.to):
        if hop not in TRANSITIONS[state]:
            raise _unfit(step, f"a call that is {state or 'not known'} cannot become {hop}")
        state = hop


def _unfit(step: Transition, why: str) -> Corrupt:
    return Corrupt(
        f"an entry of the ledger about call '{step.call}' does not fit: {why}.",
        code="ledger_entry_unfit",
        call=step.call,
        why=why,
    )
