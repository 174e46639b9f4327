"""`perdure approvals show`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.calls.show import show_json
from perdure.cli.completion import in_store
from perdure.cli.input.lookup import is_held, open_on
from perdure.cli.input.stores import reading
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, AnyTimeline, Everywhere, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import difference
from perdure.cli.output.formatting import moment
from perdure.cli.output.ledger_words import show_held, state
from perdure.cli.output.screen import Part, Screen
from perdure.errors import Invalid, NotFound
from perdure.shapes.ledger import ApprovalDetail, CallRecordShape, DecisionShape
from perdure.shapes.lookup import call_seen_from
from perdure.shapes.text import now, safe_json, stamp
from perdure.store.store import Store

__all__ = ["ApprovalShowAnswer", "diff_of", "show", "until"]

_LAPSES = {"expire": "it expires", "deny": "it is denied", "approve": "it is approved"}


class ApprovalShowAnswer(ApprovalDetail, Answer, frozen=True, kw_only=True):
    """One approval: the question, the call that it is about, and what was decided."""

    held: bool = False  # its thread was copied or restored, and not released

    def show(self, screen: Screen) -> None:
        """Print who asks for what, and what can be decided."""
        screen.wrap((self.ticket.message or self._question, "title"))
        screen.gap()
        show_json(screen, self.arguments)
        screen.gap()
        screen.facts(self._facts())
        if self.repeats is not None:
            screen.gap()
            screen.say(("It repeats, or may repeat, an earlier call:", "warn"))
            screen.facts(_earlier(self.repeats))
        screen.gap()
        if self.decision is None and self.held:
            show_held(screen, [self.thread])
        elif self.decision is None:
            self._advise(screen)
        else:
            self._tell(screen, self.decision)

    @property
    def _question(self) -> str:
        return {"approve": "may this call go on?", "repeat": "may this call be repeated?"}.get(
            self.ticket.action, self.ticket.action
        )

    def _facts(self) -> list[tuple[str, Part]]:
        ticket, call = self.ticket, self.call
        again = ", idempotent" if call.idempotent else ""
        asks = f"run {ticket.run}" if ticket.run else "a program, by hand"
        found: list[tuple[str, Part]] = [
            ("tool", (call.tool, "tool")),
            ("effect", f"{call.effect}{again}"),
            ("asked by", f"{asks}, on {call.backend}" if call.backend else asks),
            ("asked", moment(ticket.asked_at)),
            ("until", "" if self.decision else until(self.ticket.expires_at, self.ticket.on_timeout)),
            ("thread", f"{self.thread}, timeline {ticket.timeline}"),
            ("call", call.id),
            ("shape", safe_json(ticket.response_schema, indent=None) if ticket.response_schema else ""),
        ]
        return [(name, fact) for name, fact in found if fact]

    def _tell(self, screen: Screen, decision: DecisionShape) -> None:
        who = f" by {decision.by}" if decision.by else ""
        why = f": {decision.why}" if decision.why else ""
        screen.say(
            "Decided ", (decision.verdict, "good"), f"{who}{why}", (f"  {moment(decision.at)}", "when")
        )
        if decision.verdict == "edit":
            for line in diff_of(self.arguments, decision.value):
                screen.cut("  ", line)
        elif decision.value is not None:
            show_json(screen, decision.value)

    def _advise(self, screen: Screen) -> None:
        # The id of the call names its first question only.
        place = (self.thread, self.ticket.id if self.ticket.follows else self.ticket.call)
        screen.suggest("Decide: ", "approvals", "approve", *place)
        screen.suggest("        ", "approvals", "deny", *place, "--why", "TEXT")
        screen.suggest("        ", "approvals", "edit", *place, "--value", "JSON")
        screen.suggest("        ", "approvals", "answer", *place, "--value", "JSON")
        screen.wrap((f"The decision is recorded under {os_user()}; --by records another name.", "quiet"))


def until(expires_at: str | None, on_timeout: str) -> str:
    """Return until when an approval waits, and what happens then."""
    if expires_at is None:
        return "a person decides"
    over = ", which is over" if expires_at <= stamp(now()) else ""
    return f"{moment(expires_at)}{over}; then {_LAPSES[on_timeout]}"


def diff_of(before: object, after: object) -> Iterator[Part]:
    """Return the lines that an edit changes."""
    return difference(safe_json(before).splitlines(), safe_json(after).splitlines())


def show(
    thread: ThreadId,
    call: Annotated[
        str | None,
        Parameter(
            name="CALL",
            completer=in_store,
            help="The call's id, or a part of it as listings show it, before which THREAD can be left out; the only one that waits if left out",
        ),
    ] = None,
    /,
    *,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ApprovalShowAnswer:
    """Show one approval: the call, the question and the deadline"""
    with reading(everywhere) as store:
        found = store.thread(thread)
        call = call or _only_one(store, thread, timeline)
        answer = ApprovalShowAnswer.of(found, call_seen_from(found, call, timeline))
        return msgspec.structs.replace(answer, held=is_held(found))


def _only_one(store: Store, thread: str, timeline: str | None) -> str:
    """Return the only call of a thread that waits; raises `NotFound` if there is none, `Invalid` if there are several."""
    waiting = [ticket.call for _, ticket in open_on(store, thread, timeline)]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise NotFound(
            f"no call of '{thread}' waits for a decision; nothing was done.",
            code="approval_missing",
            advice="Name the call to see an earlier approval: `perdure calls ls` lists them.",
            thread=thread,
        )
    raise Invalid(
        f"{len(waiting)} calls of '{thread}' wait for a decision, and none was named; nothing was done.",
        code="approval_not_named",
        advice=f"`perdure approvals ls {shlex.quote(thread)}` lists them.",
        thread=thread,
        calls=waiting,
    )


def _earlier(call: CallRecordShape) -> list[tuple[str, Part]]:
    found: list[tuple[str, Part]] = [
        ("call", call.id),
        ("state", state(call.state, call.outcome)),
        ("last", moment(call.at)),
        ("on", f"timeline {call.timeline}"),
        ("run", call.run or ""),
        ("backend", call.backend or ""),
        ("why", call.why or ""),
    ]
    return [(name, fact) for name, fact in found if fact]
