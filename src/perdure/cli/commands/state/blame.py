"""`perdure state blame`."""

from __future__ import annotations

from perdure.cli.commands.state.target import About, line_of, whose, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import EVERYWHERE, AgentName, At, Everywhere, StatePath, ThreadOrPath, Timeline
from perdure.cli.output.display import digest, preview, words_of
from perdure.cli.output.formatting import moment, stamp
from perdure.cli.output.screen import Part, Screen
from perdure.cli.output.shapes import MessageShape
from perdure.model.head import MAIN
from perdure.store.view import View

__all__ = ["Blamed", "blame"]


class Blamed(About, frozen=True, kw_only=True):
    """The commit that wrote the value at a path, and what stood behind it."""

    path: str
    preview: str
    commit: str
    turn: int
    reason: str
    at: str
    author: str | None
    run: str | None
    backend: str | None
    message: MessageShape | None  # the last one of the same turn, up to that commit

    def show(self, screen: Screen) -> None:
        """Print what is known, a line each."""
        screen.cut((self.path, "title"), "  ", self.preview)
        facts: list[tuple[str, Part | None]] = [
            ("turn", f"{self.turn or 'before the first'}, '{self.reason}'"),
            ("when", moment(self.at)),
            ("author", self.author),
            ("run", self.run),
            ("backend", self.backend),
            ("message", self._said()),
            ("commit", digest(self.commit)),
        ]
        screen.facts([(name, fact) for name, fact in facts if fact])

    def _said(self) -> str | None:
        if self.message is None:
            return None
        return f"{self.message.role}: {words_of(self.message.message or {})}"


def blame(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Blamed:
    """Show which commit, turn, message and backend wrote a value"""
    thread, path = words(agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        with guessing(path, lambda: paths_like(seen, path)):
            found = seen.blame(path)
        shown = preview(seen, seen.entry(path))
        return Blamed(
            **whose(line),
            path=path,
            preview=shown if isinstance(shown, str) else shown[0],
            commit=found.commit,
            turn=seen.at(found.commit).log(limit=1)[0].turn,
            reason=found.reason,
            at=stamp(found.at),
            author=found.author,
            run=found.run,
            backend=found.backend,
            message=_message(seen.at(found.commit), found.message),
        )


def _message(view: View, id: str | None) -> MessageShape | None:
    """Return the message of that id, which is the last one at its moment."""
    last = view.transcript(limit=1) if id is not None else ()
    return next((MessageShape.of(entry) for entry in last if entry.id == id), None)
