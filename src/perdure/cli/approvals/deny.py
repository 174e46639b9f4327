"""`perdure approvals deny`."""

from __future__ import annotations

from perdure.cli.approvals.decided import Decided
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why

__all__ = ["Denied", "deny"]


class Denied(Decided, frozen=True, kw_only=True):
    """The decision, and the call that it moved."""

    @property
    def told(self) -> str:
        """What was decided."""
        return "Denied"


def deny(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Denied:
    """Refuse a call; the model is told

    The call is not made. Say why, and the model is told that too.
    """
    return Denied.make(everywhere, thread, call, "deny", timeline=timeline, by=by, why=why)
