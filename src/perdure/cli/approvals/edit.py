"""`perdure approvals edit`."""

from __future__ import annotations

from perdure.cli.approvals.decided import Decided
from perdure.cli.approvals.show import diff_of
from perdure.cli.coding import OptionalCode
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why
from perdure.cli.screen import Screen
from perdure.cli.values import GivenValue, parsed

__all__ = ["Edited", "edit"]


_CHECKED: dict[str | None, str] = {
    "tool": "The tool has checked them.",
    "schema": "They fit the schema that was recorded when the call asked; the tool checks them when it runs.",
    None: "Nobody has checked them: no schema was recorded. The tool does when it runs; with --code it does now.",
}


class Edited(Decided, frozen=True, kw_only=True):
    """The decision, and the call that it moved, with its new arguments."""

    @property
    def told(self) -> str:
        """What was decided."""
        return "Edited and approved"

    def show_change(self, screen: Screen) -> None:
        """Print the arguments before and after, as a diff, and who has looked at them."""
        for line in diff_of(self.before, self.decision.value):
            screen.cut("  ", line)
        if not self.again:
            screen.wrap((_CHECKED[self.checked], "quiet"))


def edit(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    value: GivenValue,
    by: By = None,
    why: Why = None,
    code: OptionalCode = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Edited:
    """Let a call go on with other arguments, shown as a diff

    The new arguments replace the old ones whole, and are approved by this. With --code the tool
    checks them now, else the schema that was recorded when it asked, if there is one.
    """
    arguments = parsed(value, "--value")
    return Edited.make(
        everywhere, thread, call, "edit", timeline=timeline, value=arguments, by=by, why=why, code=code
    )
