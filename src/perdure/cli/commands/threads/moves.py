"""What undo, redo and the other moves of a head have in common."""

from __future__ import annotations

from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.shapes.conversation import place_name
from perdure.shapes.threads import HeadMove

__all__ = ["MoveAnswer"]


class MoveAnswer(HeadMove, Answer, frozen=True, kw_only=True):
    """The head of a timeline after a move."""

    @property
    def summary(self) -> str:
        """Return what happened, for the place before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        place = place_name(self.turn, is_apart=self.apart).replace("in turn", "at turn")
        if self.head.commit is None:
            place = "before the first turn"
        screen.sentence(
            f"{self.summary}: ",
            (self.head.timeline, "line"),
            " of ",
            (self.thread, "name"),
            f" is {place}, version {self.head.version}, "
            if place
            else f" is at version {self.head.version}, ",
            digest(self.head.commit),
        )
