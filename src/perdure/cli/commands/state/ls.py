"""`perdure state ls`."""

from __future__ import annotations

from itertools import islice

import msgspec

from perdure.cli.commands.state.target import About, line_of, whose, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AgentName, At, Everywhere, Limit, Prefix, ThreadOrPath, Timeline
from perdure.cli.output.answer import cut_off
from perdure.cli.output.display import preview
from perdure.cli.output.formatting import count, size
from perdure.cli.output.screen import Column, Screen
from perdure.history.tree import Entry
from perdure.model.head import MAIN
from perdure.store.view import View

__all__ = ["EntryShape", "StateLsAnswer", "ls"]

_COLUMNS = (
    Column("path", "name", is_id=True),
    Column("value", gives_way=True),
    Column("size", right=True, leaves=1),
)


class EntryShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path, and what it holds: form (json or bytes), media type, size and digest."""

    path: str
    form: str
    media_type: str
    size: int
    digest: str
    preview: str  # the value on one line, for people

    @classmethod
    def of(cls, view: View, entry: Entry) -> EntryShape:
        """Return the entry in the shape of --json."""
        shown = preview(view, entry)
        return cls(
            path=entry.path,
            form=entry.form,
            media_type=entry.media_type,
            size=entry.size,
            digest=entry.value,
            preview=shown if isinstance(shown, str) else shown[0],
        )


class StateLsAnswer(About, frozen=True, kw_only=True):
    """The paths of a state, sorted."""

    commit: str | None
    prefix: str
    paths: list[EntryShape]
    more: bool  # whether there are others beyond the limit

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
    thread, prefix = words(agent, thread, prefix, needed=0)
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
