"""`perdure runs start`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.runs.show import found_run
from perdure.cli.completion import in_store
from perdure.cli.input.lookup import is_held
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment
from perdure.cli.output.ledger_words import show_held
from perdure.cli.output.screen import Screen
from perdure.model.head import MAIN
from perdure.runtime.session.inputs import check_input
from perdure.runtime.tools.waiting import read_moment
from perdure.shapes.ledger import OneRun, RunShape

__all__ = ["QueuedRun", "start"]


class QueuedRun(OneRun, Answer, frozen=True, kw_only=True):
    """A run that a worker begins."""

    again: bool = False  # an input of this id was queued before, and nothing was queued now
    retry: bool = False  # the run of this id had failed, and is queued again
    # Its thread was copied or restored, and no worker begins the run before it is released.
    held: bool = False

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what begins it."""
        run = self.run
        if run.state != "created":
            screen.say("Run ", (run.id, "name"), " has the same id and was queued before: ", run.shown_state)
            return
        when = f" for {moment(run.due)}" if run.scheduled and run.due else ""
        before = " before; nothing new was queued" if self.again else ""
        screen.say(f"Queued{' again' if self.retry else ''}{when}{before}: run ", (run.id, "name"))
        if self.held:
            show_held(screen, [self.thread])
        screen.suggest(
            f"{'Then a' if self.held else 'A'} worker {'retries' if self.retry else 'begins'} it: ",
            "work",
            "--code",
            "MODULE:NAME",
            threads=(self.thread,),
        )


def start(
    thread: ThreadId,
    text: Annotated[str, Parameter(name="TEXT", help="The user's message")],
    /,
    *,
    id: Annotated[
        str | None,
        Parameter(
            metavar="ID", help="The message's id; the same id again queues nothing, unless its run has failed"
        ),
    ] = None,
    at: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="Not before this time, such as 2026-01-31T09:00+01:00 (UTC without a zone), or so long from now: "
            "45s, 10m, 1h, 2d, 1w",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        Parameter(
            metavar="NAME", completer=in_store, help="Begin the thread for this agent if it is not there"
        ),
    ] = None,
    owner: Annotated[
        str | None,
        Parameter(
            metavar="NAME", completer=in_store, help="The owner of a thread that is begun: a user, a customer"
        ),
    ] = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> QueuedRun:
    """Queue an input for a worker, now or for a later time

    It is durable when this returns. The inputs of a timeline are taken in their order. `perdure runs cancel THREAD RUN`
    ends a run that has not begun. The store has to be there: `perdure init` makes one.
    """
    check_input(text, id=id)  # before a thread is begun
    if at is not None:
        read_moment(at)
    with writing(everywhere) as store:
        found = store.thread(thread, agent=agent, owner=owner, timeline=timeline)
        before = None if id is None else found.given(text, id=id)
        retry = before is not None and before.state == "failed"
        run = found.start(text, id=id) if at is None else found.schedule(text, at, id=id)
        shape = RunShape.now(found, found_run(found, run, None))
        again = before is not None and not retry
        return QueuedRun(thread=thread, run=shape, again=again, retry=retry, held=is_held(found))
