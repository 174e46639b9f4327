"""`perdure threads turns`."""

from __future__ import annotations

from perdure.cli.answer import Answer
from perdure.cli.moments import view_at
from perdure.cli.options import EVERYWHERE, At, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.safe import shortened
from perdure.cli.screen import Cell, Column, Screen
from perdure.cli.shapes import TurnShape
from perdure.cli.showing import digest
from perdure.cli.stores import reading
from perdure.cli.wording import count, moment
from perdure.model.head import MAIN

__all__ = ["Turns", "turns"]

_TEXT_LENGTH = 60
_WIDE = 110
_COLUMNS = (
    Column("turn", right=True),
    Column("input", gives_way=True),
    Column("answer", gives_way=True),
    Column("backend", "quiet", gives_way=True),
    Column("when", "when"),
    Column("after", "digest"),
)


class Turns(Answer, frozen=True, kw_only=True):
    """The turns of a line, oldest first."""

    thread: str
    timeline: str
    turns: list[TurnShape]
    more: bool  # whether there are older ones beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.turns:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
            return
        if self.more:
            screen.say((f"The last {count(len(self.turns), 'turn')}; --limit 0 lists all.", "quiet"))
        screen.table(_COLUMNS, [_row(turn, wide=screen.width >= _WIDE) for turn in self.turns])


def _row(turn: TurnShape, *, wide: bool) -> tuple[Cell, ...]:
    return (
        str(turn.number),
        (shortened(turn.input or turn.reason, _TEXT_LENGTH), "" if turn.input else "quiet"),
        shortened(turn.text, _TEXT_LENGTH),
        (turn.backend or "") if wide else "",
        moment(turn.at)[5:16],
        digest(turn.after),
    )


def turns(
    thread: ThreadId,
    /,
    *,
    limit: Limit = 50,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Turns:
    """List the turns of a timeline, oldest first, a line each"""
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        seen = view_at(found, at)
        listed = seen.turns(limit=limit or None)
        return Turns(
            thread=found.id,
            timeline=found.timeline,
            turns=[TurnShape.of(turn, seen) for turn in listed],
            more=bool(listed) and listed[0].number > 1,
        )
