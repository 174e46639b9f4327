"""Runs as a program holds them: run an agent on a timeline, watch it, decide, resume, and change its backend.

Each method calls the package that owns the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.errors import Busy, Conflict, Invalid, PerdureError, Refused, ServerChanged
from perdure.history import reader
from perdure.history.changes.values import Given
from perdure.ledger import calls, decisions, trace
from perdure.ledger.decisions import Rework
from perdure.ledger.trace import Traced
from perdure.model import names
from perdure.model.call import CallRecord
from perdure.model.canonical import Json
from perdure.model.message import Message
from perdure.model.run import HeadPolicy, OnFailure, RunRecord
from perdure.model.ticket import Ticket, Verdict
from perdure.providers.backend import Backend
from perdure.providers.contract import Model
from perdure.providers.profile import BackendRef, name_of
from perdure.runtime.event_loop import drive
from perdure.runtime.session import records
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking, deferred
from perdure.store.timeline import Line
from perdure.switching.commit import reports, reports_of
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.report import Report

if TYPE_CHECKING:
    from perdure.runtime import streaming
    from perdure.runtime.agent.agent import Agent
    from perdure.runtime.calls import direct_call, plan, reconcile
    from perdure.runtime.calls.direct_call import CallResult
    from perdure.runtime.events import Happening
    from perdure.runtime.inference import backend as inference_backend
    from perdure.runtime.inference import switch
    from perdure.runtime.run import calls_of_run, control
    from perdure.runtime.run.start import Input, Started
    from perdure.runtime.session import steering
    from perdure.runtime.session.environment import RunEnvironment
    from perdure.runtime.session.result import Result
    from perdure.runtime.streaming import Watching
    from perdure.runtime.tools.tool import Tool
else:
    streaming = deferred("perdure.runtime.streaming")
    direct_call = deferred("perdure.runtime.calls.direct_call")
    plan = deferred("perdure.runtime.calls.plan")
    reconcile = deferred("perdure.runtime.calls.reconcile")
    calls_of_run = deferred("perdure.runtime.run.calls_of_run")
    control = deferred("perdure.runtime.run.control")
    steering = deferred("perdure.runtime.session.steering")
    inference_backend = deferred("perdure.runtime.inference.backend")
    switch = deferred("perdure.runtime.inference.switch")

__all__ = ["Runs", "Switching", "ThreadMoved", "moved"]

_PAGE = 200


@blocking
class Runs(Line, ABC):
    """A line on which an agent can be run."""

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
        """Run the agent with an input to its end, or until somebody has to decide something.

        The same `id` again gives the first result and runs nothing; a run that waits and has been decided
        goes on, and one that failed is retried from its last step, unless `retry` is off.  `state` replaces
        the whole thread-scoped state first.  `output` is a type for the last words.  `head_policy` says when
        the head moves, `on_failure` whether a failed run's state is put back.  Raises `RunFailed` if
        it fails, `Busy` if another run lives on this line, `Conflict` if the id came with other words, or
        if the failed run cannot be retried: later turns follow it, or an external write of it is unknown.
        """
        return drive(
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
        """The same as events, as they happen; the last one has the result, unless the run fails and it is raised.

        Leaving the loop does not stop the run; `cancel` does.
        """
        env = self._env()
        return self._watched(
            env,
            lambda begun: control.run(
                env,
                input,
                id=id,
                state=state,
                output=output,
                head_policy=head_policy,
                on_failure=on_failure,
                retry=retry,
                begun=begun,
            ),
        )

    def follow(self, after: str | None = None, *, wait: bool = False) -> Iterator[Happening]:
        """The events of this line after a cursor, from any process; None begins with the run that lives here.

        Ends when no run lives here; with `wait` it goes on for the next one.
        """
        return streaming.follow(self._env(), after, wait=wait)

    def resume(self, run: str | None = None) -> Result:
        """Go on with a run that was cut off, or that has been decided; None: the one on this line.

        Raises `NotFound` if there is nothing to go on with, `RunFailed` if it fails.
        """
        return drive(control.resume(self._env(), run))

    def resume_stream(self, run: str | None = None) -> Iterator[Happening]:
        """The same as events, as they happen from here on; the last one has the result, unless the run fails.

        Leaving the loop does not stop the run; `cancel` does.  Raises, where it is read, what `resume` raises.
        """
        env = control.line_of(self._env(), run)
        return self._watched(env, lambda begun: control.resume(env, run, begun=begun))

    def cancel(self, run: str | None = None, *, why: str = "cancelled", by: str | None = None) -> RunRecord:
        """Ask a run to stop, None: the one on this line.  Durable at once; a live run stops as soon as it can.

        One that waits, or was cut off, is ended here and now.  `by` is who asks, for the record.
        """
        env = self._env()
        record = control.cancel(env, run, why, by)
        return drive(control.end_cancelled(env, record))

    def steer(self, text: str | Message, *, id: str | None = None) -> str:
        """Say something to the run on this line; it hears it at its next step.  The message's id.

        Durable when it returns, and heard in the order of arrival; if the run ends before its next step, the
        words are in the conversation all the same.  The same `id` with the same words again changes nothing.
        Raises `Conflict`, having queued nothing, if no run is there, or the id came with other words.
        """
        return steering.queue(self._space, self.timeline, text, id=id)

    def decide(
        self,
        call: str,
        verdict: Verdict,
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Ticket:
        """Decide about a call that waits: `approve`, `deny`, `edit` (value: arguments), `answer` (value: result).

        Durable when it returns; `resume` goes on with it.  The same again changes nothing, another
        decision is `Decided`.  `by` is who decides; from the effect `financial` up it has to be given,
        else `Invalid`.
        """
        names.check_id("call", call)
        head = reader.head_of(self._space, self.timeline).commit
        text = None if verdict in ("approve", "deny") and value is None else _json_text(value)
        decided = decisions.decide(
            self._space,
            call,
            verdict,
            line=self.timeline,
            head=head,
            value=text,
            by=by,
            why=why,
            rework=self._rework(),
        )
        return decided.ticket

    def call(
        self,
        tool: Tool | Callable[..., Any],
        arguments: Mapping[str, Json] | str,
        *,
        id: str,
    ) -> CallResult:
        """Take one call through the ledger without an agent; the same id and arguments give the first result.

        Raises `Conflict` if the id was used with other arguments, `Busy` while somebody else makes the
        call, `StaleHead` if the line went back meanwhile: then the ledger has what the call came to.
        """
        return drive(direct_call.call(self._env(), tool, arguments, id=id))

    def reconcile(self, call: str, *, by: str | None = None) -> CallRecord:
        """Ask a call's tool what became of it, and settle it by the answer; the call as it stands then.

        By the rules of `resume`, and nothing is attempted again here.  `by` is who asks, for the record.  Raises `Conflict` if its
        outcome is known, `Busy` if somebody may still be at it, `Unsupported` if its tool has no hook.
        """
        names.check_id("call", call)
        return drive(reconcile.reconcile(self._env(), call, by=by))

    def resolve(
        self,
        call: str,
        outcome: Literal["done", "not_done"],
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
    ) -> CallRecord:
        """Say what became of a call that nobody knows the outcome of; `value` is its result, if it was done.

        The same again changes nothing.  `by` is who says so; from the effect `financial` up it has to be
        given, else `Invalid`.  Raises `Conflict` if its outcome is known.
        """
        names.check_id("call", call)
        return reconcile.resolve(self._space, call, outcome, value=value, by=by, why=why)

    def trace(self, call: str, *, history: bool = True) -> Traced:
        """Everything that the ledger says of one call: arguments, question, result, and the way it took.

        `call` is its id, or that of its ticket, or a beginning that no other has.  Without `history` that way is left out, for which the ledger is read as far as the call lived.
        """
        names.check_id("call", call)
        return trace.trace(self._space, call, history=history)

    def interrupted(self, run: str) -> bool:
        """Whether a run was cut off: it has not ended, waits for nobody, and no process is at it."""
        return control.is_interrupted(self._env(), names.check_id("run", run))

    def decided(self, run: str) -> bool:
        """Whether a run that waits can go on: something that it waits for was decided, or its time is up."""
        return control.is_decided(self._env(), names.check_id("run", run))

    def calls(self, *, run: str | None = None, limit: int | None = None) -> list[CallRecord]:
        """The tool calls of this thread, over all its timelines, by id; those of one run if it is named.

        Calls of runs have ids in the order in which they were asked for.  With a `limit` the last so many.
        """
        reader.check_limit(limit)
        if run is not None:
            made = calls_of_run.calls_of(self._space, names.check_id("run", run))
            return made if limit is None else made[max(0, len(made) - limit) :]
        if limit is not None:
            return [held.record for held in calls.last(self._space, limit)]
        found: list[CallRecord] = []
        after = ""
        while page := calls.listing(self._space, after=after, limit=_PAGE):
            found += [held.record for held in page]
            after = page[-1].record.id
        return found

    def approvals(self) -> list[Ticket]:
        """What waits for a decision, as seen from this line."""
        return decisions.waiting_on(
            self._space, self.timeline, reader.head_of(self._space, self.timeline).commit
        )

    def runs(self, *, limit: int | None = None) -> list[RunRecord]:
        """The runs of this thread, oldest first; with a `limit` the last so many."""
        reader.check_limit(limit)
        if limit is not None:
            return sorted(records.last(self._space, limit), key=lambda each: each.begun_at)
        found: list[RunRecord] = []
        after = ""
        while page := records.listing(self._space, after=after, limit=_PAGE):
            found += page
            after = page[-1].id
        return sorted(found, key=lambda each: each.begun_at)

    @abstractmethod
    def _env(self) -> RunEnvironment:
        """What a run on this line stands on, for the awaitable face."""

    def _rework(self) -> Rework:
        return plan.rework_with(self._env())

    def _watched(
        self, env: RunEnvironment, work: Callable[[Callable[[Started], None]], Coroutine[Any, Any, Result]]
    ) -> Iterator[Happening]:
        def start(watching: Watching) -> None:
            def go() -> None:
                try:
                    watching.ended(drive(work(watching.begun)), None)
                except BaseException as error:  # noqa: BLE001  # it is raised where the stream is read
                    watching.ended(None, error)

            env.store_runtime.begin(go)

        return streaming.stream(env, start)


def _json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise Invalid(f"a decision's value is JSON, not {value!r}; nothing was decided.") from error


@blocking
class Switching(Runs, ABC):
    """A line whose backend can be changed in the middle of a task."""

    _handed: dict[RecordedBackend, BackendRef]

    @property
    def backend(self) -> str | None:
        """The backend that takes the next turn, as the line's history says; else the agent's own, None if it has none."""
        declared = self._declared.backend
        recorded = inference_backend.line_backend(self._env())
        if recorded is not None:
            return recorded.name
        return None if declared is None else name_of(declared)

    def check_switch(self, backend: str | Backend | Model, *, output: Any = None) -> Report:
        """What a switch to `backend` would keep, convert and remove, and whether the policy lets it pass.

        Nothing is written and nothing is sent.  `output` is the type that runs are asked for, if they are.
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
        """Let `backend` take the turns from here on, by one commit; the report of what that keeps and loses.

        `summariser` is a model that says in its own words how things stand: that is kept, labelled, beside what
        was derived if every sentence of it can be traced to messages, else it is left out and a note says why.
        Raises `Refused(report)` if the agent's policy stops it (`approved_by` is who lets pass what needs
        an approval), `Busy` if a run is on the line, `NotFound` or `Unsupported` for a backend that
        cannot be.  Then nothing was written.  An undo takes a switch back.
        """
        asked = switch.SwitchRequest(
            to=backend,
            reason=reason,
            approved_by=approved_by,
            output=output,
            summariser=summariser,
            op_id=op_id,
        )
        report = switch.switch(self._env(), asked)
        if not isinstance(backend, str):
            recorded = RecordedBackend(report.to_backend, report.to_server)
            self._handed.pop(recorded, None)  # the newest is the last
            self._handed[recorded] = backend
        return report

    def switches(self, *, run: str | None = None, limit: int | None = None) -> list[Report]:
        """The switches of this line, oldest first; those that a run made along its route, if it is named.

        With a `limit` the last so many.
        """
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"a limit is a number from 0, or None for all, not {limit!r}; nothing was read.")
        at = self._now()[1]
        if run is not None:
            found = reports_of(self._space, run, revisions.resolve(self._space, self.head, run))
            return found if limit is None else found[-limit:] if limit else []
        return list(islice(reports(self._space, at), limit))[::-1]


class ThreadMoved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thread when its agent was moved."""

    thread: str
    report: Report | None = None  # None: it could not even be looked at
    error: PerdureError | None = None  # why it was not moved

    @property
    def ok(self) -> bool:
        """Whether it is on the new backend, or could be."""
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
    """Move one thread of several; that it cannot be moved is no reason not to move the others.

    One that is on that backend at another server stays: only a switch of that thread alone moves it.
    """
    try:
        report = thread.check_switch(backend)
        changed = _at_another_server(report)
        if dry_run or changed is not None:
            return ThreadMoved(thread=id, report=None if changed else report, error=changed)
        return ThreadMoved(thread=id, report=thread.switch(backend, reason=reason, approved_by=approved_by))
    except Refused as refused:
        report = refused.report if isinstance(refused.report, Report) else None
        return ThreadMoved(thread=id, report=report, error=refused)
    except (Busy, Conflict) as conflict:
        return ThreadMoved(thread=id, error=conflict)


def _at_another_server(report: Report) -> ServerChanged | None:
    """The error for a thread that is on that very backend, at another server than the name leads to here."""
    if report.from_backend != report.to_backend or report.from_server in (None, report.to_server):
        return None
    return ServerChanged(
        report.to_backend, recorded=report.from_server, resolved=report.to_server, thread=report.thread
    )
