"""`perdure calls resolve`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.calls.settled import Settled
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why
from perdure.cli.seeing import call_on
from perdure.cli.stores import writing
from perdure.cli.users import decided_by
from perdure.cli.values import parsed
from perdure.errors import Invalid

__all__ = ["Resolved", "resolve"]


class Resolved(Settled, frozen=True, kw_only=True):
    """A call as it stands after a person said what became of it."""

    @property
    def told(self) -> str:
        """What happened."""
        return f"Resolved as {self.call.outcome}"


def resolve(
    thread: ThreadId,
    call: CallId,
    outcome: Annotated[
        Literal["done", "not_done"], Parameter(name="OUTCOME", help="What became of it: done or not_done")
    ],
    /,
    *,
    result: Annotated[
        str | None,
        Parameter(
            metavar="JSON", allow_leading_hyphen=True, help="What it gave back; @FILE reads it from a file"
        ),
    ] = None,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Resolved:
    """Say what became of a call whose outcome nobody knows

    The repeat guard believes you: what was not done may be done again without asking.
    """
    if result is not None and outcome == "not_done":
        raise Invalid("a call that was not done has no result; nothing was resolved. Leave --result out.")
    with writing(everywhere) as store:
        found = store.thread(thread)
        record = call_on(found, call, timeline).record
        value = None if result is None else parsed(result, "--result")
        found.resolve(record.id, outcome, value=value, by=decided_by(by), why=why)
        return Resolved.by(found, record.id, record.state)
