"""Tickets: writes on their way through the group, and what keeps an interruption from losing one.

A signal handler may raise at any point, also inside `finally`.  So what has to happen at the
end of a write can be run again, and is run until it comes to its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock, get_ident
from types import CodeType
from typing import TypeVar

from perdure.engines.contract import Receipt, Write
from perdure.engines.sqlite.applying import Applied
from perdure.engines.sqlite.preparing import Prepared
from perdure.errors import InDoubt

__all__ = ["Ticket", "dismiss", "is_under_way", "surely"]

_T = TypeVar("_T")

_INTERRUPTIONS_MAX = 100


class Ticket:
    """One write: handed in, then settled with a receipt or an error."""

    __slots__ = (
        "applied",
        "error",
        "heir",
        "is_settled",
        "leads",
        "others",
        "prepared",
        "thread",
        "woken",
        "write",
    )

    def __init__(self, write: Write | None, prepared: Prepared | None = None) -> None:
        self.write = write  # None: work that shares its transaction with nobody
        self.prepared = prepared
        self.thread = get_ident()
        self.woken: Lock | None = None  # None: it has not had to wait
        self.is_settled = False
        self.leads = False  # it is this one's turn to write
        self.others: list[Ticket] = []  # those that it writes beside itself
        self.heir: Ticket | None = None  # whose turn it is next
        self.applied: Applied | None = None
        self.error: Exception | None = None

    def outcome(self) -> Receipt:
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied.receipt

    def wake(self) -> None:
        if self.woken is not None and self.woken.locked():
            self.woken.release()

    @property
    def op_id(self) -> str:
        return "" if self.write is None else self.write.op_id


def dismiss(leader: Ticket) -> None:
    """Settle what is not settled, and wake those that wait.  Can be run again."""
    for ticket in (leader, *leader.others):
        if not ticket.is_settled:
            ticket.error = InDoubt(ticket.op_id, "the writer was interrupted")
            ticket.is_settled = True
        if ticket is not leader:
            ticket.wake()


def is_under_way(ticket: Ticket, calls: tuple[CodeType, ...]) -> bool:
    """Whether one of these calls, for this ticket, stands on the stack of this thread."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code in calls and frame.f_locals.get("ticket") is ticket:
            return True
        frame = frame.f_back
    return False


def surely(work: Callable[[_T], None], given: _T) -> None:
    """Run `work`, which can be run again, to its end even if it is interrupted; then let the interruption go on."""
    interruption: BaseException | None = None
    for _ in range(_INTERRUPTIONS_MAX):
        try:
            work(given)
            break
        except BaseException as error:  # noqa: BLE001 (a signal handler may raise anything, at any point)
            interruption = error
    if interruption is not None:
        raise interruption
