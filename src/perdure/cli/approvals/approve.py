"""`perdure approvals approve`."""

from __future__ import annotations

from perdure.cli.approvals.decided import Decided
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why

__all__ = ["Approved", "approve"]


class Approved(Decided, frozen=True, kw_only=True):
    """The decision, and the call that it moved."""

    @property
    def told(self) -> str:
        """What was decided."""
        return "Approved"


def approve(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Approved:
    """Let a call go on as it is

    An approval is good for these arguments only, once. It is durable when this returns.
    """
    return Approved.make(everywhere, thread, call, "approve", timeline=timeline, by=by, why=why)
