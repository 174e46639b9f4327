"""`perdure approvals answer`."""

from __future__ import annotations

from perdure.cli.approvals.decided import Decided
from perdure.cli.calls.show import show_json
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why
from perdure.cli.screen import Screen
from perdure.cli.values import GivenValue, parsed

__all__ = ["Answered", "answer"]


class Answered(Decided, frozen=True, kw_only=True):
    """The decision, and the call that it moved, with the answer."""

    @property
    def told(self) -> str:
        """What was decided."""
        return "Answered"

    def show_change(self, screen: Screen) -> None:
        """Print the answer."""
        show_json(screen, self.decision.value)


def answer(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    value: GivenValue,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Answered:
    """Answer a call's question, or give its result yourself

    A tool that asked goes on with the answer; any other call is not made, and the answer is its
    result. Where the approval says what shape it must have, an answer of another is refused.
    """
    given = parsed(value, "--value")
    return Answered.make(everywhere, thread, call, "answer", timeline=timeline, value=given, by=by, why=why)
