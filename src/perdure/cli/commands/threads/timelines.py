"""`perdure threads fork`.

`perdure threads promote`.

`perdure threads seal`.

`perdure threads merge`.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.commands.threads.moves import MoveAnswer
from perdure.cli.input.lookup import given
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, At, Everywhere, OpId, Reason, ThreadId, Timeline
from perdure.cli.output.answer import Answer, HeadShape
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid
from perdure.model.head import MAIN

__all__ = ["ForkAnswer", "fork", "Promoted", "promote", "SealedLine", "seal", "MergedLine", "merge"]


class ForkAnswer(Answer, frozen=True, kw_only=True):
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
    name: Annotated[str, Parameter(name="NAME", help="The name of the new timeline")],
    /,
    *,
    timeline: Timeline = MAIN,
    at: At = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ForkAnswer:
    """Fork a timeline at any of its commits; nothing is copied"""
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        begun = found.fork(name, at=UNSET if at is None else given(found, at), op_id=op_id)
        return ForkAnswer(thread=found.id, timeline=timeline, head=HeadShape.of(begun.head))


class Promoted(MoveAnswer, frozen=True, kw_only=True):
    """The head of main, and the name of the old main."""

    source: str
    kept_as: str

    @property
    def summary(self) -> str:
        """Return what happened."""
        return f"Promoted {self.source}, keeping the old main as {self.kept_as}"


def promote(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", help="The timeline that becomes main")],
    /,
    *,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Promoted:
    """Make another timeline main; the old main is kept, sealed"""
    with writing(everywhere) as store:
        found = store.thread(thread)
        head = found.promote(name, op_id=op_id)
        moved = MoveAnswer.by(found, head)
        kept_as = f"{head.timeline}.v{head.version - 1}"  # the old main, by the version that it had
        return Promoted(thread=moved.thread, head=moved.head, turn=moved.turn, source=name, kept_as=kept_as)


class SealedLine(MoveAnswer, frozen=True, kw_only=True):
    """The last head of the timeline."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Sealed"


def seal(
    thread: ThreadId,
    name: Annotated[
        str | None, Parameter(name="NAME", help="The timeline to seal", show_default=False)
    ] = None,
    /,
    *,
    timeline: Annotated[
        str | None, Parameter(metavar="NAME", help="The timeline to seal, as an option")
    ] = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> SealedLine:
    """Seal a timeline: it takes no more writes

    It can still be read, forked and promoted.
    """
    wanted = {given for given in (name, timeline) if given is not None}
    if len(wanted) != 1:
        raise Invalid(
            "a seal is permanent, so name exactly one timeline, also for main; nothing was sealed.",
            code="one_timeline",
        )
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=wanted.pop())
        return SealedLine.by(found, found.seal(op_id=op_id))


class MergedLine(Answer, frozen=True, kw_only=True):
    """The result of a merge."""

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
            screen.say((self.source, "line"), f" has no change that {target} lacks; nothing was written.")
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
    name: Annotated[str, Parameter(name="NAME", help="The timeline to merge from")],
    /,
    *,
    timeline: Timeline = MAIN,
    reason: Reason = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MergedLine:
    """Merge the changes of another timeline

    Paths that only one timeline changed merge, and so do paths that both changed to the same value.
    Others are merged by the rule that the agent declares for them, or they are a conflict: the error
    names each, and nothing is written.
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
