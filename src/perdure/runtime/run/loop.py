"""A live run: the loop from input to finish, and the commits along the way.

    inbound, start       one write (beginning.py)
    the model speaks     one write: its words, the requests, the starts
    tools run            each result durable as it comes; the last with the round's commit
    … and again, until the model asks for nothing: its last words and the end are one write

Why the model's answer ended decides how the run goes on.  A turn that the backend paused is sent back
as it is.  An answer that the backend works on is fetched by its id.  An answer that is not complete
ends the run as `stopped`, unless the stop policy accepts it; the calls in it are never run.

Whatever fails fails the run, which says so in a closing commit if it still can.  If even that
fails nothing is announced: the run counts as interrupted, and the log alone finishes it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Moved, PerdureError, RunFailed
from perdure.history.ancestry import of_run
from perdure.ledger.calls import CallTransition
from perdure.model.call import CallRecord
from perdure.model.context import Context
from perdure.model.event import RunFinished, RunStarted, ToolCallRequested
from perdure.model.message import Message
from perdure.model.run import PendingResponse, RunRecord, RunState, StopReason, Usage
from perdure.model.text import said_by
from perdure.providers.contract import Model
from perdure.runtime import failpoints
from perdure.runtime.agent.agent import COUNTERS, Counters, in_words
from perdure.runtime.agent.plugin import Moment, Phase, hooked, run_phase
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.calls.plan import plan
from perdure.runtime.calls.recovery import open_slots
from perdure.runtime.calls.round_commit import commit_round
from perdure.runtime.calls.round_context import RoundContext
from perdure.runtime.inference.failover import Failover
from perdure.runtime.inference.model_input import ModelInputBuilder
from perdure.runtime.inference.step import Patience, StepReply, declared_names
from perdure.runtime.run.branch import RunBranch
from perdure.runtime.run.finish import RunFinisher
from perdure.runtime.run.start import Started, cleaned
from perdure.runtime.session import media
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import CommitDraft
from perdure.runtime.session.lease import Lost
from perdure.runtime.session.lease_keeper import HeldLease
from perdure.runtime.session.result import Result, result_of
from perdure.runtime.tools.call import Ruling
from perdure.switching.current_backend import RecordedBackend

__all__ = ["LiveRun"]

_T = TypeVar("_T")


class LiveRun:
    """One run, from where it stands to its end, or to the next question."""

    def __init__(self, env: RunEnvironment, begun: Started, model: Model, *, shape: Any = None) -> None:
        """Go on from `begun`; `shape` is the type that the last words are to have."""
        self._env, self._begun, self._shape = env, begun, shape
        self._journal = begun.journal
        self._plugins = env.agent.plugins
        self._stop = env.agent.stop
        self._counters = Counters(began_at=begun.kept.record.begun_at)
        self._why = ""  # of a cancellation
        self._is_lost = False
        self._is_told = False  # that somebody wants it to stop, from another thread
        self._keeping: HeldLease | None = None
        self._round_context = RoundContext(env, self._journal, model.backend, self._is_ours)
        self._round_context.waited = begun.waited
        self._branch = RunBranch(self._journal, begun)
        self._finisher = RunFinisher(self._round_context, self._branch, begun)
        recorded = RecordedBackend(model.backend, begun.kept.record.server)
        self._failover = Failover(self._round_context, model, recorded, self._finisher.hand_over)
        self._names = declared_names(self._round_context.toolbox)
        self._model_input = ModelInputBuilder(env, shape=shape)
        self._patience = Patience(
            self._note_pending, lambda: self._stop.reached(self._counters, self._round_context.now()) is None
        )
        self._usage, self._text = Usage(), ""  # of this run, as far as it ran here

    async def go(self) -> Result:
        """Run to the end, or until somebody has to decide something.

        Raises `RunFailed` if it fails, `Lost` if another process has taken over.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(why: str, *, lost: bool) -> None:
            self._why, self._is_lost = why, lost
            task.cancel()

        def told(why: str, *, lost: bool = False) -> None:
            self._is_told = True
            loop.call_soon_threadsafe(partial(stop, why, lost=lost))

        self._keeping = self._env.owners.hold(
            self._begun.lease, space=self._env.space, lost=lambda: told("", lost=True), cancelled=told
        )
        try:
            return await self._to_the_end(task)
        finally:
            self._keeping.release()
            self._env.feeds.end(self._env.space.name, self._env.timeline, self._journal.feed)

    async def end_cancelled(self, why: str) -> Result:
        """End the run where it stands, without another step."""
        try:
            if self._record.line is not None:
                await self._do(self._leave_line)
            return await self._do(partial(self._close, "cancelled", why))
        finally:
            self._env.owners.give_up(self._env.space, self._begun.lease)
            self._env.feeds.end(self._env.space.name, self._env.timeline, self._journal.feed)

    async def _to_the_end(self, task: asyncio.Task[Any]) -> Result:
        try:
            return await self._steps()
        except asyncio.CancelledError:
            task.uncancel()
            if self._is_lost:
                raise Lost(self._begun.lease) from None
            result = await self._do(
                partial(self._close, "cancelled", self._why or "the caller was cancelled")
            )
            if not self._why:
                raise
            return result
        except (Lost, RunFailed):
            raise
        except Exception as error:  # whatever a model, a plug-in or the store raised fails the run
            raise await self._failed(error) from error

    async def _steps(self) -> Result:
        await self._do(self._listen)
        if self._begun.fresh or await self._do(self._is_unbegun):
            await self._begin()
        else:
            await self._do(self._recount)
            waits = await self._take_up()
            if waits:
                return await self._do(self._wait)
        while True:
            if (
                self._is_told or not self._env.owns_thread
            ):  # whoever wants the run to stop is heard once a step
                await asyncio.sleep(0)
            reached = self._stop.reached(self._counters, self._round_context.now())
            if reached is not None:
                stop, why = reached
                result = await self._end("stopped", why, stop, cells=await self._do(self._hear))
                assert result is not None, "only a run that was to succeed goes on"
                return result
            pending_calls, said = await self._turn()
            if said is not None:
                return said
            if pending_calls and await self._round(pending_calls, {}):
                return await self._do(self._wait)

    async def _begin(self) -> None:
        """What is left of the start: the plug-ins' part, and the run's own line if it has one."""
        if hooked(self._plugins, "run_start"):
            draft = self._journal.draft("user_message")
            cleaned(self._env.space, draft, self._env.agent.run_scoped_paths())
            await self._phase("run_start", draft)
            self._journal.stage(draft)
            await self._do(self._journal.write)
        if self._record.head_policy == "on_success":
            await self._do(self._leave_line)

    async def _take_up(self) -> bool:
        """Settle what an interruption, or a decision, has left; whether anything still waits."""
        if self._record.head_policy == "on_success":
            await self._do(self._leave_line)
            await self._do(self._recount)
        pending_calls, rulings = await self._do(
            partial(open_slots, self._round_context, self._finisher.source)
        )
        return bool(pending_calls) and await self._round(pending_calls, rulings)

    async def _turn(self) -> tuple[list[PendingCall], Result | None]:
        """Have the model speak; the calls that it asks for, or what the run came to."""
        begins, pending = self._begun.fresh and not self._counters.steps, self._pending()
        # To a run that has just begun nothing was said.  What it has asked for already cannot take in any words.
        heard = [] if begins else await self._do(self._finisher.count_heard if pending else self._hear)
        draft = self._journal.draft("assistant_turn_committed")
        context, fits = self._model_input.context(self._failover.model), True
        if context is None:  # it has become too large
            context, fits = await self._do(self._show_anew)
        if pending is not None:
            context = msgspec.structs.replace(context, pending=pending)
        await self._phase("before_inference", draft, context=context)
        unseen = self._model_input.lost()
        kinds = {loss.what for loss in unseen}
        asked = self._failover.model
        said = await self._failover.ask(context, heard, self._names, self._patience, unseen=kinds, fits=fits)
        if said is None and self._failover.model is asked:  # a limit is reached, and ends the run
            await self._do(partial(self._journal.write, cells=heard))
            return [], None
        if said is None:  # another backend has taken over, and is asked anew
            await self._do(self._hand_over)
            return [], None
        await self._phase("after_inference", draft, message=said.message)
        label = self._env.space.ids()
        usage, backend = said.usage or None, self._failover.model.backend
        losses = (*unseen, *self._model_input.losses(), *said.losses)
        recipe, bodies = self._model_input.recipe()
        kept = said.message
        if media.has_media(kept):
            kept = await self._do(partial(self._keep_media, draft, kept))
        draft.say(kept, id=label, backend=backend, usage=usage, losses=losses, context=recipe)
        draft.objects += bodies
        self._journal.memory_root = self._model_input.memory_root
        self._model_input.add(said.message)
        failpoints.hit("before_intent")
        if said.message.tool_calls:
            return await self._asked_for(said, draft, label, heard)
        return [], await self._spoken(said, draft, heard)

    async def _asked_for(
        self, said: StepReply, draft: CommitDraft, label: str, heard: list[CellWrite]
    ) -> tuple[list[PendingCall], Result | None]:
        """Take up the calls of an answer; if it is not complete none of them is run, and the run ends."""
        await self._phase("step_end", draft, message=said.message)
        kind = said.stop.reason
        if kind == "tool_calls" or (kind == "unknown" and self._stop.accepts(kind)):
            return await self._do(partial(self._request, draft, label, said, heard)), None
        pending_calls = await self._do(partial(self._request, draft, label, said, heard, cut_off=True))
        await self._round(pending_calls, {})
        return [], await self._conclude(said.stop, [])

    async def _spoken(self, said: StepReply, draft: CommitDraft, heard: list[CellWrite]) -> Result | None:
        """Take up an answer without calls; what the run came to, or None: it goes on."""
        self._count(draft, said, [])
        await self._phase("step_end", draft, message=said.message)
        self._journal.stage(draft)
        steered = hooked(self._plugins, "run_end") and await self._do(self._finisher.is_steered)
        if said.stop.reason != "paused" and not (steered and self._stop.accepts(said.stop.reason)):
            failpoints.hit("before_finish")
            result = await self._conclude(said.stop, heard)
            if result is not None:
                return result
        await self._do(partial(self._journal.write, cells=heard))  # it is not over
        return None

    async def _conclude(self, stop: StopReason, cells: Sequence[CellWrite]) -> Result | None:
        """End the run as its last answer ended; None: somebody has just said something to it."""
        if self._stop.accepts(stop.reason):
            return await self._end("succeeded", None, stop, cells=cells)
        return await self._end("stopped", in_words(stop), stop, cells=cells)

    async def _round(self, pending_calls: list[PendingCall], rulings: dict[str, Ruling]) -> bool:
        """Carry out the calls and commit what they came to; whether any of them waits."""
        while True:
            draft = self._journal.draft("tool_results_committed")
            self._round_context.label = self._round_context.label or self._env.space.ids()
            try:
                await CallExecutor(self._round_context, self._journal.root, rulings).carry_out(pending_calls)
            except asyncio.CancelledError:
                known = [pending_call for pending_call in pending_calls if pending_call.stage != "ready"]
                await self._do(partial(self._commit_round, known, draft))
                raise
            await self._do(partial(self._commit_round, pending_calls, draft))
            if not any(pending_call.stage == "suspended" for pending_call in pending_calls):
                return False
            pending_calls, rulings = await self._do(
                partial(open_slots, self._round_context, self._finisher.source)
            )
            if all(pending_call.stage == "suspended" for pending_call in pending_calls):
                return True

    # ---- blocking parts, done by whoever may block

    def _listen(self) -> None:
        """Take up the conversation: what was said before, and what came in."""
        begun = self._begun
        at = begun.before if begun.fresh else self._journal.head.commit
        self._model_input.listen(self._failover.model, at, self._journal.root, begun.said)

    def _show_anew(self) -> tuple[Context, bool]:
        """What the model is shown when all that was shown before, and what came since, is too much; whether that fits."""
        return self._model_input.anew(self._journal.head.commit)

    def _hand_over(self) -> None:
        """Take the conversation up as the backend sees it that has taken over."""
        self._model_input.again(self._failover.model, self._journal.head.commit)

    def _is_unbegun(self) -> bool:
        """Whether the run was cut off before the plug-ins' part of its start was durable."""
        record = self._record
        if not hooked(self._plugins, "run_start") or record.line is not None:
            return False
        _, *rest = of_run(self._journal.space, record.id, self._journal.head.commit)
        around = (RunStarted, RunFinished)  # of a run that failed at its start, and was retried
        return all(any(isinstance(event, around) for event in step.changeset.events) for step in rest)

    def _leave_line(self) -> None:
        """Go to a line of the run's own: to the one on which it was cut off, if there is one."""
        before = self._record.line
        line = self._branch.begin(before)
        if line != before:
            self._finisher.note(line=line)
        else:
            self._listen()

    def _hear(self) -> list[CellWrite]:
        """Put what was said to the run meanwhile into the conversation; the cells that this empties."""
        words, cells = self._finisher.hear()
        for message in words:
            self._model_input.add(message, written=False)
        return cells

    def _keep_media(self, draft: CommitDraft, message: Message) -> Message:
        """The message with its bytes named by digest; the draft holds them."""
        kept, staged = media.said(self._env.space, message)
        draft.hold(staged)
        return kept

    def _request(
        self,
        draft: CommitDraft,
        label: str,
        said: StepReply,
        heard: list[CellWrite],
        *,
        cut_off: bool = False,
    ) -> list[PendingCall]:
        """Make the assistant's turn durable, with the requests and the starts that need no approval.

        With `cut_off` nothing is started: the answer is not complete, and its calls are refused.
        """
        pending_calls = self._planned(label, said, start=True, cut_off=cut_off)
        self._count(draft, said, [pending_call.record.fingerprint for pending_call in pending_calls])
        draft.extend(self._requested(pending_call.record) for pending_call in pending_calls)
        self._journal.stage(draft)
        try:
            self._journal.write(cells=heard, transitions=_postings(pending_calls))
        except Moved:
            # Another timeline has just started an equal call, so this one has to be looked at again.
            pending_calls = self._planned(label, said, start=False, cut_off=cut_off)
            self._journal.write(cells=heard, transitions=_postings(pending_calls))
        for pending_call in pending_calls:
            pending_call.written()
        failpoints.hit("after_intent")
        return pending_calls

    def _planned(self, label: str, said: StepReply, *, start: bool, cut_off: bool) -> list[PendingCall]:
        taken: set[str] = set()
        why = in_words(said.stop) if cut_off else None
        pairs = zip(said.message.tool_calls, said.vendor_ids, strict=True)
        return [
            plan(
                self._round_context, call, label, vendor_id=id or None, taken=taken, start=start, cut_off=why
            )
            for call, id in pairs
        ]

    def _requested(self, record: CallRecord) -> ToolCallRequested:
        return ToolCallRequested(
            id=self._env.space.ids(),
            call=record.id,
            tool=record.tool,
            args=record.args,
            size=record.args_size,
            idempotency_key=record.key,
            side_effects=record.effect,
        )

    def _commit_round(self, pending_calls: list[PendingCall], draft: CommitDraft) -> None:
        message = commit_round(self._round_context, pending_calls, draft)
        self._round_context.label = ""
        if message is not None:
            self._model_input.add(message)

    def _count(self, draft: CommitDraft, said: StepReply, fingerprints: list[str]) -> None:
        self._usage, self._text = self._usage + said.usage, said.message.text
        cost = self._stop.cost_of(said.usage)
        self._counters = self._counters.after(said.usage, cost, [each for each in fingerprints if each])
        if self._stop.counts:
            draft.ops.put(COUNTERS, msgspec.to_builtins(self._counters))

    def _recount(self) -> None:
        """Read how far the run had come."""
        space = self._journal.space
        entry = space.tree(self._journal.root).get(COUNTERS)
        if entry is not None:
            self._counters = msgspec.json.decode(space.body(entry.value), type=Counters)
        else:
            steps = result_of(space, self._record, at=self._journal.head.commit).steps
            self._counters = Counters(steps=steps, began_at=self._record.begun_at)
        if self._begun.retried:  # the time that it was failed does not count
            self._counters = msgspec.structs.replace(self._counters, began_at=self._round_context.now())

    def _pending(self) -> str | None:
        """The id of the answer that the run has asked for already; None: it has not."""
        pending = self._record.pending
        if pending is None or pending.step != self._counters.steps:
            return None
        return pending.id if pending.backend == self._failover.model.backend else None

    async def _note_pending(self, id: str) -> None:
        """Make durable that the backend works on the next answer, so that nobody asks for it again."""
        backend, step = self._failover.model.backend, self._counters.steps
        pending = PendingResponse(backend=backend, id=id, step=step)
        await self._do(partial(self._finisher.note, pending=pending))

    def _wait(self) -> Result:
        """Let the line go until somebody has decided."""
        if not self._finisher.wait():
            return self._close("cancelled", self._record.cancel or "")
        return self._result()

    def _close(self, status: RunState, why: str, kind: str | None = None) -> Result:
        """End a run that did not come to its own end."""
        self._finisher.close(status, why, kind)
        return self._result()

    async def _end(
        self, status: RunState, why: str | None, stop: StopReason, *, cells: Sequence[CellWrite] = ()
    ) -> Result | None:
        """End the run by its own doing; None: it was to succeed, and somebody has just said something to it."""
        while True:
            draft = self._journal.draft("run_finished", forced=True)
            await self._phase("run_end", draft, status=status)
            result = await self._do(partial(self._finish, draft, status, why, stop, cells))
            if result is not None:
                failpoints.hit("after_finish")
                return result
            self._journal.unstage_last()
            if status == "succeeded":
                return None
            cells = (*cells, *await self._do(self._hear))

    def _finish(
        self,
        draft: CommitDraft,
        status: RunState,
        why: str | None,
        stop: StopReason,
        cells: Sequence[CellWrite],
    ) -> Result | None:
        return self._result() if self._finisher.finish(draft, status, why, cells, stop=stop) else None

    def _result(self) -> Result:
        record, at = self._record, self._journal.head.commit
        if record.state in ("succeeded", "stopped", "waiting"):  # else not all that was said was kept
            self._env.lines.note(self._env.space, self._env.timeline, at, self._failover.recorded)
            self._model_input.give(at)
        if record.state == "waiting" or not self._begun.fresh:
            return result_of(self._env.space, record, at=at, shape=self._shape)
        return Result(
            run=record.id,
            status=record.state,
            text=self._text,
            usage=self._usage,
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
        except Exception:  # noqa: BLE001  # the store cannot even be told: the run counts as interrupted
            left = "This could not be recorded, so the run counts as interrupted."
            result = Result(run=self._record.id, status="failed", why=f"{why} {left}", kind=kind)
            return RunFailed(
                result, code="failure_not_recorded", advice="resume() goes on with it, cancel() ends it."
            )
        return RunFailed(result, advice=error.advice if isinstance(error, PerdureError) else "")

    # ---- small things

    async def _do(self, work: Callable[[], _T]) -> _T:
        return await self._env.run_blocking(work)

    @property
    def _record(self) -> RunRecord:
        return self._finisher.kept.record

    def _is_ours(self) -> bool:
        return self._keeping is not None and self._keeping.still_ours()

    async def _phase(
        self,
        phase: Phase,
        draft: CommitDraft,
        *,
        context: Context | None = None,
        message: Message | None = None,
        status: str | None = None,
    ) -> None:
        if hooked(self._plugins, phase):
            moment = Moment(
                phase, self._journal.run, draft.ops, context=context, message=message, status=status
            )
            await run_phase(self._plugins, moment)


def _postings(pending_calls: list[PendingCall]) -> list[CallTransition]:
    return [pending_call.transition for pending_call in pending_calls if pending_call.transition is not None]
