"""`perdure threads log`.

`perdure threads turns`.

`--graph` draws a column for each line of commits that is open: a commit stands in the column of the line that leads
to it, lines that have the same parent are joined above it, and a merge opens a column for the line that it merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, cast

from cyclopts import Parameter

from perdure.cli.errors import CODES
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, Limit, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, show_changed, show_damage, show_dropped, show_message
from perdure.cli.output.formatting import count, moment, the_last
from perdure.cli.output.ledger_words import calls_in_words, state
from perdure.cli.output.screen import Cell, Column, Part, Screen
from perdure.errors import Corrupt, Invalid
from perdure.model.head import MAIN
from perdure.model.names import short_ids
from perdure.shapes.conversation import (
    CommitLog,
    CommitShape,
    GraphNode,
    GraphPage,
    LogPage,
    TurnLog,
    TurnPage,
    TurnShape,
    turn_name,
)
from perdure.shapes.text import inline, shortened
from perdure.switching.commit import REASON as SWITCHED

__all__ = ["FullLog", "Graph", "GraphNode", "Log", "LogAnswer", "TurnsAnswer", "log", "turns"]


_COLUMNS = (
    Column("turn", right=True),
    Column("reason", "name", gives_way=True),
    Column("what", "quiet", gives_way=True),
    Column("when", "when", leaves=1),
    Column("heads", "line", gives_way=True),
    Column("commit", "digest"),
)


class _Ended(LogPage, Answer, frozen=True, kw_only=True):
    """What both kinds of log print last."""

    def _end(self, screen: Screen, shown: int, noun: str) -> None:
        if not shown:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
        elif self.more:
            screen.say((f"{the_last(shown, noun)}; --limit 0 shows all.", "quiet"))


class Log(TurnLog, _Ended, frozen=True, kw_only=True):
    """The turns of a line, newest first."""

    whole: ClassVar[bool] = False  # of messages and changed paths

    @property
    def exit_code(self) -> int:
        """Return 0 if every message could be read."""
        return CODES[Corrupt] if any(turn.damaged for turn in self.turns) else 0

    def show(self, screen: Screen) -> None:
        """Print turn by turn what was said and what changed."""
        for turn in self.turns:
            heads = "".join(f" ← {name}" for name in self.heads.get(turn.after, ()))
            screen.sentence(
                (turn_name(turn), "title"),
                (_why_made(turn), "name"),
                *_ended(turn),
                (heads, "line"),
                (f"  {_moment_of(turn)}", "when"),
                "  ",
                digest(turn.after),
            )
            for name in turn.names if self.whole else turn.names[:_NAMES_SHOWN]:
                screen.cut("  ", ("named ", "quiet"), (name, "name"))
            if not self.whole and len(turn.names) > _NAMES_SHOWN:
                more = len(turn.names) - _NAMES_SHOWN
                screen.say((f"  and {count(more, 'more name')}; --full shows all", "quiet"))
            for message in turn.messages:
                show_message(screen, message, whole=self.whole, settled=self.settled)
            left = [call for call in turn.unclear if call not in self.settled]
            if turn.failed or left:
                words = calls_in_words(turn.calls, len(turn.failed), len(left))
                screen.say(("  calls      ", "quiet"), words)
            show_changed(screen, turn.changed, whole=self.whole)
            if turn.forgotten:
                screen.say(("  the state before or after it was forgotten, by the retention policy", "quiet"))
            if turn.why is not None:
                screen.cut("  ", (f"{turn.status}: ", "bad" if turn.status == "failed" else "warn"), turn.why)
            screen.gap()
        if self.exit_code:
            show_damage(screen)
        is_said = all(turn.kind == "message" for turn in self.turns)
        self._end(screen, len(self.turns), "turn" if is_said else "change")


def _why_made(turn: TurnShape) -> str:
    """Return what is said of a turn beside its number; nothing of one that a run made, whose words follow."""
    if turn.reason == SWITCHED:
        return f"  to {turn.backend}"
    words = turn.handed_off or ("" if turn.reason == _SAID or turn.kind == "resumed" else turn.reason)
    if turn.kind != "message" and words.startswith(f"{turn.kind} "):  # such as: merge what-if
        return words.removeprefix(turn.kind)
    return f"  {words}" if words else ""


def _moment_of(turn: TurnShape) -> str:
    """Return when a turn was committed; of an imported one when it was said, as the other tool has it."""
    said = _said_at(turn)
    return moment(turn.at) if said is None else f"said {moment(said)}"


def _day_of(turn: TurnShape) -> str:
    """Return the same, short: an imported turn may be years old."""
    said = _said_at(turn)
    return moment(turn.at)[5:16] if said is None else said[:10]


def _said_at(turn: TurnShape) -> str | None:
    """Return when the first message of an imported turn was said, in UTC; None if that is not known."""
    if turn.reason != _IMPORTED or not turn.messages:
        return None
    from perdure.integrations.importers.session import said_at  # most threads have no imported turn

    return said_at(cast("dict[str, object]", (turn.messages[0].message or {}).get("vendorMetadata") or {}))


def _ended(turn: TurnShape) -> tuple[Part, ...]:
    """Return how the run of a turn ended, if it did not simply succeed."""
    if turn.status in (None, "succeeded"):
        return ()
    return (" ", state(turn.status))


class FullLog(Log, frozen=True, kw_only=True):
    """The same, for people who want every word."""

    whole: ClassVar[bool] = True


class LogAnswer(CommitLog, _Ended, frozen=True, kw_only=True):
    """The commits of a line, newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if self.commits:
            screen.table(_COLUMNS, [self._row(commit) for commit in self.commits])
        self._end(screen, len(self.commits), "commit")

    def _row(self, commit: CommitShape) -> tuple[str | tuple[str, str], ...]:
        heads = ", ".join(self.heads.get(commit.digest, ()))
        return (
            "" if commit.apart else str(commit.turn),
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
    graph: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Draw the turns of all timelines as a graph")
    ] = False,
    dropped: Annotated[
        bool, Parameter(negative=(), show_default=False, help="With --graph: dropped timelines, too")
    ] = False,
    limit: Limit = 20,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Log | LogAnswer | Graph:
    """Show the log of a timeline, turn by turn, newest first

    --graph shows where timelines parted and were merged; each turn is a line with its commit, its
    timelines and its input.
    """
    if graph and (commits or full or at is not None or timeline != MAIN):
        raise Invalid(
            "--graph shows the turns of all timelines; nothing was read.",
            code="options_conflict",
            advice="Leave --commits, --full, --at and --timeline out.",
        )
    if dropped and not graph:
        raise Invalid(
            "--dropped is for --graph: a log is of one timeline; nothing was read.",
            code="options_conflict",
            advice="Name a dropped timeline with --timeline.",
        )
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        if graph:
            return Graph.of(found, limit=limit, reach=_GRAPH_REACH, dropped=dropped)
        seen = view_at(found, at)
        if commits:
            return LogAnswer.of(found, seen, limit=limit or None)
        return (FullLog if full else Log).of(found, seen, limit=limit or None)


def _what(commit: CommitShape) -> str:
    messages = sum(event["type"] == "message.appended" for event in commit.events)
    names = [event["name"] for event in commit.events if event["type"] == "moment.named"]
    others = len(commit.events) - messages - len(names)
    parts = [
        f"named {', '.join(names)}" if names else "",
        *(f"to {event['to_backend']}" for event in commit.events if event["type"] == "backend.switched"),
        f"{messages} said" if messages else "",
        count(others, "event") if others else "",
        count(len(commit.ops), "op") if commit.ops else "",
    ]
    return ", ".join(part for part in parts if part)


_SAID = "user_message"  # the reason of the first commit of a run
_IMPORTED = "import"  # the reason of a commit with messages of another tool
_NAMES_SHOWN = 2  # of a turn, as another program's ids of its messages
_TEXT_LENGTH = 60
_GRAPH_REACH = 10  # so many times the limit is looked through for turns at which timelines part
_NAME_MAX = 24  # characters of a timeline's name in the graph
_WIDE = 110
_DAMAGED = ("damaged", "bad")  # in the place of words
_TURN_COLUMNS = (
    Column("turn", right=True),
    Column("input", gives_way=True),
    Column("answer", gives_way=True),
    Column("backend", "quiet", gives_way=True, leaves=1),
    Column("when", "when", leaves=2),
    Column("after", "digest"),
)


class TurnsAnswer(TurnPage, Answer, frozen=True, kw_only=True):
    """The turns of a line, oldest first."""

    @property
    def exit_code(self) -> int:
        """Return 0 if every message could be read."""
        return CODES[Corrupt] if any(turn.damaged for turn in self.turns) else 0

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.turns:
            screen.say(f"Nothing is committed on '{self.timeline}' of '{self.thread}'.")
            return
        if self.more:
            noun = "turn" if all(turn.kind == "message" for turn in self.turns) else "change"
            screen.say((f"{the_last(len(self.turns), noun)}; --limit 0 lists all.", "quiet"))
        screen.table(_TURN_COLUMNS, [_row(turn, wide=screen.width >= _WIDE) for turn in self.turns])
        if self.exit_code:
            show_damage(screen)


def _row(turn: TurnShape, *, wide: bool) -> tuple[Cell, ...]:
    return (
        str(turn.number) if turn.kind in ("message", "resumed") else "",
        _input(turn),
        _answer(turn),
        (turn.backend or "") if wide else "",
        _day_of(turn),
        digest(turn.after),
    )


def _input(turn: TurnShape) -> Cell:
    """Return what the user said, or why the turn was made."""
    if any(each.is_damaged and each.role == "user" for each in turn.messages):
        return _DAMAGED
    return shortened(turn.input or _reason(turn), _TEXT_LENGTH), "" if turn.input else "quiet"


def _answer(turn: TurnShape) -> Cell:
    """Return what the assistant said last, or how the run ended."""
    if any(each.is_damaged and each.role != "user" for each in turn.messages):
        return _DAMAGED
    return shortened(turn.text, _TEXT_LENGTH) if turn.status in (None, "succeeded") else _unsuccessful(turn)


def _reason(turn: TurnShape) -> str:
    """Return why a turn without words was made, with its kind unless its reason says it."""
    if turn.handed_off is not None:
        return f"hand-off: {turn.handed_off}"
    if turn.kind == "resumed":
        return turn.kind
    is_said = turn.kind in ("message", turn.reason) or turn.reason.startswith(f"{turn.kind} ")
    return turn.reason if is_said else f"{turn.kind}: {turn.reason}"


def _unsuccessful(turn: TurnShape) -> Cell:
    """Return how the run ended, in the place of its answer."""
    why = f": {turn.why}" if turn.why else ""
    return shortened(f"{turn.status}{why}", _TEXT_LENGTH), "bad" if turn.status == "failed" else "warn"


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
        return TurnsAnswer.of(found, seen, limit=limit or None)


class Graph(GraphPage, Answer, frozen=True, kw_only=True):
    """The turns of all timelines of a thread, newest first, each after those that follow it."""

    @property
    def exit_code(self) -> int:
        """Return 0 if every message could be read."""
        return CODES[Corrupt] if any(node.turn.damaged for node in self.nodes) else 0

    def show(self, screen: Screen) -> None:
        """Draw it."""
        if not self.nodes:
            screen.say(f"Nothing is committed in '{self.thread}'.")
            return
        for drawn in _drawn(self.nodes, screen.width):
            screen.cut(*drawn)
        if self.exit_code:
            show_damage(screen)
        if self.more:
            screen.sentence(("Older turns are left out; --limit 0 shows all.", "quiet"))
        show_dropped(screen, self.dropped)


def _drawn(nodes: list[GraphNode], width: int) -> Iterator[tuple[Part, ...]]:
    """Yield the lines of the graph; words that do not fit the line of their turn have one of their own."""
    columns: list[str | None] = []  # the commit that each column leads to next; None: it is free
    last = {node.commit for node in nodes}
    for node in nodes:
        here = [at for at, wanted in enumerate(columns) if wanted == node.commit]
        if not here:
            here = [columns.index(None) if None in columns else len(columns)]
            columns[here[0] : here[0] + 1] = [node.commit]
        for at in reversed(here[1:]):
            yield ((_joined(columns, here[0], at, "├", "╯"), "line"),)
            columns[at] = None
        while columns and columns[-1] is None:
            columns.pop()
        mark = "◉" if node.timelines else "○"
        wide = 2 * len(columns) - 1
        title, words = list(_title(node)), _words(node)
        length = (
            wide + 2 + sum(len(part if isinstance(part, str) else part[0]) for part in (*title, "  ", words))
        )
        on_one_line = length <= width
        beside: tuple[Part, ...] = ("  ", words) if on_one_line else ()
        yield ((f"{_bars(columns, here[0], mark):<{wide}}", "line"), "  ", *title, *beside)
        leads = [parent for parent in node.parents if parent in last]
        columns[here[0]] = leads[0] if leads else None
        if not on_one_line:
            yield (f"{_bars(columns):<{wide}}", "line"), "  ", words
        if skipped := _skipped(node):
            yield (f"{_bars(columns, here[0], '┊'):<{wide}}", "line"), (f"  {skipped} not shown", "quiet")
        for parent in leads[1:]:
            at = next((at for at in range(here[0] + 1, len(columns)) if columns[at] is None), len(columns))
            columns[at : at + 1] = [parent]
            yield ((_joined(columns, here[0], at, "├", "╮"), "line"),)
        if node.parents and not leads:
            yield ((_bars(columns, here[0], "~"), "quiet"),)


def _skipped(node: GraphNode) -> str:
    """Return what is left out below a node: only messages are turns."""
    others = count(node.skipped_others, "other change" if node.skipped else "change")
    parts = [count(node.skipped, "turn") if node.skipped else "", others if node.skipped_others else ""]
    return " and ".join(part for part in parts if part)


def _words(node: GraphNode) -> tuple[str, str]:
    """Return the input of a turn, or why it was made, and the style of that."""
    turn = node.turn
    if turn.damaged:
        return " ".join(("damaged", turn.input)).rstrip(), "bad"
    words, style = (turn.input, "") if turn.input else (turn.handed_off or turn.reason, "quiet")
    return shortened(words, 4 * _TEXT_LENGTH), style


def _bars(columns: list[str | None], at: int | None = None, mark: str = "") -> str:
    """Return one line of the columns, with a mark in one of them."""
    signs = [mark if index == at else "│" if wanted else " " for index, wanted in enumerate(columns)]
    return " ".join(signs).rstrip()


def _joined(columns: list[str | None], low: int, high: int, left: str, right: str) -> str:
    """Return the line that joins two columns, over those between them."""
    signs: list[str] = []
    for index in range(len(columns)):
        sign = "│" if columns[index] else " "
        if index == low:
            sign = left
        elif index == high:
            sign = right
        elif low < index < high:
            sign = "┼" if columns[index] else "─"
        signs.append(sign + ("─" if low <= index < high else " "))
    return "".join(signs).rstrip()


def _title(node: GraphNode) -> Iterator[Part]:
    """Yield the commit, the timelines that end there, the turn, and how its run ended."""
    turn = node.turn
    yield digest(node.commit)
    if node.timelines:
        names = short_ids(node.timelines, length_max=_NAME_MAX)
        yield f"  {inline(', '.join(names.values()))}", "line"
    yield f"  {turn_name(turn)}", "title"
    yield from _ended(turn)
    yield f"  {_day_of(turn)}", "when"
