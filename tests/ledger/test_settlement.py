"""Settling from outside the run: late results, a person's word, calls from elsewhere."""

from __future__ import annotations

import pytest

from perdure.errors import Conflict, Invalid
from perdure.ledger import calls, repeat_guard
from perdure.ledger.calls import VersionedCall
from perdure.ledger.settlement import imported, late, resolve
from perdure.ledger.verify import faults
from perdure.model.call import CallState
from perdure.projections.calls import decode_transition
from tests.coded import raises
from tests.ledger.books import Keeper


def started(keeper: Keeper, *states: CallState) -> VersionedCall:
    """A call that was started under epoch 3 and then went on this way."""
    held = keeper.post(calls.propose(keeper.record("c"), "requested"))
    held = keeper.post(calls.advance(held, "started", at=5, epoch=3, holder="old"))
    for hop in states:
        held = keeper.move(held, hop)
    return held


@pytest.mark.parametrize("states", [(), ("unknown",), ("unknown", "needs_human"), ("unknown", "requested")])
def test_a_late_result_is_accepted_once(keeper: Keeper, states: tuple[CallState, ...]) -> None:
    """While nobody knows better it is the result; said again it changes nothing, and another is refused."""
    started(keeper, *states)

    first = late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged(b"1"))
    again = late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged(b"1"))

    assert first.accepted
    assert again == first
    assert (first.held.record.state, first.held.record.late) == ("succeeded", True)
    with raises(Conflict, "late_result_differs", call="c"):
        late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged(b"2"))
    assert faults(keeper.space) == []


def test_a_late_result_of_a_settled_call_is_kept_as_evidence(keeper: Keeper) -> None:
    """Once; the state stays what it was."""
    before = keeper.succeed(started(keeper, "unknown"), b'"reconciled"')

    first = late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged(b"1"))
    written = len(keeper.bodies())
    again = late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged(b"1"))

    assert not first.accepted
    assert again == first
    assert (first.held.record.state, first.held.record.result) == ("succeeded", before.record.result)
    assert first.held.record.evidence == calls.reference(keeper.staged(b"1").digest)
    assert len(keeper.bodies()) == written
    assert decode_transition(keeper.bodies()[-1]).to is None
    assert faults(keeper.space) == []


@pytest.mark.parametrize(("attempt", "epoch"), [(0, 3), (1, 2), (2, 3), (1, 4)])
def test_only_who_started_it_last_is_heard(keeper: Keeper, attempt: int, epoch: int) -> None:
    """A result of another attempt, or under another epoch, is refused."""
    started(keeper, "unknown")

    with raises(Conflict, "late_result_of_another_attempt", call="c", attempt=1, epoch=3):
        late(keeper.space, "c", attempt=attempt, epoch=epoch, staged=keeper.staged())
    assert calls.read(keeper.space, "c").record.state == "unknown"


def test_a_result_of_an_attempt_that_was_repeated_is_refused(keeper: Keeper) -> None:
    """Somebody else has started it since."""
    held = started(keeper, "unknown", "requested")
    keeper.post(calls.advance(held, "started", at=9, epoch=4))

    with raises(Conflict, "late_result_of_another_attempt", call="c", attempt=2, epoch=4):
        late(keeper.space, "c", attempt=1, epoch=3, staged=keeper.staged())


@pytest.mark.parametrize("states", [("unknown",), ("unknown", "needs_human")])
def test_a_person_settles_what_nobody_knows(keeper: Keeper, states: tuple[CallState, ...]) -> None:
    """Outcome, result, who and why are on record; the same again changes nothing."""
    started(keeper, *states)

    held = resolve(
        keeper.space, "c", "done", by="ann", why="it is in the bank's list", staged=keeper.staged()
    )

    told = decode_transition(keeper.bodies()[-1])
    assert (held.record.state, held.record.outcome, held.record.status) == ("resolved", "done", "success")
    assert held.record.result == calls.reference(keeper.staged().digest)
    assert (told.by, held.record.why) == ("ann", "it is in the bank's list")
    assert resolve(keeper.space, "c", "done", by="bob") == held
    assert faults(keeper.space) == []


def test_what_is_known_cannot_be_resolved(keeper: Keeper) -> None:
    """Neither a running nor a settled call, nor one that was resolved otherwise."""
    held = started(keeper)
    with raises(Conflict, "outcome_known", call="c", state="started"):
        resolve(keeper.space, "c", "done")
    keeper.move(held, "unknown")
    resolve(keeper.space, "c", "not_done")

    with raises(Conflict, "call_resolved", call="c", outcome="not_done"):
        resolve(keeper.space, "c", "done")
    with raises(Invalid, "result_not_taken"):
        resolve(keeper.space, "c", "not_done", staged=keeper.staged())
    with raises(Invalid, "outcome_invalid", outcome="maybe"):
        resolve(keeper.space, "c", "maybe")  # pyright: ignore[reportArgumentType]


def test_an_imported_call_is_settled(keeper: Keeper) -> None:
    """It passes through the states in one posting, and its effect is taken for the worst."""
    record = keeper.record("c", effect="none", idempotent=True)

    held = keeper.post(imported(record, staged=keeper.staged(), preview=b"{}"))

    assert (held.record.state, held.record.origin) == ("succeeded", "import")
    assert held.record.reach.guarded
    assert decode_transition(keeper.bodies()[0]).via == ("proposed", "requested", "started")
    assert faults(keeper.space) == []


def test_an_imported_call_without_a_result_is_unknown_and_guarded(keeper: Keeper) -> None:
    """A model that finds the request in its context must not simply send it again."""
    record = keeper.record("c")
    cells = repeat_guard.starting(record, keeper.check(record))

    held = keeper.post(imported(record).also(cells=cells))

    assert (held.record.state, held.record.status) == ("unknown", None)
    assert isinstance(keeper.check(keeper.record("again")), repeat_guard.Repeats)
