"""`perdure state log`."""

from __future__ import annotations

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import (
    EVERYWHERE,
    AgentName,
    At,
    Everywhere,
    Limit,
    PlaceInside,
    StatePath,
    ThreadOrPath,
    Timeline,
)
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import moment, the_last
from perdure.cli.output.screen import Cell, Column, Screen
from perdure.history.changes.json_edits import parse_place
from perdure.model.head import MAIN
from perdure.shapes.path_log import PathLog, PathVersion

__all__ = ["StateLogAnswer", "log"]

_COLUMNS = (
    Column("turn", right=True),
    Column("value", gives_way=True, wraps=True),
    Column("said, or reason", "name", gives_way=True),
    Column("when", "when", leaves=1),
    Column("commit", "digest"),
)


class StateLogAnswer(PathLog, Answer, frozen=True, kw_only=True):
    """The commits that wrote a path, newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        screen.table(
            _COLUMNS,
            [
                (
                    str(each.turn or ""),
                    _shown(each),
                    each.input or each.reason,
                    moment(each.at),
                    digest(each.commit),
                )
                for each in self.versions
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.versions), 'version')}; --limit 0 shows all.", "quiet"))


def log(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    place: PlaceInside = None,
    limit: Limit = 20,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> StateLogAnswer:
    """Show every value that a path has had, newest first

    With --place only the commits that changed this place inside the document are shown, with what they left there.
    """
    thread, path = words("log", agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        inside = () if place is None else parse_place(place)
        answer, _ = StateLogAnswer.of(line, seen, path, inside, limit=limit)
        if not answer.versions:
            with guessing(path, lambda: paths_like(seen, path)):
                seen.blame(path, place=inside)  # says that there is nothing, in the usual words
        return answer


def _shown(version: PathVersion) -> Cell:
    if version.forgotten:
        return ("forgotten", "quiet")
    return version.preview if version.preview is not None else ("removed", "removed")
