"""`holdfast artifacts ls`."""

from __future__ import annotations

from itertools import islice

from holdfast.cli.answer import Answer, cut_off
from holdfast.cli.artifacts.listed import ArtifactShape
from holdfast.cli.options import EVERYWHERE, Everywhere, Limit, ThreadId
from holdfast.cli.screen import Column, Screen
from holdfast.cli.showing import digest
from holdfast.cli.stores import reading
from holdfast.cli.wording import count, moment, size

__all__ = ["Artifacts", "ls"]

_COLUMNS = (
    Column("name", "name", gives_way=True),
    Column("type", gives_way=True),
    Column("size", right=True),
    Column("when", "when"),
    Column("artifact", "digest"),
)


class Artifacts(Answer, frozen=True, kw_only=True):
    """The artifacts that a thread lists, by digest."""

    thread: str
    artifacts: list[ArtifactShape]
    more: bool  # whether there are others beyond the limit

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
                    moment(each.at) if each.at else "",
                    digest(each.digest),
                )
                for each in self.artifacts
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.artifacts), 'artifact')}; --limit 0 lists all.", "quiet"))


def ls(thread: ThreadId, /, *, limit: Limit = 100, everywhere: Everywhere = EVERYWHERE) -> Artifacts:
    """List the artifacts of a thread"""
    with reading(everywhere) as store:
        listed = store.thread(thread).artifacts.ls()
        found, more = cut_off(list(islice(listed, limit + 1 if limit else None)), limit)
        return Artifacts(thread=thread, artifacts=[ArtifactShape.of(each) for each in found], more=more)
