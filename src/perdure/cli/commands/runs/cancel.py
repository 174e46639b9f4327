"""`perdure runs cancel`."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.runs.show import found_run
from perdure.cli.input.stores import writing
from perdure.cli.input.users import decided_by
from perdure.cli.options import EVERYWHERE, AnyTimeline, By, Everywhere, ThisRun, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.ledger_words import state
from perdure.cli.output.screen import Screen
from perdure.errors import NotFound
from perdure.model.head import MAIN
from perdure.model.run import ENDED
from perdure.shapes.ledger import OneRun, RunShape
from perdure.store.thread import Thread

__all__ = ["Cancelled", "cancel"]


class Cancelled(OneRun, Answer, frozen=True, kw_only=True):
    """A run that was asked to stop, and its state now."""

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        run = self.run
        if run.state == "cancelled":
            screen.say("Cancelled: run ", (run.id, "name"))
        elif run.state in ENDED:
            screen.say("Run ", (run.id, "name"), " has ended before: ", state(run.state))
        else:
            screen.say("Asked to stop: run ", (run.id, "name"))


def cancel(
    thread: ThreadId,
    run: ThisRun = None,
    /,
    *,
    why: Annotated[str, Parameter(metavar="TEXT", help="The reason to record")] = "cancelled",
    by: By = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Cancelled:
    """Cancel a run; one that waits or was interrupted ends at once

    Its work is recorded as far as it is known: a call that had started has an unknown outcome.
    """
    with writing(everywhere) as store:
        line = timeline or MAIN
        if run is not None:
            record = found_run(store.thread(thread), run, None)
            run, line = record.id, timeline or record.timeline
        found = store.thread(thread, timeline=line)
        with _naming_queued(found, run):
            record = found.cancel(run, why=why, by=decided_by(by))
        return Cancelled(thread=thread, run=RunShape.now(found, record))


@contextmanager
def _naming_queued(thread: Thread, run: str | None) -> Generator[None]:
    """Let the error for no open run name one that has not begun: such a run is cancelled only by its id."""
    try:
        yield
    except NotFound as error:
        queued = [
            each.id for each in thread.runs() if each.state == "created" and each.timeline == thread.timeline
        ]
        if run is not None or error.code not in ("open_run_missing", "last_run_failed") or not queued:
            raise
        raise NotFound(
            error.message,
            code=error.code,
            advice=f"A run that has not begun is named: `perdure runs cancel {shlex.quote(thread.id)} {queued[0]}`.",
            **error.facts,
            queued=tuple(queued),
        ) from error
