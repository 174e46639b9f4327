"""`perdure threads merge`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.answer import Answer, HeadShape
from perdure.cli.options import EVERYWHERE, Everywhere, OpId, Reason, ThreadId, Timeline
from perdure.cli.screen import Screen
from perdure.cli.showing import digest
from perdure.cli.stores import writing
from perdure.cli.wording import count
from perdure.model.head import MAIN

__all__ = ["MergedLine", "merge"]


class MergedLine(Answer, frozen=True, kw_only=True):
    """What became of a merge."""

    thread: str
    source: str
    head: HeadShape
    commit: str | None  # null: there was nothing to take in, and nothing was written
    base: str | None  # where the lines parted
    paths: int  # how many changed

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        target = self.head.timeline
        if self.commit is None:
            screen.say((self.source, "line"), f" has nothing that {target} lacks; nothing was written.")
            return
        screen.say(
            "Merged ",
            (self.source, "line"),
            " into ",
            (target, "line"),
            f", {count(self.paths, 'path')} changed, ",
            digest(self.commit),
        )


def merge(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", help="The timeline whose changes are taken in")],
    /,
    *,
    timeline: Timeline = MAIN,
    reason: Reason = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MergedLine:
    """Take in what another timeline changed

    Paths that only one line changed merge, and so do paths that both made equal. Others are
    joined by the rule that the agent declared for them, or they are a conflict: each is
    named, and nothing is written.
    """
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        outcome = found.merge(name, reason=reason or "merge", op_id=op_id)
        return MergedLine(
            thread=found.id,
            source=name,
            head=HeadShape.of(outcome.head),
            commit=outcome.commit,
            base=outcome.base,
            paths=outcome.paths,
        )
