"""`perdure calls show`."""

from __future__ import annotations

from typing import Any

from perdure.cli.input.lookup import call_on
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyTimeline, CallId, Everywhere, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment
from perdure.cli.output.ledger_words import state, way
from perdure.cli.output.screen import Screen
from perdure.model.call import UNCLEAR
from perdure.shapes.ledger import CallDetail, CallRecordShape
from perdure.shapes.text import safe_json

__all__ = ["CallShowAnswer", "facts_of", "show", "show_json"]


class CallShowAnswer(CallDetail, Answer, frozen=True, kw_only=True):
    """One tool call: what it was asked to do, what it gave back, and the way that it took."""

    def show(self, screen: Screen) -> None:
        """Print facts, arguments, result and the way that it took."""
        call = self.call
        screen.say(("call ", "quiet"), (call.id, "title"))
        screen.facts(facts_of(call))
        screen.gap()
        if self.is_edited:
            screen.say(("arguments before the edit", "quiet"))
            show_json(screen, self.proposed)
            by = f" by {self.edited_by}" if self.edited_by is not None else ""
            screen.say((f"arguments, edited{by}", "quiet"))
        else:
            screen.say(("arguments", "quiet"))
        show_json(screen, call.arguments)
        if self.shown is not None:
            screen.gap()
            since = " since it was settled" if is_settled_later(self) else ""
            screen.say((f"what the model is shown{since}", "quiet"))
            screen.wrap(self.shown, indent=2)
        screen.gap()
        for each in self.passed:
            by = f"  by {each.by}" if each.by else ""
            why = f"  {each.why}" if each.why else ""
            screen.cut(
                "  ",
                (moment(each.at), "when"),
                "  ",
                *(way(each.states) if each.states else ("noted",)),
                (by + why, "quiet"),
            )
        if call.state == "awaiting_approval":
            screen.gap()
            screen.suggest("Decide it: ", "approvals", "show", self.thread, call.id)
        if call.state in UNCLEAR:
            screen.gap()
            place = (self.thread, call.id)
            screen.suggest("Say it: ", "calls", "resolve", *place, "done", "--why", "TEXT")
            screen.say(("        not_done, if it was not done", "quiet"))
            screen.say(("Or ask its tool, if that has a reconcile hook:", "quiet"))
            screen.suggest(
                "        ", "calls", "reconcile", *place, "--code", "MODULE:NAME", threads=(self.thread,)
            )


def is_settled_later(found: CallDetail) -> bool:
    """True if the outcome of a call was unknown at first and is known now."""
    passed = {state for each in found.passed for state in each.states}
    return found.call.state not in UNCLEAR and not passed.isdisjoint(UNCLEAR)


def facts_of(call: CallRecordShape) -> list[tuple[str, Any]]:
    """Return the facts of a call by name."""
    again = ", idempotent" if call.idempotent else ""
    where = f"{call.thread}, timeline {call.timeline}"
    found: list[tuple[str, Any]] = [
        ("tool", (call.tool, "tool")),
        ("state", state(call.state, call.outcome)),
        ("why", call.why or ""),
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
        found = store.thread(thread)
        return CallShowAnswer.of(found, call_on(found, call, timeline, history=True))
