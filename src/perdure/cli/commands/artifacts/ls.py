"""`perdure artifacts ls`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count, moment
from perdure.cli.output.screen import Column, Screen
from perdure.model.head import MAIN
from perdure.shapes.store import ArtifactPage, ArtifactShape
from perdure.shapes.text import size

__all__ = ["ArtifactLsAnswer", "ls"]

_COLUMNS = (
    Column("name", "name", gives_way=True),
    Column("type", gives_way=True),
    Column("size", right=True),
    Column("from", gives_way=True, leaves=1),
    Column("when", "when", leaves=2),
    Column("artifact", "digest"),
)


class ArtifactLsAnswer(ArtifactPage, Answer, frozen=True, kw_only=True):
    """The artifacts that a thread lists, by digest."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.artifacts:
            screen.say("Thread ", (self.thread, "name"), " has no artifact.")
            return
        screen.table(
            _COLUMNS,
            [
                (
                    each.name or "",
                    each.media_type,
                    size(each.size),
                    _origin(each),
                    moment(each.at) if each.at else "",
                    digest(each.digest),
                )
                for each in self.artifacts
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.artifacts), 'artifact')}; --limit 0 lists all.", "quiet"))


def ls(
    thread: ThreadId,
    /,
    *,
    calls: Annotated[
        bool, Parameter(negative=(), show_default=False, help="List the results of calls, too")
    ] = False,
    limit: Limit = 100,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> ArtifactLsAnswer:
    """List the artifacts of a thread"""
    with reading(everywhere) as store:
        listed = store.thread(thread, timeline=timeline).artifacts.ls(calls=calls)
        found, more = cut_off(list(islice(listed, limit + 1 if limit else None)), limit)
        return ArtifactLsAnswer(
            thread=thread, artifacts=[ArtifactShape.of(each) for each in found], more=more
        )


def _origin(each: ArtifactShape) -> str:
    """Return the call or the commit that the artifact comes from."""
    if each.call is not None:
        return f"call {each.call}"
    return f"commit {each.commit[:12]}" if each.commit else ""
