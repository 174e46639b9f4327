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
    desk: RoundContext, slots: Sequence[PendingCall], draft: CommitDraft, *, spoken: bool = True
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
            slots = [slot for slot in slots if slot.posting is not None]
            if not slots:
                return None
        news = [slot for slot in slots if slot.posting is not None and slot.stage == "settled"]
        try:
            message = _stage(desk, slots, draft, spoken=spoken)
            failpoints.hit("while_recording")
            desk.journal.write(postings=_postings(desk, slots, spoken=spoken))
        except Lost:
            for slot in slots:
                late(desk, slot)
            raise
        except PerdureError as error:
            if not isinstance(error, Moved) or not any([overtaken(desk, slot) for slot in slots]):
                for slot in slots:
                    record_alone(desk, slot)
                raise
            desk.journal.discard()
            draft = desk.journal.draft(draft.reason)
        else:
            break
    for slot in slots:
        slot.written()
    for slot in news:
        desk.tell(slot)
    failpoints.hit("after_turn")
    return message


def _postings(desk: RoundContext, slots: Sequence[PendingCall], *, spoken: bool) -> list[CallTransition]:
    """What the calls came to; what nobody is told in words is named by the turn that holds it."""
    found = [(slot.stage, slot.posting) for slot in slots if slot.posting is not None]
    if spoken:
        return [posting for _, posting in found]
    run = desk.journal.run
    return [calls.placed(posting, run) if stage == "settled" else posting for stage, posting in found]


def _stage(
    desk: RoundContext, slots: Sequence[PendingCall], draft: CommitDraft, *, spoken: bool
) -> Message | None:
    is_chained = desk.ground.agent.chain_writes and draft.is_untouched
    if is_chained:
        draft.extend(event for slot in slots for event in _covered(desk, slot, draft.root))
        _stage_writes(desk, slots, draft.reason)
        draft.root = desk.journal.root
    message = _told(desk, slots, draft) if spoken else None
    for slot in slots:
        draft.extend(_events(desk, slot))
        if slot.patch is not None and not is_chained:
            _apply(desk, slots, slot, draft)
            draft.act("apply", f"tool:{slot.call.name}")
        if slot.stage == "settled":
            _clean(draft, slot)
    _hand_over(desk, slots, draft)
    _remember(desk, slots, draft)
    desk.journal.stage(draft)
    return message


def _stage_writes(desk: RoundContext, slots: Sequence[PendingCall], reason: str) -> None:
    """Stage a commit for each write of the calls, in their order."""
    for slot in slots:
        source = source_of(desk, slot)
        for op in slot.patch.ops if slot.patch is not None else ():
            draft = desk.journal.draft(reason)
            reapply(draft.ops, op, source)
            draft.act("apply", f"tool:{slot.call.name}")
            desk.journal.stage(draft)


def _apply(desk: RoundContext, slots: Sequence[PendingCall], slot: PendingCall, draft: CommitDraft) -> None:
    """Apply what a call changes; what was made on the very state that the draft begins on is taken as it is."""
    patched = slot.patched
    alone = draft.is_untouched and all(each is slot or not each.changes_state for each in slots)
    if alone and patched is not None and slot.base == draft.root and slot.record.ticket is None:
        draft.adopt(patched)
        return
    assert slot.patch is not None
    draft.extend(_covered(desk, slot, draft.root))
    source = source_of(desk, slot)
    for op in slot.patch.ops:
        reapply(draft.ops, op, source)


def _covered(desk: RoundContext, slot: PendingCall, root: Digest) -> list[ConflictCovered]:
    """What others wrote, after the call had read the state, to paths of a patch that comes from the ledger.

    A patch that was made here needs no look: the journal stands on the head that the call saw.
    """
    base = slot.record.patch_base
    if base is None or slot.patch is None or slot.patched is not None:
        return []
    try:
        return list(covered(desk.space, base, root, slot.patch))
    except Forgotten:  # a retention policy has removed the state that the call saw
        return []


def _clean(draft: CommitDraft, slot: PendingCall) -> None:
    """Call scope ends when the call settles; only one that was suspended has left anything there."""
    if slot.record.ticket is None:
        return
    scratch = scratch_prefix(slot.record.id)
    if draft.ops.paths(scratch):
        draft.ops.clear(scratch)
        draft.act("scope_cleanup", f"tool:{slot.call.name}")


def source_of(desk: RoundContext, slot: PendingCall) -> ValueSource:
    """Where the values of a call's patch are: in the store, or on their way there."""
    brought, space = slot.brought, desk.ground.space

    def body(digest: Digest) -> bytes:
        return brought[digest].body if digest in brought else space.body(digest)

    def kept(stored: Stored) -> StoredValue:
        new = brought.get(stored.value)
        return StoredValue(stored, (), body=new.body if new and new.kind is Kind.VALUE else None)

    return ValueSource(kept, body)


def _told(desk: RoundContext, slots: Sequence[PendingCall], draft: CommitDraft) -> Message | None:
    results = tuple(slot.result for slot in slots if slot.result is not None)
    if not results:
        return None
    message = Message("tool", (), (), results)
    draft.say(message, id=desk.label)
    return message


def _events(desk: RoundContext, slot: PendingCall) -> list[Event]:
    record = slot.record
    ids = desk.space.ids
    if slot.stage == "suspended":
        if slot.told:
            return []
        return [ToolCallSuspended(id=ids(), call=slot.call.id, ticket=record.ticket or "")]
    found: list[Event] = _decided(desk, record, slot.call.id)
    if record.attempt:
        found.append(ToolCallStarted(id=ids(), call=slot.call.id, attempt=record.attempt))
    found.append(
        ToolCallCompleted(
            id=ids(),
            call=slot.call.id,
            status=record.state,
            result_ref=record.result,
            side_effects=record.effect,
        )
    )
    return found


def _decided(desk: RoundContext, record: CallRecord, call: str) -> list[Event]:
    asked = tickets.find(desk.space, record.ticket) if record.ticket else None
    decision = asked.ticket.decision if asked else None
    if asked is None or decision is None:
        return []
    return [
        ApprovalDecided(
            id=desk.space.ids(),
            call=call,
            ticket=asked.ticket.id,
            decision=decision.verdict,
            by=decision.by,
            why=decision.why,
        )
    ]


def _hand_over(desk: RoundContext, slots: Sequence[PendingCall], draft: CommitDraft) -> None:
    """What the calls change in the agent's own map, as one event: it is taken over by one write."""
    ops: list[Op] = [op for slot in slots if slot.agent_patch for op in slot.agent_patch.ops]
    agent = desk.ground.standing.agent
    if not ops or agent is None:
        return
    body = Object.of(Kind.BODY, encode_struct(Patch(tuple(ops))))
    draft.objects.append(body)
    draft.events.append(
        AgentChanged(
            id=desk.space.ids(),
            agent=agent.label,
            timeline=desk.ground.standing.agent_line,
            patch=body.digest,
            size=len(body.body),
        )
    )


def _remember(desk: RoundContext, slots: Sequence[PendingCall], draft: CommitDraft) -> None:
    """What the calls did to their owner's memory: an event for each item, and the root that was looked at."""
    memory = desk.ground.memory
    for slot in slots:
        if slot.memory is None or memory is None or slot.stage != "settled":
            continue  # a tool that was suspended begins again at its first line
        events, bodies = write.events_of(desk.space, memory.owner, slot.memory.written, slot.call.id)
        draft.extend(events)
        draft.objects += bodies
        desk.journal.memory_root = slot.memory.root or desk.journal.memory_root
