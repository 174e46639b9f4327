"""Copies: a call as it stands on a line other than the one that asked for it.

A ticket that is decided on another line than its own leaves its call as it is and makes a copy
there.  The conversation names the first call, whichever line it is read on; what became of it on
a line is what became of the copy that was decided there.
"""

from __future__ import annotations

import msgspec

from perdure.history import cells
from perdure.history.space import Space
from perdure.ledger import calls, decisions, listing, tickets
from perdure.ledger.calls import Held
from perdure.ledger.decisions import COPY
from perdure.model.digest import Digest
from perdure.model.ticket import Ticket

__all__ = ["decided_on", "standing", "waiting_on"]

_ids = msgspec.json.Decoder(str)


def standing(space: Space, id: str, line: str) -> Held | None:
    """The call of that id as it stands on `line`: the copy that was decided there, else the call itself."""
    held = calls.find(space, id)
    if held is None or held.record.timeline == line:
        return held
    cell = space.engine.cell(space.name, f"{COPY}{line}:{id}")
    return held if cell is None or cell.value is None else calls.read(space, cells.read(cell, _ids))


def decided_on(space: Space, line: str) -> list[str]:
    """The calls of other lines that were decided on `line`, by the ids that its conversation has for them."""
    return list(listing.marked(space, COPY, line))


def waiting_on(space: Space, line: str, head: Digest | None) -> list[Ticket]:
    """What can be decided on `line`, which stands at `head`.

    What was asked on another line and decided there waits here still, unless the decision came along
    with the history; what was decided here waits no more.
    """
    found = [each for each in tickets.open_on(space, line) if decisions.is_seen(space, each, line, head)]
    elsewhere: dict[str, list[Ticket]] = {}  # by the call that the conversation names
    for ticket in tickets.elsewhere(space, line):
        if decisions.is_seen(space, ticket, line, head):
            first = decisions.first_of(space, calls.read(space, ticket.call).record)
            if first.timeline != line:
                elsewhere.setdefault(first.id, []).append(ticket)
    here = set(decided_on(space, line)) if elsewhere else set[str]()
    for call, asked_for in elsewhere.items():
        if call not in here:
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
