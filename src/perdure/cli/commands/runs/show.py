"""`perdure runs show`."""

from __future__ import annotations

import msgspec

from perdure.cli.input.lookup import is_held, thread_with
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyTimeline, Everywhere, LastRun, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, show_message
from perdure.cli.output.formatting import moment
from perdure.cli.output.ledger_words import calls_in_words, on_one_line, show_held, show_losses, state
from perdure.cli.output.screen import Column, Part, Screen
from perdure.errors import NotFound
from perdure.model.call import UNCLEAR
from perdure.model.names import did_you_mean, id_meant
from perdure.model.run import ENDED, RunRecord, Usage
from perdure.shapes.ledger import CostShape, RunDetail, RunShape, StopShape
from perdure.shapes.lookup import run_of
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["Run", "found_run", "placed_run", "show", "suggest_retry"]

_COLUMNS = (
    Column("tool", "tool", gives_way=True),
    Column("arguments", gives_way=True),
    Column("state"),
    Column("call", is_id=True),
)


_CHILDREN = (Column("child on", "name", gives_way=True), Column("state"), Column("run"))


class Run(RunDetail, Answer, frozen=True, kw_only=True):
    """One run: its state, its route, its messages and its calls."""

    held: bool = False  # its thread was copied or restored, and not released

    def show(self, screen: Screen) -> None:
        """Print facts, words and calls, and what can be done now."""
        run = self.run
        screen.say(("run ", "quiet"), (run.id, "title"))
        screen.facts(
            [
                ("state", state(run.shown_state)),
                *((("why", run.why),) if run.why else ()),
                *((("stop", _stop(run.stop)),) if run.stop else ()),
                *((("child of", f"run {self.parent.run} of {self.parent.thread}"),) if self.parent else ()),
                ("thread", f"{self.thread}, timeline {run.timeline}"),
                ("agent", f"{run.agent}{_version(run)} {_on(run)}"),
                *((("calls", self._calls_in_words()),) if self.calls else ()),
                *(_spent(self.usage, self.cost) if self.usage or self.cost.usd else ()),
                ("queued", moment(run.at)) if run.state == "created" else ("begun", moment(run.begun_at)),
                *((("due", moment(run.due)),) if run.due else ()),
                ("last", moment(run.at)),
            ]
        )
        self._tell_route(screen)
        if self.messages:
            screen.gap()
        for message in self.messages:
            show_message(screen, message, whole=False, indent=0)
        if self.calls:
            screen.gap()
            rows = [
                (each.tool, on_one_line(each.arguments), state(each.state, each.outcome), each.id)
                for each in self.calls
            ]
            screen.table(_COLUMNS, rows)
        if self.children:
            screen.gap()
            screen.table(_CHILDREN, [(each.thread, state(each.state), each.run) for each in self.children])
        if self.losses:
            screen.gap()
            show_losses(screen, self.losses)
        self._advise(screen)

    def _calls_in_words(self) -> Part:
        states = [each.state for each in self.calls]
        return calls_in_words(len(states), states.count("failed"), sum(each in UNCLEAR for each in states))

    def _tell_route(self, screen: Screen) -> None:
        """Print the backends that took over, and why."""
        if self.route:
            screen.gap()
            screen.say(
                ("route ", "quiet"),
                " → ".join([str(self.route[0].from_backend), *(each.to_backend for each in self.route)]),
            )
        for each in self.route:
            screen.say(f"  to {each.to_backend}: {each.why or 'by hand'} ", digest(each.commit))
            for note in each.notes:
                screen.say((f"    {note}", "quiet"))

    def _advise(self, screen: Screen) -> None:
        if self.held and self.run.state not in ENDED:
            screen.gap()
            show_held(screen, [self.thread])
            return
        children = [each for each in self.children if each.state == "waiting"]
        if children and not self.run.decided:
            screen.gap()
            screen.suggest("It waits for a child: ", "runs", "show", children[0].thread, children[0].run)
            return
        waiting = [each.id for each in self.calls if each.state == "awaiting_approval"]
        if waiting:
            screen.gap()
            first = screen.short_id(waiting[0], (each.id for each in self.calls))
            screen.suggest("Decide: ", "approvals", "show", self.thread, first)
        elif self.run.set_aside:
            screen.gap()
            screen.say("It ended its worker three times, so workers leave it alone.")
            screen.suggest("Release it: ", "runs", "release", self.thread, "--run", self.run.id)
        elif self.run.state == "created":
            screen.gap()
            screen.suggest("A worker begins it: ", "work", "--code", "MODULE:NAME", threads=(self.thread,))
        elif self.run.interrupted or self.run.state == "waiting":
            screen.gap()
            screen.suggest(
                "Go on: ",
                "runs",
                "resume",
                self.thread,
                self.run.id,
                "--code",
                "MODULE:NAME",
                threads=(self.thread,),
            )
        elif self.run.state == "failed" and self.parent is None:
            screen.gap()
            suggest_retry(screen, self.thread, self.run.id)


def suggest_retry(screen: Screen, thread: str, run: str, indent: str = "") -> None:
    """Print the command that retries a failed run."""
    screen.suggest(
        f"{indent}Try again: ", "runs", "resume", thread, run, "--code", "MODULE:NAME", threads=(thread,)
    )


def show(
    thread: ThreadId,
    run: LastRun = None,
    /,
    *,
    timeline: AnyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Run:
    """Show one run: its state, its messages and its calls

    For a run with a route, it shows which backends took over and why.
    """
    with reading(everywhere) as store:
        found = store.thread(thread)
        shown = Run.of(found, found_run(found, run, timeline))
        return msgspec.structs.replace(shown, held=is_held(found))


def found_run(thread: Thread, id: str | None, timeline: str | None) -> RunRecord:
    """Return the run of that id or a part of it, None: the last, of one timeline if it is named; raises `NotFound`."""

    found = run_of(thread, id, timeline)
    if found is not None:
        return found
    runs = [each for each in thread.runs() if timeline in (None, each.timeline)]
    if id is not None and (whole := id_meant(id, (each.id for each in runs), what="run", beginnings=True)):
        return next(each for each in runs if each.id == whole)
    where = f"timeline '{timeline}' of '{thread.id}'" if timeline else f"'{thread.id}'"
    if id is None:
        raise NotFound(
            f"there was no run on {where} yet; nothing was done.",
            code="run_missing",
            thread=thread.id,
        )
    if timeline is not None and (elsewhere := run_of(thread, id, None)) is not None:
        raise NotFound(
            f"run '{id}' is on timeline '{elsewhere.timeline}', not on '{timeline}'; nothing was done.",
            code="run_elsewhere",
            advice="Leave --timeline out.",
            run=id,
            timeline=elsewhere.timeline,
        )
    hint = did_you_mean(id, (each.id for each in reversed(runs)), likeness=0.5)
    raise NotFound(
        f"{where} has no run '{id}'; nothing was done. {hint}".rstrip(),
        code="run_not_found",
        advice=f"See `perdure runs ls {thread.id}`.",
        run=id,
        thread=thread.id,
    )


def placed_run(store: Store, thread: str | None, run: str) -> tuple[str, str]:
    """Return the thread of a run and its whole id, of which `run` may be a part; None: any thread may have it."""
    if thread is not None:
        return thread, found_run(store.thread(thread), run, None).id
    found = thread_with(store, "run", run)
    if found is None:
        raise NotFound(
            f"no thread has a run '{run}'; nothing was done.",
            code="run_not_found",
            advice="See `perdure runs ls`.",
            run=run,
        )
    return found


def _spent(usage: Usage, cost: CostShape) -> list[tuple[str, str]]:
    cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    tokens = f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
    return [("tokens", tokens), ("cost", str(cost.cost))]


def _stop(stop: StopShape) -> str:
    return stop.reason if stop.word is None else f"{stop.reason} ({stop.word})"


def _on(run: RunShape) -> str:
    """Return the backend of a run in words; one that failed before its first step, or has not begun, has none."""
    if run.backend:
        return f"on {run.backend}"
    return "(no step was taken)" if run.state in ENDED else "(no step was taken yet)"


def _version(run: RunShape) -> str:
    return f", version {run.agent_version[:12]}," if run.agent_version else ""
