"""`perdure state rm`."""

from __future__ import annotations

from perdure.cli.guessing import guessing, paths_like
from perdure.cli.options import (
    EVERYWHERE,
    AgentName,
    Everywhere,
    OpId,
    Reason,
    Rebase,
    StatePath,
    ThreadOrPath,
    Timeline,
)
from perdure.cli.state.place import line_of, words
from perdure.cli.state.written import Written
from perdure.cli.stores import writing
from perdure.model.head import MAIN

__all__ = ["Deleted", "rm"]


class Deleted(Written, frozen=True, kw_only=True):
    """A path that holds nothing now."""

    @property
    def told(self) -> str:
        """What happened."""
        return "Deleted"


def rm(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    reason: Reason = None,
    rebase: Rebase = False,
    op_id: OpId = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Deleted:
    """Let a path hold nothing, by a commit of its own; its past stays"""
    thread, path = words(agent, thread, path, needed=1)
    assert path is not None
    with writing(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        on_conflict = "rebase" if rebase else "raise"
        with guessing(path, lambda: paths_like(line.at(), path)):
            head = line.delete(path, reason=reason or "delete", on_conflict=on_conflict, op_id=op_id)
        return Deleted.at(line, path, head)
