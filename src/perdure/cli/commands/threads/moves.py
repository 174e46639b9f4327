"""`perdure threads moves`, and what undo, redo and the other moves of a head have in common."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import moment, the_last
from perdure.cli.output.screen import Cell, Column, Screen
from perdure.model.head import MAIN
from perdure.shapes.conversation import place_name
from perdure.shapes.threads import HeadMove, MovePage, MoveShape

__all__ = ["MoveAnswer", "Moves", "moves"]

_COLUMNS = (
    Column("version", right=True),
    Column("move"),
    Column("when", "when"),
    Column("by", leaves=2),
    Column("turn", right=True),
    Column("said, or reason", "name", gives_way=True),
    Column("commit", "digest", leaves=1),
)


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


class Moves(MovePage, Answer, frozen=True, kw_only=True):
    """The moves of a timeline's head, newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table, the commits of one turn as one row, and how to return to one of them."""
        if not self.moves:
            screen.say(f"The head of '{self.timeline}' of '{self.thread}' has not moved.")
            return
        rows = [_row(*together) for together in _together(self.moves)]
        screen.table(_COLUMNS, rows)
        if self.more:
            shared = "" if len(rows) == len(self.moves) else ", the commits of a turn in one row"
            screen.say((f"{the_last(len(self.moves), 'move')}{shared}; --limit 0 lists all.", "quiet"))
        line = () if self.timeline == MAIN else ("--timeline", self.timeline)
        screen.suggest("Return to one: ", "threads", "undo", self.thread, "--to", "version:N", *line)


def _together(found: list[MoveShape]) -> Iterator[list[MoveShape]]:
    """Yield the commits of one turn together, and every other move, an edit among them, alone."""
    for (act, _, input), group in groupby(found, key=lambda each: (each.act, each.turn, each.input)):
        if act == "commit" and input:
            yield list(group)
        else:
            yield from ([each] for each in group)


def _row(last: MoveShape, *earlier: MoveShape) -> tuple[Cell, ...]:
    act = "commits" if earlier else last.act
    words = "before the first turn" if last.to is None else last.input or last.reason or ""
    return (
        str(last.version),
        act,
        moment(last.at)[:16] if last.at else "",
        last.author or "",
        str(last.turn or ""),
        words,
        digest(last.to),
    )


def moves(
    thread: ThreadId,
    /,
    *,
    limit: Limit = 100,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Moves:
    """List the moves of a timeline's head, newest first: commits, undos, redos, promotions

    What was undone, or left by a promotion, is found here, also after a new turn ended the way of redo: each move has
    its version, and version:N is a moment like any other. A move has the time and, as approvals do, the name of who
    made it; moves that were made with older versions have neither.
    """
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        shown, more = cut_off(found.moves(limit=limit + 1 if limit else None), limit)
        return Moves(
            thread=found.id,
            timeline=found.timeline,
            moves=[MoveShape.of(found, each) for each in shown],
            more=more,
        )
