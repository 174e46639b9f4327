"""`perdure runs wait`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.runs.resume import Resumed
from perdure.cli.commands.runs.show import found_run
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyTimeline, Everywhere, LastRun, ThreadId
from perdure.cli.output.formatting import duration
from perdure.cli.output.screen import Screen

__all__ = ["Waited", "wait"]


class Waited(Resumed, frozen=True, kw_only=True):
    """The result of a run that another process carries on."""

    def show(self, screen: Screen) -> None:
        """Print the last words of the run, how it ended, and what it waits for."""
        if self.text:
            screen.wrap(self.text)
        Resumed.show(self, screen)


def wait(
    thread: ThreadId,
    run: LastRun = None,
    /,
    *,
    timeout: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="How long at most: 45s, 10m, 1h; as long as it takes if left out",
            show_default=False,
        ),
    ] = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Waited:
    """Wait until a run has ended, or waits for a decision, wherever it is carried on

    It carries nothing on itself: a queued run needs a worker. Exits with 1 if the run failed, and with 7 if it goes on
    after the --timeout.
    """
    seconds = None if timeout is None else duration(timeout).total_seconds()
    with reading(everywhere) as store:
        found = store.thread(thread)
        record = found_run(found, run, timeline)
        return Waited.of(found, found.wait(record.id, seconds))
