"""A round: the calls of one model step, what they need to run, and the commit that ends them.

`RoundContext` is what the modules of this folder need of the run.  `commit_round` writes the results
into the conversation and the changes into the state: the patches are applied in the order of the calls,
each on top of the one before.  The same commit names the calls that wait for a decision.

If the lease is lost at the commit, unwritten results are recorded as evidence.  If the commit fails,
they are recorded in the ledger alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from perdure.errors import Forgotten, Invalid, Moved, PerdureError
from perdure.history.changes.patch_builder import covered, own_source, reapply
from perdure.history.space import Space
from perdure.history.tree import EMPTY
from perdure.ledger import call_identity, calls, tickets
from perdure.ledger.calls import CallTransition, Changes
from perdure.memory import write
from perdure.model.call import CallRecord
from perdure.model.canonical import encode_struct
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import Reach
from perdure.model.event import (
    AgentChanged,
    ApprovalDecided,
    ConflictCovered,
    Event,
    ToolCallCompleted,
    ToolCallStarted,
    ToolCallSuspended,
)
from perdure.model.message import Message, ToolCall
from perdure.model.patch import Op, Patch
from perdure.model.ticket import ChildRef
from perdure.runtime import failpoints
from perdure.runtime.agent.builtin_tools import BUILT_IN
from perdure.runtime.calls import root_ledger
from perdure.runtime.calls.pending_call import PendingCall, SuspendedCall
from perdure.runtime.calls.settlement import Settler, record_alone, record_without_lease
from perdure.runtime.events import CallProgress
from perdure.runtime.session.environment import RunEnvironment, inline
from perdure.runtime.session.journal import CommitDraft, Journal
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.call import Call, CallStateView, Ruling, scratch_prefix
from perdure.runtime.tools.signature import Arguments
from perdure.runtime.tools.tool import Tool
from perdure.runtime.tools.waiting import ChildRequest

__all__ = ["RoundContext", "args_body", "commit_round", "fingerprint_for"]

_T = TypeVar("_T")


class RoundContext:
    """What the rounds of a run need: the run's environment, its journal and its tools."""

    __slots__ = ("deadline", "env", "holder", "journal", "origin", "toolbox", "was_waiting")

    def __init__(
        self,
        env: RunEnvironment,
        journal: Journal,
        *,
        tool: Tool | None = None,
        origin: str | None = None,
        was_waiting: bool = False,
    ) -> None:
        """Serve the run that writes to `journal`; `origin` is that of its calls, None if a model requests them.

        `tool` takes the place of the agent's tool of the same name.  `was_waiting` says that the run
        continues after a wait, so that no call was being carried out.
        """
        self.env, self.journal, self.origin, self.was_waiting = env, journal, origin, was_waiting
        self.deadline: int | None = (
            None  # when the first of the questions expires that were read last; None: never
        )
        self.toolbox = {**BUILT_IN, **env.agent.toolbox}
        if tool is not None:
            self.toolbox[tool.name] = tool
        # The process that has taken the lease; a direct call takes none.
        self.holder = env.space.engine.holder() if journal.lease is None else journal.lease.holder

    @property
    def space(self) -> Space:
        """The thread's space, whose writes are refused once the lease is lost."""
        return self.journal.space

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do blocking work."""
        return work() if self.env.run_blocking is inline else await self.env.run_blocking(work)

    def now(self) -> int:
        """Return µs since 1970, UTC."""
        return self.env.space.clock()

    def report(self, pending_call: PendingCall, state: str | None = None) -> None:
        """Report the progress of a call to watchers of the run; None: the state of its record, which is durable."""
        feed = self.journal.feed
        if feed.watched:
            feed.tell(
                CallProgress(pending_call.call.id, pending_call.call.name, state or pending_call.record.state)
            )

    def new_record(
        self,
        call: ToolCall,
        tool: Tool | None,
        arguments: Arguments | None,
        *,
        args: Object,
        label: str,
        backend: str | None,
        vendor_id: str | None,
    ) -> CallRecord:
        """Return the record of a call that has just been requested.

        `args` holds its raw arguments, `label` names the message with the request.
        """
        reach = tool.reach if tool else Reach()
        return CallRecord(
            id=call.id,
            tool=call.name,
            state="proposed",
            args=args.digest,
            args_size=len(args.body),
            at=self.now(),
            fingerprint=fingerprint_for(tool, arguments),
            effect=reach.effect,
            idempotent=reach.idempotent,
            version=tool.version if tool else None,
            key=self._key(call.id, tool, arguments),
            key_scope=tool.key_scope if tool else "thread",
            timeline=self.env.timeline,
            run=self.journal.run,
            label=label,
            backend=backend,
            vendor_id=vendor_id,
            origin=self.origin,
        )

    def start_changes(self, tool: Tool, record: CallRecord) -> Changes:
        """Return what a start changes in a record: the process that makes it and, once, how long the key is good."""
        epoch = self.journal.lease.epoch if self.journal.lease else 0
        changes: Changes = {"epoch": epoch, "holder": self.holder}
        if tool.key_lifetime is not None and record.key_until is None:
            now = self.space.engine.instant()
            changes["key_until"] = now.at + int(tool.key_lifetime.total_seconds() * 1_000_000)
            changes["key_clock"] = now.clock
        return changes

    def open_call(
        self,
        pending_call: PendingCall,
        root: Digest,
        *,
        attempt: int,
        ruling: Ruling | None = None,
        runs_children: bool = False,
    ) -> tuple[Call, CallStateView]:
        """Return the handle that a tool gets for one attempt, and the state behind it.

        With `runs_children` the tool may run other agents, if a run makes the call.
        """
        record, arguments = pending_call.record, pending_call.ready.arguments
        standing = self.env.standing
        agent = None
        if standing.agent is not None:
            agent = (standing.agent, self.journal.reads.agent_root or EMPTY)
        state_view = CallStateView(
            record.id,
            self.env.space,
            root,
            agent=agent,
            defaults=standing.defaults,
            call_scoped=[each.prefix for each in self.env.agent.declared if each.scope == "call"],
            memory=self.env.memory,
            line=(self.env.space.name, self.journal.head.commit),
        )
        handle = Call(
            id=record.id,
            tool=record.tool,
            key=record.key or "",
            attempt=attempt,
            arguments=arguments.normal if arguments else {},
            decision=ruling,
            state_view=state_view,
            runner=self._run_child if runs_children and self.origin is None else None,
            tell=self.journal.feed.tell,
        )
        return handle, state_view

    async def _run_child(self, request: ChildRequest) -> tuple[Any, ChildRef]:
        run_child = self.env.run_child
        if run_child is None:
            raise Invalid(
                "this run was not started from a store, so its tools cannot run other agents; nothing was run.",
                code="call_has_no_run",
                call=request.call,
            )
        while True:
            try:
                return await run_child(self.env, self.journal.run, request)
            except Lost:
                # The child's lease ended before this run's own.  The child has begun, so the next round waits for the
                # process that took it over, or goes on with it.
                if not self.journal.still_ours():
                    raise

    def _key(self, call: str, tool: Tool | None, arguments: Arguments | None) -> str:
        space = self.env.space
        if tool is None or tool.key is None or arguments is None:
            return call_identity.default_key(space.label, call)
        return call_identity.templated_key(
            tool.key,
            dict(arguments.normal),
            agent=self.env.agent.name,
            thread=space.label,
            scope=tool.key_scope,
        )


def args_body(args: str) -> Object:
    """Return the body that holds raw arguments."""
    return Object.of(Kind.BODY, args.encode("utf-8", "surrogatepass"))


def fingerprint_for(tool: Tool | None, arguments: Arguments | None) -> str:
    """Return the fingerprint of tool, version and arguments; empty where the tool refuses the arguments."""
    if tool is None or arguments is None:
        return ""
    return call_identity.fingerprint_of(tool.name, tool.version, dict(arguments.normal))


def commit_round(
    round_context: RoundContext,
    pending_calls: Sequence[PendingCall],
    draft: CommitDraft,
    *,
    message_id: str | None,
) -> Message | None:
    """Write the results and changes of a round; return the message with the results, if there are any.

    With `message_id` None no message is appended: no model requested the calls.  Then the commit holds
    only calls with an unwritten transition.  A transition can be written once, so one process applies the
    call's patch; the others find it applied and write nothing.  A result that another process has recorded
    is kept.  Raises what the write raises; the results are recorded in the ledger first, if possible.
    """
    journal, settler = round_context.journal, Settler(round_context.journal, message_id)
    while True:
        if message_id is None:
            pending_calls = [each for each in pending_calls if each.transition is not None]
            if not pending_calls:
                return None
        unreported = [
            each for each in pending_calls if each.transition is not None and each.stage == "settled"
        ]
        try:
            message = _stage(round_context, pending_calls, draft, message_id)
            failpoints.hit("while_recording")
            journal.write(transitions=_transitions(journal.run, pending_calls, message_id))
        except Lost:
            for pending_call in pending_calls:
                record_without_lease(journal, pending_call)
            raise
        except PerdureError as error:
            if not isinstance(error, Moved) or not any(
                [settler.is_overtaken(pending_call) for pending_call in pending_calls]
            ):
                for pending_call in pending_calls:
                    record_alone(journal, pending_call)
                raise
            journal.discard()
            draft = journal.draft(draft.reason)
        else:
            break
    for pending_call in pending_calls:
        pending_call.written()
    for pending_call in unreported:
        round_context.report(pending_call)
    if round_context.env.parent is not None:
        with suppress(PerdureError):  # the guard reads the child's own ledger: this is for readers
            made = [each.record for each in pending_calls if each.is_known]
            root_ledger.settle(round_context.space, round_context.env.parent, made)
    failpoints.hit("after_turn")
    return message


def _transitions(
    run: str, pending_calls: Sequence[PendingCall], message_id: str | None
) -> list[CallTransition]:
    """Return the unwritten transitions; without a message, a result is found by the run that commits it."""
    return [
        calls.placed(each.transition, run)
        if message_id is None and each.stage == "settled"
        else each.transition
        for each in pending_calls
        if each.transition is not None
    ]


def _stage(
    round_context: RoundContext,
    pending_calls: Sequence[PendingCall],
    draft: CommitDraft,
    message_id: str | None,
) -> Message | None:
    is_chained = round_context.env.agent.chain_writes and draft.is_untouched
    if is_chained:
        for pending_call in pending_calls:
            draft.extend(_covered(round_context.space, pending_call, draft.root))
        _stage_each_write(round_context, pending_calls, draft.reason)
        draft.root = round_context.journal.root
    message = None
    results = tuple([each.result for each in pending_calls if each.result is not None])
    if results and message_id is not None:
        message = Message("tool", (), (), results)
        draft.say(message, id=message_id)
    for pending_call in pending_calls:
        if pending_call.is_known:
            draft.events += _events(round_context.space, pending_call)
        if pending_call.changes.patch is not None and not is_chained:
            _apply(round_context, pending_calls, pending_call, draft)
            draft.act("apply", f"tool:{pending_call.call.name}")
        if pending_call.is_known and pending_call.record.ticket and pending_call.stage == "settled":
            _remove_scratch(draft, pending_call)
    _change_agent_map(round_context, pending_calls, draft)
    _change_memory(round_context, pending_calls, draft)
    round_context.journal.stage(draft)
    return message


def _stage_each_write(round_context: RoundContext, pending_calls: Sequence[PendingCall], reason: str) -> None:
    """Stage a commit for each write of the calls, in their order."""
    for pending_call in pending_calls:
        changes = pending_call.changes
        source = own_source(round_context.env.space, changes.objects)
        for op in changes.patch.ops if changes.patch is not None else ():
            draft = round_context.journal.draft(reason)
            reapply(draft.ops, op, source)
            draft.act("apply", f"tool:{pending_call.call.name}")
            round_context.journal.stage(draft)


def _apply(
    round_context: RoundContext,
    pending_calls: Sequence[PendingCall],
    pending_call: PendingCall,
    draft: CommitDraft,
) -> None:
    """Apply the patch of a call; one that was made on the state that the draft begins on needs no second making."""
    changes = pending_call.changes
    assert changes.patch is not None
    is_alone = draft.is_untouched and all(
        each is pending_call or not each.changes_state for each in pending_calls
    )
    if (
        is_alone
        and changes.patched is not None
        and changes.base == draft.root
        and pending_call.record.ticket is None
    ):
        draft.adopt(changes.patched)
        return
    draft.extend(_covered(round_context.space, pending_call, draft.root))
    source = own_source(round_context.env.space, changes.objects)
    for op in changes.patch.ops:
        reapply(draft.ops, op, source)


def _covered(space: Space, pending_call: PendingCall, root: Digest) -> list[ConflictCovered]:
    """Return what other writers wrote to the paths of a recorded patch after the call had read the state.

    A patch that was made in this process needs no check: the journal is on the head that the call saw.
    """
    changes = pending_call.changes
    if changes.patch is None or changes.patched is not None:
        return []
    base = pending_call.record.patch_base
    if base is None:
        return []
    try:
        return list(covered(space, base, root, changes.patch))
    except Forgotten:  # a retention policy has removed the state that the call saw
        return []


def _remove_scratch(draft: CommitDraft, pending_call: PendingCall) -> None:
    """Remove the call's scratch: call scope ends when the call settles.  Only a suspended call has left any."""
    scratch = scratch_prefix(pending_call.record.id)
    if draft.ops.paths(scratch):
        draft.ops.clear(scratch)
        draft.act("scope_cleanup", f"tool:{pending_call.call.name}")


def _events(space: Space, pending_call: PendingCall) -> list[Event]:
    record, state = pending_call.record, pending_call.state
    if isinstance(state, SuspendedCall):
        if state.is_in_history:
            return []
        return [ToolCallSuspended(id=space.ids(), call=pending_call.call.id, ticket=record.ticket or "")]
    events = _decision_events(space, record.ticket, pending_call.call.id) if record.ticket else []
    if record.attempt:
        events.append(ToolCallStarted(id=space.ids(), call=pending_call.call.id, attempt=record.attempt))
    events.append(
        ToolCallCompleted(
            id=space.ids(),
            call=pending_call.call.id,
            status=record.state,
            result_ref=record.result,
            side_effects=record.effect,
        )
    )
    return events


def _decision_events(space: Space, ticket: str, call: str) -> list[Event]:
    found = tickets.find(space, ticket)
    decision = found.ticket.decision if found else None
    if found is None or decision is None:
        return []
    return [
        ApprovalDecided(
            id=space.ids(),
            call=call,
            ticket=found.ticket.id,
            decision=decision.verdict,
            by=decision.by,
            why=decision.why,
        )
    ]


def _change_agent_map(
    round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft
) -> None:
    """Add what the calls change in the agent's own map as one event, because one write applies it there."""
    agent = round_context.env.standing.agent
    if agent is None:
        return
    ops: list[Op] = []
    for pending_call in pending_calls:
        patch = pending_call.changes.agent_patch
        if patch is not None:
            ops += patch.ops
    if not ops:
        return
    body = Object.of(Kind.BODY, encode_struct(Patch(tuple(ops))))
    draft.objects.append(body)
    draft.events.append(
        AgentChanged(
            id=round_context.space.ids(),
            agent=agent.label,
            timeline=round_context.env.standing.agent_line,
            patch=body.digest,
            size=len(body.body),
        )
    )


def _change_memory(
    round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft
) -> None:
    """Add what the calls change in their owner's memory, an event for each item, and the root that they read."""
    owner_memory, journal = round_context.env.memory, round_context.journal
    if owner_memory is None:
        return
    for pending_call in pending_calls:
        memory = pending_call.changes.memory
        if memory is None or pending_call.stage != "settled":
            continue  # a tool that was suspended begins again at its first line
        events, bodies = write.events_of(
            round_context.space, owner_memory.owner, memory.written, pending_call.call.id
        )
        draft.extend(events)
        draft.objects += bodies
        journal.memory_root = memory.root or journal.memory_root
