"""`perdure threads diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.completion import in_store
from perdure.cli.errors import CODES
from perdure.cli.input.lookup import resolve
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import MARKS, difference, digest, show_damage, show_message
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Column, Part, Screen
from perdure.errors import Corrupt
from perdure.model.head import MAIN
from perdure.shapes.comparison import ComparedState, ComparedValue, Comparison, Side
from perdure.shapes.text import safe_json, size

__all__ = ["ChangedPath", "Compared", "ComparedBriefly", "SideCount", "diff"]

_LINES_MAX = 2_000
_STAT = (
    Column("path", gives_way=True),
    Column("lines +", right=True),
    Column("lines -", right=True),
    Column("size before", right=True, leaves=2),
    Column("after", right=True, leaves=1),
)


class Compared(Comparison, Answer, frozen=True, kw_only=True):
    """What differs between two moments."""

    @property
    def exit_code(self) -> int:
        """Return 0 if every message could be read."""
        said = (*self.a.messages, *self.b.messages)
        return CODES[Corrupt] if any(each.is_damaged for each in said) else 0

    def show(self, screen: Screen) -> None:
        """Print the paths that differ, then what was said and done on each side."""
        screen.say("from ", (self.a.name, "line"), "  ", digest(self.a.commit))
        screen.say("to   ", (self.b.name, "line"), "  ", digest(self.b.commit))
        if self.same:
            screen.say("There is no difference.")
            return
        for change in self.state:
            screen.gap()
            _show_change(screen, change)
        for side in (self.a, self.b):
            _show_side(screen, side)
        if self.exit_code:
            show_damage(screen)


class ChangedPath(msgspec.Struct, frozen=True, kw_only=True):
    """One path that differs, and by how much."""

    path: str
    what: str  # added, changed, removed
    lines_added: int | None  # null: it is no JSON document, or too long to be compared by lines
    lines_removed: int | None
    size_before: int | None  # in bytes; null: there was nothing
    size_after: int | None


class SideCount(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two moments, and how much happened only on its side."""

    name: str
    commit: str | None
    messages: int
    calls: int


class ComparedBriefly(Answer, frozen=True, kw_only=True):
    """How much differs between two moments."""

    thread: str
    same: bool
    base: str | None  # the last commit that both have in their history
    a: SideCount
    b: SideCount
    state: list[ChangedPath]

    @classmethod
    def of(cls, compared: Compared) -> ComparedBriefly:
        """Return the numbers of a comparison."""
        a, b = (
            SideCount(name=side.name, commit=side.commit, messages=len(side.messages), calls=len(side.calls))
            for side in (compared.a, compared.b)
        )
        return cls(
            thread=compared.thread,
            same=compared.same,
            base=compared.base,
            a=a,
            b=b,
            state=[_changed_path(each) for each in compared.state],
        )

    def show(self, screen: Screen) -> None:
        """Print a line for each path, then the sums."""
        if self.state:
            screen.table(
                _STAT,
                [
                    (
                        (f"{MARKS[each.what]} {each.path}", each.what),
                        "" if each.lines_added is None else f"+{each.lines_added}",
                        "" if each.lines_removed is None else f"-{each.lines_removed}",
                        "" if each.size_before is None else size(each.size_before),
                        "" if each.size_after is None else size(each.size_after),
                    )
                    for each in self.state
                ],
            )
        by_kind = Counter(each.what for each in self.state)
        kinds = ", ".join(f"{by_kind[what]} {what}" for what in MARKS if by_kind[what])
        verb = "differs" if len(self.state) == 1 else "differ"
        screen.say(f"{count(len(self.state), 'path')} {verb}", f": {kinds}." if kinds else ".")
        for side in (self.a, self.b):
            screen.say(
                "only on ",
                (side.name, "line"),
                f": {count(side.messages, 'message')}, {count(side.calls, 'call')}, ",
                digest(side.commit),
            )


def _changed_path(change: ComparedState) -> ChangedPath:
    before, after = _document(change.before), _document(change.after)
    lines = (
        None if before is None or after is None else Counter(style for _, style in difference(before, after))
    )
    return ChangedPath(
        path=change.path,
        what=change.what,
        lines_added=None if lines is None else lines["added"],
        lines_removed=None if lines is None else lines["removed"],
        size_before=change.before.size if change.before else None,
        size_after=change.after.size if change.after else None,
    )


def diff(
    thread: ThreadId,
    a: Annotated[
        str, Parameter(name="A", completer=in_store, help="The first commit: a timeline's name or any REF")
    ],
    b: Annotated[
        str | None,
        Parameter(
            name="B", completer=in_store, help="The second commit; now if left out", show_default=False
        ),
    ] = None,
    /,
    *,
    prefix: Annotated[
        str,
        Parameter(metavar="PATH", completer=in_store, help="Compare only this path and those below it"),
    ] = "/",
    stat: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Show only how much differs, a line for each path"),
    ] = False,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Compared | ComparedBriefly:
    """Compare two commits: state, messages and tool calls

    A moment is a commit (12 digits do), HEAD~n, turn:n, turn:n~1 (before it), version:n, a message or
    run id, or a timeline's name for its head.
    """
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        one = resolve(found, a)
        other = found.at().digest if b is None else resolve(found, b)
        differing = found.diff(one, other, prefix=prefix)
        compared = Compared.of(found, a, b or timeline, differing)
        return ComparedBriefly.of(compared) if stat else compared


def _show_change(screen: Screen, change: ComparedState) -> None:
    screen.say((f"{MARKS[change.what]} {change.path}", change.what))
    for line in _lines(change):
        screen.cut("    ", line)


def _lines(change: ComparedState) -> Iterator[Part]:
    before, after = _document(change.before), _document(change.after)
    if before is None or after is None:
        yield from ((f"- {_described(change.before)}", "removed"),) if change.before else ()
        yield from ((f"+ {_described(change.after)}", "added"),) if change.after else ()
        return
    yield from difference(before, after)


def _document(value: ComparedValue | None) -> list[str] | None:
    """Return the lines of a JSON document, no line for no value; None if it is too long or no JSON."""
    if value is None:
        return []
    if value.value is UNSET:
        return None
    lines = safe_json(value.value).splitlines()
    return lines if len(lines) <= _LINES_MAX else None


def _described(value: ComparedValue | None) -> str:
    return f"{value.media_type}, {size(value.size)}" if value else ""


def _show_side(screen: Screen, side: Side) -> None:
    if not side.messages and not side.calls:
        return
    screen.gap()
    screen.say("only on ", (side.name, "line"))
    for message in side.messages:
        show_message(screen, message, whole=False)
    shown = {asked["id"] for each in side.messages for asked in (each.message or {}).get("toolCalls", ())}
    for call in side.calls:
        if call.call not in shown:  # by a program; the others stand in the messages, with their arguments
            screen.cut("  ", ("call       ", "tool"), f"{call.tool} ({screen.short_id(call.call)})")
