"""`perdure state blame`."""

from __future__ import annotations

import msgspec

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import (
    EVERYWHERE,
    AgentName,
    At,
    Everywhere,
    PlaceInside,
    StatePath,
    ThreadOrPath,
    Timeline,
)
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, suggest_fork, words_of
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Part, Screen
from perdure.history.changes.json_edits import parse_place, spell_place
from perdure.model.head import MAIN
from perdure.shapes.conversation import DAMAGED
from perdure.shapes.store import BlameShape

__all__ = ["Blamed", "blame"]


class Blamed(BlameShape, Answer, frozen=True, kw_only=True):
    """The commit that wrote the value at a path, and what stood behind it."""

    timeline: str = MAIN

    def show(self, screen: Screen) -> None:
        """Print what is known, a line each."""
        inside = f" at {spell_place(tuple(self.place))}" if self.place else ""
        screen.cut((f"{self.path}{inside}", "title"), "  ", self.preview)
        facts: list[tuple[str, Part | None]] = [
            ("turn", self._place()),
            ("when", moment(self.at)),
            ("author", self.author),
            ("run", f"none, beside {self.beside_run}" if self.beside_run else self.run),
            ("backend", self.backend),
            ("message", self._said()),
            ("commit", digest(self.commit)),
        ]
        screen.facts([(name, fact) for name, fact in facts if fact])
        if self.thread is None or self.apart:
            return
        if self.merged_from is None:
            suggest_fork(screen, self.thread, self.timeline, f"turn:{self.turn}~1")
        elif self.before is not None:
            suggest_fork(screen, self.thread, MAIN, self.before[:12])

    def _place(self) -> str:
        number = str(self.turn) if self.turn else "before the first"
        after = "after " if self.apart and self.turn else "during " if self.beside_run else ""
        line = f" of {self.merged_from}" if self.merged_from else ""
        return f"{after}{number}{line}, '{' '.join(self.input.split()) or self.reason}'"

    def _said(self) -> str | None:
        if self.message is None:
            return None
        said = DAMAGED if self.message.is_damaged else words_of(self.message.message or {})
        return f"{self.message.role}: {said}"


def blame(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    place: PlaceInside = None,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Blamed:
    """Show which commit, turn, message and backend wrote a value

    With --place it is the commit that last changed this place inside the document, not the last one that wrote the
    document.
    """
    thread, path = words("blame", agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        with guessing(path, lambda: paths_like(seen, path)):
            found = Blamed.of(line, seen, path, () if place is None else parse_place(place))
            return msgspec.structs.replace(found, timeline=timeline)
