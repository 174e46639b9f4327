"""The loop of a live run, from its input to its end, and the commits along the way.

    input, start          one write (start.py)
    the model answers     one write: its message, the requested calls and their starts
    tools run             each result is durable as it comes; the last with the round's commit
    … and again, until the model requests no call: its last message and the end of the run are one write

The reason why the model's answer ended decides how the run goes on.  A turn that the backend paused is sent
back as it is.  An answer that the backend still works on is fetched by its id.  An answer that is not
complete ends the run as `stopped`, unless the stop policy accepts it; its calls are never run.

Any error fails the run, and so does a cancellation of its caller; a closing commit says so if it can be written.  If
it cannot, the run counts as interrupted: another process finishes it later from the log alone.

The loop decides.  It hands data to its helpers and takes results back; none of them holds another, or calls the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.context.render import media
from perdure.engines.contract import CellWrite
from perdure.errors import Moved, PerdureError, RunFailed
from perdure.history.ancestry import of_run
from perdure.history.space import Space
from perdure.ledger import snapshot
from perdure.ledger.calls import count_settled
from perdure.model.context import Context
from perdure.model.event import Event, RunFinished, RunStarted
from perdure.model.message import Message, has_media
from perdure.model.run import CALLER_CANCELLED, Cost, PendingResponse, RunRecord, RunState, StopReason, Usage
from perdure.model.text import said_by
from perdure.providers.contract import Model
from perdure.runtime import failpoints
from perdure.runtime.agent.agent import COUNTERS, Counters, RunBudget, in_words, is_hooked
from perdure.runtime.agent.plugin import Moment, Phase, Refusal, refused_calls, run_phase
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.calls.plan import RequestedCall, plan, plan_answers, request_event, requested
from perdure.runtime.calls.recovery import open_round
from perdure.runtime.calls.round import RoundContext, commit_round
from perdure.runtime.inference.backend import (
    ActiveModel,
    ModelStep,
    StepReply,
    check_price,
    check_server,
    declared_names,
    step_cost,
)
from perdure.runtime.inference.failover import Failover, Takeover
from perdure.runtime.inference.model_input import ModelInputBuilder
from perdure.runtime.run.finish import RunFinisher, close_early
from perdure.runtime.run.start import Started, cleaned
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment, inline
from perdure.runtime.session.journal import CommitDraft
from perdure.runtime.session.lease import Lost
from perdure.runtime.session.lease_keeper import StopSignal
from perdure.runtime.session.result import (
    OUTPUT_TYPE,
    AnswerChecks,
    Result,
    inbound_messages,
    refused_event,
    refused_input,
    result_of,
    spent_below,
)
from perdure.runtime.tools.call import Ruling
from perdure.switching.commit import REASON, switched
from perdure.switching.current_backend import RecordedBackend

__all__ = ["LiveRun"]

_T = TypeVar("_T")


class _CancelRequested(Exception):
    """The run's record says that the run was asked to stop."""


class LiveRun:
    """One run, from where it is to its end, or until a call has to be decided."""

    def __init__(
        self, env: RunEnvironment, started: Started, model: Model, *, shape: Any = None, is_own: bool = True
    ) -> None:
        """Go on from `started`; `shape` is the type that the last message must have.

        `is_own` false: its caller wants something else, and leaves it interrupted if it is cancelled.
        """
        self._is_own = is_own
        env = env.of_run(started.kept.record)
        self._env, self._started, self._shape, self._journal = env, started, shape, started.journal
        self._stop, below = env.agent.stop, partial(spent_below, env.space, started.kept.record.id)
        self._budget = RunBudget(env.agent.stop, started.kept.record.parent, below)
        self._counters = Counters(began_at=started.kept.record.begun_at)
        self._round_context = RoundContext(env, self._journal, was_waiting=started.waited)
        self._finisher = RunFinisher(started)
        self._active = ActiveModel(model, RecordedBackend(model.backend, self._record.server))
        self._failover = None if env.agent.route is None else Failover(self._journal, env.agent.route)
        self._names = declared_names(self._round_context.toolbox)
        self._has_plugins, self._guards = bool(env.agent.plugins), env.agent.guards
        is_checked = self._guards or (shape is not None and env.agent.answer_retries)
        self._answers = AnswerChecks(env.agent, shape) if is_checked else None
        self._is_inline = env.run_blocking is inline
        self._model_input = ModelInputBuilder(env, shape=shape)
        # Of this run, as far as it ran in this process.
        self._usage, self._text, self._cost = Usage(), "", Cost()
        self._step_cost: float | None = 0.0  # of the newest step; None: it is not known

    async def go(self) -> Result:
        """Run to the end, or until a call has to be decided.

        Raises `RunFailed` if it fails, `Lost` if another process has taken over.
        """
        signal = StopSignal()
        held_lease = self._env.owners.hold(
            self._started.lease, space=self._env.space, lost=signal.lose, cancelled=signal.cancel
        )
        self._journal.held_lease = held_lease
        try:
            return await self._to_the_end(signal)
        finally:
            held_lease.release()
            signal.end()
            self._env.feeds.end(self._env.space.name, self._env.timeline, self._journal.feed)

    async def end_early(self, status: RunState, why: str, kind: str | None = None) -> Result:
        """End the run where it is, without another step."""
        try:
            if self._record.line is not None:
                await self._do(self._leave_timeline)
            return await self._do(partial(self._close, status, why, kind))
        finally:
            self._env.owners.give_up(self._env.space, self._started.lease)
            self._env.feeds.end(self._env.space.name, self._env.timeline, self._journal.feed)

    async def _to_the_end(self, signal: StopSignal) -> Result:
        try:
            return await self._steps(signal)
        except asyncio.CancelledError:
            signal.task.uncancel()
            if signal.is_lost:
                raise Lost(self._started.lease) from None
            if not signal.why and not self._is_own:
                raise
            if signal.why:
                return await self._do(partial(self._close, "cancelled", signal.why))
            await self._do(partial(self._close, "failed", "the caller was cancelled", CALLER_CANCELLED))
            raise
        except _CancelRequested:
            signal.end()  # the keeper may hear of the same request just now
            return await self._do(partial(self._close, "cancelled", self._record.cancel or "cancelled"))
        except (Lost, RunFailed):
            raise
        except Exception as error:  # any error of a model, a plug-in or the store fails the run
            raise await self._failed(error) from error

    async def _steps(self, signal: StopSignal) -> Result:
        await self._do(self._read_conversation)
        if self._record.cancel is not None:  # the process that was asked to stop has died since
            if self._record.line is not None:
                await self._do(self._leave_timeline)
            raise _CancelRequested
        if self._started.fresh or await self._do(self._is_unbegun):
            if self._has_plugins or self._record.head_policy == "on_success":
                await self._begin()
        else:
            await self._do(self._recount)
            if await self._settle_left_calls():
                return await self._do(self._wait)
        if self._guards and not self._counters.steps:
            result = await self._check_input()
            if result is not None:
                return result
        while True:
            if signal.is_sent or not self._env.owns_thread:  # let a request to stop arrive once a step
                await asyncio.sleep(0)
            reached = self._limit_reached()
            if reached is not None:
                stop, why = reached
                return _ended(await self._end("stopped", why, stop, cells=(await self._do(self._hear))[1]))
            pending_calls, result = await self._turn()
            if result is not None:
                return result
            if pending_calls and await self._round(pending_calls, {}, self._env.space.ids()):
                return await self._do(self._wait)

    async def _begin(self) -> None:
        """Do what is left of the start: the hooks of plug-ins, and the run's own timeline if it has one."""
        if self._has_hook("run_start"):
            draft = self._journal.draft("user_message")
            cleaned(self._env.space, draft, self._env.agent.run_scoped_paths())
            await self._phase("run_start", draft)
            self._journal.stage(draft)
            await self._do(self._journal.write)
        if self._record.head_policy == "on_success":
            await self._do(self._leave_timeline)

    async def _check_input(self) -> Result | None:
        """Have the guards look at what came in with the run; return the result of the run if one refuses it."""
        messages = await self._do(lambda: inbound_messages(self._env.space, self._record))
        refused = await refused_input(self._guards, messages, self._env.space.ids)
        return refused and await self._end_refused(refused[0], (await self._do(self._hear))[1], refused[1:])

    async def _end_refused(
        self, refused: Refusal, cells: Sequence[CellWrite], events: Sequence[Event] = ()
    ) -> Result:
        """End the run because a guard refused its input or its last answer."""
        stop, why = StopReason("guard", refused.guard), f"guard '{refused.guard}' refused: {refused.why}"
        return _ended(await self._end("stopped", why, stop, cells=cells, events=events))

    async def _settle_left_calls(self) -> bool:
        """Settle the calls that an interruption, or a decision, has left; True if any of them still waits."""
        if self._record.head_policy == "on_success":
            await self._do(self._leave_timeline)
            await self._do(self._recount)
        left = await self._do(partial(open_round, self._round_context, self._finisher.source))
        return bool(left.pending_calls) and await self._round(
            left.pending_calls, left.rulings, left.message_id
        )

    async def _turn(self) -> tuple[list[PendingCall], Result | None]:
        """Have the model answer; return the calls that it requests, or the result of the run if this was its end."""
        is_first, pending = self._started.fresh and not self._counters.steps, self._pending()
        heard: list[CellWrite] = []
        if pending is not None:  # the request was sent before, so no message can be added to it
            await self._do(self._finisher.count_heard)
        elif not is_first:  # no message can be queued for a run that has just begun
            messages, heard = await self._do(self._hear)
            refused = await refused_input(self._guards, messages, self._env.space.ids) if messages else None
            if refused is not None:
                return [], await self._end_refused(refused[0], heard, refused[1:])
        self._check_cancel()
        draft = self._journal.draft("assistant_turn_committed")
        context, fits = self._model_input.context(self._active.model), True
        if context is None:  # it has become too large, or may be out of date
            rebuild = partial(self._model_input.rebuild, self._journal.head.commit)
            context, fits = await self._do(rebuild)
        if pending is not None:
            context = msgspec.structs.replace(context, pending=pending)
        if self._has_plugins:
            await self._phase("before_inference", draft, context=context)
        unseen = self._model_input.lost()
        takeover = None
        if self._failover is not None and pending is None:
            kinds = {loss.what for loss in unseen}
            choose = partial(self._failover.before_step, self._active, context, unseen=kinds, fits=fits)
            takeover = await self._do(choose)
        label = self._env.space.ids()  # of the message, so that watchers know it while the model writes
        answer = takeover or await self._answer(context, label)
        if isinstance(answer, Takeover):
            await self._do(partial(self._take_over, answer, heard))
            return [], None
        if answer is None:  # a limit is reached, and ends the run before the next step
            await self._do(partial(self._journal.write, cells=heard))
            return [], None
        reply = answer
        if self._has_plugins:
            await self._phase("after_inference", draft, message=reply.message)
        losses = (*unseen, *self._model_input.losses(), *reply.losses)
        recipe, bodies = self._model_input.recipe()
        stored = reply.message
        if has_media(stored):
            stored, staged = await self._do(partial(media.said, self._env.space, stored))
            draft.hold(staged)
        usage, backend = reply.usage or None, self._active.backend
        cost = step_cost(self._env, self._active.model, reply.usage) if usage else None
        draft.say(stored, id=label, backend=backend, usage=usage, losses=losses, context=recipe, cost=cost)
        self._cost += Cost.of(cost)
        self._step_cost = cost
        draft.objects += bodies
        self._journal.memory_root = self._model_input.memory_root
        self._model_input.add(reply.message)
        failpoints.hit("before_intent")
        if reply.message.tool_calls:
            return await self._take_calls(reply, draft, label, heard)
        return [], await self._take_message(reply, draft, label, heard)

    async def _answer(self, context: Context, label: str) -> StepReply | Takeover | None:
        """Have the model take a step, or find the backend that takes over where it fails.  `label` is the message's id.

        None: a limit of the run was reached while the backend worked on the answer.
        """
        # The environment may have changed since the run began, and with it the address of the backend.
        check_server(self._env, self._active.recorded, self._active.model)
        if self._budget.limits_cost:
            check_price(self._env, self._active.model)
        if self._env.throttle is not None:
            await self._env.throttle.before_step(self._active.backend)
        ids, feed = self._journal.space.ids, self._journal.feed
        model_step = ModelStep(self._active.model, context, feed, ids, self._names, label)
        try:
            return await self._answer_of(model_step, context.pending)
        except GeneratorExit:  # a second Ctrl-C: nothing can be awaited any more
            raise
        except BaseException:
            await model_step.close()
            raise

    async def _answer_of(self, model_step: ModelStep, noted: str | None) -> StepReply | Takeover | None:
        while True:
            try:
                answer = await model_step.answer()
            except Exception as error:
                if self._failover is None:
                    raise
                takeover = await self._do(partial(self._failover.after_error, self._active, error))
                if takeover is None:
                    raise
                return takeover
            if isinstance(answer, StepReply):
                return answer
            if answer.id != noted:
                # Durable before anything else, so that no process sends the request a second time.  An error of the
                # store is no error of the backend: it ends the run and leads to no other backend.
                noted, step = answer.id, self._counters.steps
                pending = PendingResponse(backend=self._active.backend, id=noted, step=step)
                await self._do(partial(self._finisher.note, pending=pending))
            elif self._limit_reached() is not None:
                return None

    def _check_cancel(self) -> None:
        # The thread that renews the lease looks for requests too, but only from time to time.
        if self._finisher.record.cancel is not None:
            raise _CancelRequested

    def _limit_reached(self) -> tuple[StopReason, str] | None:
        return self._budget.reached(self._counters, self._env.space.clock())

    async def _take_calls(
        self, reply: StepReply, draft: CommitDraft, label: str, heard: list[CellWrite]
    ) -> tuple[list[PendingCall], Result | None]:
        """Record the calls of a reply; if the reply is not complete, refuse them and end the run."""
        if self._has_plugins:
            await self._phase("step_end", draft, message=reply.message)
        kind, refused = reply.stop.reason, None
        if kind == "tool_calls" or (kind == "unknown" and self._stop.accepts(kind)):
            if self._guards:
                calls = reply.message.tool_calls
                refused = await refused_calls(self._guards, self._round_context.toolbox, calls)
            return await self._do(partial(self._request, draft, label, reply, heard, refused=refused)), None
        pending_calls = await self._do(partial(self._request, draft, label, reply, heard, cut_off=True))
        await self._round(pending_calls, {}, self._env.space.ids())
        return [], await self._conclude(reply.stop, [])

    async def _take_message(
        self, reply: StepReply, draft: CommitDraft, label: str, heard: list[CellWrite]
    ) -> Result | None:
        """Record a reply without calls; return the result of the run, or None if the run goes on."""
        self._count(draft, reply, [])
        if self._has_plugins:
            await self._phase("step_end", draft, message=reply.message)
        if self._answers is not None and reply.stop.reason == "completed":
            refused = await self._answers.check(reply.message)
            if refused is not None:
                return await self._refuse_answer(refused, draft, label, heard)
        self._journal.stage(draft)
        is_steered = (
            self._has_plugins and self._has_hook("run_end") and await self._do(self._finisher.is_steered)
        )
        if reply.stop.reason != "paused" and not (is_steered and self._stop.accepts(reply.stop.reason)):
            failpoints.hit("before_finish")
            result = await self._conclude(reply.stop, heard)
            if result is not None:
                return result
        await self._do(partial(self._journal.write, cells=heard))  # the run goes on
        return None

    async def _refuse_answer(
        self, refused: Refusal, draft: CommitDraft, label: str, heard: list[CellWrite]
    ) -> Result | None:
        """Record that an answer was refused and ask for another; end the run if it was asked for often enough.

        An answer that only does not fit its type ends the run as it is: reading `result.output` says so.
        """
        draft.events.append(refused_event(self._env.space.ids(), refused, "output", message=label))
        self._journal.stage(draft)
        asked = self._answers.again(refused) if self._answers is not None else None
        if asked is None:
            if refused.guard == OUTPUT_TYPE:
                return await self._conclude(StopReason("completed"), heard)
            return await self._end_refused(refused, heard)
        draft = self._journal.draft("user_message")
        draft.say(asked, id=self._env.space.ids())
        self._model_input.add(asked)
        self._journal.stage(draft)
        await self._do(partial(self._journal.write, cells=heard))
        return None

    async def _conclude(self, stop: StopReason, cells: Sequence[CellWrite]) -> Result | None:
        """End the run as its last answer ended; None if a message was queued for it just now."""
        if self._stop.accepts(stop.reason):
            return await self._end("succeeded", None, stop, cells=cells)
        return await self._end("stopped", in_words(stop), stop, cells=cells)

    async def _round(
        self, pending_calls: list[PendingCall], rulings: Mapping[str, Ruling], message_id: str
    ) -> bool:
        """Execute the calls and commit their results in the message `message_id`; True if any call waits."""
        while True:
            draft = self._journal.draft("tool_results_committed")
            executor = CallExecutor(
                self._round_context,
                self._journal.root,
                rulings,
                message_id=message_id,
            )
            try:
                await executor.carry_out(pending_calls)
            except asyncio.CancelledError:
                known = [pending_call for pending_call in pending_calls if pending_call.stage != "ready"]
                await self._do(partial(self._commit_round, known, draft, message_id))
                raise
            await self._do(partial(self._commit_round, pending_calls, draft, message_id))
            if not any([pending_call.stage == "suspended" for pending_call in pending_calls]):
                return False
            left = await self._do(partial(open_round, self._round_context, self._finisher.source))
            pending_calls, rulings, message_id = left.pending_calls, left.rulings, left.message_id
            if all(pending_call.stage == "suspended" for pending_call in pending_calls):
                return True

    # ---- blocking parts: `_do` keeps them away from a shared event loop

    def _read_conversation(self) -> None:
        """Read the conversation of the timeline, and the messages that came in with the run."""
        started = self._started
        at = started.before if started.fresh else self._journal.head.commit
        self._model_input.epoch = started.lease.epoch
        self._model_input.read_conversation(self._active.model, at, self._journal.root, started.said)

    def _take_over(self, takeover: Takeover, heard: Sequence[CellWrite]) -> None:
        """Write that another backend takes the steps from here on, and show it the conversation."""
        checkpoint = takeover.report.checkpoint
        assert checkpoint is not None, "a report is made with its checkpoint"
        holds = switched(takeover.report, checkpoint, self._journal.space.ids)
        draft = self._journal.draft(REASON)
        draft.extend(holds.events)
        draft.objects += holds.objects
        self._journal.stage(draft)
        failpoints.hit("switch_checked")
        self._finisher.hand_over(takeover.to.recorded, heard)
        failpoints.hit("switch_written")
        # The rest of a message never comes.
        self._journal.feed.committed(self._journal.head.commit, spoken=True)
        self._active = takeover.to
        self._model_input.switch_to(takeover.to.model, self._journal.head.commit)

    def _is_unbegun(self) -> bool:
        """True if the run was cut off before the writes of plug-ins at its start were durable."""
        record = self._record
        if not self._has_hook("run_start") or record.line is not None:
            return False
        _, *rest = of_run(self._journal.space, record.id, self._journal.head.commit)
        around = (RunStarted, RunFinished)  # of a run that failed at its start, and was retried
        return all(any(isinstance(event, around) for event in step.changeset.events) for step in rest)

    def _leave_timeline(self) -> None:
        """Write to a timeline of the run's own: the one on which it was cut off, if there is one."""
        if self._finisher.leave_timeline():
            self._read_conversation()

    def _hear(self) -> tuple[list[tuple[str, Message]], list[CellWrite]]:
        """Put queued messages into the conversation; return them with their ids, and the writes that empty the queue."""
        messages, cells = self._finisher.hear()
        for _, message in messages:
            self._model_input.add(message, written=False)
        return messages, cells

    def _request(
        self,
        draft: CommitDraft,
        label: str,
        reply: StepReply,
        heard: list[CellWrite],
        *,
        cut_off: bool = False,
        refused: Mapping[str, Refusal] | None = None,
    ) -> list[PendingCall]:
        """Make the model's turn durable, with the requested calls and the starts that need no approval.

        With `cut_off` nothing is started: the reply is not complete, and its calls are refused.  `refused` are the
        calls that guards refuse.
        """
        why = in_words(reply.stop) if cut_off else None
        pairs = zip(reply.message.tool_calls, reply.vendor_ids, strict=True)
        backend = self._active.backend
        calls = [
            requested(
                self._round_context,
                call,
                label,
                backend=backend,
                vendor_id=id or None,
                cut_off=why,
                refused=refused[call.id].why if refused and call.id in refused else None,
            )
            for call, id in pairs
        ]
        space = self._journal.space
        question = records.record_question(space, self._journal.run)
        known = plan_answers(self._round_context, calls, question, assumes_new=True)
        self._finisher.is_steered(known)  # reads the record
        self._check_cancel()
        pending_calls = self._planned(calls, known, start=True)
        self._count(draft, reply, [pending_call.record.fingerprint for pending_call in pending_calls])
        draft.events += [request_event(space, pending_call.record) for pending_call in pending_calls]
        for call, refusal in (refused or {}).items():
            draft.events.append(refused_event(space.ids(), refusal, "arguments", call=call))
        self._journal.stage(draft)
        try:
            self._write_round(pending_calls, heard)
        except Moved:  # an equal call was started before, or another timeline has just started one
            try:
                pending_calls = self._planned(calls, space, start=True)
                self._write_round(pending_calls, heard)
            except Moved:
                pending_calls = self._planned(calls, space, start=False)
                self._write_round(pending_calls, heard)
        for pending_call in pending_calls:
            pending_call.written()
        failpoints.hit("after_intent")
        return pending_calls

    def _write_round(self, pending_calls: list[PendingCall], heard: list[CellWrite]) -> None:
        for pending_call in pending_calls:
            if pending_call.record.reach.guarded:
                self._env.store_runtime.started.note(self._env.space.name, pending_call.record.fingerprint)
        transitions = [each.transition for each in pending_calls if each.transition is not None]
        self._journal.write(cells=heard, transitions=transitions)

    def _planned(self, calls: list[RequestedCall], space: Space, *, start: bool) -> list[PendingCall]:
        taken: set[str] = set()
        return [plan(self._round_context, each, taken=taken, start=start, space=space) for each in calls]

    def _commit_round(self, pending_calls: list[PendingCall], draft: CommitDraft, message_id: str) -> None:
        message = commit_round(self._round_context, pending_calls, draft, message_id=message_id)
        self._budget.count_children()
        if message is not None:
            self._model_input.add(message, records=[each.record for each in pending_calls if each.is_known])

    def _count(self, draft: CommitDraft, reply: StepReply, fingerprints: list[str]) -> None:
        self._usage, self._text = self._usage + reply.usage, reply.message.text
        if self._env.throttle is not None:
            self._env.throttle.after_step(self._active.backend, reply.usage)
        # What was counted before an interruption is in the counters.
        made = [each for each in fingerprints if each] if fingerprints else fingerprints
        self._counters = self._counters.after(reply.usage, self._step_cost, made)
        if self._budget.is_counted:
            draft.ops.put(COUNTERS, msgspec.to_builtins(self._counters))

    def _recount(self) -> None:
        """Read the counters of a run that was cut off or waited."""
        self._budget.count_children()
        space = self._journal.space
        entry = space.tree(self._journal.root).get(COUNTERS)
        if entry is not None:
            self._counters = msgspec.json.decode(space.body(entry.value), type=Counters)
        else:
            steps = result_of(space, self._record, at=self._journal.head.commit).steps
            self._counters = Counters(steps=steps, began_at=self._record.begun_at)
        if self._answers is not None:
            self._answers.recount(of_run(space, self._record.id, self._journal.head.commit))
        if self._started.retried:  # the time between the failure and the retry does not count
            self._counters = msgspec.structs.replace(self._counters, began_at=self._env.space.clock())

    def _pending(self) -> str | None:
        """Return the id of the answer that the active backend already works on; None if there is none."""
        pending = self._finisher.record.pending
        if pending is None or pending.step != self._counters.steps:
            return None
        return pending.id if pending.backend == self._active.backend else None

    def _wait(self) -> Result:
        """Release the timeline until calls are decided."""
        if not self._finisher.wait(self._round_context.deadline):
            return self._close("cancelled", self._record.cancel or "")
        return self._result()

    def _close(self, status: RunState, why: str, kind: str | None = None) -> Result:
        """End the run early: because it failed, or was asked to stop."""
        close_early(self._round_context, self._finisher, status, why, kind)
        return self._result()

    async def _end(
        self,
        status: RunState,
        why: str | None,
        stop: StopReason,
        *,
        cells: Sequence[CellWrite] = (),
        events: Sequence[Event] = (),
    ) -> Result | None:
        """End the run after its last step; None if it was to succeed and a message was queued for it just now."""
        while True:
            draft = self._journal.draft("run_finished", forced=True)
            draft.events += events
            if self._has_plugins:
                await self._phase("run_end", draft, status=status)
            result = await self._do(partial(self._finish, draft, status, why, stop, cells))
            if result is not None:
                failpoints.hit("after_finish")
                return result
            self._journal.unstage_last()
            if status == "succeeded":
                return None
            cells = (*cells, *(await self._do(self._hear))[1])

    def _finish(
        self,
        draft: CommitDraft,
        status: RunState,
        why: str | None,
        stop: StopReason,
        cells: Sequence[CellWrite],
    ) -> Result | None:
        if not self._finisher.finish(draft, status, why, cells, stop=stop):
            return None
        end = self._journal.count_due()
        if end is not None:
            # A shortcut for later readers: without it they read the ledger from its beginning.
            with suppress(PerdureError):
                snapshot.store_count(self._env.space, end)
        return self._result()

    def _result(self) -> Result:
        record, at = self._record, self._journal.head.commit
        # In any other state the conversation may have lost messages.
        if record.state in ("succeeded", "stopped", "waiting"):
            self._env.lines.note(self._env.space, self._env.timeline, at, self._active.recorded)
            self._model_input.cache(at)
        if record.state == "waiting" or not self._started.fresh:
            return result_of(self._env.space, record, at=at, shape=self._shape)
        return Result(
            run=record.id,
            status=record.state,
            text="" if record.stop is not None and record.stop.reason == "guard" else self._text,
            **count_settled(self._env.space, self._model_input.settled)._asdict(),
            usage=self._usage,
            cost=self._cost,
            steps=self._counters.steps,
            commit=at,
            why=record.why,
            kind=record.kind,
            stop=record.stop,
            shape=self._shape,
        )

    async def _failed(self, error: Exception) -> RunFailed:
        why, kind = said_by(error, advice=False), type(error).__name__
        try:
            result = await self._do(partial(self._close, "failed", why, kind))
        except Exception:  # noqa: BLE001  # the store cannot be written: the run counts as interrupted
            left = "This could not be recorded, so the run counts as interrupted."
            result = Result(run=self._record.id, status="failed", why=f"{why} {left}", kind=kind)
            return RunFailed(
                result, code="failure_not_recorded", advice="resume() goes on with it, cancel() ends it."
            )
        return RunFailed(result, advice=error.advice if isinstance(error, PerdureError) else "")

    async def _do(self, work: Callable[[], _T]) -> _T:
        return work() if self._is_inline else await self._env.run_blocking(work)

    @property
    def _record(self) -> RunRecord:
        return self._finisher.record

    def _has_hook(self, phase: Phase) -> bool:
        return is_hooked(self._env.agent, phase)

    async def _phase(
        self,
        phase: Phase,
        draft: CommitDraft,
        *,
        context: Context | None = None,
        message: Message | None = None,
        status: str | None = None,
    ) -> None:
        if self._has_hook(phase):
            moment = Moment(
                phase, self._journal.run, draft.ops, context=context, message=message, status=status
            )
            await run_phase(self._env.agent.plugins, moment)


def _ended(result: Result | None) -> Result:
    assert result is not None, "only a run that was to succeed goes on"
    return result
