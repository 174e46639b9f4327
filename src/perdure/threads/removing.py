"""Removing a thread: not under a run, and not while nobody knows what became of a call.

With the thread its ledger goes, and with it what keeps a call from being made twice.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import Conflict
from perdure.history import timelines
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.model.call import UNCLEAR
from perdure.threads.unattended import unattended

__all__ = ["removed"]

_PAGE = 200
_SHOWN = 3
_UNSETTLED = UNCLEAR | {"started", "awaiting_approval", "approved", "requested"}


def removed(space: Space, remove: Callable[[Space], None], *, force: bool) -> None:
    """Remove the thread of that space; raises `Busy` under a run, `Conflict` while a call is not settled.

    With `force` calls that are not settled are given up.
    """

    def act(fenced: Space) -> None:
        if not force:
            _check_settled(fenced)
        remove(fenced)

    # A live run comes first: it has calls that are not settled, and they are its own business.
    lines = [hold.head.timeline for hold in timelines.timelines(space)]
    unattended(space, lines, "removing the thread", act)


def _check_settled(space: Space) -> None:
    after, left = "", list[str]()
    while page := calls.listing(space, after=after, limit=_PAGE):
        left += [
            f"{each.record.tool} '{each.record.id}' is {each.record.state}"
            for each in page
            if each.record.state in _UNSETTLED
        ]
        after = page[-1].record.id
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise Conflict(
            f"'{space.label}' has calls that are not settled: {', '.join(left[:_SHOWN])}{more}; it was not removed. "
            "Settle them (resume, decide, resolve), or give them up with force."
        )
