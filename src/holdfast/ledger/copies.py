"""Copies: a call as it stands on a line other than the one that asked for it.

A ticket that is decided on another line than its own leaves its call as it is and makes a copy
there.  The conversation names the first call, whichever line it is read on; what became of it on
a line is what became of the copy that was decided there.
"""

from __future__ import annotations

import msgspec

from holdfast.history.space import Space
from holdfast.ledger import calls, decisions, tickets
from holdfast.ledger.calls import Held
from holdfast.model.digest import Digest
from holdfast.model.ticket import Ticket

__all__ = ["decided_on", "standing", "waiting_on"]

_PAGE = 200


def standing(space: Space, id: str, line: str) -> Held | None:
    """The call of that id as it stands on `line`: the copy that was decided there, else the call itself."""
    held = calls.find(space, id)
    if held is None or held.record.timeline == line:
        return held
    return decided_on(space, line).get(id, held)


def decided_on(space: Space, line: str) -> dict[str, Held]:
    """The copies that were made on `line`, each by the id of the call that its conversation names."""
    found: dict[str, Held] = {}
    after = ""
    while page := tickets.listing(space, after=after, limit=_PAGE):
        for asked in page:
            if asked.ticket.timeline == line:
                held = calls.read(space, asked.ticket.call)
                first = _first(space, held)
                if first != held.record.id:
                    found[first] = held
        after = page[-1].ticket.id
    return found


def waiting_on(space: Space, line: str, head: Digest | None) -> list[Ticket]:
    """What can be decided on `line`, which stands at `head`.

    What was asked on another line and decided there waits here still, unless the decision came along
    with the history; what was decided here waits no more.
    """
    found: list[Ticket] = []
    elsewhere: dict[str, list[Ticket]] = {}  # by the call that the conversation names
    after = ""
    while page := tickets.listing(space, after=after, limit=_PAGE):
        for asked in page:
            ticket = asked.ticket
            if ticket.timeline != line:
                if decisions.is_seen(space, ticket, line, head):
                    elsewhere.setdefault(_first(space, calls.read(space, ticket.call)), []).append(ticket)
            elif ticket.decision is None and decisions.is_seen(space, ticket, line, head):
                found.append(ticket)
        after = page[-1].ticket.id
    here = decided_on(space, line) if elsewhere else {}
    for call, asked_for in elsewhere.items():
        if call not in here and calls.read(space, call).record.timeline != line:
            found += _still_open(space, asked_for, head)
    return found


def _still_open(space: Space, asked: list[Ticket], head: Digest | None) -> list[Ticket]:
    """The question that is still to be decided, of all that were asked about one call on other lines."""
    for ticket in asked:
        if ticket.decision is None:
            return [ticket]
    if any(decisions.took_in(space, ticket, head) for ticket in asked):
        return []
    return [msgspec.structs.replace(asked[0], decision=None)]


def _first(space: Space, held: Held) -> str:
    """The call that a copy, or a copy of a copy, was made from."""
    while held.record.copied_from is not None:
        held = calls.read(space, held.record.copied_from)
    return held.record.id
