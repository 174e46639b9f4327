"""What the four decisions have in common: making one, durably, and saying what it leads to."""

from __future__ import annotations

from typing import Any, Self

from perdure.cli.answer import Answer
from perdure.cli.coding import with_code
from perdure.cli.options import Everywhere
from perdure.cli.records import CallRecordShape, DecisionShape, in_json, state
from perdure.cli.screen import Screen
from perdure.cli.seeing import named, seen_from
from perdure.cli.stores import writing
from perdure.cli.users import decided_by
from perdure.ledger.tracing import Traced
from perdure.model.head import MAIN
from perdure.model.ticket import Ticket, Verdict
from perdure.threads.thread import Thread

__all__ = ["Decided"]


class Decided(Answer, frozen=True, kw_only=True):
    """A decision, and the call that it moved."""

    thread: str
    ticket: str
    call: CallRecordShape
    before: Any  # the arguments that the question was about
    decision: DecisionShape
    again: bool  # it was decided in the same way before, and nothing was written
    checked: str | None = None  # `tool` or `schema`: who has looked at new arguments; null: nobody

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
        by: str | None = None,
        why: str | None = None,
        code: str | None = None,
    ) -> Self:
        """Decide, on the timeline on which it was asked unless another is named."""
        with writing(everywhere) as store:
            asked = seen_from(store.thread(thread), call, timeline)
            line = timeline or (asked.ticket.timeline if asked.ticket else MAIN)
            with with_code(store, thread, code, line) as found:
                ticket = found.decide(
                    named(store.thread(thread), call), verdict, value=value, by=decided_by(by), why=why
                )
                again = asked.ticket is not None and asked.ticket == ticket
                return cls._of(found, ticket, again=again)

    @classmethod
    def _of(cls, thread: Thread, ticket: Ticket, *, again: bool) -> Self:
        traced = thread.trace(ticket.id, history=False)
        assert traced.ticket is not None
        assert traced.ticket.decision is not None
        return cls(
            thread=thread.id,
            ticket=ticket.id,
            call=CallRecordShape.of(thread.id, traced.record, traced.arguments),
            before=in_json(traced.asked),
            decision=DecisionShape.of(traced.ticket.decision, traced.value),
            again=again,
            checked=_checked(traced),
        )

    @property
    def told(self) -> str:
        """What was decided, before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence, what it changed, and how to go on."""
        call = self.call
        again = " before; nothing new was written" if self.again else ""
        screen.say(
            f"{self.told}{again}: ", (call.tool, "tool"), " is ", state(call.state), ", ", (call.id, "name")
        )
        self.show_change(screen)
        if call.run and call.state in ("approved", "denied"):
            screen.suggest("Go on: ", "runs", "resume", self.thread, call.run, "--code", "MODULE:NAME")

    def show_change(self, screen: Screen) -> None:
        """Print what the decision changes; nothing for most."""


def _checked(traced: Traced) -> str | None:
    """Who has looked at new arguments: a call that its tool was not at hand for has no fingerprint."""
    if traced.record.fingerprint:
        return "tool"
    return "schema" if traced.ticket is not None and traced.ticket.arguments_schema is not None else None
