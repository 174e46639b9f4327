"""`perdure threads fork`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.answer import Answer, HeadShape
from perdure.cli.moments import given
from perdure.cli.options import EVERYWHERE, At, Everywhere, OpId, ThreadId, Timeline
from perdure.cli.screen import Screen
from perdure.cli.showing import digest
from perdure.cli.stores import writing
from perdure.model.head import MAIN

__all__ = ["Forked", "fork"]


class Forked(Answer, frozen=True, kw_only=True):
    """A timeline that began."""

    thread: str
    timeline: str  # that it was forked from
    head: HeadShape

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.say(
            "Forked ",
            (self.head.timeline, "line"),
            f" from {self.timeline} of ",
            (self.thread, "name"),
            " at ",
            digest(self.head.commit),
        )


def fork(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", help="What the new timeline is called")],
    /,
    *,
    timeline: Timeline = MAIN,
    at: At = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Forked:
    """Begin a timeline at a moment of another, copying nothing"""
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        begun = found.fork(name, at=UNSET if at is None else given(found, at), op_id=op_id)
        return Forked(thread=found.id, timeline=timeline, head=HeadShape.of(begun.head))
