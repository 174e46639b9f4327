"""Carrying out the calls of a round.

Calls run side by side; equal external writes one after another.  A start that matters is
durable before the tool is called, and the lease is looked at once more just before.  Each
result is durable as soon as it is known; only the last of a round waits for the round's commit,
which is the same write.

What an external write came to is `unknown` unless there is proof: its reconcile hook is asked at
once, and `not_done` is believed only where the old attempt can do nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from perdure.engines.contract import CellWrite
from perdure.errors import Moved, PerdureError
from perdure.history.artifacts import Staged
from perdure.ledger import call_identity, calls, tickets
from perdure.ledger.call_identity import Free, Mine, Waits
from perdure.model.call import UNCLEAR, CallState
from perdure.model.digest import Digest
from perdure.model.message import ToolResult
from perdure.runtime import failpoints
from perdure.runtime.calls.pending_call import PendingCall, lent
from perdure.runtime.calls.plan import AskApproval, Deny, ReuseResult, Start, clearance
from perdure.runtime.calls.round_context import RoundContext
from perdure.runtime.calls.settlement import (
    late,
    noted,
    overtaken,
    record_alone,
    record_late,
    settlement_of,
    shown,
    stage_result,
    take_changes,
    with_values,
)
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.call import Outcome, Ruling, Suspension
from perdure.runtime.tools.call_state import CallStateView, NoMemory
from perdure.runtime.tools.execution import ToolOutcome, ask_reconcile, attempt
from perdure.runtime.tools.result import Told, told
from perdure.runtime.tools.tool import Tool

__all__ = ["ATTEMPTS_MAX", "CallExecutor", "attempts_max"]

ATTEMPTS_MAX = 3  # of a call that is proven not to have been done, where its tool does not say otherwise

_STARTABLE: frozenset[CallState] = frozenset({"requested", "approved"})
_BEFORE: dict[CallState, tuple[CallState, ...]] = {"started": (), "approved": ("requested", "started")}


class CallExecutor:
    """Whoever carries out the calls of one round."""

    def __init__(self, round_context: RoundContext, root: Digest, rulings: dict[str, Ruling]) -> None:
        """Let every call see the state of that root; `rulings` are what was decided, by call."""
        self._round_context, self._root, self._rulings = round_context, root, rulings
        self._left = 0
        self._cancelled: asyncio.CancelledError | None = None

    async def carry_out(self, pending_calls: Sequence[PendingCall]) -> None:
        """Take every ready slot to its end, or to a question.

        Raises `Lost` if the lease is gone, and `CancelledError` once everything that was under way
        is recorded.
        """
        ready = [pending_call for pending_call in pending_calls if pending_call.stage == "ready"]
        self._left = len(ready)
        if ready and not self._round_context.journal.has_sight:
            await self._round_context.do(self._round_context.journal.look_around)
        lines = _lines(ready)
        try:
            if len(lines) == 1:
                await self._one_after_another(lines[0], alone=len(ready) == 1)
            elif lines:
                await self._side_by_side(lines)
        except Lost:
            for pending_call in ready:
                await self._round_context.do(partial(late, self._round_context, pending_call))
            raise
        except PerdureError:  # there will be no commit for the last result to travel with
            for pending_call in ready:
                await self._round_context.do(partial(record_alone, self._round_context, pending_call))
            raise
        if self._cancelled is not None:
            raise self._cancelled

    def abandon(self, pending_call: PendingCall) -> None:
        """Say of a call that the run leaves behind what can be said: cut off, or never begun."""
        if pending_call.stage != "ready":
            return
        state = pending_call.record.state
        if state == "started" or state in UNCLEAR:
            self._cut_off(pending_call, "the run ended while it ran")
        else:
            self._settle_bare(pending_call, "cancelled", "cancelled", "the run ended before it began")

    async def _side_by_side(self, lines: list[list[PendingCall]]) -> None:
        tasks = [asyncio.create_task(self._one_after_another(line, alone=False)) for line in lines]
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

    async def _one_after_another(self, line: list[PendingCall], *, alone: bool) -> None:
        for pending_call in line:
            if self._cancelled is None:
                try:
                    await self._carry(pending_call, alone=alone)
                except Moved as moved:
                    await self._yield_to_result(pending_call, moved)
            elif pending_call.held is not None and pending_call.held.record.state == "requested":
                self._settle_bare(pending_call, "cancelled", "cancelled", "the run was cancelled")
            await self._record(pending_call)

    async def _yield_to_result(self, pending_call: PendingCall, moved: Moved) -> None:
        """Let a result that came by another way stand; raises `moved` if there is none."""
        if not await self._round_context.do(partial(overtaken, self._round_context, pending_call)):
            raise moved

    async def _carry(self, pending_call: PendingCall, *, alone: bool) -> None:
        tool = pending_call.tool
        assert tool is not None
        if pending_call.recovering:
            if not await self._recover(pending_call, tool):
                return
        elif pending_call.record.state != "started" and not await self._start(pending_call, tool):
            return
        while True:
            attempted, state_view = await self._attempt(pending_call, tool, alone=alone)
            if not await self._judge(pending_call, tool, attempted, state_view):
                return
            if tool.retry is not None:
                await asyncio.sleep(tool.retry.wait(pending_call.attempts))

    async def _recover(self, pending_call: PendingCall, tool: Tool) -> bool:
        """Take up a call whose last attempt was cut off; True: it is to be attempted again."""
        record = pending_call.record
        repeatable = (
            record.state == "started" and record.reach.repeatable and pending_call.arguments is not None
        )
        alive = call_identity.stands(record, self._round_context.space.engine.instant()) == "alive"
        if repeatable and (not record.reach.writes or alive):
            return await self._again(pending_call, tool)
        if tool.reconciler is None:
            self._leave_open(pending_call, "unknown", "it was cut off while it ran")
            return False
        # Before the hook is asked: who ends only while it looks may have done something after it has.
        gone = record.holder is not None and await self._round_context.do(
            partial(self._round_context.space.engine.gone, record.holder)
        )
        believed = gone or tool.reconciler.fences
        outcome = await self._asked(pending_call, tool)
        work = partial(
            self.reconciled, pending_call, outcome, "it was cut off while it ran", believed=believed
        )
        return await self._round_context.do(work) and await self._start(pending_call, tool)

    async def _start(self, pending_call: PendingCall, tool: Tool) -> bool:
        """Make the start durable where that is needed; False: it does not start."""
        while pending_call.stage == "ready":
            assert pending_call.held is not None
            cleared = await self._round_context.do(
                partial(clearance, self._round_context, tool, pending_call.held.record)
            )
            match cleared:
                case Start(cells, claim):
                    if not pending_call.record.reach.writes:
                        return True
                    try:
                        await self._round_context.do(partial(self._begin, pending_call, tool, cells, claim))
                    except Moved:
                        held = await self._round_context.do(
                            partial(calls.read, self._round_context.space, pending_call.record.id)
                        )
                        if held.record.state not in _STARTABLE:
                            raise  # somebody else has started this very call, or knows what came of it
                        pending_call.held = held
                        continue
                    return True
                case AskApproval(ticket):
                    pending_call.told = False  # another question than the one before
                    pending_call.suspend(tickets.ask(pending_call.held, ticket))
                case Deny(why):
                    self._settle_bare(pending_call, "denied", "denied", why)
                case ReuseResult(reuse):
                    staged, preview = await self._round_context.do(
                        partial(call_identity.borrowed, self._round_context.space, reuse)
                    )
                    lent(pending_call, staged, preview, at=self._round_context.now())
        return False

    def _begin(
        self,
        pending_call: PendingCall,
        tool: Tool,
        cells: Iterable[CellWrite],
        claim: Free | Mine | Waits | None,
    ) -> None:
        round_context = self._round_context
        assert pending_call.held is not None
        if claim is not None:
            call_identity.claim(
                round_context.env.store,
                round_context.space,
                pending_call.held.record,
                claim,
                at=round_context.now(),
            )
        states: tuple[CallState, ...] = ("started",)
        if pending_call.held.record.state == "approved":
            states = ("requested", "started")
        changes = round_context.starting(tool, pending_call.held.record)
        transition = calls.advance(pending_call.held, *states, at=round_context.now(), **changes)
        pending_call.held = round_context.journal.post(transition.also(cells=cells))[0]

    async def _attempt(
        self, pending_call: PendingCall, tool: Tool, *, alone: bool
    ) -> tuple[ToolOutcome, CallStateView]:
        round_context = self._round_context
        assert pending_call.arguments is not None
        pending_call.attempts += 1
        number = max(pending_call.record.attempt, pending_call.attempts)
        pending_call.base = self._root
        call, state_view = round_context.call(
            pending_call, self._root, attempt=number, ruling=self._rulings.get(pending_call.call.id)
        )
        failpoints.hit("after_started")
        if not round_context.ours():
            assert round_context.journal.lease is not None
            raise Lost(round_context.journal.lease)
        round_context.tell(pending_call, "started")
        inline = round_context.env.owns_thread and alone
        run = None if round_context.origin else round_context.journal.run
        done = await attempt(
            tool,
            pending_call.arguments,
            call,
            tool_threads=round_context.env.tool_threads,
            inline=inline,
            run=run,
        )
        failpoints.hit("after_effect")
        if done.interrupt is not None:
            if not isinstance(done.interrupt, asyncio.CancelledError):
                await round_context.do(partial(self._interrupted, pending_call, done.why))
                raise done.interrupt
            self._cancelled = done.interrupt
        if done.later is not None:
            self._wait_for_late(pending_call, done.later)
        return done, state_view

    async def _judge(
        self, pending_call: PendingCall, tool: Tool, done: ToolOutcome, state_view: CallStateView
    ) -> bool:
        """Settle the slot by what came of an attempt; True: it is to be attempted again."""
        reach = pending_call.record.reach
        match done.kind:
            case "returned":
                await self._round_context.do(partial(self._returned, pending_call, state_view, done.value))
            case "suspended":
                assert done.suspension is not None
                await self._round_context.do(
                    partial(take_changes, pending_call, state_view, keep_scratch=True)
                )
                self._ask(pending_call, done.suspension)
            case "not_done":
                if self._may_retry(pending_call, tool):
                    return await self._again(pending_call, tool)
                self._fail(pending_call, "failed", done.why)
            case "cancelled":
                self._cut_off(pending_call, done.why or "the run was cancelled while it ran")
            case "raised" if _has_no_memory(pending_call, done, state_view):
                self._fail(pending_call, "failed", done.why)
            case "raised" | "timed_out":
                if reach.repeatable and self._may_retry(pending_call, tool):
                    return await self._again(pending_call, tool)
                if reach.writes:  # also an idempotent one: another call would have another key
                    return await self._reconcile(pending_call, tool, done)
                self._fail(pending_call, "timed_out" if done.kind == "timed_out" else "failed", done.why)
        return False

    async def _reconcile(self, pending_call: PendingCall, tool: Tool, done: ToolOutcome) -> bool:
        """Ask what became of an external write that did not say so itself."""
        if tool.reconciler is None:
            self._leave_open(pending_call, "unknown", done.why)
            return False
        outcome = await self._asked(pending_call, tool)
        believed = done.over or tool.reconciler.fences
        work = partial(self.reconciled, pending_call, outcome, done.why, believed=believed)
        return await self._round_context.do(work) and await self._start(pending_call, tool)

    async def _asked(self, pending_call: PendingCall, tool: Tool) -> Outcome:
        """What the hook says; what it wrote counts if it was done, in place of what the tool would have written."""
        call, state_view = self._round_context.call(
            pending_call, self._root, attempt=pending_call.record.attempt
        )
        tool_threads, inline = self._round_context.env.tool_threads, self._round_context.env.owns_thread
        try:
            outcome = await ask_reconcile(tool, call, tool_threads=tool_threads, inline=inline)
        finally:
            state_view.close()
        if outcome.kind == "done":
            pending_call.base = self._root
            await self._round_context.do(partial(take_changes, pending_call, state_view, keep_scratch=False))
        return outcome

    def reconciled(self, pending_call: PendingCall, outcome: Outcome, why: str, *, believed: bool) -> bool:
        """Take a call whose outcome was not known to what its hook found; True: it is to be started again."""
        assert pending_call.held is not None
        state = pending_call.held.record.state
        states: tuple[CallState, ...] = ("unknown",) if state == "started" else ()
        match outcome.kind:
            case "done":
                self._succeed(pending_call, outcome.result, states=(*states, "succeeded"))
            case "not_done" if not believed:
                self._leave_open(pending_call, "unknown", f"{why}; an attempt may still be under way")
            case "not_done" if (
                pending_call.arguments is not None
                and pending_call.held.record.attempt < attempts_max(pending_call.tool)
            ):
                self._request_again(pending_call, states)
                return True
            case "not_done":
                self._fail(pending_call, "failed", why, states=(*states, "requested", "failed"))
            case "dont_know":
                asks: tuple[CallState, ...] = () if state == "needs_human" else (*states, "needs_human")
                self._leave_open(pending_call, "needs_human", outcome.why or why, states=asks)
        return False

    def _request_again(self, pending_call: PendingCall, states: tuple[CallState, ...]) -> None:
        """Request once more what is proven not to have been done: same key, same approval.

        Its start has to be cleared like any other: meanwhile another line may have sent the same thing.
        """
        assert pending_call.held is not None
        transition = calls.advance(pending_call.held, *states, "requested", at=self._round_context.now())
        pending_call.held = self._round_context.journal.post(transition)[0]

    async def _again(self, pending_call: PendingCall, tool: Tool) -> bool:
        if pending_call.record.reach.writes:
            await self._round_context.do(partial(self._restart, pending_call, tool))
        return True

    def _restart(self, pending_call: PendingCall, tool: Tool) -> None:
        round_context = self._round_context
        assert pending_call.held is not None
        changes = round_context.starting(tool, pending_call.held.record)
        transition = calls.advance(pending_call.held, "started", at=round_context.now(), **changes)
        pending_call.held = round_context.journal.post(transition)[0]

    def _may_retry(self, pending_call: PendingCall, tool: Tool) -> bool:
        if tool.retry is None or self._cancelled is not None:
            return False
        return max(pending_call.attempts, pending_call.record.attempt) < tool.retry.attempts

    def _returned(self, pending_call: PendingCall, state_view: CallStateView, value: object) -> None:
        if (
            state_view.is_untouched and pending_call.record.ticket is None
        ):  # so that nothing was put aside before either
            pending_call.changes(None, None, state_view.memory.finish())
        else:
            take_changes(pending_call, state_view, keep_scratch=False)
        self._succeed(pending_call, value)

    def _succeed(
        self, pending_call: PendingCall, value: object, *, states: tuple[CallState, ...] | None = None
    ) -> None:
        kept, staged = stage_result(self._round_context.space, value)
        pending_call.staged = staged
        said = noted(shown(pending_call.call.id, kept, staged), pending_call.note)
        self._settle(pending_call, states or self._ending(pending_call, "succeeded"), said, staged=staged)

    def _fail(
        self,
        pending_call: PendingCall,
        as_what: Told,
        why: str,
        *,
        states: tuple[CallState, ...] | None = None,
    ) -> None:
        pending_call.changes(None, None)
        said = ToolResult(pending_call.call.id, "error", told(as_what, why, pending_call.call.name))
        self._settle(pending_call, states or self._ending(pending_call, "failed"), said, why=why or as_what)

    def _cut_off(self, pending_call: PendingCall, why: str) -> None:
        """Nobody waits for it any more: what writes may have happened, and the rest had no effect."""
        if pending_call.record.reach.writes:
            self._leave_open(pending_call, "unknown", why)
        else:
            self._fail(pending_call, "cancelled", why)

    def _leave_open(
        self,
        pending_call: PendingCall,
        state: CallState,
        why: str,
        *,
        states: tuple[CallState, ...] | None = None,
    ) -> None:
        """Nobody knows what became of it: the model is told so, and the guard treats it as maybe done."""
        pending_call.changes(None, None)
        words: Told = "needs_human" if state == "needs_human" else "unknown"
        said = ToolResult(pending_call.call.id, "error", told(words, why, pending_call.call.name))
        passed = (
            states if states is not None else ("unknown",) if pending_call.record.state == "started" else ()
        )
        self._settle(pending_call, passed, said, why=why)

    def _settle_bare(self, pending_call: PendingCall, state: CallState, as_what: Told, why: str) -> None:
        said = ToolResult(pending_call.call.id, "error", told(as_what, why, pending_call.call.name))
        states = (
            ("requested", state) if (pending_call.record.state, state) == ("approved", "denied") else (state,)
        )
        self._settle(pending_call, states, said, why=why)

    def _settle(
        self,
        pending_call: PendingCall,
        states: tuple[CallState, ...],
        said: ToolResult,
        *,
        staged: Staged | None = None,
        why: str | None = None,
    ) -> None:
        assert pending_call.held is not None
        if not states:  # it stays what it is: nothing more was learnt
            pending_call.settle(None, said)
            return
        post = partial(
            settlement_of,
            self._round_context,
            pending_call,
            pending_call.held,
            states,
            said,
            staged,
            why,
            at=self._round_context.now(),
        )
        if self._left == 1 and self._round_context.speaks:  # the write that settles it is the one that tells
            pending_call.settle(post(told=True), said, alone=lambda: post(told=False))
        else:
            pending_call.settle(post(told=False), said)

    def _ending(self, pending_call: PendingCall, state: CallState) -> tuple[CallState, ...]:
        """The states to pass: a start that did not have to be durable is passed now."""
        return (*_BEFORE.get(pending_call.record.state, ("started",)), state)

    def _ask(self, pending_call: PendingCall, wanted: Suspension) -> None:
        round_context = self._round_context
        assert pending_call.held is not None
        now = round_context.now()
        held = pending_call.held
        ticket = tickets.question(
            held.record,
            id=round_context.space.ids(),
            at=now,
            action=wanted.action,
            message=wanted.message,
            parameters=wanted.parameters,
            response_schema=wanted.response_schema,
            arguments_schema=pending_call.tool.arguments_schema if pending_call.tool else None,
            expires_at=None if wanted.expires_in_us is None else now + wanted.expires_in_us,
            on_timeout=wanted.on_timeout,
            resume=wanted.resume,
        )
        pending_call.suspend(with_values(tickets.ask(held, ticket), pending_call))

    async def _record(self, pending_call: PendingCall) -> None:
        """Make what the slot came to durable, unless the round's commit is about to."""
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
        transition = pending_call.alone
        if transition is not None:
            self._round_context.journal.post(transition)
            pending_call.written()
            if pending_call.stage == "settled":
                self._round_context.tell(pending_call)

    def _interrupted(self, pending_call: PendingCall, why: str) -> None:
        """Ctrl-C, or an exit, while the tool ran in this thread: record what that leaves, then let it pass."""
        self._cut_off(pending_call, why)
        self._post(pending_call)

    def _wait_for_late(self, pending_call: PendingCall, later: Future[ToolOutcome]) -> None:
        """When code that could not be stopped comes to an end after all, record what it came to."""
        record, round_context = pending_call.record, self._round_context

        def arrived(later: Future[ToolOutcome]) -> None:
            if later.cancelled() or later.result().kind != "returned":
                return
            work = partial(record_late, round_context, record, later.result().value)
            if asyncio.events._get_running_loop() is None:
                work()
            else:  # an async tool: no loop waits for a disk
                round_context.env.store_runtime.begin(work)

        later.add_done_callback(arrived)


def _lines(pending_calls: Sequence[PendingCall]) -> list[list[PendingCall]]:
    """Slots that go side by side; equal external writes form one line."""
    lines: dict[str, list[PendingCall]] = {}
    for pending_call in pending_calls:
        record = pending_call.record
        name = f"twin {record.fingerprint}" if record.reach.guarded else f"call {record.id}"
        lines.setdefault(name, []).append(pending_call)
    return list(lines.values())


def _has_no_memory(pending_call: PendingCall, done: ToolOutcome, state_view: CallStateView) -> bool:
    """Whether it ended at a memory that its thread does not have, before it wrote anything, and reaches no further."""
    return (
        isinstance(done.error, NoMemory)
        and pending_call.record.effect == "local_write"
        and not state_view.has_written
    )


def attempts_max(tool: Tool | None) -> int:
    """How often a call is attempted that is proven each time not to have been done."""
    return tool.retry.attempts if tool and tool.retry else ATTEMPTS_MAX
