"""`perdure threads show`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.errors import CODES
from perdure.cli.input.lookup import is_held, view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, show_damage, show_dropped, show_message
from perdure.cli.output.formatting import count, moment
from perdure.cli.output.ledger_words import show_held
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Corrupt
from perdure.model.head import MAIN
from perdure.shapes.threads import ThreadDetail

__all__ = ["ThreadShowAnswer", "show"]

_MESSAGES_SHOWN = 4
_COLUMNS = (
    Column("timeline", "line", is_id=True),
    Column("version", right=True),
    Column("turns", right=True),
    Column("", "quiet"),
    Column("head"),
)


class ThreadShowAnswer(ThreadDetail, Answer, frozen=True, kw_only=True):
    """One thread at a moment: its timelines, how much state it has, and what was said last."""

    dropped: int = 0  # timelines that are left out: they were dropped, or are forgotten
    held: bool = False  # it was copied or restored with open runs or approvals, and not released

    @property
    def exit_code(self) -> int:
        """Return 0 if every message could be read."""
        return CODES[Corrupt] if any(each.is_damaged for each in self.messages) else 0

    def show(self, screen: Screen) -> None:
        """Print facts, timelines and messages."""
        screen.say((self.id, "title"))
        whose = self.backend or "no backend yet"
        whose += f" at {self.server}" if self.server else ""
        facts = [("title", self.title)] if self.title else []
        facts += [("agent", f"{self.agent} on {whose}"), ("owner", self.owner or "none")]
        facts.append(("begun", moment(self.begun_at)))
        facts += [("said last", moment(self.said_at))] if self.said_at else []
        facts += [("named", name) for name in self.names]
        cost = self.cost
        if cost.steps > cost.unpriced:
            facts.append(("cost", str(cost.cost)))
        screen.facts([*facts, ("state", count(self.paths, "path")), ("moment", digest(self.commit))])
        screen.gap()
        screen.table(
            _COLUMNS,
            [
                (
                    each.timeline,
                    f"{each.version:,}",
                    f"{each.turns:,}",
                    each.removal or ("sealed" if each.sealed else ""),
                    digest(each.commit),
                )
                for each in self.timelines
            ],
        )
        show_dropped(screen, self.dropped)
        if self.messages:
            screen.gap()
            for message in self.messages:
                show_message(screen, message, whole=False, indent=0)
        if self.held:
            screen.gap()
            show_held(screen, [self.id])
        if self.exit_code:
            show_damage(screen)


def show(
    thread: ThreadId,
    /,
    *,
    dropped: Annotated[
        bool, Parameter(negative=(), show_default=False, help="List dropped timelines, too")
    ] = False,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ThreadShowAnswer:
    """Show one thread: its timelines, the size of its state, and its last messages"""
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        seen = view_at(found, at)
        held = is_held(found) and found.id in store.held(open_only=True)
        answer = ThreadShowAnswer.of(found, seen)
        listed = [each for each in answer.timelines if dropped or each.removal is None]
        left_out = len(answer.timelines) - len(listed)
        return msgspec.structs.replace(answer, timelines=listed, dropped=left_out, held=held)
