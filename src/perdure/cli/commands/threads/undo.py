"""`perdure threads undo`.

`perdure threads redo`.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.threads.moves import MoveAnswer
from perdure.cli.completion import in_store
from perdure.cli.input.lookup import given
from perdure.cli.input.stores import writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, OpId, ThreadId, Timeline
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid
from perdure.model.head import MAIN
from perdure.shapes.threads import UndoShape

__all__ = ["Undone", "undo", "Redone", "redo"]


class Undone(UndoShape, MoveAnswer, frozen=True, kw_only=True):
    """The head of the timeline after an undo."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Undone"

    def show(self, screen: Screen) -> None:
        """Print one sentence, and after a promotion how to take that back."""
        MoveAnswer.show(self, screen)
        if self.still_done:
            screen.sentence(f"What was done outside stays done: {_counted(self.still_done)}.")
        if self.may_be_done:
            screen.sentence(f"What may have been done outside, too: {_counted(self.may_be_done)}.")
        if self.old_main is not None:
            screen.sentence("It went over a turn of the promoted timeline, which is still main.")
            screen.suggest("Back to the old main: ", "threads", "undo", self.thread, "--to", self.old_main)


def _counted(tools: list[str]) -> str:
    return ", ".join(
        f"{tool} ({times} times)" if times > 1 else tool for tool, times in Counter(tools).items()
    )


def undo(
    thread: ThreadId,
    /,
    *,
    turns: Annotated[int | None, Parameter(metavar="N", help="How many turns to undo; 1 if left out")] = None,
    to: Annotated[
        str | None,
        Parameter(
            name="--to",
            metavar="REF",
            completer=in_store,
            help="Go back to this commit, instead of over turns",
        ),
    ] = None,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Undone:
    """Undo the last turn, or go back to any commit

    Nothing is lost: redo reverses it, and every commit can still be read, forked and
    returned to. A promotion is no turn: go back to the version before it with --to.
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
            head = found.undo(1 if turns is None else turns, op_id=op_id, author=os_user())
        else:
            head = found.undo(to=given(found, to), op_id=op_id, author=os_user())
        return Undone.of_undo(found, head, is_by_turns=to is None)


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
        return Redone.by(found, found.redo(op_id=op_id, author=os_user()))
