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
from perdure.ledger import call_identity, calls, key_claims, tickets
from perdure.ledger.key_claims import Free, Mine, Waits
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

    def __init__(self, desk: RoundContext, root: Digest, rulings: dict[str, Ruling]) -> None:
        """Let every call see the state of that root; `rulings` are what was decided, by call."""
        self._desk, self._root, self._rulings = desk, root, rulings
        self._left = 0
        self._cancelled: asyncio.CancelledError | None = None

    async def carry_out(self, slots: Sequence[PendingCall]) -> None:
        """Take every ready slot to its end, or to a question.

        Raises `Lost` if the lease is gone, and `CancelledError` once everything that was under way
        is recorded.
        """
        ready = [slot for slot in slots if slot.stage == "ready"]
        self._left = len(ready)
        if ready and not self._desk.journal.has_sight:
            await self._desk.do(self._desk.journal.look_around)
        lines = _lines(ready)
        try:
            if len(lines) == 1:
                await self._one_after_another(lines[0], alone=len(ready) == 1)
            elif lines:
                await self._side_by_side(lines)
        except Lost:
            for slot in ready:
                await self._desk.do(partial(late, self._desk, slot))
            raise
        except PerdureError:  # there will be no commit for the last result to travel with
            for slot in ready:
                await self._desk.do(partial(record_alone, self._desk, slot))
            raise
        if self._cancelled is not None:
            raise self._cancelled

    def abandon(self, slot: PendingCall) -> None:
        """Say of a call that the run leaves behind what can be said: cut off, or never begun."""
        if slot.stage != "ready":
            return
        state = slot.record.state
        if state == "started" or state in UNCLEAR:
            self._cut_off(slot, "the run ended while it ran")
        else:
            self._settle_bare(slot, "cancelled", "cancelled", "the run ended before it began")

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
        for slot in line:
            if self._cancelled is None:
                try:
                    await self._carry(slot, alone=alone)
                except Moved as moved:
                    await self._yield_to_result(slot, moved)
            elif slot.held is not None and slot.held.record.state == "requested":
                self._settle_bare(slot, "cancelled", "cancelled", "the run was cancelled")
            await self._record(slot)

    async def _yield_to_result(self, slot: PendingCall, moved: Moved) -> None:
        """Let a result that came by another way stand; raises `moved` if there is none."""
        if not await self._desk.do(partial(overtaken, self._desk, slot)):
            raise moved

    async def _carry(self, slot: PendingCall, *, alone: bool) -> None:
        tool = slot.tool
        assert tool is not None
        if slot.recovering:
            if not await self._recover(slot, tool):
                return
        elif slot.record.state != "started" and not await self._start(slot, tool):
            return
        while True:
            attempted, room = await self._attempt(slot, tool, alone=alone)
            if not await self._judge(slot, tool, attempted, room):
                return
            if tool.retry is not None:
                await asyncio.sleep(tool.retry.wait(slot.attempts))

    async def _recover(self, slot: PendingCall, tool: Tool) -> bool:
        """Take up a call whose last attempt was cut off; True: it is to be attempted again."""
        record = slot.record
        repeatable = record.state == "started" and record.reach.repeatable and slot.arguments is not None
        alive = call_identity.stands(record, self._desk.space.engine.instant()) == "alive"
        if repeatable and (not record.reach.writes or alive):
            return await self._again(slot, tool)
        if tool.reconciler is None:
            self._leave_open(slot, "unknown", "it was cut off while it ran")
            return False
        # Before the hook is asked: who ends only while it looks may have done something after it has.
        gone = record.holder is not None and await self._desk.do(
            partial(self._desk.space.engine.gone, record.holder)
        )
        believed = gone or tool.reconciler.fences
        outcome = await self._asked(slot, tool)
        work = partial(self.reconciled, slot, outcome, "it was cut off while it ran", believed=believed)
        return await self._desk.do(work) and await self._start(slot, tool)

    async def _start(self, slot: PendingCall, tool: Tool) -> bool:
        """Make the start durable where that is needed; False: it does not start."""
        while slot.stage == "ready":
            assert slot.held is not None
            cleared = await self._desk.do(partial(clearance, self._desk, tool, slot.held.record))
            match cleared:
                case Start(cells, claim):
                    if not slot.record.reach.writes:
                        return True
                    try:
                        await self._desk.do(partial(self._begin, slot, tool, cells, claim))
                    except Moved:
                        held = await self._desk.do(partial(calls.read, self._desk.space, slot.record.id))
                        if held.record.state not in _STARTABLE:
                            raise  # somebody else has started this very call, or knows what came of it
                        slot.held = held
                        continue
                    return True
                case AskApproval(ticket):
                    slot.told = False  # another question than the one before
                    slot.suspend(tickets.ask(slot.held, ticket))
                case Deny(why):
                    self._settle_bare(slot, "denied", "denied", why)
                case ReuseResult(reuse):
                    staged, preview = await self._desk.do(
                        partial(key_claims.borrowed, self._desk.space, reuse)
                    )
                    lent(slot, staged, preview, at=self._desk.now())
        return False

    def _begin(
        self, slot: PendingCall, tool: Tool, cells: Iterable[CellWrite], claim: Free | Mine | Waits | None
    ) -> None:
        desk = self._desk
        assert slot.held is not None
        if claim is not None:
            key_claims.claim(desk.ground.store, desk.space, slot.held.record, claim, at=desk.now())
        hops: tuple[CallState, ...] = ("started",)
        if slot.held.record.state == "approved":
            hops = ("requested", "started")
        changes = desk.starting(tool, slot.held.record)
        posting = calls.advance(slot.held, *hops, at=desk.now(), **changes)
        slot.held = desk.journal.post(posting.also(cells=cells))[0]

    async def _attempt(
        self, slot: PendingCall, tool: Tool, *, alone: bool
    ) -> tuple[ToolOutcome, CallStateView]:
        desk = self._desk
        assert slot.arguments is not None
        slot.attempts += 1
        number = max(slot.record.attempt, slot.attempts)
        slot.base = self._root
        call, room = desk.call(slot, self._root, attempt=number, ruling=self._rulings.get(slot.call.id))
        failpoints.hit("after_started")
        if not desk.ours():
            assert desk.journal.lease is not None
            raise Lost(desk.journal.lease)
        desk.tell(slot, "started")
        inline = desk.ground.sole and alone
        run = None if desk.origin else desk.journal.run
        done = await attempt(tool, slot.arguments, call, crew=desk.ground.crew, inline=inline, run=run)
        failpoints.hit("after_effect")
        if done.interrupt is not None:
            if not isinstance(done.interrupt, asyncio.CancelledError):
                await desk.do(partial(self._interrupted, slot, done.why))
                raise done.interrupt
            self._cancelled = done.interrupt
        if done.later is not None:
            self._wait_for_late(slot, done.later)
        return done, room

    async def _judge(self, slot: PendingCall, tool: Tool, done: ToolOutcome, room: CallStateView) -> bool:
        """Settle the slot by what came of an attempt; True: it is to be attempted again."""
        reach = slot.record.reach
        match done.kind:
            case "returned":
                await self._desk.do(partial(self._returned, slot, room, done.value))
            case "suspended":
                assert done.suspension is not None
                await self._desk.do(partial(take_changes, slot, room, keep_scratch=True))
                self._ask(slot, done.suspension)
            case "not_done":
                if self._may_retry(slot, tool):
                    return await self._again(slot, tool)
                self._fail(slot, "failed", done.why)
            case "cancelled":
                self._cut_off(slot, done.why or "the run was cancelled while it ran")
            case "raised" if _has_no_memory(slot, done, room):
                self._fail(slot, "failed", done.why)
            case "raised" | "timed_out":
                if reach.repeatable and self._may_retry(slot, tool):
                    return await self._again(slot, tool)
                if reach.writes:  # also an idempotent one: another call would have another key
                    return await self._reconcile(slot, tool, done)
                self._fail(slot, "timed_out" if done.kind == "timed_out" else "failed", done.why)
        return False

    async def _reconcile(self, slot: PendingCall, tool: Tool, done: ToolOutcome) -> bool:
        """Ask what became of an external write that did not say so itself."""
        if tool.reconciler is None:
            self._leave_open(slot, "unknown", done.why)
            return False
        outcome = await self._asked(slot, tool)
        believed = done.over or tool.reconciler.fences
        work = partial(self.reconciled, slot, outcome, done.why, believed=believed)
        return await self._desk.do(work) and await self._start(slot, tool)

    async def _asked(self, slot: PendingCall, tool: Tool) -> Outcome:
        """What the hook says; what it wrote counts if it was done, in place of what the tool would have written."""
        call, room = self._desk.call(slot, self._root, attempt=slot.record.attempt)
        crew, inline = self._desk.ground.crew, self._desk.ground.sole
        try:
            outcome = await ask_reconcile(tool, call, crew=crew, inline=inline)
        finally:
            room.close()
        if outcome.kind == "done":
            slot.base = self._root
            await self._desk.do(partial(take_changes, slot, room, keep_scratch=False))
        return outcome

    def reconciled(self, slot: PendingCall, outcome: Outcome, why: str, *, believed: bool) -> bool:
        """Take a call whose outcome was not known to what its hook found; True: it is to be started again."""
        assert slot.held is not None
        state = slot.held.record.state
        hops: tuple[CallState, ...] = ("unknown",) if state == "started" else ()
        match outcome.kind:
            case "done":
                self._succeed(slot, outcome.result, hops=(*hops, "succeeded"))
            case "not_done" if not believed:
                self._leave_open(slot, "unknown", f"{why}; an attempt may still be under way")
            case "not_done" if slot.arguments is not None and slot.held.record.attempt < attempts_max(
                slot.tool
            ):
                self._request_again(slot, hops)
                return True
            case "not_done":
                self._fail(slot, "failed", why, hops=(*hops, "requested", "failed"))
            case "dont_know":
                asks: tuple[CallState, ...] = () if state == "needs_human" else (*hops, "needs_human")
                self._leave_open(slot, "needs_human", outcome.why or why, hops=asks)
        return False

    def _request_again(self, slot: PendingCall, hops: tuple[CallState, ...]) -> None:
        """Request once more what is proven not to have been done: same key, same approval.

        Its start has to be cleared like any other: meanwhile another line may have sent the same thing.
        """
        assert slot.held is not None
        posting = calls.advance(slot.held, *hops, "requested", at=self._desk.now())
        slot.held = self._desk.journal.post(posting)[0]

    async def _again(self, slot: PendingCall, tool: Tool) -> bool:
        if slot.record.reach.writes:
            await self._desk.do(partial(self._restart, slot, tool))
        return True

    def _restart(self, slot: PendingCall, tool: Tool) -> None:
        desk = self._desk
        assert slot.held is not None
        changes = desk.starting(tool, slot.held.record)
        posting = calls.advance(slot.held, "started", at=desk.now(), **changes)
        slot.held = desk.journal.post(posting)[0]

    def _may_retry(self, slot: PendingCall, tool: Tool) -> bool:
        if tool.retry is None or self._cancelled is not None:
            return False
        return max(slot.attempts, slot.record.attempt) < tool.retry.attempts

    def _returned(self, slot: PendingCall, room: CallStateView, value: object) -> None:
        if room.is_untouched and slot.record.ticket is None:  # so that nothing was put aside before either
            slot.changes(None, None, room.memory.finish())
        else:
            take_changes(slot, room, keep_scratch=False)
        self._succeed(slot, value)

    def _succeed(
        self, slot: PendingCall, value: object, *, hops: tuple[CallState, ...] | None = None
    ) -> None:
        kept, staged = stage_result(self._desk.space, value)
        slot.staged = staged
        said = noted(shown(slot.call.id, kept, staged), slot.note)
        self._settle(slot, hops or self._ending(slot, "succeeded"), said, staged=staged)

    def _fail(
        self, slot: PendingCall, as_what: Told, why: str, *, hops: tuple[CallState, ...] | None = None
    ) -> None:
        slot.changes(None, None)
        said = ToolResult(slot.call.id, "error", told(as_what, why, slot.call.name))
        self._settle(slot, hops or self._ending(slot, "failed"), said, why=why or as_what)

    def _cut_off(self, slot: PendingCall, why: str) -> None:
        """Nobody waits for it any more: what writes may have happened, and the rest had no effect."""
        if slot.record.reach.writes:
            self._leave_open(slot, "unknown", why)
        else:
            self._fail(slot, "cancelled", why)

    def _leave_open(
        self, slot: PendingCall, state: CallState, why: str, *, hops: tuple[CallState, ...] | None = None
    ) -> None:
        """Nobody knows what became of it: the model is told so, and the guard treats it as maybe done."""
        slot.changes(None, None)
        words: Told = "needs_human" if state == "needs_human" else "unknown"
        said = ToolResult(slot.call.id, "error", told(words, why, slot.call.name))
        passed = hops if hops is not None else ("unknown",) if slot.record.state == "started" else ()
        self._settle(slot, passed, said, why=why)

    def _settle_bare(self, slot: PendingCall, state: CallState, as_what: Told, why: str) -> None:
        said = ToolResult(slot.call.id, "error", told(as_what, why, slot.call.name))
        hops = ("requested", state) if (slot.record.state, state) == ("approved", "denied") else (state,)
        self._settle(slot, hops, said, why=why)

    def _settle(
        self,
        slot: PendingCall,
        hops: tuple[CallState, ...],
        said: ToolResult,
        *,
        staged: Staged | None = None,
        why: str | None = None,
    ) -> None:
        assert slot.held is not None
        if not hops:  # it stays what it is: nothing more was learnt
            slot.settle(None, said)
            return
        post = partial(
            settlement_of, self._desk, slot, slot.held, hops, said, staged, why, at=self._desk.now()
        )
        if self._left == 1 and self._desk.speaks:  # the write that settles it is the one that tells
            slot.settle(post(told=True), said, alone=lambda: post(told=False))
        else:
            slot.settle(post(told=False), said)

    def _ending(self, slot: PendingCall, state: CallState) -> tuple[CallState, ...]:
        """The states to pass: a start that did not have to be durable is passed now."""
        return (*_BEFORE.get(slot.record.state, ("started",)), state)

    def _ask(self, slot: PendingCall, wanted: Suspension) -> None:
        desk = self._desk
        assert slot.held is not None
        now = desk.now()
        held = slot.held
        ticket = tickets.question(
            held.record,
            id=desk.space.ids(),
            at=now,
            action=wanted.action,
            message=wanted.message,
            parameters=wanted.parameters,
            response_schema=wanted.response_schema,
            arguments_schema=slot.tool.arguments_schema if slot.tool else None,
            expires_at=None if wanted.expires_in_us is None else now + wanted.expires_in_us,
            on_timeout=wanted.on_timeout,
            resume=wanted.resume,
        )
        slot.suspend(with_values(tickets.ask(held, ticket), slot))

    async def _record(self, slot: PendingCall) -> None:
        """Make what the slot came to durable, unless the round's commit is about to."""
        self._left -= 1
        if slot.posting is None or self._left == 0:
            return
        failpoints.hit("while_recording")
        try:
            await self._desk.do(partial(self._post, slot))
        except Moved as moved:
            await self._yield_to_result(slot, moved)
            await self._desk.do(partial(self._post, slot))
        failpoints.hit("after_result")

    def _post(self, slot: PendingCall) -> None:
        posting = slot.alone
        if posting is not None:
            self._desk.journal.post(posting)
            slot.written()
            if slot.stage == "settled":
                self._desk.tell(slot)

    def _interrupted(self, slot: PendingCall, why: str) -> None:
        """Ctrl-C, or an exit, while the tool ran in this thread: record what that leaves, then let it pass."""
        self._cut_off(slot, why)
        self._post(slot)

    def _wait_for_late(self, slot: PendingCall, later: Future[ToolOutcome]) -> None:
        """When code that could not be stopped comes to an end after all, record what it came to."""
        record, desk = slot.record, self._desk

        def arrived(later: Future[ToolOutcome]) -> None:
            if later.cancelled() or later.result().kind != "returned":
                return
            work = partial(record_late, desk, record, later.result().value)
            if asyncio.events._get_running_loop() is None:
                work()
            else:  # an async tool: no loop waits for a disk
                desk.ground.workshop.begin(work)

        later.add_done_callback(arrived)


def _lines(slots: Sequence[PendingCall]) -> list[list[PendingCall]]:
    """Slots that go side by side; equal external writes form one line."""
    lines: dict[str, list[PendingCall]] = {}
    for slot in slots:
        record = slot.record
        name = f"twin {record.fingerprint}" if record.reach.guarded else f"call {record.id}"
        lines.setdefault(name, []).append(slot)
    return list(lines.values())


def _has_no_memory(slot: PendingCall, done: ToolOutcome, room: CallStateView) -> bool:
    """Whether it ended at a memory that its thread does not have, before it wrote anything, and reaches no further."""
    return isinstance(done.error, NoMemory) and slot.record.effect == "local_write" and not room.has_written


def attempts_max(tool: Tool | None) -> int:
    """How often a call is attempted that is proven each time not to have been done."""
    return tool.retry.attempts if tool and tool.retry else ATTEMPTS_MAX
