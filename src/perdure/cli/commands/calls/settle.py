"""`perdure calls reconcile`.

`perdure calls resolve`.

Both answer with the call as it is afterwards.
"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.input.json_input import parsed
from perdure.cli.input.lookup import call_on
from perdure.cli.input.stores import writing
from perdure.cli.input.user_code import Code, with_code
from perdure.cli.input.users import decided_by
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, CallId, Everywhere, ThreadId, Why
from perdure.cli.output.answer import Answer
from perdure.cli.output.ledger_words import state
from perdure.cli.output.screen import Part, Screen
from perdure.errors import Invalid
from perdure.shapes.ledger import CallAfter

__all__ = ["Reconciled", "reconcile", "Resolved", "resolve", "Settled"]


class Settled(CallAfter, Answer, frozen=True, kw_only=True):
    """A call and its state now."""

    @property
    def summary(self) -> str:
        """Return what happened, for the place before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what can be done now."""
        call = self.call
        screen.sentence(f"{self.summary}: ", (call.tool, "tool"), *self._moved, (f" {call.id}", "name"))
        if call.why:
            screen.wrap((call.why, "quiet"), indent=2)
        if call.state == "requested":
            again = "It starts again when its run goes on: "
            run = (call.run,) if call.run else ()
            screen.suggest(
                again, "runs", "resume", self.thread, *run, "--code", "MODULE:NAME", threads=(self.thread,)
            )

    @property
    def _moved(self) -> tuple[Part, ...]:
        if self.call.state == self.before:
            return (", still ", state(self.before), ",")
        return (", from ", state(self.before), " to ", state(self.call.state), ",")


class Reconciled(Settled, frozen=True, kw_only=True):
    """A call after its tool was asked for the outcome."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Asked its tool"


def reconcile(
    thread: ThreadId,
    call: CallId,
    /,
    *,
    code: Code = None,
    by: By = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Reconciled:
    """Ask a call's tool for the outcome, and settle the call by the answer

    If the call was done, its result is recorded. The answer that it was not done counts only if the
    process that started it is proven to have ended, or the tool declares that asking prevents the
    call; the call then starts again when its run is resumed. This command does not make the call.
    """
    with writing(everywhere) as store:
        record = call_on(store.thread(thread), call, timeline).record
        with with_code(store, thread, code, record.timeline, needed=True) as found:
            found.reconcile(record.id, by=decided_by(by))
            return Reconciled.by(found, record.id, record.state)


class Resolved(Settled, frozen=True, kw_only=True):
    """A call after a person recorded its outcome."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return f"Resolved as {self.call.outcome}"


def resolve(
    thread: ThreadId,
    call: CallId,
    outcome: Annotated[
        Literal["done", "not_done"], Parameter(name="OUTCOME", help="The outcome: done or not_done")
    ],
    /,
    *,
    result: Annotated[
        str | None,
        Parameter(
            metavar="JSON",
            allow_leading_hyphen=True,
            help="The result of the call; @FILE reads it from a file",
        ),
    ] = None,
    by: By = None,
    why: Why = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Resolved:
    """Record the outcome of a call yourself, if it is unknown

    The repeat guard relies on it: a call that was not done may be made again without asking.
    """
    if result is not None and outcome == "not_done":
        raise Invalid(
            "a call that was not done has no result; nothing was resolved.",
            code="result_not_taken",
            advice="Leave --result out.",
        )
    with writing(everywhere) as store:
        found = store.thread(thread)
        record = call_on(found, call, timeline).record
        value = None if result is None else parsed(result, "--result")
        found.resolve(record.id, outcome, value=value, by=decided_by(by), why=why)
        return Resolved.by(found, record.id, record.state)
