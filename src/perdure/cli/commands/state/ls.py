"""`perdure state ls`."""

from __future__ import annotations

from itertools import islice

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AgentName, At, Everywhere, Limit, Prefix, ThreadOrPath, Timeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Column, Screen
from perdure.model.head import MAIN
from perdure.shapes.store import EntryShape, StatePage, whose
from perdure.shapes.text import size

__all__ = ["EntryShape", "StateLsAnswer", "ls"]

_COLUMNS = (
    Column("path", "name", is_id=True),
    Column("value", gives_way=True),
    Column("size", right=True, leaves=1),
)


class StateLsAnswer(StatePage, Answer, frozen=True, kw_only=True):
    """The paths of a state, sorted."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.paths:
            screen.say(f"There is nothing under {self.prefix} in ", (self.whose, "name"), ".")
            return
        screen.table(_COLUMNS, [(each.path, each.preview, size(each.size)) for each in self.paths])
        if self.more:
            screen.say((f"The first {count(len(self.paths), 'path')}; --limit 0 lists all.", "quiet"))


def ls(
    thread: ThreadOrPath = None,
    prefix: Prefix = None,
    /,
    *,
    agent: AgentName = None,
    limit: Limit = 200,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> StateLsAnswer:
    """List paths and their values"""
    thread, prefix = words("ls", agent, thread, prefix, needed=0)
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        entries = seen.entries(prefix or "/")
        found, more = cut_off(list(islice(entries, limit + 1 if limit else None)), limit)
        return StateLsAnswer(
            **whose(line),
            commit=seen.digest,
            prefix=prefix or "/",
            paths=[EntryShape.of(seen, entry) for entry in found],
            more=more,
        )
