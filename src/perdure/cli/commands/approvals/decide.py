"""`perdure approvals answer`.

`perdure approvals approve`.

`perdure approvals deny`.

`perdure approvals edit`.

What the four decisions have in common: making one, durably, and saying what it leads to.
"""

from __future__ import annotations

import shlex
from typing import Any, Self

import msgspec

from perdure.cli.commands.approvals.show import diff_of
from perdure.cli.commands.calls.show import show_json
from perdure.cli.input.json_input import GivenArguments, GivenValue, parsed, with_argument
from perdure.cli.input.stores import writing
from perdure.cli.input.user_code import OptionalCode, with_code
from perdure.cli.input.users import decided_by
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why
from perdure.cli.output.answer import Answer
from perdure.cli.output.ledger_words import state
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid, NotFound
from perdure.model.head import MAIN
from perdure.model.ticket import Verdict
from perdure.shapes.ledger import DecidedCall
from perdure.shapes.lookup import call_seen_from
from perdure.shapes.text import in_json
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["Answered", "answer", "Approved", "approve", "Denied", "deny", "Edited", "edit", "DecideAnswer"]


class DecideAnswer(DecidedCall, Answer, frozen=True, kw_only=True):
    """A decision, and the call that it moved."""

    repeats: str | None = None  # what is known of the earlier call that this one repeats, or may

    @classmethod
    def make(
        cls,
        everywhere: Everywhere,
        thread: str,
        call: str,
        verdict: Verdict,
        *,
        timeline: str | None,
        value: Any = None,
        edited: str | None = None,
        by: str | None = None,
        why: str | None = None,
        code: str | None = None,
    ) -> Self:
        """Decide, on the timeline on which it was asked unless another is named.

        `edited` is what --value of an edit says; None: `value` goes with the decision.
        """
        with writing(everywhere) as store:
            asked = call_seen_from(_thread_of(store, thread, call), call, timeline)
            line = timeline or (asked.ticket.timeline if asked.ticket else MAIN)
            if edited is not None:
                value = with_argument(in_json(asked.asked), edited)
                value = parsed(edited, "--value") if value is None else value
            with with_code(store, thread, code, line) as found:
                ticket = found.decide(asked.named, verdict, value=value, by=decided_by(by), why=why)
                again = asked.ticket is not None and asked.ticket == ticket
                repeats = ticket.message if ticket.action == "repeat" else None
                return msgspec.structs.replace(cls.of(found, ticket, again=again), repeats=repeats)

    @property
    def summary(self) -> str:
        """Return what was decided, for the place before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence, what it changed, and how to go on."""
        call = self.call
        again = " before; nothing new was written" if self.again else ""
        is_plain = call.state in ("approved", "denied")  # else more has happened than the decision
        moved = () if is_plain else (", which is ", state(call.state))
        screen.sentence(f"{self.summary}{again}: ", (call.tool, "tool"), *moved, ", ", (call.id, "name"))
        self.show_change(screen)
        if self.repeats and call.state == "approved":
            screen.wrap(("! It is a repeat: ", "warn"), f"{self.repeats}.")
            screen.suggest("Stop it before it starts: ", "runs", "cancel", self.thread, call.run or "RUN")
        if call.run and call.state in ("approved", "denied"):
            screen.suggest(
                "A worker goes on, or: ",
                "runs",
                "resume",
                self.thread,
                call.run,
                "--code",
                "MODULE:NAME",
                threads=(self.thread,),
            )

    def show_change(self, screen: Screen) -> None:
        """Print what the decision changes; nothing for most."""


def _thread_of(store: Store, thread: str, call: str) -> Thread:
    """Return the thread; raises `NotFound`, also if the thread and its call were given in the wrong order."""
    try:
        return store.thread(thread)
    except NotFound as error:
        try:
            store.thread(call)
        except (NotFound, Invalid):
            raise error from None
        raise NotFound(
            f"'{call}' is a thread and '{thread}' is none: they are in the wrong order; nothing was decided.",
            code="thread_and_call_swapped",
            advice=f"Write {shlex.join([call, thread])}: the thread comes first.",
            thread=call,
            call=thread,
        ) from error


class Answered(DecideAnswer, frozen=True, kw_only=True):
    """The decision, and the call that it moved, with the answer."""

    @property
    def summary(self) -> str:
        """Return what was decided."""
        return "Answered"

    def show_change(self, screen: Screen) -> None:
        """Print the answer."""
        show_json(screen, self.decision.value)


def answer(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    value: GivenValue,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Answered:
    """Answer the question of a call, or give its result yourself

    A tool that asked goes on with the answer; any other call is not made, and the answer is its
    result. If the approval has a schema, an answer that does not match it is refused.
    """
    given = parsed(value, "--value")
    return Answered.make(everywhere, thread, call, "answer", timeline=timeline, value=given, by=by, why=why)


class Approved(DecideAnswer, frozen=True, kw_only=True):
    """The decision, and the call that it moved."""

    @property
    def summary(self) -> str:
        """Return what was decided."""
        return "Approved"


def approve(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Approved:
    """Approve a call with its arguments as they are

    An approval is valid for these arguments only, once. It is durable when this command returns.
    """
    return Approved.make(everywhere, thread, call, "approve", timeline=timeline, by=by, why=why)


class Denied(DecideAnswer, frozen=True, kw_only=True):
    """The decision, and the call that it moved."""

    @property
    def summary(self) -> str:
        """Return what was decided."""
        return "Denied"


def deny(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Denied:
    """Deny a call; the model gets the reason

    The call is not made. The model gets the reason that you give with --why.
    """
    return Denied.make(everywhere, thread, call, "deny", timeline=timeline, by=by, why=why)


_CHECKED: dict[str | None, str] = {
    "tool": "The tool has checked them.",
    "schema": "They fit the schema that was recorded when the call asked; the tool checks them when it runs.",
    None: "They were not checked: no schema was recorded. The tool checks them when it runs; with --code it checks them now.",
}


class Edited(DecideAnswer, frozen=True, kw_only=True):
    """The decision, and the call that it moved, with its new arguments."""

    @property
    def summary(self) -> str:
        """Return what was decided."""
        return "Edited and approved" if self.decision.verdict == "edit" else "Approved, with no difference"

    def show_change(self, screen: Screen) -> None:
        """Print the arguments before and after, as a diff, and who has looked at them."""
        if self.decision.verdict != "edit":
            return
        for line in diff_of(self.before, self.decision.value):
            screen.cut("  ", line)
        if not self.again:
            screen.wrap((_CHECKED[self.checked], "quiet"))


def edit(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    value: GivenArguments,
    by: By = None,
    why: Why = None,
    code: OptionalCode = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Edited:
    """Approve a call with other arguments, shown as a diff

    --value amount=500 changes that argument and keeps the others; JSON replaces them all. They are approved. With --code the tool checks them
    now; else the schema that was recorded with the question, if there is one.
    """
    return Edited.make(
        everywhere, thread, call, "edit", timeline=timeline, edited=value, by=by, why=why, code=code
    )
