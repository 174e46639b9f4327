"""`perdure threads diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.input.lookup import resolve
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import MARKS, difference, digest, show_message
from perdure.cli.output.formatting import size
from perdure.cli.output.screen import Part, Screen, safe_json
from perdure.cli.output.shapes import MessageShape
from perdure.history.query import Called, Difference, Said, StateChange
from perdure.history.tree import Entry
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.store.thread import Thread

__all__ = ["CallShape", "Compared", "Side", "StateShape", "ValueShape", "diff"]

_VALUE_BYTES_MAX = 64 * 1024
_LINES_MAX = 2_000


class ValueShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a path held; `value` is left out for bytes and for documents over 64 KiB."""

    form: str
    media_type: str
    size: int
    digest: str
    value: Any = UNSET


class StateShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path at which the two moments differ: added, changed or removed."""

    path: str
    what: str
    before: ValueShape | None
    after: ValueShape | None


class CallShape(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call that only one of the sides has."""

    commit: str
    call: str
    tool: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two moments, and what happened only on its side since the two parted."""

    name: str
    commit: str | None
    messages: list[MessageShape]
    calls: list[CallShape]


class Compared(Answer, frozen=True, kw_only=True):
    """What differs between two moments."""

    thread: str
    same: bool
    base: str | None  # the last commit that both have in their history
    a: Side
    b: Side
    state: list[StateShape]

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
        return Compared(
            thread=found.id,
            same=differing.same,
            base=differing.base,
            a=_side(found, a, differing.a, differing.messages_a, differing.calls_a),
            b=_side(found, b or timeline, differing.b, differing.messages_b, differing.calls_b),
            state=[_state(found, differing, change) for change in differing.state],
        )


def _state(thread: Thread, differing: Difference, change: StateChange) -> StateShape:
    return StateShape(
        path=change.path,
        what=change.what,
        before=_value(thread, differing.a, change.before),
        after=_value(thread, differing.b, change.after),
    )


def _value(thread: Thread, at: Digest | None, entry: Entry | None) -> ValueShape | None:
    if entry is None:
        return None
    small = entry.form == "json" and entry.size <= _VALUE_BYTES_MAX
    return ValueShape(
        form=entry.form,
        media_type=entry.media_type,
        size=entry.size,
        digest=entry.value,
        value=thread.at(at).get(entry.path) if small else UNSET,
    )


def _side(
    thread: Thread, name: str, commit: Digest | None, said: Sequence[Said], called: Sequence[Called]
) -> Side:
    calls = [CallShape(commit=each.commit, call=each.event.call, tool=each.event.tool) for each in called]
    return Side(name=name, commit=commit, messages=list(_messages(thread, said)), calls=calls)


def _messages(thread: Thread, said: Sequence[Said]) -> Iterator[MessageShape]:
    """Return the messages in order: those of one commit are the last of its transcript."""
    for commit, number in Counter(each.commit for each in said).items():
        yield from map(MessageShape.of, thread.at(commit).transcript(limit=number))


def _show_change(screen: Screen, change: StateShape) -> None:
    screen.say((f"{MARKS[change.what]} {change.path}", change.what))
    for line in _lines(change):
        screen.cut("    ", line)


def _lines(change: StateShape) -> Iterator[Part]:
    before, after = _document(change.before), _document(change.after)
    if before is None or after is None:
        yield from ((f"- {_described(change.before)}", "removed"),) if change.before else ()
        yield from ((f"+ {_described(change.after)}", "added"),) if change.after else ()
        return
    yield from difference(before, after)


def _document(value: ValueShape | None) -> list[str] | None:
    """Return the lines of a JSON document, no line for no value; None if it is too long or no JSON."""
    if value is None:
        return []
    if value.value is UNSET:
        return None
    lines = safe_json(value.value).splitlines()
    return lines if len(lines) <= _LINES_MAX else None


def _described(value: ValueShape | None) -> str:
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
