"""`perdure runs show`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.cli.commands.runs.ls import shape
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyTimeline, Everywhere, LastRun, ThreadId
from perdure.cli.output.answer import Answer, lately
from perdure.cli.output.display import digest, show_message
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Column, Screen
from perdure.cli.output.shapes import (
    CallRecordShape,
    MessageShape,
    RunShape,
    StepLossShape,
    StopShape,
    on_one_line,
    show_losses,
    state,
    step_losses,
)
from perdure.errors import NotFound
from perdure.model.names import did_you_mean
from perdure.model.run import RunRecord
from perdure.projections.transcript import TranscriptEntry
from perdure.store.thread import Thread
from perdure.switching.report import Report

__all__ = ["RouteStep", "Run", "found_run", "show"]

_MESSAGES_SCANNED = 500
_COLUMNS = (
    Column("tool", "tool", gives_way=True),
    Column("arguments", gives_way=True),
    Column("state"),
    Column("call"),
)


class RouteStep(msgspec.Struct, frozen=True, kw_only=True):
    """One backend that took over in the run, from whom, and why."""

    from_backend: str | None
    to_backend: str
    why: str | None
    notes: list[str]  # who was passed over, and what the turn had done by then
    commit: str | None

    @classmethod
    def of(cls, report: Report) -> RouteStep:
        """Return the switch in the shape of --json."""
        return cls(
            from_backend=report.from_backend,
            to_backend=report.to_backend,
            why=report.reason,
            notes=list(report.notes),
            commit=report.commit,
        )


class Run(Answer, frozen=True, kw_only=True):
    """One run: its state, its route, its messages and its calls."""

    thread: str
    run: RunShape
    route: list[RouteStep]  # the backends that took over on the way, oldest first
    messages: list[MessageShape]  # oldest first
    calls: list[CallRecordShape]
    losses: list[StepLossShape]  # what could not be carried over unchanged, step by step

    def show(self, screen: Screen) -> None:
        """Print facts, words and calls, and what can be done now."""
        run = self.run
        screen.say(("run ", "quiet"), (run.id, "title"))
        screen.facts(
            [
                ("state", state(run.shown_state)),
                *((("why", run.why),) if run.why else ()),
                *((("stop", _stop(run.stop)),) if run.stop else ()),
                ("thread", f"{self.thread}, timeline {run.timeline}"),
                ("agent", f"{run.agent}{_version(run)} on {run.backend or 'no backend'}"),
                ("begun", moment(run.begun_at)),
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
                (each.tool, on_one_line(each.arguments), state(each.state), each.id) for each in self.calls
            ]
            screen.table(_COLUMNS, rows)
        if self.losses:
            screen.gap()
            show_losses(screen, self.losses)
        self._advise(screen)

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
        waiting = [each.id for each in self.calls if each.state == "awaiting_approval"]
        if waiting:
            screen.gap()
            screen.suggest("Decide: ", "approvals", "show", self.thread, waiting[0])
        elif self.run.interrupted or self.run.state == "waiting":
            screen.gap()
            screen.suggest("Go on: ", "runs", "resume", self.thread, self.run.id, "--code", "MODULE:NAME")


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
        record = found_run(found, run, timeline)
        said = _said(found, record)
        return Run(
            thread=thread,
            run=shape(found, record),
            route=[RouteStep.of(each) for each in _route(found, record)],
            messages=[MessageShape.of(entry) for entry in said],
            calls=[
                CallRecordShape.of(thread, each, found.trace(each.id, history=False).arguments)
                for each in found.calls(run=record.id)
            ],
            losses=[each for entry in said for each in step_losses(entry.id, found.losses(entry))],
        )


def found_run(thread: Thread, id: str | None, timeline: str | None) -> RunRecord:
    """Return the run of that id, None: the last, of one timeline if it is named; raises `NotFound`."""

    def wanted(each: RunRecord) -> bool:
        return timeline in (None, each.timeline) and id in (None, each.id)

    found = lately(lambda last: thread.runs(limit=last), wanted, 1, others=False)
    if found:
        return found[-1]
    where = f"timeline '{timeline}' of '{thread.id}'" if timeline else f"'{thread.id}'"
    if id is None:
        raise NotFound(
            f"there was no run on {where} yet; nothing was done.",
            code="run_missing",
            thread=thread.id,
        )
    runs = [each for each in thread.runs() if timeline in (None, each.timeline)]
    hint = did_you_mean(id, (each.id for each in reversed(runs)), likeness=0.5)
    raise NotFound(
        f"{where} has no run '{id}'; nothing was done. {hint}".rstrip(),
        code="run_not_found",
        advice=f"See `perdure runs ls {thread.id}`.",
        run=id,
        thread=thread.id,
    )


def _stop(stop: StopShape) -> str:
    return stop.reason if stop.word is None else f"{stop.reason} ({stop.word})"


def _version(run: RunShape) -> str:
    return f", version {run.agent_version[:12]}," if run.agent_version else ""


def _route(thread: Thread, record: RunRecord) -> Sequence[Report]:
    """Return the switches that the run made; none if its commits are on no timeline."""
    try:
        return thread.on(record.timeline).switches(run=record.id)
    except NotFound:
        return ()


def _said(thread: Thread, record: RunRecord) -> Sequence[TranscriptEntry]:
    """Return the messages of the run, also after an undo; none if its commits are on no timeline."""
    try:
        seen = thread.on(record.timeline).at(record.id)
    except NotFound:
        return ()
    return [entry for entry in seen.transcript(limit=_MESSAGES_SCANNED) if entry.run == record.id]
