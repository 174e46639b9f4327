"""Copies: a call as it stands on a line other than the one that asked for it.

A ticket that is decided on another line than its own leaves its call as it is and makes a copy
there.  The conversation names the first call, whichever line it is read on; what became of it on
a line is what became of the copy that was decided there.
"""

from __future__ import annotations

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
    """The tickets that can be decided on `line`, which stands at `head`: what was decided there waits no more."""
    found: list[Ticket] = []
    after = ""
    while page := tickets.listing(space, after=after, limit=_PAGE):
        open_ones = [asked.ticket for asked in page if asked.ticket.decision is None]
        found += [ticket for ticket in open_ones if decisions.is_seen(space, ticket, line, head)]
        after = page[-1].ticket.id
    if all(ticket.timeline == line for ticket in found):
        return found
    here = decided_on(space, line)
    return [each for each in found if each.timeline == line or _origin(space, each) not in here]


def _origin(space: Space, ticket: Ticket) -> str:
    return _first(space, calls.read(space, ticket.call))


def _first(space: Space, held: Held) -> str:
    """The call that a copy, or a copy of a copy, was made from."""
    while held.record.copied_from is not None:
        held = calls.read(space, held.record.copied_from)
    return held.record.id
