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
    """The head of the timeline after an undo."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Undone"


def undo(
    thread: ThreadId,
    /,
    *,
    turns: Annotated[int | None, Parameter(metavar="N", help="How many turns to undo; 1 if left out")] = None,
    to: Annotated[
        str | None,
        Parameter(name="--to", metavar="REF", help="Go back to this commit, instead of over turns"),
    ] = None,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Undone:
    """Undo the last turn, or go back to any commit

    Nothing is lost: redo reverses it, and every commit can still be read, forked and
    returned to.
    """
    if to is not None and turns is not None:
        raise Invalid(
            "--turns and --to were both given; nothing was moved.",
            code="options_conflict",
            advice="Give one of them.",
        )
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        if to is None:
            head = found.undo(1 if turns is None else turns, op_id=op_id)
        else:
            head = found.undo(to=given(found, to), op_id=op_id)
        return Undone.by(found, head)


class Redone(MoveAnswer, frozen=True, kw_only=True):
    """The head of the timeline after a redo."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Redone"


def redo(
    thread: ThreadId, /, *, timeline: Timeline = MAIN, op_id: OpId = None, everywhere: Everywhere = EVERYWHERE
) -> Redone:
    """Reverse the last undo"""
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        return Redone.by(found, found.redo(op_id=op_id))
