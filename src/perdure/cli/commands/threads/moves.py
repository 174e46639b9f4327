"""What undo, redo and the other moves of a head have in common."""

from __future__ import annotations

from typing import Self

from perdure.cli.output.answer import Answer, HeadShape
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.cli.output.shapes import place_name
from perdure.model.head import Head
from perdure.store.thread import Thread

__all__ = ["MoveAnswer"]


class MoveAnswer(Answer, frozen=True, kw_only=True):
    """The head of a timeline after a move."""

    thread: str
    head: HeadShape
    turn: int  # the number of the last message on the line now; 0: none
    apart: bool  # the line ends with a commit that belongs to no message

    @classmethod
    def by(cls, thread: Thread, head: Head) -> Self:
        """Return the answer of a move that ended at `head`."""
        newest = next(iter(thread.at(head).log(limit=1)), None)
        turn, apart = (newest.turn, newest.is_apart) if newest else (0, False)
        return cls(thread=thread.id, head=HeadShape.of(head), turn=turn, apart=apart)

    @property
    def summary(self) -> str:
        """Return what happened, for the place before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        place = place_name(self.turn, is_apart=self.apart).replace("in turn", "at turn")
        if self.head.commit is None:
            place = "before the first turn"
        screen.say(
            f"{self.summary}: ",
            (self.head.timeline, "line"),
            " of ",
            (self.thread, "name"),
            f" is {place}, version {self.head.version}, "
            if place
            else f" is at version {self.head.version}, ",
            digest(self.head.commit),
        )
