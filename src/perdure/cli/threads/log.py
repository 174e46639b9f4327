"""`perdure threads log`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from cyclopts import Parameter

from perdure.cli.answer import Answer
from perdure.cli.moments import view_at
from perdure.cli.options import EVERYWHERE, At, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.screen import Column, Screen
from perdure.cli.shapes import CommitShape, TurnShape
from perdure.cli.showing import digest, show_changed, show_message
from perdure.cli.stores import reading
from perdure.cli.wording import count, moment
from perdure.migration.switch import REASON as SWITCHED
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.threads.thread import Thread
from perdure.threads.view import View

__all__ = ["Commits", "FullLog", "Log", "log"]

_COLUMNS = (
    Column("turn", right=True),
    Column("reason", "name", gives_way=True),
    Column("what", "quiet", gives_way=True),
    Column("when", "when"),
    Column("heads", "line", gives_way=True),
    Column("commit", "digest"),
)


class _History(Answer, frozen=True, kw_only=True):
    """What both kinds of log have."""

    thread: str
    timeline: str
    heads: dict[str, list[str]]  # from a commit to the timelines that stand there
    more: bool  # whether there are older ones beyond the limit

    def _end(self, screen: Screen, shown: int, noun: str) -> None:
        if not shown:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
        elif self.more:
            screen.say((f"The last {count(shown, noun)}; --limit 0 shows all.", "quiet"))


class Log(_History, frozen=True, kw_only=True):
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


class Commits(_History, frozen=True, kw_only=True):
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
        Parameter(negative=(), show_default=False, help="List commits, which a turn may have several of"),
    ] = False,
    full: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Show whole messages and all changed paths")
    ] = False,
    limit: Limit = 20,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Log | Commits:
    """Show what happened on a timeline, turn by turn, newest first"""
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


def _commits(thread: Thread, seen: View, limit: int) -> Commits:
    entries = seen.log(limit=limit or None)
    return Commits(
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
