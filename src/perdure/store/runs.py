"""Runs as a program holds them: run an agent on a timeline, watch it, decide, resume, and change its backend.

Each method calls the package that owns the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.engines import loops
from perdure.errors import Busy, Conflict, Invalid, PerdureError, Refused, Sealed
from perdure.history import reader
from perdure.history.changes.values import Given
from perdure.model import names
from perdure.model.run import Cost, Usage
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking, deferred
from perdure.store.timeline import Line

if TYPE_CHECKING:
    from perdure.ledger import calls, decisions, tickets, trace
    from perdure.ledger.decisions import Rework
    from perdure.ledger.trace import Traced
    from perdure.model.call import CallRecord
    from perdure.model.canonical import Json
    from perdure.model.message import Message
    from perdure.model.run import HeadPolicy, OnFailure, RunRecord
    from perdure.model.ticket import Ticket, Verdict
    from perdure.providers import profile
    from perdure.providers.backend import Backend
    from perdure.providers.contract import Model
    from perdure.providers.profile import BackendRef
    from perdure.runtime import event_loop, streaming
    from perdure.runtime.agent.agent import Agent
    from perdure.runtime.calls import direct_call, plan, reconcile
    from perdure.runtime.calls.direct_call import CallResult
    from perdure.runtime.events import Happening
    from perdure.runtime.inference import backend as inference_backend
    from perdure.runtime.inference import switch
    from perdure.runtime.run import calls_of_run, control, queue, take
    from perdure.runtime.run import child as child_runs
    from perdure.runtime.session import records, steering
    from perdure.runtime.session import result as results
    from perdure.runtime.session.environment import RunEnvironment
    from perdure.runtime.session.inputs import Input
    from perdure.runtime.session.result import Result
    from perdure.runtime.streaming import Watching
    from perdure.runtime.tools.tool import Tool
    from perdure.runtime.tools.waiting import When
    from perdure.switching import commit as switch_commits
    from perdure.switching import current_backend
    from perdure.switching import report as switch_reports
    from perdure.switching.current_backend import RecordedBackend
    from perdure.switching.report import Report
else:
    calls = deferred("perdure.ledger.calls")
    decisions = deferred("perdure.ledger.decisions")
    tickets = deferred("perdure.ledger.tickets")
    trace = deferred("perdure.ledger.trace")
    profile = deferred("perdure.providers.profile")
    event_loop = deferred("perdure.runtime.event_loop")
    records = deferred("perdure.runtime.session.records")
    results = deferred("perdure.runtime.session.result")
    switch_commits = deferred("perdure.switching.commit")
    current_backend = deferred("perdure.switching.current_backend")
    switch_reports = deferred("perdure.switching.report")
    streaming = deferred("perdure.runtime.streaming")
    direct_call = deferred("perdure.runtime.calls.direct_call")
    plan = deferred("perdure.runtime.calls.plan")
    reconcile = deferred("perdure.runtime.calls.reconcile")
    calls_of_run = deferred("perdure.runtime.run.calls_of_run")
    child_runs = deferred("perdure.runtime.run.child")
    control = deferred("perdure.runtime.run.control")
    queue = deferred("perdure.runtime.run.queue")
    take = deferred("perdure.runtime.run.take")
    steering = deferred("perdure.runtime.session.steering")
    inference_backend = deferred("perdure.runtime.inference.backend")
    switch = deferred("perdure.runtime.inference.switch")

__all__ = ["ChildRun", "Runs", "Switching", "ThreadMoved", "moved"]


class ChildRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a tool of another run started."""

    thread: str
    record: RunRecord


@blocking
class Runs(Line, ABC):
    """A timeline on which an agent can be run."""

    _declared: Agent

    def run(
        self,
        input: Input = None,
        *,
        id: str | None = None,
        state: Mapping[str, Given] | None = None,
        output: Any = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
        retry: bool = True,
    ) -> Result:
        """Run the agent with an input to its end, or until it waits for a decision.

        The same `id` again returns the first result and runs nothing; a run whose approvals are decided goes on, and
        a failed run is retried from its last step, unless `retry` is off.  `state` first replaces the whole state of
        the thread.  `output` is a type for the last message.  `head_policy` says when the head moves, `on_failure`
        whether the state of a failed run is restored.  Raises `RunFailed` if it fails, `Busy` if another run is live
        on this timeline, `Conflict` if the id was used with another input, or if the failed run cannot be retried:
        later turns follow it, or the outcome of one of its external writes is unknown.
        """
        return event_loop.drive(
            control.run(
                self._env(),
                input,
                id=id,
                state=state,
                output=output,
                head_policy=head_policy,
                on_failure=on_failure,
                retry=retry,
            )
        )

    def start(
        self,
        input: Input,
        *,
        id: str | None = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
    ) -> str:
        """Queue an input for a worker, durably, and return the id of its run, which has not begun.

        A worker (`store.work`, `perdure work`) takes the inputs of a timeline in their order.  The same `id` again
        returns the same run and queues nothing, unless the run has failed: then a worker retries it, before what is
        queued there.  `run` with that id begins or retries it here.  `wait` waits for its result, `cancel` ends a run
        that has not begun.  Raises `Conflict` if the id was used with another input, or if the failed run cannot be
        retried (as `run` says), `Sealed` if the timeline takes no more writes.
        """
        return queue.queue(self._env(), input, id=id, head_policy=head_policy, on_failure=on_failure)

    def wait(self, run: str, seconds: float | None = None) -> Result:
        """Wait for a run of this thread, wherever it is carried on, and return its result; nothing is run here.

        Returns what `run` returns, when the run has ended or waits for a decision.  Raises `RunFailed` if it failed,
        `NotFound` if there is none or it was undone while it waited, and `Unavailable` if it goes on after `seconds`; None
        waits as long as it takes.
        """
        return event_loop.drive(queue.wait(self._env(), run, seconds))

    def schedule(
        self,
        input: Input,
        at: When,
        *,
        id: str | None = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
    ) -> str:
        """Queue an input for a later time, on the store's clock, and return the id of its run.

        `at` is a datetime with a time zone, a timedelta, a number of seconds from now, or a text: `1h`, or a moment in
        ISO 8601.  The timer belongs to this timeline: a fork does not have it, and if the turn at which it was set is
        undone, it ends as cancelled when it is due.  Otherwise as `start`.
        """
        return queue.queue(self._env(), input, id=id, at=at, head_policy=head_policy, on_failure=on_failure)

    def release(self, run: str) -> bool:
        """Let workers take a run again that was set aside because it ended three of them; False if it was not."""
        return take.release(self._env(), names.check_id("run", run))

    def stream(
        self,
        input: Input = None,
        *,
        id: str | None = None,
        state: Mapping[str, Given] | None = None,
        output: Any = None,
        head_policy: HeadPolicy = "each_step",
        on_failure: OnFailure = "restore",
        retry: bool = True,
    ) -> Iterator[Happening]:
        """Run the agent and yield the events as they happen; the last event has the result.

        A failed run raises `RunFailed` instead.  Leaving the loop does not stop the run; `cancel` does.  The same `id`
        while its run lives, in any process, joins that run and yields its events from the beginning.
        """
        env = self._env()
        return self._watched(
            env,
            lambda watching: control.run(
                env,
                input,
                id=id,
                state=state,
                output=output,
                head_policy=head_policy,
                on_failure=on_failure,
                retry=retry,
                begun=watching.begun,
                joined=watching.joins,
            ),
        )

    def follow(self, after: str | None = None, *, wait: bool = False) -> Iterator[Happening]:
        """Yield the events of this timeline after a cursor, from any process; None begins with the run that is live.

        `after` may also be a commit, which begins after what was read there, as `view.cursor` does.  An undo, a redo or
        a promote is an event, too.  It ends when no run is live here; with `wait` it waits for the next run.
        """
        return streaming.follow(self._env(), after, wait=wait)

    def resume(self, run: str | None = None, *, retry: bool = False) -> Result:
        """Resume a run that was interrupted, or whose approvals are decided; None: the run on this timeline.

        With `retry` a run that failed is retried from its last step, as `run` does with the same id and input.  Raises
        `NotFound` if there is nothing to resume, `RunFailed` if the run fails, or has failed and is not retried, and
        `Conflict` if the failed run cannot be retried.
        """
        return event_loop.drive(control.resume(self._env(), run, retry=retry))

    def resume_stream(self, run: str | None = None, *, retry: bool = False) -> Iterator[Happening]:
        """Resume a run and yield its events from here on as they happen; the last event has the result.

        Leaving the loop does not stop the run; `cancel` does.  Reading the events raises what `resume` raises.
        """
        env = control.line_of(self._env(), run)
        return self._watched(
            env, lambda watching: control.resume(env, run, retry=retry, begun=watching.begun)
        )

    def cancel(self, run: str | None = None, *, why: str = "cancelled", by: str | None = None) -> RunRecord:
        """Cancel a run; None: the run on this timeline.  The request is durable; a live run stops as soon as it can.

        A run that waits, or was interrupted, is ended at once.  `by` is the person who cancels, for the record.
        """
        env = self._env()
        record = control.cancel(env, run, why, by)
        return event_loop.drive(control.end_cancelled(env, record))

    def steer(self, text: str | Message, *, id: str | None = None) -> str:
        """Queue a message for the run on this timeline, which reads it at its next step; return the message's id.

        The message is durable when this returns, and messages are read in the order of arrival.  If the run ends
        before its next step, the message is still added to the conversation.  The same `id` with the same text again
        changes nothing, also after the run has ended, and `run` with that id gives the run that it has steered.  Raises
        `Conflict`, having queued nothing, if no run is here, or the id has another text.
        """
        return steering.queue(self._space, self.timeline, text, id=id)

    def decide(
        self,
        question: str,
        verdict: Verdict,
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
        op_id: str | None = None,
    ) -> Ticket:
        """Decide about a call that waits: `approve`, `deny`, `edit` (value: arguments), `answer` (value: result).

        `question` is the id of the ticket, as in `result.approvals[0].id`.  The id of its call does as well, for the
        first question about it: where there was one before, that raises `Conflict`, and nothing is decided.
        It may be a call of a child run that a run on this timeline waits for.

        The decision is durable when this returns; `resume` continues the run.  The same decision again changes
        nothing, another one raises `Decided`.  With an `op_id` the request that names the call may be sent again, too: it
        gives the first decision, also when the call is asked about again by then.  Raises `Sealed` on a timeline that takes no more writes: fork it to
        decide there.  `by` is the person who decides; from the effect `financial` up it is
        required, else `Invalid` is raised.
        """
        names.check_id("call", question)
        if op_id is not None:
            names.check_op_id(op_id)
        space, line = decisions.place_of(self._space, question, self.timeline)
        hold = reader.hold_of(space, line)
        if hold.sealed:
            raise Sealed(line)
        text = None if verdict in ("approve", "deny") and value is None else _json_text(value)
        decided = decisions.decide(
            space,
            question,
            verdict,
            line=line,
            head=hold.head.commit,
            value=text,
            by=by,
            why=why,
            rework=self._rework() if space is self._space else None,
            also=lambda ticket: take.waking(space, ticket, line),
            op_id=op_id,
        )
        if decided.first:
            queue.ring(self._env())
        return tickets.as_of_now(space, decided.ticket)

    def call(
        self,
        tool: Tool | Callable[..., Any],
        arguments: Mapping[str, Json] | str,
        *,
        id: str,
    ) -> CallResult:
        """Make one call through the ledger without an agent; the same id and arguments return the first result.

        Raises `Conflict` if the id was used with other arguments, `Busy` while another process makes the call,
        `StaleHead` if an undo moved the timeline back during the call: then the ledger has the result.  Raises `Sealed`,
        having called nothing, on a timeline that takes no more writes.
        """
        return event_loop.drive(direct_call.call(self._env(), tool, arguments, id=id))

    def reconcile(self, call: str, *, by: str | None = None) -> CallRecord:
        """Ask a call's tool for the outcome, settle the call by the answer, and return its record.

        The rules are those of `resume`, but the call is not attempted again.  `by` is the person who asks, for the
        record.  Raises `Conflict` if the outcome is known, `Busy` if a process may still be making the call,
        `Unsupported` if the tool has no reconcile hook.
        """
        names.check_id("call", call)
        return event_loop.drive(reconcile.reconcile(self._env(), call, by=by))

    def resolve(
        self,
        call: str,
        outcome: Literal["done", "not_done"],
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
    ) -> CallRecord:
        """State the outcome of a call whose outcome is unknown; `value` is its result, if it was done.

        From its next step on, a model is shown the statement in place of the error.
        The same statement again changes nothing.  `by` is the person who states it; from the effect `financial` up it
        is required, else `Invalid` is raised.  Raises `Conflict` if the outcome is known.
        """
        names.check_id("call", call)
        return reconcile.resolve(self._space, call, outcome, value=value, by=by, why=why)

    def trace(self, call: str, *, history: bool = True) -> Traced:
        """Read everything that the ledger says of one call: arguments, question, result, and its transitions.

        `call` is its id, or that of its ticket, or a part that fits no other.  Without `history` the transitions are
        left out; to find them the ledger is read for the lifetime of the call.
        """
        names.check_id("call", call)
        return trace.trace(self._space, call, history=history)

    def given(self, input: Input, *, id: str) -> RunRecord | None:
        """Read the run that an input of this id has started on this timeline, was queued for or has steered; None if the id is new.

        Raises `Conflict` if the id came with another input.
        """
        return control.given(self._env(), input, id)

    def find_run(self, run: str) -> RunRecord:
        """Read one run of this thread; raises `NotFound` if there is none of this id."""
        return records.read(self._space, names.check_id("run", run)).record

    def cursor_before(self, run: str) -> str | None:
        """Return the cursor with which `follow` begins at the first event of a run; None if it has not begun."""
        found = streaming.cursor_before(self._space, names.check_id("run", run))
        return None if found is None else str(found)

    def interrupted(self, run: str) -> bool:
        """True if a run was interrupted: it has not ended, waits for no decision, and no process carries it on."""
        return control.is_interrupted(self._env(), names.check_id("run", run))

    def decided(self, run: str) -> bool:
        """True if a waiting run can go on: something that it waits for was decided, or is overdue."""
        return control.is_decided(self._env(), names.check_id("run", run))

    def calls(self, *, run: str | None = None, limit: int | None = None) -> list[CallRecord]:
        """Read the tool calls of this thread, over all its timelines, sorted by id; those of one run if it is named.

        The ids of a run's calls are in the order of the requests.  With a `limit` only the last ones are read.
        """
        reader.check_limit(limit)
        if run is not None:
            made = calls_of_run.calls_of(self._space, names.check_id("run", run))
            return made if limit is None else made[max(0, len(made) - limit) :]
        if limit is not None:
            return [held.record for held in calls.last(self._space, limit)]
        return [held.record for held in calls.every(self._space)]

    def approvals(self) -> list[Ticket]:
        """Read the tickets that wait for a decision, as seen from this timeline; calls that wait for a time have none."""
        head = reader.head_of(self._space, self.timeline).commit
        found = decisions.waiting_on(self._space, self.timeline, head)
        return [ticket for ticket in found if not ticket.is_timer]

    def runs(self, *, limit: int | None = None, before: str | None = None) -> list[RunRecord]:
        """Read the runs of this thread, oldest first; with a `limit` only the last ones.

        `before` is the id of a run: only those are read whose ids are smaller, which were given their input before it.
        """
        reader.check_limit(limit)
        if before is not None:
            names.check_id("run", before)
        if limit is not None:
            found = records.last(self._space, limit, before=before)
            return sorted(found, key=lambda each: each.begun_at)
        every = loops.pages(
            lambda after, limit: records.listing(self._space, after=after, limit=limit),
            "",
            lambda record: record.id,
        )
        earlier = takewhile(lambda record: before is None or record.id < before, every)
        return sorted(earlier, key=lambda each: each.begun_at)

    def costs(
        self, by: Literal["run", "model"] = "run", *, run: str | None = None
    ) -> list[tuple[str, Cost, Usage]]:
        """Read what each run of this thread cost, over all its timelines, with the tokens: runs by id, oldest first.

        By "model", what the steps of each model cost, such as "openai:gpt-5.6".  With `run` only what that run cost.
        Runs that were undone count too.  A step whose price was not known when it was taken counts as unpriced.
        """
        names.check_choice("by", by, ("run", "model"))
        runs = self.runs() if run is None else [self.find_run(run)]
        found = results.spent_by(self._space, runs) if run is None else results.spent_in(self._space, runs[0])
        if by == "run":
            return [(record.id, found[record.id].cost, found[record.id].usage) for record in runs]
        models: dict[str, tuple[Cost, Usage]] = {}
        for record in runs:
            for name, (cost, usage) in found[record.id].models.items():
                before = models.get(name, (Cost(), Usage()))
                models[name] = before[0] + cost, before[1] + usage
        return [(name, *spent) for name, spent in models.items()]

    def cost(self, run: str | None = None) -> Cost:
        """Read what one run cost, with its child runs; None: all runs of this thread, over all its timelines.

        Child runs whose thread was removed are left out.
        """
        if run is None:
            return sum((cost for _, cost, _ in self.costs()), Cost())
        record = records.read(self._space, names.check_id("run", run)).record
        return results.spent_in_all(self._space, record)[0]

    def children(self, run: str) -> list[ChildRun]:
        """Read the runs that tools of a run started with `call.run`, in the order of their calls."""
        found = child_runs.children_of(self._space, names.check_id("run", run))
        return [ChildRun(thread=inside.label, record=record) for inside, record in found]

    @abstractmethod
    def _env(self) -> RunEnvironment:
        """Return the environment of a run on this timeline; the awaitable interface uses it too."""

    def _rework(self) -> Rework:
        return plan.rework_with(self._env())

    def _watched(
        self, env: RunEnvironment, work: Callable[[Watching], Coroutine[Any, Any, Result]]
    ) -> Iterator[Happening]:
        def start(watching: Watching) -> None:
            def go() -> None:
                try:
                    watching.ended(event_loop.drive(work(watching)), None)
                except BaseException as error:  # noqa: BLE001  # it is raised where the stream is read
                    watching.ended(None, error)

            env.store_runtime.begin(go)

        return streaming.stream(env, start)


def _json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"a decision's value is JSON, not {value!r}; nothing was decided.", code="not_json"
        ) from error


@blocking
class Switching(Runs, ABC):
    """A timeline whose backend can be changed in the middle of a task."""

    _handed: dict[RecordedBackend, BackendRef]

    @property
    def backend(self) -> str | None:
        """The backend of the next turn, as the timeline's history says; else the agent's own, None if it has none."""
        declared = self._declared.backend
        recorded = inference_backend.line_backend(self._env())
        if recorded is not None:
            return recorded.name
        return None if declared is None else profile.name_of(declared)

    def check_switch(self, backend: str | Backend | Model, *, output: Any = None) -> Report:
        """Report what a switch to `backend` would keep, convert and remove, and whether the policy allows it.

        Nothing is written and nothing is sent.  `output` is the type that later runs will ask for, if any.
        """
        return switch.check(self._env(), switch.SwitchRequest(to=backend, output=output))

    def switch(
        self,
        backend: str | Backend | Model,
        *,
        reason: str | None = None,
        approved_by: str | None = None,
        output: Any = None,
        summariser: str | Backend | Model | None = None,
        op_id: str | None = None,
    ) -> Report:
        """Let `backend` take the turns from here on, by one commit; return the report of what that keeps and loses.

        `summariser` is a model that summarises the conversation: the summary is stored, labelled, beside the derived
        checkpoint if every sentence of it can be traced to messages, else it is left out and a note says why.  Raises
        `Refused(report)` if the agent's policy stops it (`approved_by` is the person who approves what needs an
        approval), `Busy` if a run holds the timeline, `NotFound` or `Unsupported` for a backend that cannot be used;
        nothing was written then.  An undo takes a switch back.
        """
        request = switch.SwitchRequest(
            to=backend,
            reason=reason,
            approved_by=approved_by,
            output=output,
            summariser=summariser,
            op_id=op_id,
        )
        report = switch.switch(self._env(), request)
        if not isinstance(backend, str):
            recorded = current_backend.RecordedBackend(report.to_backend, report.to_server)
            self._handed.pop(recorded, None)  # the newest entry comes last
            self._handed[recorded] = backend
        return report

    def switches(self, *, run: str | None = None, limit: int | None = None) -> list[Report]:
        """Read the switches of this timeline, oldest first; those that a run made along its route, if it is named.

        With a `limit` only the last ones are read.
        """
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"a limit is a number from 0, or None for all, not {limit!r}; nothing was read.",
                code="limit_invalid",
                limit=limit,
            )
        at = self._now()[1]
        if run is not None:
            found = switch_commits.reports_of(
                self._space, run, revisions.resolve(self._space, self.head, run)
            )
            return found if limit is None else found[-limit:] if limit else []
        return list(islice(switch_commits.reports(self._space, at), limit))[::-1]


class ThreadMoved(msgspec.Struct, frozen=True, kw_only=True):
    """What a move of its agent to another backend did with one thread."""

    thread: str
    report: Report | None = None  # None: the switch could not be checked
    error: PerdureError | None = None  # why the thread was not moved

    @property
    def ok(self) -> bool:
        """True if the thread is on the new backend, or could be."""
        return self.error is None and self.report is not None and self.report.ok


def moved(
    thread: Switching,
    backend: BackendRef,
    *,
    id: str,
    dry_run: bool,
    reason: str | None = None,
    approved_by: str | None = None,
) -> ThreadMoved:
    """Move one thread of several to a backend; an error is returned, so that the other threads are moved too.

    A name moves no thread to another server of the same provider: a `Backend` with an address does.
    """
    try:
        if dry_run:
            return ThreadMoved(thread=id, report=thread.check_switch(backend))
        return ThreadMoved(thread=id, report=thread.switch(backend, reason=reason, approved_by=approved_by))
    except Refused as refused:
        report = refused.report if isinstance(refused.report, switch_reports.Report) else None
        return ThreadMoved(thread=id, report=report, error=refused)
    except (Busy, Conflict) as conflict:
        return ThreadMoved(thread=id, error=conflict)
