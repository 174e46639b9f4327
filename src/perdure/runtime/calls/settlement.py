"""Settles calls: builds the result that the model is shown and the transition that the ledger records.

A result can also arrive by another way than the run that requested the call.  A process that lost its
lease, or code that could not be stopped in time, may still report what its call has done.  A writer that
is about to record something else finds that result in the ledger and keeps it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import msgspec

from perdure.errors import PerdureError
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.ledger import calls, settlement
from perdure.ledger.calls import CallTransition
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState
from perdure.model.canonical import encode_struct
from perdure.model.memory import Remembering
from perdure.model.message import Block, Text, ToolResult
from perdure.model.patch import Patch
from perdure.runtime.calls import root_ledger
from perdure.runtime.calls.pending_call import (
    NO_CHANGES,
    CallChanges,
    PendingCall,
    SettledCall,
    encode_result,
    settle_as_recorded,
)
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools import result
from perdure.runtime.tools.call import Outcome
from perdure.runtime.tools.result import NoResult, explain
from perdure.runtime.tools.tool import Tool

__all__ = [
    "ATTEMPTS_MAX",
    "Settler",
    "attempts_max",
    "error_result",
    "record_alone",
    "record_late",
    "record_without_lease",
    "stage_result",
    "words_for_recorded",
]

ATTEMPTS_MAX = 3  # of a call that is proven not to have been done, unless its tool declares another number

# The states that a call passes before it ends, where its start did not have to be durable.
_BEFORE_END: dict[CallState, tuple[CallState, ...]] = {"started": (), "approved": ("requested", "started")}

_WORDS: dict[CallState, NoResult] = {
    "failed": "failed",
    "denied": "denied",
    "expired": "expired",
    "cancelled": "cancelled",
    "needs_human": "needs_human",
}


class Settler:
    """Settles the calls of one round.

    `message_id` names the message that will hold the results; None: no message will, because no model
    requested the calls.  `is_last` says of a call that the round's commit writes its transition together
    with that message, so that the ledger need not hold the words of the result too.
    """

    def __init__(self, journal: Journal, message_id: str | None) -> None:
        self._journal, self.message_id = journal, message_id

    def succeed(
        self,
        pending_call: PendingCall,
        value: object,
        changes: CallChanges,
        *,
        states: tuple[CallState, ...] | None = None,
        is_last: bool = False,
    ) -> None:
        """Settle a call whose tool has returned `value`."""
        staged, shown = stage_result(self._journal.space, pending_call.call.id, value)
        note = pending_call.ready.note
        if note is not None:
            shown = ToolResult(shown.call_id, shown.status, (Text(note), *shown.content))
        states = states or _ending(pending_call, "succeeded")
        self._settle(pending_call, states, shown, changes, staged=staged, is_last=is_last)

    def fail(
        self,
        pending_call: PendingCall,
        as_what: NoResult,
        why: str,
        *,
        states: tuple[CallState, ...] | None = None,
        is_last: bool = False,
    ) -> None:
        """Settle a call that has failed, without any effect."""
        states = states or _ending(pending_call, "failed")
        shown = error_result(pending_call, as_what, why)
        self._settle(pending_call, states, shown, why=why or as_what, is_last=is_last)

    def cut_off(self, pending_call: PendingCall, why: str, *, is_last: bool = False) -> None:
        """Settle a call that nothing waits for any more: unknown if it writes, else cancelled without an effect."""
        if pending_call.record.reach.writes:
            self.leave_unknown(pending_call, why, is_last=is_last)
        else:
            self.fail(pending_call, "cancelled", why, is_last=is_last)

    def leave_unknown(self, pending_call: PendingCall, why: str, *, is_last: bool = False) -> None:
        """Settle a call whose outcome is not known; the repeat guard treats it as possibly done."""
        states = () if pending_call.record.state in UNCLEAR else _ending(pending_call, "unknown")
        shown = error_result(pending_call, "unknown", why)
        self._settle(pending_call, states, shown, why=why, is_last=is_last)
        record = pending_call.record
        logging.getLogger("perdure.calls").warning(
            "the outcome of call %s of %s is unknown", record.id, record.tool
        )

    def end_unstarted(
        self,
        pending_call: PendingCall,
        state: CallState,
        as_what: NoResult,
        why: str,
        *,
        is_last: bool = False,
    ) -> None:
        """Settle a call that is not carried out."""
        states = (
            ("requested", state) if (pending_call.record.state, state) == ("approved", "denied") else (state,)
        )
        self._settle(pending_call, states, error_result(pending_call, as_what, why), why=why, is_last=is_last)

    def reconcile(
        self,
        pending_call: PendingCall,
        outcome: Outcome,
        changes: CallChanges,
        why: str,
        *,
        believed: bool,
        is_last: bool = False,
    ) -> bool:
        """Settle a call by what its reconcile hook found; True: it was not done, and is to be started again.

        `changes` are what the hook wrote; they count if the call was done.  `believed` says that the old
        attempt cannot do anything any more, so that `not_done` is proof.
        """
        state = pending_call.recorded.record.state
        passed: tuple[CallState, ...] = ("unknown",) if state == "started" else ()
        match outcome.kind:
            case "done":
                states = (*passed, "succeeded")
                self.succeed(pending_call, outcome.result, changes, states=states, is_last=is_last)
            case "not_done" if not believed:
                self.leave_unknown(pending_call, f"{why}; an attempt may still be under way", is_last=is_last)
            case "not_done" if (
                pending_call.ready.arguments is not None
                and pending_call.recorded.record.attempt < attempts_max(pending_call.tool)
            ):
                self._request_again(pending_call, passed)
                return True
            case "not_done":
                states = (*passed, "requested", "failed")
                self.fail(pending_call, "failed", why, states=states, is_last=is_last)
            case "dont_know":
                states = () if state == "needs_human" else (*passed, "needs_human")
                why = outcome.why or why
                shown = error_result(pending_call, "needs_human", why)
                self._settle(pending_call, states, shown, why=why, is_last=is_last)
        return False

    def recall(self, pending_call: PendingCall) -> None:
        """Settle a ready call as the ledger says; if no conversation has the result yet, this one gets it."""
        recorded, transition = pending_call.recorded, None
        if recorded.record.result_label == "":
            transition = calls.learn(recorded, at=self._now(), result_label=self.message_id or "")
        settle_as_recorded(pending_call, self._journal.space, words_for_recorded(recorded.record), transition)

    def is_overtaken(self, pending_call: PendingCall) -> bool:
        """True if another process has settled the call; then the call is settled as that process says."""
        if not pending_call.has_entered:
            return False
        before = pending_call.recorded
        found = calls.read(self._journal.space, before.record.id)
        if found.revision == before.revision or found.record.state not in SETTLED:
            return False
        pending_call.reload(found)
        self.recall(pending_call)
        return True

    def _request_again(self, pending_call: PendingCall, states: tuple[CallState, ...]) -> None:
        """Request a call again that is proven not to have been done: same key, same approval.

        Its start has to be cleared like any other: another timeline may have started an equal call.
        """
        transition = calls.advance(pending_call.recorded, *states, "requested", at=self._now())
        pending_call.advance(self._journal.post(transition)[0])

    def _settle(
        self,
        pending_call: PendingCall,
        states: tuple[CallState, ...],
        shown: ToolResult,
        changes: CallChanges = NO_CHANGES,
        *,
        staged: Staged | None = None,
        why: str | None = None,
        is_last: bool = False,
    ) -> None:
        if not states:  # the ledger says so already
            pending_call.settle(None, shown)
            return
        transition = partial(
            _transition,
            pending_call.recorded,
            states,
            shown,
            changes,
            staged,
            why,
            self.message_id or "",
            self._now(),
        )
        if is_last and self.message_id is not None:
            alone = partial(transition, has_message=False)
            pending_call.settle(transition(has_message=True), shown, changes, staged=staged, alone=alone)
        else:
            pending_call.settle(transition(has_message=False), shown, changes, staged=staged)

    def _now(self) -> int:
        return self._journal.space.clock()


def record_without_lease(journal: Journal, pending_call: PendingCall) -> None:
    """Record the result of a call, once, as evidence: the lease was lost while the tool ran."""
    state = pending_call.state
    if not isinstance(state, SettledCall) or state.staged is None:
        return
    if pending_call.transition is None or not pending_call.has_entered:
        return
    started, changes = pending_call.recorded.record, state.changes
    with suppress(PerdureError):  # the process that took over has settled it
        recorded = settlement.late(
            journal.env.space,
            started.id,
            attempt=started.attempt,
            epoch=started.epoch,
            staged=state.staged,
            preview=encode_result(state.result),
            status=state.result.status,
            patch=_encoded(changes.patch),
            patch_base=changes.base,
            agent_patch=_encoded(changes.agent_patch),
            memory=_encoded(changes.memory),
            values=changes.values,
        )
        root_ledger.settle_call(journal.env.space, recorded.held.record)


def record_alone(journal: Journal, pending_call: PendingCall) -> None:
    """Record what a settled call has done though no commit can name it: its effect has happened."""
    transition = pending_call.transition_alone
    if transition is not None and pending_call.stage == "settled":
        with suppress(PerdureError):  # it was written after all, or the store cannot be written now
            journal.post(transition)
            pending_call.written()


def record_late(space: Space, record: CallRecord, value: object) -> None:
    """Record a result that arrived after the call's timeout: evidence of what happened."""
    with suppress(PerdureError):  # the call is settled, or the store is closed: the call stays unknown
        staged, shown = stage_result(space, record.id, value)
        recorded = settlement.late(
            space,
            record.id,
            attempt=record.attempt,
            epoch=record.epoch,
            staged=staged,
            preview=encode_result(shown),
            status=shown.status,
        )
        root_ledger.settle_call(space, recorded.held.record)


def words_for_recorded(record: CallRecord) -> tuple[Block, ...]:
    """Return what a model is shown of a call that the ledger holds no words for."""
    return explain(_WORDS.get(record.state, "unknown"), record.why or "", record.tool)


def attempts_max(tool: Tool | None) -> int:
    """Return how often a call is attempted that is proven each time not to have been done."""
    return tool.retry.attempts if tool and tool.retry else ATTEMPTS_MAX


def _transition(
    recorded: calls.VersionedCall,
    states: tuple[CallState, ...],
    shown: ToolResult,
    changes: CallChanges,
    staged: Staged | None,
    why: str | None,
    label: str,
    at: int,
    *,
    has_message: bool,
) -> CallTransition:
    """Return the transition that ends a call; with `has_message` the words are in the message, not here."""
    transition = calls.settle(
        recorded,
        *states,
        at=at,
        staged=staged,
        preview=None if has_message else encode_result(shown),
        status=shown.status,
        patch=_encoded(changes.patch),
        patch_base=changes.base,
        agent_patch=_encoded(changes.agent_patch),
        memory=_encoded(changes.memory),
        why=why,
        result_label=label,
    )
    return transition.also(objects=changes.values) if changes.objects else transition


def _ending(pending_call: PendingCall, state: CallState) -> tuple[CallState, ...]:
    """Return the states to pass: a start that did not have to be durable is passed now."""
    return (*_BEFORE_END.get(pending_call.record.state, ("started",)), state)


def error_result(pending_call: PendingCall, as_what: NoResult, why: str) -> ToolResult:
    """Return what a model is shown of a call without a result."""
    return ToolResult(pending_call.call.id, "error", explain(as_what, why, pending_call.call.name))


def stage_result(space: Space, call: str, value: object) -> tuple[Staged, ToolResult]:
    """Stage a result for the store, cut to the size of an artifact, and return what a model is shown of it."""
    stored, bytes_max = result.keep(value), space.limits.artifact_bytes_max
    if len(stored.content) > bytes_max:
        note = Text(f"[the result had {len(stored.content):,} bytes; only the first {bytes_max:,} are kept]")
        stored = msgspec.structs.replace(
            stored, content=stored.content[:bytes_max], blocks=(note, *stored.blocks)
        )
    staged = artifacts.stage(space, (stored.content,), media_type=stored.media_type)
    blocks = result.preview(stored, calls.reference(staged.digest))
    return staged, ToolResult(call, stored.status, blocks)


def _encoded(change: Patch | Remembering | None) -> bytes | None:
    return None if change is None else encode_struct(change)
