"""`perdure threads log`.

`perdure threads turns`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from cyclopts import Parameter

from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, show_changed, show_message
from perdure.cli.output.formatting import count, moment
from perdure.cli.output.screen import Cell, Column, Screen, shortened
from perdure.cli.output.shapes import CommitShape, TurnShape
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.store.thread import Thread
from perdure.store.view import View
from perdure.switching.commit import REASON as SWITCHED

__all__ = ["LogAnswer", "FullLog", "Log", "log", "TurnsAnswer", "turns"]


_COLUMNS = (
    Column("turn", right=True),
    Column("reason", "name", gives_way=True),
    Column("what", "quiet", gives_way=True),
    Column("when", "when"),
    Column("heads", "line", gives_way=True),
    Column("commit", "digest"),
)


class _LogPage(Answer, frozen=True, kw_only=True):
    """What both kinds of log have."""

    thread: str
    timeline: str
    heads: dict[str, list[str]]  # from a commit to the timelines whose head it is
    more: bool  # whether there are older ones beyond the limit

    def _end(self, screen: Screen, shown: int, noun: str) -> None:
        if not shown:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
        elif self.more:
            screen.say((f"The last {count(shown, noun)}; --limit 0 shows all.", "quiet"))


class Log(_LogPage, frozen=True, kw_only=True):
    """The turns of a line, newest first."""

    turns: list[TurnShape]

    whole: ClassVar[bool] = False  # of messages and changed paths

    def show(self, screen: Screen) -> None:
        """Print turn by turn what was said and what changed."""
        for turn in self.turns:
            heads = "".join(f" ← {name}" for name in self.heads.get(turn.after, ()))
            screen.say(
                (f"turn {turn.number}  ", "title"),
                (turn.reason, "name"),
                f" to {turn.backend}" if turn.reason == SWITCHED else "",
                (heads, "line"),
                (f"  {moment(turn.at)}", "when"),
                "  ",
                digest(turn.after),
            )
            for message in turn.messages:
                show_message(screen, message, whole=self.whole)
            show_changed(screen, turn.changed, whole=self.whole)
            screen.gap()
        self._end(screen, len(self.turns), "turn")


class FullLog(Log, frozen=True, kw_only=True):
    """The same, for people who want every word."""

    whole: ClassVar[bool] = True


class LogAnswer(_LogPage, frozen=True, kw_only=True):
    """The commits of a line, newest first."""

    commits: list[CommitShape]

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if self.commits:
            screen.table(_COLUMNS, [self._row(commit) for commit in self.commits])
        self._end(screen, len(self.commits), "commit")

    def _row(self, commit: CommitShape) -> tuple[str | tuple[str, str], ...]:
        heads = ", ".join(self.heads.get(commit.digest, ()))
        return (
            str(commit.turn),
            commit.reason,
            _what(commit),
            moment(commit.at),
            heads,
            digest(commit.digest),
        )


def log(
    thread: ThreadId,
    /,
    *,
    commits: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="List commits instead of turns"),
    ] = False,
    full: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Show whole messages and all changed paths")
    ] = False,
    limit: Limit = 20,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Log | LogAnswer:
    """Show the log of a timeline, turn by turn, newest first"""
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        seen = view_at(found, at)
        return (
            _commits(found, seen, limit) if commits else _turns(found, seen, limit, FullLog if full else Log)
        )


def _turns(thread: Thread, seen: View, limit: int, kind: type[Log]) -> Log:
    turns = seen.turns(limit=limit or None)
    return kind(
        thread=thread.id,
        timeline=thread.timeline,
        heads=_heads(thread, {turn.after for turn in turns}),
        more=bool(turns) and turns[0].number > 1,
        turns=[TurnShape.of(turn, seen) for turn in reversed(turns)],
    )


def _commits(thread: Thread, seen: View, limit: int) -> LogAnswer:
    entries = seen.log(limit=limit or None)
    return LogAnswer(
        thread=thread.id,
        timeline=thread.timeline,
        heads=_heads(thread, {entry.digest for entry in entries}),
        more=bool(entries) and entries[-1].depth > 0,
        commits=[CommitShape.of(entry) for entry in entries],
    )


def _heads(thread: Thread, shown: set[Digest]) -> dict[str, list[str]]:
    heads: dict[str, list[str]] = {}
    for hold in thread.timelines():
        commit = hold.head.commit
        if commit is not None and commit in shown:
            heads.setdefault(commit, []).append(hold.head.timeline)
    return heads


def _what(commit: CommitShape) -> str:
    messages = sum(event["type"] == "message.appended" for event in commit.events)
    others = len(commit.events) - messages
    parts = [
        *(f"to {event['to_backend']}" for event in commit.events if event["type"] == "backend.switched"),
        f"{messages} said" if messages else "",
        count(others, "event") if others else "",
        count(len(commit.ops), "op") if commit.ops else "",
    ]
    return ", ".join(part for part in parts if part)


_TEXT_LENGTH = 60
_WIDE = 110
_TURN_COLUMNS = (
    Column("turn", right=True),
    Column("input", gives_way=True),
    Column("answer", gives_way=True),
    Column("backend", "quiet", gives_way=True),
    Column("when", "when"),
    Column("after", "digest"),
)


class TurnsAnswer(Answer, frozen=True, kw_only=True):
    """The turns of a line, oldest first."""

    thread: str
    timeline: str
    turns: list[TurnShape]
    more: bool  # whether there are older ones beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.turns:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
            return
        if self.more:
            screen.say((f"The last {count(len(self.turns), 'turn')}; --limit 0 lists all.", "quiet"))
        screen.table(_TURN_COLUMNS, [_row(turn, wide=screen.width >= _WIDE) for turn in self.turns])


def _row(turn: TurnShape, *, wide: bool) -> tuple[Cell, ...]:
    return (
        str(turn.number),
        (shortened(turn.input or turn.reason, _TEXT_LENGTH), "" if turn.input else "quiet"),
        shortened(turn.text, _TEXT_LENGTH),
        (turn.backend or "") if wide else "",
        moment(turn.at)[5:16],
        digest(turn.after),
    )


def turns(
    thread: ThreadId,
    /,
    *,
    limit: Limit = 50,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> TurnsAnswer:
    """List the turns of a timeline, oldest first, one per line"""
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        seen = view_at(found, at)
        listed = seen.turns(limit=limit or None)
        return TurnsAnswer(
            thread=found.id,
            timeline=found.timeline,
            turns=[TurnShape.of(turn, seen) for turn in listed],
            more=bool(listed) and listed[0].number > 1,
        )
