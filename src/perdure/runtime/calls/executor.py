"""Carries out the calls of a round.

Calls run side by side; equal external writes run one after another.  A start that matters is durable
before the tool is called, and the lease is checked once more just before.  Each result is durable as soon
as it is known; only the last of a round is written by the round's commit.

The outcome of an external write is `unknown` unless there is proof.  The tool's reconcile hook is asked
at once; its `not_done` is believed only where the old attempt cannot do anything any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import msgspec

from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Moved, PerdureError
from perdure.ledger import call_identity, calls, tickets
from perdure.ledger.call_identity import Free, Mine, Waits
from perdure.ledger.repeat_guard import MayStart
from perdure.model.call import UNCLEAR, CallState
from perdure.model.digest import Digest
from perdure.model.ticket import CHILD_RUN
from perdure.runtime import failpoints
from perdure.runtime.calls import root_ledger
from perdure.runtime.calls.pending_call import (
    NO_CHANGES,
    CallChanges,
    PendingCall,
    ReadyCall,
    settle_with_result_of_key,
)
from perdure.runtime.calls.plan import AskApproval, Deny, ReuseResult, Start, clearance
from perdure.runtime.calls.round import RoundContext
from perdure.runtime.calls.settlement import Settler, record_alone, record_late, record_without_lease
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.call import CallStateView, Children, Outcome, Ruling, Suspension
from perdure.runtime.tools.call_memory import NoMemory
from perdure.runtime.tools.execution import ToolOutcome, ask_reconcile, attempt
from perdure.runtime.tools.tool import Tool
from perdure.runtime.tools.waiting import moment

__all__ = ["CallExecutor"]

_log = logging.getLogger("perdure.calls")
_OWN = f"{Path(__file__).parents[2]}{os.sep}"  # the folder of this package, whose frames say nothing about a tool

_STARTABLE: frozenset[CallState] = frozenset({"requested", "approved"})


class CallExecutor:
    """Carries out the calls of one round."""

    def __init__(
        self,
        round_context: RoundContext,
        root: Digest,
        rulings: Mapping[str, Ruling],
        *,
        message_id: str | None,
    ) -> None:
        """Let every call see the state of that root; `rulings` are the decisions by call.

        `message_id` names the message that the round's commit appends; None: it appends none.
        No tool is called once the lease of the journal is lost.
        """
        self._round_context, self._root, self._rulings = round_context, root, rulings
        self._settler = Settler(round_context.journal, message_id)
        self._left = 0  # calls whose outcome is not recorded
        self._cancelled: asyncio.CancelledError | None = None

    async def carry_out(self, pending_calls: Sequence[PendingCall]) -> None:
        """Carry out every ready call, until it is settled or suspended.

        Raises `Lost` if the lease is lost, and `CancelledError` once everything that was running is recorded.
        """
        ready = [pending_call for pending_call in pending_calls if isinstance(pending_call.state, ReadyCall)]
        self._left = len(ready)
        journal = self._round_context.journal
        if ready and not journal.has_sight:
            await self._round_context.do(journal.look_around)
        queues = _queues(ready) if len(ready) > 1 else [ready] if ready else []
        try:
            if len(queues) == 1:
                await self._one_after_another(queues[0], alone=len(ready) == 1)
            elif queues:
                await self._side_by_side(queues)
            if self._cancelled is not None:
                self._check_lease()
        except Lost:
            for pending_call in ready:
                await self._round_context.do(partial(record_without_lease, journal, pending_call))
            raise
        except PerdureError:  # no commit will write the last result
            for pending_call in ready:
                await self._round_context.do(partial(record_alone, journal, pending_call))
            raise
        if self._cancelled is not None:
            raise self._cancelled

    def abandon(self, pending_call: PendingCall) -> None:
        """Settle a ready call that the run leaves: as cut off if it was started, else as cancelled."""
        if pending_call.stage != "ready":
            return
        state = pending_call.record.state
        if state == "started" or state in UNCLEAR:
            self._settler.cut_off(pending_call, "the run ended while it ran")
        else:
            # A call that writes nothing may begin before its start is durable.
            is_unbegun = pending_call.record.reach.writes
            self._cancel(pending_call, f"the run ended before it {'began' if is_unbegun else 'was done'}")

    async def _side_by_side(self, queues: list[list[PendingCall]]) -> None:
        tasks = [asyncio.create_task(self._one_after_another(queue, alone=False)) for queue in queues]
        try:
            await asyncio.shield(asyncio.gather(*tasks))
        except asyncio.CancelledError as cancelled:
            self._cancelled = cancelled
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _one_after_another(self, queue: list[PendingCall], *, alone: bool) -> None:
        for pending_call in queue:
            if self._cancelled is None:
                try:
                    await self._carry(pending_call, alone=alone)
                except Moved as moved:
                    await self._yield_to_result(pending_call, moved)
            elif pending_call.has_entered and pending_call.recorded.record.state == "requested":
                self._check_lease()
                self._cancel(pending_call, "the run was cancelled")
            await self._record(pending_call)

    async def _yield_to_result(self, pending_call: PendingCall, moved: Moved) -> None:
        """Keep a result that another process has recorded; raises `moved` if there is none."""
        if not await self._round_context.do(partial(self._settler.is_overtaken, pending_call)):
            raise moved

    async def start(self, pending_call: PendingCall) -> bool:
        """Bring a ready call to where its tool is called; False: it is settled or suspended instead."""
        tool = pending_call.tool
        assert tool is not None
        if pending_call.ready.is_interrupted:
            return await self._recover(pending_call, tool)
        return pending_call.record.state == "started" or await self._start(pending_call, tool)

    async def _carry(self, pending_call: PendingCall, *, alone: bool) -> None:
        if not await self.start(pending_call):
            return
        tool = pending_call.tool
        assert tool is not None
        made = 0  # attempts in this process; attempts of a call that writes are also counted in its record
        while True:
            made += 1
            attempted, state_view = await self._attempt(pending_call, tool, made, alone=alone)
            if not await self._judge(pending_call, tool, attempted, state_view, made):
                return
            _log.info(
                "call %s of %s is tried again after attempt %d", pending_call.record.id, tool.name, made
            )
            if tool.retry is not None:
                await asyncio.sleep(tool.retry.wait(made))

    async def _recover(self, pending_call: PendingCall, tool: Tool) -> bool:
        """Continue with a call whose last attempt was cut off; True: it is to be attempted again."""
        record = pending_call.record
        repeatable = (
            record.state == "started" and record.reach.repeatable and pending_call.ready.arguments is not None
        )
        alive = call_identity.stands(record, self._round_context.space.engine.instant()) == "alive"
        if repeatable and (not record.reach.writes or alive):
            return await self._again(pending_call, tool)
        why = "it was cut off while it ran"
        if tool.reconciler is None:
            self._settler.leave_unknown(pending_call, why, is_last=self._is_last)
            return False
        # Asked before the hook is: a process that ends while the hook looks may act after the hook has looked.
        gone = record.holder is not None and await self._round_context.do(
            partial(self._round_context.space.engine.gone, record.holder)
        )
        return await self._reconcile(pending_call, tool, why, believed=gone or tool.reconciler.fences)

    async def _start(self, pending_call: PendingCall, tool: Tool) -> bool:
        """Make the start durable where that is needed; False: the call does not start."""
        attempts = Attempts(f"the calls to {tool.name}", f"call '{pending_call.call.id}' was not started")
        while pending_call.stage == "ready":
            attempts.begin()
            recorded = pending_call.recorded
            cleared = await self._round_context.do(
                partial(clearance, self._round_context, tool, recorded.record)
            )
            match cleared:
                case Start(cells, claim, in_root):
                    if not recorded.record.reach.writes:
                        return True
                    try:
                        begin = partial(self._begin, pending_call, tool, cells, claim, in_root)
                        await self._round_context.do(begin)
                    except Moved:
                        found = await self._round_context.do(
                            partial(calls.read, self._round_context.space, recorded.record.id)
                        )
                        if found.record.state not in _STARTABLE:
                            raise  # another process has started this call, or has its result
                        pending_call.advance(found)
                        continue
                    return True
                case AskApproval(ticket):
                    pending_call.suspend(tickets.ask(recorded, ticket))
                case Deny(why):
                    self._settler.end_unstarted(pending_call, "denied", "denied", why, is_last=self._is_last)
                case ReuseResult(reuse):
                    staged, preview = await self._round_context.do(
                        partial(call_identity.borrowed, self._round_context.space, reuse)
                    )
                    settle_with_result_of_key(
                        pending_call, recorded.record, staged, preview, at=self._round_context.now()
                    )
        return False

    def _begin(
        self,
        pending_call: PendingCall,
        tool: Tool,
        cells: Iterable[CellWrite],
        claim: Free | Mine | Waits | None,
        in_root: MayStart | None = None,
    ) -> None:
        round_context, recorded = self._round_context, pending_call.recorded
        if in_root is not None:
            assert round_context.env.parent is not None, "only a child run has a root"
            root_ledger.enter(round_context.space, round_context.env.parent, recorded.record, in_root)
        if claim is not None:
            call_identity.claim(
                round_context.env.open_store(),
                round_context.space,
                recorded.record,
                claim,
                at=round_context.now(),
            )
        states: tuple[CallState, ...] = ("started",)
        if recorded.record.state == "approved":
            states = ("requested", "started")
        changes = round_context.start_changes(tool, recorded.record)
        transition = calls.advance(recorded, *states, at=round_context.now(), **changes)
        pending_call.advance(round_context.journal.post(transition.also(cells=cells))[0])

    async def _attempt(
        self, pending_call: PendingCall, tool: Tool, made: int, *, alone: bool
    ) -> tuple[ToolOutcome, CallStateView]:
        round_context, arguments = self._round_context, pending_call.ready.arguments
        assert arguments is not None
        call, state_view = round_context.open_call(
            pending_call,
            self._root,
            runs_children=True,
            attempt=max(pending_call.record.attempt, made),
            ruling=self._rulings.get(pending_call.call.id),
        )
        failpoints.hit("after_started")
        self._check_lease()
        round_context.report(pending_call, "started")
        done = await attempt(
            tool,
            arguments,
            call,
            tool_threads=round_context.env.tool_threads,
            inline=round_context.env.owns_thread and alone,
            run=None if round_context.origin else round_context.journal.run,
        )
        if done.later is not None:  # needs no lease: the result is true whichever process has the run now
            _record_when_done(round_context, pending_call, done.later)
        if call.children is not None:
            done = await self._after_children(call.children, done)
            if isinstance(done.error, Lost):
                self._check_lease()  # the child's loss says nothing about what the tool does
        failpoints.hit("after_effect")
        if done.interrupt is not None:
            if not isinstance(done.interrupt, asyncio.CancelledError):
                await round_context.do(partial(self._interrupted, pending_call, done.why))
                raise done.interrupt
            self._cancelled = done.interrupt
            if done.kind == "cancelled":
                self._check_lease()  # the loss ended it, and says nothing about it: the next process finds out
        return done, state_view

    def _check_lease(self) -> None:
        """Raise `Lost` unless the run has its lease for certain."""
        journal = self._round_context.journal
        if not journal.still_ours():
            assert journal.lease is not None
            raise Lost(journal.lease)

    async def _after_children(self, children: Children, done: ToolOutcome) -> ToolOutcome:
        """Wait for the child runs of an attempt that is over; one that did not end by itself cancels them first."""
        is_cut_off, env = done.kind in ("cancelled", "timed_out"), self._round_context.env
        cancelled = await children.end(cancel=is_cut_off)
        if cancelled is not None and done.interrupt is None:
            done = msgspec.structs.replace(done, interrupt=cancelled)
        is_ours = self._round_context.journal.still_ours()
        if (
            is_cut_off and is_ours and env.cancel_children is not None
        ):  # a tool in another thread may still run one
            why = f"the call that started it {'ran out of time' if done.kind == 'timed_out' else 'was cancelled'}"
            run = self._round_context.journal.run
            await self._round_context.do(partial(env.cancel_children, run, why, call=children.call))
        if done.suspension is not None and done.suspension.action == CHILD_RUN:
            return msgspec.structs.replace(done, suspension=children.suspension())
        return done

    async def _judge(
        self,
        pending_call: PendingCall,
        tool: Tool,
        done: ToolOutcome,
        state_view: CallStateView,
        made: int,
    ) -> bool:
        """Settle or suspend the call by the outcome of an attempt; True: it is to be attempted again."""
        reach = pending_call.record.reach
        if done.kind == "raised" and done.error is not None:
            _log_raised(pending_call, done.error)
        match done.kind:
            case "returned":
                await self._round_context.do(partial(self._returned, pending_call, state_view, done.value))
            case "suspended":
                assert done.suspension is not None
                changes = await self._round_context.do(
                    partial(_changes, self._root, state_view, keep_scratch=True)
                )
                await self._round_context.do(partial(self._ask, pending_call, done.suspension, changes))
            case "not_done":
                if self._may_retry(pending_call, tool, made):
                    return await self._again(pending_call, tool)
                self._settler.fail(pending_call, "failed", done.why, is_last=self._is_last)
            case "cancelled":
                why = done.why or "the run was cancelled while it ran"
                self._settler.cut_off(pending_call, why, is_last=self._is_last)
            case "raised" if _has_no_memory(pending_call, done, state_view):
                self._settler.fail(pending_call, "failed", done.why, is_last=self._is_last)
            case "raised" if isinstance(done.error, Conflict) and done.error.code == "child_gone":
                self._settler.leave_unknown(pending_call, done.why, is_last=self._is_last)
            case "raised" | "timed_out":
                if reach.repeatable and self._may_retry(pending_call, tool, made):
                    return await self._again(pending_call, tool)
                if reach.writes and tool.reconciler is None:
                    self._settler.leave_unknown(pending_call, done.why, is_last=self._is_last)
                elif reach.writes and tool.reconciler:  # also an idempotent one: another call has another key
                    believed = done.over or tool.reconciler.fences
                    return await self._reconcile(pending_call, tool, done.why, believed=believed)
                else:
                    as_what = "timed_out" if done.kind == "timed_out" else "failed"
                    self._settler.fail(pending_call, as_what, done.why, is_last=self._is_last)
        return False

    async def _reconcile(self, pending_call: PendingCall, tool: Tool, why: str, *, believed: bool) -> bool:
        """Settle the call by the answer of its reconcile hook; True: it is to be attempted again."""
        outcome, changes = await self._ask_hook(pending_call, tool)
        is_to_start = await self._round_context.do(
            partial(
                self._settler.reconcile,
                pending_call,
                outcome,
                changes,
                why,
                believed=believed,
                is_last=self._is_last,
            )
        )
        return is_to_start and await self._start(pending_call, tool)

    async def _ask_hook(self, pending_call: PendingCall, tool: Tool) -> tuple[Outcome, CallChanges]:
        """Return the answer of the hook, and what the hook wrote if the call was done."""
        call, state_view = self._round_context.open_call(
            pending_call, self._root, attempt=pending_call.record.attempt
        )
        env = self._round_context.env
        try:
            outcome = await ask_reconcile(tool, call, tool_threads=env.tool_threads, inline=env.owns_thread)
        finally:
            state_view.close()
        if outcome.kind != "done":
            return outcome, NO_CHANGES
        return outcome, await self._round_context.do(
            partial(_changes, self._root, state_view, keep_scratch=False)
        )

    async def _again(self, pending_call: PendingCall, tool: Tool) -> bool:
        if pending_call.record.reach.writes:
            await self._round_context.do(partial(self._begin, pending_call, tool, (), None))
        return True

    def _may_retry(self, pending_call: PendingCall, tool: Tool, made: int) -> bool:
        if tool.retry is None or self._cancelled is not None:
            return False
        return max(made, pending_call.record.attempt) < tool.retry.attempts

    def _returned(self, pending_call: PendingCall, state_view: CallStateView, value: object) -> None:
        # A call with a ticket may have left scratch at an earlier attempt, which has to be removed.
        if state_view.is_untouched and pending_call.record.ticket is None:
            changes = CallChanges(base=self._root, memory=state_view.remembered())
        else:
            changes = _changes(self._root, state_view, keep_scratch=False)
        self._settler.succeed(pending_call, value, changes, is_last=self._is_last)

    def _cancel(self, pending_call: PendingCall, why: str) -> None:
        self._settler.end_unstarted(pending_call, "cancelled", "cancelled", why, is_last=self._is_last)

    @property
    def _is_last(self) -> bool:
        """True if the round's commit will write the call that is settled now."""
        return self._left == 1

    def _ask(self, pending_call: PendingCall, suspension: Suspension, changes: CallChanges) -> None:
        now, recorded = self._round_context.now(), pending_call.recorded
        parameters = suspension.parameters
        if suspension.action == CHILD_RUN and recorded.record.ticket is not None:
            parameters = tickets.keep_decision(self._round_context.space, recorded.record.ticket, parameters)
        message = suspension.message
        if suspension.until is None and suspension.action != CHILD_RUN:
            parent = self._round_context.env.parent
            equal = root_ledger.describe_equal(self._round_context.space, parent, recorded.record)
            message = "; ".join(each for each in (message, equal) if each)
        ticket = tickets.question(
            recorded.record,
            id=self._round_context.space.ids(),
            at=now,
            action=suspension.action,
            message=message,
            parameters=parameters,
            response_schema=suspension.response_schema,
            arguments_schema=pending_call.tool.arguments_schema if pending_call.tool else None,
            expires_at=self._expires_at(suspension, now),
            on_timeout=suspension.on_timeout,
            resume=suspension.resume,
        )
        pending_call.suspend(tickets.ask(recorded, ticket).also(objects=changes.values), changes)

    def _expires_at(self, suspension: Suspension, now: int) -> int | None:
        if suspension.until is not None:
            return moment(self._round_context.space.engine, suspension.until)
        return None if suspension.expires_in_us is None else now + suspension.expires_in_us

    async def _record(self, pending_call: PendingCall) -> None:
        """Make the outcome of a call durable, unless the round's commit is about to."""
        self._left -= 1
        if pending_call.transition is None or self._left == 0:
            return
        failpoints.hit("while_recording")
        try:
            await self._round_context.do(partial(self._post, pending_call))
        except Moved as moved:
            await self._yield_to_result(pending_call, moved)
            await self._round_context.do(partial(self._post, pending_call))
        failpoints.hit("after_result")

    def _post(self, pending_call: PendingCall) -> None:
        transition = pending_call.transition_alone
        if transition is not None:
            self._round_context.journal.post(transition)
            pending_call.written()
            if pending_call.stage == "settled":
                self._round_context.report(pending_call)

    def _interrupted(self, pending_call: PendingCall, why: str) -> None:
        """Record a call that Ctrl-C or an exit has interrupted while its tool ran in this thread."""
        self._settler.cut_off(pending_call, why, is_last=self._is_last)
        self._post(pending_call)


def _changes(root: Digest, state_view: CallStateView, *, keep_scratch: bool) -> CallChanges:
    """Close the state of an attempt and return what the attempt changes; scratch only if it is to be kept."""
    thread, agent = state_view.finish(keep_scratch=keep_scratch)
    return CallChanges.made_here(root, thread, agent, state_view.remembered())


def _record_when_done(
    round_context: RoundContext, pending_call: PendingCall, later: Future[ToolOutcome]
) -> None:
    """Record the result of code that could not be stopped, when that code ends."""
    record, env = pending_call.record, round_context.env

    def ended(later: Future[ToolOutcome]) -> None:
        if later.cancelled() or later.result().kind != "returned":
            return
        work = partial(record_late, env.space, record, later.result().value)
        if asyncio.events._get_running_loop() is None:
            work()
        else:  # an async tool: the event loop must not wait for a disk
            env.store_runtime.begin(work)

    later.add_done_callback(ended)


def _queues(pending_calls: Sequence[PendingCall]) -> list[list[PendingCall]]:
    """Divide the calls into queues that run side by side; equal external writes share a queue."""
    queues: dict[str, list[PendingCall]] = {}
    for pending_call in pending_calls:
        record = pending_call.record
        name = f"equal {record.fingerprint}" if record.reach.guarded else f"call {record.id}"
        queues.setdefault(name, []).append(pending_call)
    return list(queues.values())


def _log_raised(pending_call: PendingCall, error: BaseException) -> None:
    """Log which error a tool raised, with the file and line of each frame of its code.

    The words of the error may hold what a customer said, so they are only in the ledger: `perdure calls show`.
    """
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_OWN)
    ]
    where = "".join(f'\n  File "{each.filename}", line {each.lineno}, in {each.name}' for each in frames)
    record = pending_call.record
    _log.warning("call %s of %s raised %s%s", record.id, record.tool, type(error).__qualname__, where)


def _has_no_memory(pending_call: PendingCall, done: ToolOutcome, state_view: CallStateView) -> bool:
    """True if a tool that only writes local state ended because its thread has no memory, and wrote nothing."""
    return (
        isinstance(done.error, NoMemory)
        and pending_call.record.effect == "local_write"
        and not state_view.has_written
    )
