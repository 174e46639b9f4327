"""`perdure threads show`."""

from __future__ import annotations

import msgspec

from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer, HeadShape
from perdure.cli.output.display import digest, show_message
from perdure.cli.output.formatting import count, moment, stamp
from perdure.cli.output.screen import Column, Screen
from perdure.cli.output.shapes import CostShape, MessageShape
from perdure.model.head import MAIN
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["ThreadShowAnswer", "TimelineShape", "show"]

_MESSAGES_SHOWN = 4
_COLUMNS = (
    Column("timeline", "line", is_id=True),
    Column("version", right=True),
    Column("turns", right=True),
    Column("", "quiet"),
    Column("head"),
)


class TimelineShape(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline and its head."""

    timeline: str
    version: int
    commit: str | None
    turns: int
    sealed: bool


class ThreadShowAnswer(Answer, frozen=True, kw_only=True):
    """One thread at a moment: its timelines, how much state it has, and what was said last."""

    id: str
    agent: str
    owner: str | None
    backend: str | None  # that takes the next turn
    server: str | None  # that the conversation is at; null: none is recorded
    begun_at: str
    head: HeadShape
    commit: str | None  # the moment that is shown
    names: list[str]  # that other frameworks have for it
    paths: int
    timelines: list[TimelineShape]
    messages: list[MessageShape]  # the last few, oldest first
    cost: CostShape  # of all its runs, over all timelines

    def show(self, screen: Screen) -> None:
        """Print facts, timelines and messages."""
        screen.say((self.id, "title"))
        whose = self.backend or "no backend yet"
        whose += f" at {self.server}" if self.server else ""
        facts = [("agent", f"{self.agent} on {whose}"), ("owner", self.owner or "none")]
        facts.append(("begun", moment(self.begun_at)))
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
                    "sealed" if each.sealed else "",
                    digest(each.commit),
                )
                for each in self.timelines
            ],
        )
        if self.messages:
            screen.gap()
            for message in self.messages:
                show_message(screen, message, whole=False, indent=0)


def show(
    thread: ThreadId, /, *, timeline: Timeline = MAIN, at: At = None, everywhere: Everywhere = EVERYWHERE
) -> ThreadShowAnswer:
    """Show one thread: its timelines, the size of its state, and its last messages"""
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        seen = view_at(found, at)
        return ThreadShowAnswer(
            id=found.id,
            agent=found.agent,
            owner=found.owner,
            backend=seen.backend,
            server=seen.server,
            begun_at=stamp(found.begun_at),
            head=HeadShape.of(seen.head),
            commit=seen.digest,
            names=[name for entry in seen.log(limit=1) for name in entry.names],
            paths=sum(1 for _ in seen.entries()),
            timelines=_timelines(found, seen),
            messages=[MessageShape.of(entry) for entry in seen.transcript(limit=_MESSAGES_SHOWN)],
            cost=CostShape.of(found.cost()),
        )


def _timelines(thread: Thread, seen: View) -> list[TimelineShape]:
    return [
        TimelineShape(
            timeline=hold.head.timeline,
            version=hold.head.version,
            commit=hold.head.commit,
            turns=next((entry.turn for entry in seen.at(hold.head).log(limit=1)), 0),
            sealed=hold.sealed,
        )
        for hold in thread.timelines()
    ]
