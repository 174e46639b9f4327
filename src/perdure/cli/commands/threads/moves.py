"""What undo, redo and the other moves of a head have in common."""

from __future__ import annotations

from typing import Self

from perdure.cli.output.answer import Answer, HeadShape
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.model.head import Head
from perdure.store.thread import Thread

__all__ = ["MoveAnswer"]


class MoveAnswer(Answer, frozen=True, kw_only=True):
    """The head of a timeline after a move."""

    thread: str
    head: HeadShape
    turn: int  # the last one on the line now; 0: none

    @classmethod
    def by(cls, thread: Thread, head: Head) -> Self:
        """Return the answer of a move that ended at `head`."""
        newest = next(iter(thread.at(head).log(limit=1)), None)
        return cls(thread=thread.id, head=HeadShape.of(head), turn=newest.turn if newest else 0)

    @property
    def summary(self) -> str:
        """Return what happened, for the place before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        place = f"turn {self.turn}" if self.turn else "before the first turn"
        screen.say(
            f"{self.summary}: ",
            (self.head.timeline, "line"),
            " of ",
            (self.thread, "name"),
            f" is at {place}, version {self.head.version}, ",
            digest(self.head.commit),
        )
