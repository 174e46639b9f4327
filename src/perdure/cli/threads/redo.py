"""`perdure threads redo`."""

from __future__ import annotations

from perdure.cli.options import EVERYWHERE, Everywhere, OpId, ThreadId, Timeline
from perdure.cli.stores import writing
from perdure.cli.threads.moved import Moved
from perdure.model.head import MAIN

__all__ = ["Redone", "redo"]


class Redone(Moved, frozen=True, kw_only=True):
    """Where the timeline stands again."""

    @property
    def told(self) -> str:
        """What happened."""
        return "Redone"


def redo(
    thread: ThreadId, /, *, timeline: Timeline = MAIN, op_id: OpId = None, everywhere: Everywhere = EVERYWHERE
) -> Redone:
    """Take back the last undo"""
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        return Redone.by(found, found.redo(op_id=op_id))
