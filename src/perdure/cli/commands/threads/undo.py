"""`perdure threads undo`.

`perdure threads redo`.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.threads.moves import MoveAnswer
from perdure.cli.input.lookup import given
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere, OpId, ThreadId, Timeline
from perdure.errors import Invalid
from perdure.model.head import MAIN

__all__ = ["Undone", "undo", "Redone", "redo"]


class Undone(MoveAnswer, frozen=True, kw_only=True):
    """Where the timeline went back to."""

    @property
    def told(self) -> str:
        """What happened."""
        return "Undone"


def undo(
    thread: ThreadId,
    /,
    *,
    turns: Annotated[
        int | None, Parameter(metavar="N", help="How many turns to step back; 1 if left out")
    ] = None,
    at: Annotated[
        str | None,
        Parameter(name="--at", metavar="REF", help="Go back to this moment, instead of over turns"),
    ] = None,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Undone:
    """Step back over the last turn, or to any moment

    Nothing is lost: redo takes it back, and every commit can still be read, forked and
    returned to.
    """
    if at is not None and turns is not None:
        raise Invalid("--turns and --at are two ways to say how far; nothing was moved. Give one of them.")
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        if at is None:
            head = found.undo(1 if turns is None else turns, op_id=op_id)
        else:
            head = found.undo(to=given(found, at), op_id=op_id)
        return Undone.by(found, head)


class Redone(MoveAnswer, frozen=True, kw_only=True):
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
