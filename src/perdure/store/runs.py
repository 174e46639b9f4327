"""Runs as a program holds them: running an agent on a line, watching, deciding, going on.

Thin: each method calls the package that owns the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.errors import Invalid
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
from perdure.runtime.event_loop import drive
from perdure.runtime.session import records
from perdure.store.plumbing.deferred import deferred
from perdure.store.plumbing.loop_guard import blocking
from perdure.store.timeline import Line

if TYPE_CHECKING:
    from perdure.runtime import streaming
    from perdure.runtime.agent.agent import Agent
    from perdure.runtime.calls import direct_call, plan, reconcile
    from perdure.runtime.calls.direct_call import CallResult
    from perdure.runtime.events import Happening
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

__all__ = ["Runs"]

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
