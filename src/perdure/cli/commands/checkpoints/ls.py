"""`perdure checkpoints ls`."""

from __future__ import annotations

import msgspec

from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import ago, count
from perdure.cli.output.screen import Column, Screen
from perdure.model.head import MAIN
from perdure.shapes.text import now, stamp
from perdure.switching.checkpoint.stored import StoredCheckpoint, name_of

__all__ = ["CheckpointShape", "Checkpoints", "ls"]

_COLUMNS = (
    Column("checkpoint", "name"),
    Column("made", "when", leaves=3),
    Column("from", gives_way=True),
    Column("to", gives_way=True),
    Column("goal (a guess)", gives_way=True),
    Column("calls", right=True, leaves=1),
    Column("waits", right=True, leaves=4),
    Column("commit", "digest", leaves=2),
)


class CheckpointShape(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint, in short."""

    name: str
    digest: str
    commit: str  # that made it a part of the line
    at: str
    from_backend: str | None
    to_backend: str | None
    goal: str
    task: str
    calls: int  # in it
    approvals: int  # that wait in it
    summary_by: str | None  # the model whose summary is beside it

    @classmethod
    def of(cls, kept: StoredCheckpoint) -> CheckpointShape:
        """Return the checkpoint in the shape of --json."""
        checkpoint = kept.checkpoint
        return cls(
            name=name_of(kept.digest),
            digest=kept.digest,
            commit=kept.commit,
            at=stamp(kept.at),
            from_backend=checkpoint.from_backend,
            to_backend=checkpoint.to_backend,
            goal=checkpoint.summary.user_goal,
            task=checkpoint.summary.current_task,
            calls=len(checkpoint.calls) + sum(many.count for many in checkpoint.earlier),
            approvals=len(checkpoint.pending_approvals),
            summary_by=checkpoint.told.by if checkpoint.told else None,
        )


class Checkpoints(Answer, frozen=True, kw_only=True):
    """The checkpoints that switches left on a timeline, newest first."""

    thread: str
    timeline: str
    checkpoints: list[CheckpointShape]
    more: bool  # whether there are others beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table, and how to go on."""
        if not self.checkpoints:
            screen.say("No backend was switched here, so no checkpoint was kept.")
            screen.suggest("See what one would say: ", "checkpoints", "derive", self.thread)
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    each.name,
                    ago(each.at, at_now),
                    each.from_backend or "",
                    each.to_backend or "",
                    each.goal,
                    str(each.calls or ""),
                    str(each.approvals or ""),
                    digest(each.commit),
                )
                for each in self.checkpoints
            ],
        )
        if self.more:
            last = count(len(self.checkpoints), "checkpoint")
            screen.say((f"The last {last}; --limit 0 lists all.", "quiet"))


def ls(
    thread: ThreadId,
    /,
    *,
    limit: Limit = 20,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Checkpoints:
    """List the checkpoints of a timeline, newest first"""
    with reading(everywhere) as store:
        seen = view_at(store.thread(thread, timeline=timeline), at)
        kept, more = cut_off(seen.checkpoints(limit=limit + 1 if limit else None), limit)
        shapes = [CheckpointShape.of(each) for each in kept]
        return Checkpoints(thread=thread, timeline=timeline, checkpoints=shapes, more=more)
