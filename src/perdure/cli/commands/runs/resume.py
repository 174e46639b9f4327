"""`perdure runs resume`."""

from __future__ import annotations

from perdure.cli.commands.chat.output import paint
from perdure.cli.commands.runs.show import found_run
from perdure.cli.input.stores import writing
from perdure.cli.input.user_code import Code, with_code
from perdure.cli.options import EVERYWHERE, AnyTimeline, Everywhere, ThisRun, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import state
from perdure.cli.output.screen import Screen, console
from perdure.cli.usage import to_be_named
from perdure.model.head import MAIN
from perdure.shapes.ledger import RunResult

__all__ = ["Resumed", "resume"]


class Resumed(RunResult, Answer, frozen=True, kw_only=True):
    """The result of a run."""

    def show(self, screen: Screen) -> None:
        """Print how the run ended, and what it waits for; its messages were printed while it ran."""
        screen.sentence("Run ", (self.run, "name"), " ", state(self.status), ", ", digest(self.commit))
        if self.why:
            screen.wrap((self.why, "quiet"), indent=2)
        for asked in self.approvals:
            screen.cut("  ", ("waits      ", "warn"), f"{asked.tool}: {asked.message or asked.action}")
        if self.failed:
            words = f"{count(len(self.failed), 'call')} of {self.calls} failed: "
            screen.suggest(words, "calls", "show", self.thread, self.failed[0])
        if self.unclear:
            calls = count(len(self.unclear), "call")
            verb = "has" if len(self.unclear) == 1 else "have"
            words = f"{calls} of this run {verb} an unknown outcome: "
            screen.suggest(words, "calls", "show", self.thread, self.unclear[0])
        if self.approvals:
            waiting = count(len(self.approvals), "approval")
            screen.suggest(f"{waiting} open: ", "approvals", "show", self.thread, self.approvals[0].call)


def resume(
    thread: ThreadId,
    run: ThisRun = None,
    /,
    *,
    code: Code = None,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Resumed:
    """Resume a run that was interrupted, or whose approval was decided, or retry one that failed

    Text and calls are printed as they come, with --json only the result. A settled call stays settled: a
    call with an outside effect is repeated only if its tool proves that it was not done. A run that still
    waits for a decision is left as it is. A run that failed goes on from its last step if its id is given.
    """
    screen = Screen(console(), store=to_be_named(everywhere.store))  # what the code prints goes elsewhere
    with writing(everywhere) as store:
        line = timeline or MAIN
        if run is not None:
            record = found_run(store.thread(thread), run, None)
            run, line = record.id, timeline or record.timeline
        with with_code(store, thread, code, line, needed=True) as found:
            retry = run is not None
            result = (
                found.resume(run, retry=retry)
                if everywhere.json
                else paint(screen, found.resume_stream(run, retry=retry))
            )
        return Resumed.of(found, result)
