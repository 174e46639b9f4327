"""Approvals over all threads: what waits, and where."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.engines.contract import Engine
from perdure.history.space import label_of
from perdure.ledger import tickets
from perdure.ledger.tickets import Asked
from perdure.model.ticket import Ticket

__all__ = ["Approval", "waiting"]

_PAGE = 200


class Approval(msgspec.Struct, frozen=True):
    """A call of some thread that waits for a decision."""

    thread: str
    ticket: Ticket

    @property
    def call(self) -> str:
        """The id of the call."""
        return self.ticket.call


def waiting(engine: Engine) -> list[Approval]:
    """Everything that waits for a decision, oldest first."""
    found = [Approval(label_of(engine, space), asked.ticket) for space, asked in _all(engine)]
    return sorted(found, key=lambda each: each.ticket.asked_at)


def _all(engine: Engine) -> Iterator[tuple[str, Asked]]:
    after = ("", "")
    while page := tickets.waiting(engine, after=after, limit=_PAGE):
        yield from page
        after = (page[-1][1].ticket.id, page[-1][0])
