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
    CostShape,
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
from perdure.model.names import did_you_mean, id_meant
from perdure.model.run import Cost, RunRecord, Usage
from perdure.projections.transcript import TranscriptEntry
from perdure.store.runs import ChildRun
from perdure.store.thread import Thread
from perdure.switching.report import Report

__all__ = ["ChildShape", "ParentShape", "RouteStep", "Run", "found_run", "show"]

_MESSAGES_SCANNED = 500
_COLUMNS = (
    Column("tool", "tool", gives_way=True),
    Column("arguments", gives_way=True),
    Column("state"),
    Column("call", is_id=True),
)


_CHILDREN = (Column("child on", "name", gives_way=True), Column("state"), Column("run"))


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


class ParentShape(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a run is a child of."""

    thread: str
    run: str | None
    call: str

    @classmethod
    def of(cls, record: RunRecord) -> ParentShape | None:
        """Return the parent of a run in the shape of --json; None if the run is no child."""
        if record.parent is None:
            return None
        return cls(thread=record.parent.thread, run=record.parent_run, call=record.parent.call)


class ChildShape(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a tool of the run started."""

    thread: str
    run: str
    agent: str
    state: str
    why: str | None

    @classmethod
    def of(cls, child: ChildRun) -> ChildShape:
        """Return the child in the shape of --json."""
        record = child.record
        return cls(thread=child.thread, run=record.id, agent=record.agent, state=record.state, why=record.why)


class Run(Answer, frozen=True, kw_only=True):
    """One run: its state, its route, its messages and its calls."""

    thread: str
    run: RunShape
    route: list[RouteStep]  # the backends that took over on the way, oldest first
    messages: list[MessageShape]  # oldest first
    calls: list[CallRecordShape]
    losses: list[StepLossShape]  # what could not be carried over unchanged, step by step
    parent: ParentShape | None  # the call that it is a child of; null: it is no child
    children: list[ChildShape]  # the runs that its tools started
    usage: Usage  # tokens of its steps
    cost: CostShape  # of its steps, without its children

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
                ("agent", f"{run.agent}{_version(run)} on {run.backend or 'no backend'}"),
                *(_spent(self.usage, self.cost) if self.usage or self.cost.usd else ()),
                ("queued" if run.state == "created" else "begun", moment(run.begun_at)),
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
                (each.tool, on_one_line(each.arguments), state(each.state), each.id) for each in self.calls
            ]
            screen.table(_COLUMNS, rows)
        if self.children:
            screen.gap()
            screen.table(_CHILDREN, [(each.thread, state(each.state), each.run) for each in self.children])
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
            screen.suggest("A worker begins it: ", "work", "--code", "MODULE:NAME")
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
            parent=ParentShape.of(record),
            children=[ChildShape.of(each) for each in found.children(record.id)],
            usage=sum((entry.usage for entry in said if entry.usage is not None), Usage()),
            cost=CostShape.of(
                sum((Cost.of(entry.cost) for entry in said if entry.role == "assistant"), Cost())
            ),
        )


def found_run(thread: Thread, id: str | None, timeline: str | None) -> RunRecord:
    """Return the run of that id or a part of it, None: the last, of one timeline if it is named; raises `NotFound`."""

    def wanted(each: RunRecord) -> bool:
        return timeline in (None, each.timeline) and id in (None, each.id)

    found = lately(lambda last: thread.runs(limit=last), wanted, 1, others=False)
    if found:
        return found[-1]
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
    hint = did_you_mean(id, (each.id for each in reversed(runs)), likeness=0.5)
    raise NotFound(
        f"{where} has no run '{id}'; nothing was done. {hint}".rstrip(),
        code="run_not_found",
        advice=f"See `perdure runs ls {thread.id}`.",
        run=id,
        thread=thread.id,
    )


def _spent(usage: Usage, cost: CostShape) -> list[tuple[str, str]]:
    cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    tokens = f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
    return [("tokens", tokens), ("cost", str(cost.cost))]


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
