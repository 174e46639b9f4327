"""Settles calls from outside their run: a late result, a person's statement, an imported call.

A run that lost its lease may still report, once, what its tool returned.  If the call is not settled, that is its
result.  If the call was settled in the meantime it stays settled, and the report is stored as evidence, which the
repeat guard takes into account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.ledger import calls, repeat_guard
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model import names
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState, Status
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import Reach, check_decider
from perdure.projections.calls import Transition

__all__ = ["answered", "contradict", "imported", "late", "mark_result_lost", "resolve"]

_UNDECLARED = Reach()
_ENDED_IN_ERROR = "it ended in an error, which does not prove that nothing happened"
_NOWHERE = ""  # a result label: the write that puts the result into a conversation replaces it

# A requested call was reported as not done, and no run has started it again.
_OPEN_TO = frozenset({"started", "requested"}) | UNCLEAR


class Late(msgspec.Struct, frozen=True):
    """What was done with a late result."""

    held: VersionedCall
    accepted: bool  # False: the call was settled already, and the result is stored as evidence


def late(
    space: Space,
    call: str,
    *,
    attempt: int,
    epoch: int,
    staged: Staged,
    preview: bytes | None = None,
    status: Status = "success",
    patch: bytes | None = None,
    patch_base: Digest | None = None,
    agent_patch: bytes | None = None,
    memory: bytes | None = None,
    values: Iterable[Object] = (),
) -> Late:
    """Record the result of this attempt for a run that lost its lease; the same result again changes nothing.

    `values` are the objects that the patches name, `patch_base` is the root of the state that the call saw.

    Raises `Conflict`, having written nothing, if this was not the last start of the call, or if it has another late
    result.
    """
    attempts = Attempts(f"call '{call}'", f"the late result of call '{call}' was not recorded")
    while True:
        attempts.begin()
        current = calls.read(space, call)
        known = _known(current.record, attempt, epoch, calls.reference(staged.digest))
        if known is not None:
            return Late(current, known)
        accepted = current.record.state not in SETTLED
        transition = (
            calls.settle(
                current,
                "succeeded",
                at=space.clock(),
                staged=staged,
                preview=preview,
                status=status,
                patch=patch,
                patch_base=patch_base,
                agent_patch=agent_patch,
                memory=memory,
                result_label=_NOWHERE,
                late=True,
            ).also(objects=values)
            if accepted
            else _evidence(space, current, staged)
        )
        moved = calls.post_first(space, transition)
        if moved is not None:
            return Late(moved, accepted)


def resolve(
    space: Space,
    call: str,
    outcome: Literal["done", "not_done"],
    *,
    by: str | None = None,
    why: str | None = None,
    staged: Staged | None = None,
    preview: bytes | None = None,
) -> VersionedCall:
    """Settle a call of unknown outcome by a person's statement; the same statement again changes nothing.

    Raises `Conflict`, having written nothing, if its outcome is known, or was resolved otherwise, and
    `Invalid` without `by` for an effect from `financial` up.
    """
    _check_resolution(outcome, by, why, staged)
    attempts = Attempts(f"call '{call}'", f"call '{call}' was not resolved")
    while True:
        attempts.begin()
        current = calls.read(space, call)
        check_decider(current.record.effect, by, f"call '{call}' to {current.record.tool}")
        if current.record.state == "resolved" and current.record.outcome == outcome:
            return current
        _check_unclear(current.record)
        moved = calls.post_first(space, _resolution(space, current, outcome, by, why, staged, preview))
        if moved is not None:
            return moved


def mark_result_lost(space: Space, call: str) -> None:
    """Record that the result of a call that was done is in no conversation, so that an equal call would repeat it."""
    attempts = Attempts(f"call '{call}'", f"the loss of the result of call '{call}' was not recorded")
    while True:
        attempts.begin()
        current = calls.read(space, call)
        if current.record.result_label == _NOWHERE or not repeat_guard.done(current.record):
            return
        transition = calls.learn(current, at=space.clock(), result_label=_NOWHERE)
        cells = repeat_guard.doubted(space, current.record)
        if calls.post_first(space, transition.also(cells=cells)) is not None:
            return


def imported(
    record: CallRecord,
    *,
    staged: Staged | None = None,
    preview: bytes | None = None,
    status: Status = "success",
    reach: Reach = _UNDECLARED,
    why: str | None = None,
) -> CallTransition:
    """Return the transition that enters an imported call: settled if it has a result, else of unknown outcome.

    A call that ended in an error there has failed; the repeat guard still asks before an equal external write.
    `reach` is that of the tool here; without one the call counts as an external write.  The same write needs the cells
    of `repeat_guard.entering`.
    """
    shown = None if preview is None else Object.of(Kind.BODY, preview)
    entered = msgspec.structs.replace(
        record,
        origin="import",
        effect=reach.effect,
        idempotent=reach.idempotent,
        key=None,
        result=calls.reference(staged.digest) if staged else None,
        preview=shown.digest if shown else None,
        status=status if staged else None,
        why=why if staged is None or status == "success" else _ENDED_IN_ERROR,
    )
    transition = calls.propose(entered, "requested", "started", _imported_state(entered))
    objects = (*(staged.objects if staged else ()), *((shown,) if shown else ()))
    return transition.also(cells=staged.cells if staged else (), objects=objects)


def answered(
    current: VersionedCall, *, at: int, staged: Staged, preview: bytes, status: Status, result_label: str
) -> CallTransition:
    """Return the transition that settles an imported call whose result was imported after it."""
    shown = Object.of(Kind.BODY, preview)
    reference = calls.reference(staged.digest)
    answered = msgspec.structs.replace(current.record, result=reference, status=status)
    states: dict[CallState, tuple[CallState, ...]] = {
        "succeeded": ("succeeded",),
        "failed": ("requested", "failed"),
    }
    transition = calls.advance(
        current,
        *states[_imported_state(answered)],
        at=at,
        result=reference,
        preview=shown.digest,
        status=status,
        why=None if status == "success" else _ENDED_IN_ERROR,
        result_label=result_label,
    )
    return transition.also(cells=staged.cells, objects=(*staged.objects, shown))


def _imported_state(record: CallRecord) -> CallState:
    """Return the state of an imported call, by its result."""
    if record.result is None:
        return "unknown"
    return "succeeded" if record.status == "success" else "failed"


def contradict(space: Space, call: str, staged: Staged) -> None:
    """Keep a result as evidence against the statement that its call was not done; nothing changes if there is evidence."""
    attempts = Attempts(f"call '{call}'", f"the result of call '{call}' was not recorded")
    while True:
        attempts.begin()
        current = calls.read(space, call)
        if current.record.outcome != "not_done" or current.record.evidence is not None:
            return
        if calls.post_first(space, _evidence(space, current, staged)) is not None:
            return


def _known(record: CallRecord, attempt: int, epoch: int, result: str) -> bool | None:
    """Say whether this result was recorded before as the result (True) or as evidence (False); None: it is new."""
    if (record.attempt, record.epoch) != (attempt, epoch) or not attempt:
        raise Conflict(
            f"call '{record.id}' was last started as attempt {record.attempt} of epoch {record.epoch}, not as attempt "
            f"{attempt} of epoch {epoch}; its late result was not recorded.",
            code="late_result_of_another_attempt",
            call=record.id,
            attempt=record.attempt,
            epoch=record.epoch,
        )
    if record.late and record.result == result:
        return True
    if record.evidence == result:
        return False
    if record.late or record.evidence is not None:
        raise Conflict(
            f"call '{record.id}' has another late result already; this one was not recorded.",
            code="late_result_differs",
            call=record.id,
        )
    if record.state not in _OPEN_TO and record.state not in SETTLED:
        raise Conflict(
            f"call '{record.id}' is {record.state}; its late result was not recorded.",
            code="call_not_started",
            call=record.id,
            state=record.state,
        )
    return None


def _evidence(space: Space, current: VersionedCall, staged: Staged) -> CallTransition:
    evidence, at = calls.reference(staged.digest), space.clock()
    if repeat_guard.done(current.record):
        transition = calls.learn(current, at=at, evidence=evidence)
        return transition.also(cells=staged.cells, objects=staged.objects)
    transition = calls.learn(current, at=at, evidence=evidence, result_label=_NOWHERE)
    cells = (*staged.cells, *repeat_guard.doubted(space, current.record))
    return transition.also(cells=cells, objects=staged.objects)


def _check_unclear(record: CallRecord) -> None:
    """Raise `Conflict` if there is nothing to resolve."""
    if record.state == "resolved":
        raise Conflict(
            f"call '{record.id}' to {record.tool} was resolved as {record.outcome} already; nothing was written.",
            code="call_resolved",
            advice="The first resolution is final.",
            call=record.id,
            tool=record.tool,
            outcome=record.outcome,
        )
    if record.state not in UNCLEAR:
        raise Conflict(
            f"call '{record.id}' to {record.tool} is {record.state}, so there is nothing to resolve; nothing was written.",
            code="outcome_known",
            call=record.id,
            tool=record.tool,
            state=record.state,
        )


def _check_resolution(outcome: str, by: str | None, why: str | None, staged: Staged | None) -> None:
    if outcome not in ("done", "not_done"):
        raise Invalid(
            f"a call is resolved as done or not_done, not as {outcome!r}; nothing was written.",
            code="outcome_invalid",
            outcome=outcome,
        )
    if outcome == "not_done" and staged is not None:
        raise Invalid("a call that was not done has no result; nothing was written.", code="result_not_taken")
    names.check_person(by)
    names.check_words("why", why)


def _resolution(
    space: Space,
    current: VersionedCall,
    outcome: Literal["done", "not_done"],
    by: str | None,
    why: str | None,
    staged: Staged | None,
    preview: bytes | None,
) -> CallTransition:
    shown = None if preview is None else Object.of(Kind.BODY, preview)
    transition = calls.advance(
        current,
        "resolved",
        at=space.clock(),
        step=Transition(by=by),
        outcome=outcome,
        result_label=_NOWHERE,
        status="success" if outcome == "done" else "error",
        why=why,
        result=calls.reference(staged.digest) if staged else None,
        preview=shown.digest if shown else None,
    )
    objects = (*(staged.objects if staged else ()), *((shown,) if shown else ()))
    return transition.also(cells=staged.cells if staged else (), objects=objects)
