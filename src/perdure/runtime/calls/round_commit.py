"""The commit of a round: its results in the conversation, its changes in the state.

The patches of the calls are applied in the order of the calls, each on top of the one before.
What waits for a decision is named in the same commit.  If the lease is lost here, results that
were still on their way are left as evidence; if the commit fails, they are kept in the ledger alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import Forgotten, Moved, PerdureError
from perdure.history.changes.patch_builder import ValueSource, covered, reapply
from perdure.history.changes.values import StoredValue
from perdure.ledger import calls, tickets
from perdure.ledger.calls import CallTransition
from perdure.memory import write
from perdure.model.call import CallRecord
from perdure.model.canonical import encode_struct
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import (
    AgentChanged,
    ApprovalDecided,
    ConflictCovered,
    Event,
    ToolCallCompleted,
    ToolCallStarted,
    ToolCallSuspended,
)
from perdure.model.message import Message
from perdure.model.patch import Op, Patch, Stored
from perdure.runtime import failpoints
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.calls.round_context import RoundContext
from perdure.runtime.calls.settlement import late, overtaken, record_alone
from perdure.runtime.session.journal import CommitDraft
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.call_state import scratch_prefix

__all__ = ["commit_round", "source_of"]


def commit_round(
    round_context: RoundContext,
    pending_calls: Sequence[PendingCall],
    draft: CommitDraft,
    *,
    spoken: bool = True,
) -> Message | None:
    """Write what the calls of a round came to; the message that tells the model, if there is anything to tell.

    With `spoken` off nothing is said in the conversation: no model there requested the calls.  Then the
    commit holds only calls with a posting, which is good for one write: whoever writes it applies the
    call's patch, and everyone else finds that done and writes nothing.  A result that came by another way
    meanwhile stands.  Raises what the write raises; what the calls came to is in the ledger then, if that
    can be written.
    """
    while True:
        if not spoken:
            pending_calls = [
                pending_call for pending_call in pending_calls if pending_call.transition is not None
            ]
            if not pending_calls:
                return None
        news = [
            pending_call
            for pending_call in pending_calls
            if pending_call.transition is not None and pending_call.stage == "settled"
        ]
        try:
            message = _stage(round_context, pending_calls, draft, spoken=spoken)
            failpoints.hit("while_recording")
            round_context.journal.write(transitions=_postings(round_context, pending_calls, spoken=spoken))
        except Lost:
            for pending_call in pending_calls:
                late(round_context, pending_call)
            raise
        except PerdureError as error:
            if not isinstance(error, Moved) or not any(
                [overtaken(round_context, pending_call) for pending_call in pending_calls]
            ):
                for pending_call in pending_calls:
                    record_alone(round_context, pending_call)
                raise
            round_context.journal.discard()
            draft = round_context.journal.draft(draft.reason)
        else:
            break
    for pending_call in pending_calls:
        pending_call.written()
    for pending_call in news:
        round_context.tell(pending_call)
    failpoints.hit("after_turn")
    return message


def _postings(
    round_context: RoundContext, pending_calls: Sequence[PendingCall], *, spoken: bool
) -> list[CallTransition]:
    """What the calls came to; what nobody is told in words is named by the turn that holds it."""
    found = [
        (pending_call.stage, pending_call.transition)
        for pending_call in pending_calls
        if pending_call.transition is not None
    ]
    if spoken:
        return [transition for _, transition in found]
    run = round_context.journal.run
    return [
        calls.placed(transition, run) if stage == "settled" else transition for stage, transition in found
    ]


def _stage(
    round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft, *, spoken: bool
) -> Message | None:
    is_chained = round_context.env.agent.chain_writes and draft.is_untouched
    if is_chained:
        draft.extend(
            event
            for pending_call in pending_calls
            for event in _covered(round_context, pending_call, draft.root)
        )
        _stage_writes(round_context, pending_calls, draft.reason)
        draft.root = round_context.journal.root
    message = _told(round_context, pending_calls, draft) if spoken else None
    for pending_call in pending_calls:
        draft.extend(_events(round_context, pending_call))
        if pending_call.patch is not None and not is_chained:
            _apply(round_context, pending_calls, pending_call, draft)
            draft.act("apply", f"tool:{pending_call.call.name}")
        if pending_call.stage == "settled":
            _clean(draft, pending_call)
    _hand_over(round_context, pending_calls, draft)
    _remember(round_context, pending_calls, draft)
    round_context.journal.stage(draft)
    return message


def _stage_writes(round_context: RoundContext, pending_calls: Sequence[PendingCall], reason: str) -> None:
    """Stage a commit for each write of the calls, in their order."""
    for pending_call in pending_calls:
        source = source_of(round_context, pending_call)
        for op in pending_call.patch.ops if pending_call.patch is not None else ():
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
    """Apply what a call changes; what was made on the very state that the draft begins on is taken as it is."""
    patched = pending_call.patched
    alone = draft.is_untouched and all(
        each is pending_call or not each.changes_state for each in pending_calls
    )
    if (
        alone
        and patched is not None
        and pending_call.base == draft.root
        and pending_call.record.ticket is None
    ):
        draft.adopt(patched)
        return
    assert pending_call.patch is not None
    draft.extend(_covered(round_context, pending_call, draft.root))
    source = source_of(round_context, pending_call)
    for op in pending_call.patch.ops:
        reapply(draft.ops, op, source)


def _covered(round_context: RoundContext, pending_call: PendingCall, root: Digest) -> list[ConflictCovered]:
    """What others wrote, after the call had read the state, to paths of a patch that comes from the ledger.

    A patch that was made here needs no look: the journal stands on the head that the call saw.
    """
    base = pending_call.record.patch_base
    if base is None or pending_call.patch is None or pending_call.patched is not None:
        return []
    try:
        return list(covered(round_context.space, base, root, pending_call.patch))
    except Forgotten:  # a retention policy has removed the state that the call saw
        return []


def _clean(draft: CommitDraft, pending_call: PendingCall) -> None:
    """Call scope ends when the call settles; only one that was suspended has left anything there."""
    if pending_call.record.ticket is None:
        return
    scratch = scratch_prefix(pending_call.record.id)
    if draft.ops.paths(scratch):
        draft.ops.clear(scratch)
        draft.act("scope_cleanup", f"tool:{pending_call.call.name}")


def source_of(round_context: RoundContext, pending_call: PendingCall) -> ValueSource:
    """Where the values of a call's patch are: in the store, or on their way there."""
    brought, space = pending_call.brought, round_context.env.space

    def body(digest: Digest) -> bytes:
        return brought[digest].body if digest in brought else space.body(digest)

    def kept(stored: Stored) -> StoredValue:
        new = brought.get(stored.value)
        return StoredValue(stored, (), body=new.body if new and new.kind is Kind.VALUE else None)

    return ValueSource(kept, body)


def _told(
    round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft
) -> Message | None:
    results = tuple(pending_call.result for pending_call in pending_calls if pending_call.result is not None)
    if not results:
        return None
    message = Message("tool", (), (), results)
    draft.say(message, id=round_context.label)
    return message


def _events(round_context: RoundContext, pending_call: PendingCall) -> list[Event]:
    record = pending_call.record
    ids = round_context.space.ids
    if pending_call.stage == "suspended":
        if pending_call.told:
            return []
        return [ToolCallSuspended(id=ids(), call=pending_call.call.id, ticket=record.ticket or "")]
    found: list[Event] = _decided(round_context, record, pending_call.call.id)
    if record.attempt:
        found.append(ToolCallStarted(id=ids(), call=pending_call.call.id, attempt=record.attempt))
    found.append(
        ToolCallCompleted(
            id=ids(),
            call=pending_call.call.id,
            status=record.state,
            result_ref=record.result,
            side_effects=record.effect,
        )
    )
    return found


def _decided(round_context: RoundContext, record: CallRecord, call: str) -> list[Event]:
    asked = tickets.find(round_context.space, record.ticket) if record.ticket else None
    decision = asked.ticket.decision if asked else None
    if asked is None or decision is None:
        return []
    return [
        ApprovalDecided(
            id=round_context.space.ids(),
            call=call,
            ticket=asked.ticket.id,
            decision=decision.verdict,
            by=decision.by,
            why=decision.why,
        )
    ]


def _hand_over(round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft) -> None:
    """What the calls change in the agent's own map, as one event: it is taken over by one write."""
    ops: list[Op] = [
        op
        for pending_call in pending_calls
        if pending_call.agent_patch
        for op in pending_call.agent_patch.ops
    ]
    agent = round_context.env.standing.agent
    if not ops or agent is None:
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


def _remember(round_context: RoundContext, pending_calls: Sequence[PendingCall], draft: CommitDraft) -> None:
    """What the calls did to their owner's memory: an event for each item, and the root that was looked at."""
    memory = round_context.env.memory
    for pending_call in pending_calls:
        if pending_call.memory is None or memory is None or pending_call.stage != "settled":
            continue  # a tool that was suspended begins again at its first line
        events, bodies = write.events_of(
            round_context.space, memory.owner, pending_call.memory.written, pending_call.call.id
        )
        draft.extend(events)
        draft.objects += bodies
        round_context.journal.memory_root = pending_call.memory.root or round_context.journal.memory_root
