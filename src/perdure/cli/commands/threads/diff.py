"""`perdure threads diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.input.lookup import resolve
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import MARKS, difference, digest, show_message
from perdure.cli.output.screen import Part, Screen
from perdure.model.head import MAIN
from perdure.shapes.text import safe_json, size
from perdure.shapes.threads import ComparedState, ComparedValue, Comparison, Side

__all__ = ["Compared", "diff"]

_LINES_MAX = 2_000


class Compared(Comparison, Answer, frozen=True, kw_only=True):
    """What differs between two moments."""

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


def diff(
    thread: ThreadId,
    a: Annotated[str, Parameter(name="A", help="The first commit: a timeline's name or any REF")],
    b: Annotated[
        str | None, Parameter(name="B", help="The second commit; now if left out", show_default=False)
    ] = None,
    /,
    *,
    prefix: Annotated[str, Parameter(metavar="PATH", help="Compare only this path and those below it")] = "/",
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Compared:
    """Compare two commits: state, messages and tool calls

    A moment is a commit (12 digits do), HEAD~n, turn:n, version:n, a message or run id, or a
    timeline's name for its head.
    """
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        one = resolve(found, a)
        other = found.at().digest if b is None else resolve(found, b)
        differing = found.diff(one, other, prefix=prefix)
        return Compared.of(found, a, b or timeline, differing)


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
    for call in side.calls:
        screen.cut("  ", ("call       ", "tool"), f"{call.tool} ({call.call})")
