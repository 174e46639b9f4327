"""`perdure calls show`."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.cli.input.lookup import call_on
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyTimeline, CallId, Everywhere, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment, stamp
from perdure.cli.output.screen import Screen, safe_json
from perdure.cli.output.shapes import CallRecordShape, state, way, words_of_result
from perdure.ledger.trace import Passed
from perdure.model.call import UNCLEAR

__all__ = ["CallShowAnswer", "PassedShape", "facts_of", "show", "show_json"]


class PassedShape(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the ledger about a call."""

    at: str
    states: list[str]  # that it passed, in order; none: something was learnt of it
    by: str | None
    why: str | None

    @classmethod
    def of(cls, passed: Passed) -> PassedShape:
        """Return the entry in the shape of --json."""
        return cls(at=stamp(passed.at), states=list(passed.states), by=passed.by, why=passed.why)


class CallShowAnswer(Answer, frozen=True, kw_only=True):
    """One tool call: what it was asked to do, what it gave back, and the way that it took."""

    thread: str
    call: CallRecordShape
    shown: str | None  # what the model is shown of the result
    passed: list[PassedShape]  # oldest first

    def show(self, screen: Screen) -> None:
        """Print facts, arguments, result and the way that it took."""
        call = self.call
        screen.say(("call ", "quiet"), (call.id, "title"))
        screen.facts(facts_of(call))
        screen.gap()
        screen.say(("arguments", "quiet"))
        show_json(screen, call.arguments)
        if self.shown is not None:
            screen.gap()
            screen.say(("what the model is shown", "quiet"))
            screen.wrap(self.shown, indent=2)
        screen.gap()
        for each in self.passed:
            by = f"  by {each.by}" if each.by else ""
            why = f"  {each.why}" if each.why else ""
            screen.cut("  ", (moment(each.at), "when"), "  ", *way(each.states), (by + why, "quiet"))
        if call.state in UNCLEAR:
            screen.gap()
            place = (self.thread, call.id)
            screen.suggest("Ask its tool: ", "calls", "reconcile", *place, "--code", "MODULE:NAME")
            screen.suggest("Or say it:    ", "calls", "resolve", *place, "OUTCOME", "--why", "TEXT")


def facts_of(call: CallRecordShape) -> list[tuple[str, Any]]:
    """Return the facts of a call by name."""
    again = ", idempotent" if call.idempotent else ""
    where = f"{call.thread}, timeline {call.timeline}"
    found: list[tuple[str, Any]] = [
        ("tool", (call.tool, "tool")),
        ("state", state(call.state)),
        ("why", call.why or ""),
        ("resolved", call.outcome or ""),
        ("effect", f"{call.effect}{again}"),
        ("attempts", str(call.attempt)),
        ("thread", where),
        ("run", call.run or ""),
        (
            "asked by",
            call.backend or {"call": "a program, by hand", "import": "elsewhere"}.get(call.origin or "", ""),
        ),
        ("copied", call.copied_from or ""),
        ("key", call.key or ""),
        ("result", call.result or ""),
    ]
    return [(name, fact) for name, fact in found if fact]


def show_json(screen: Screen, value: object) -> None:
    """Print arguments, line by line; text that is no JSON as it is."""
    text = value if isinstance(value, str) else "(forgotten)" if value is None else safe_json(value)
    for line in text.splitlines() or [""]:
        screen.cut("  ", line)


def show(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> CallShowAnswer:
    """Show one call: its arguments, its result and its changes of state"""
    with reading(everywhere) as store:
        traced = call_on(store.thread(thread), call, timeline, history=True)
        return CallShowAnswer(
            thread=thread,
            call=CallRecordShape.of(thread, traced.record, traced.arguments),
            shown=words_of_result(traced),
            passed=[PassedShape.of(each) for each in traced.passed],
        )
