"""`perdure calls reconcile`."""

from __future__ import annotations

from perdure.cli.calls.settled import Settled
from perdure.cli.coding import Code, with_code
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId
from perdure.cli.seeing import call_on
from perdure.cli.stores import writing
from perdure.cli.users import decided_by

__all__ = ["Reconciled", "reconcile"]


class Reconciled(Settled, frozen=True, kw_only=True):
    """A call as it stands after its tool was asked."""

    @property
    def told(self) -> str:
        """What happened."""
        return "Asked its tool"


def reconcile(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    code: Code = None,
    by: By = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Reconciled:
    """Ask a call's tool what became of it, and settle it by the answer

    If it was done, its result is recorded. That it was not done is believed only if the process
    that started it is proven to have ended, or the tool declares that asking prevents it; then it
    starts again when its run goes on. Nothing is attempted here.
    """
    with writing(everywhere) as store:
        record = call_on(store.thread(thread), call, timeline).record
        with with_code(store, thread, code, record.timeline, needed=True) as found:
            found.reconcile(record.id, by=decided_by(by))
            return Reconciled.by(found, record.id, record.state)
