"""Pending calls: which steps their states allow, and what belongs to each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.history.changes.patch_builder import Ops
from perdure.history.tree import EMPTY
from perdure.ledger import calls
from perdure.ledger.calls import CallTransition
from perdure.model.canonical import encode_struct
from perdure.model.message import Text, ToolCall, ToolResult
from perdure.runtime.calls.pending_call import (
    NO_CHANGES,
    CallChanges,
    PendingCall,
    ReadyCall,
    SettledCall,
    SuspendedCall,
    settle_as_recorded,
)
from perdure.runtime.tools.signature import Arguments
from tests.ledger.books import Keeper

RESULT = ToolResult("c", "success", (Text("done"),))
ARGUMENTS = Arguments({}, {})


@pytest.fixture
def keeper() -> Keeper:
    """Return a ledger."""
    return Keeper()


def new_call() -> PendingCall:
    """Return a call that is not in the ledger."""
    return PendingCall(ToolCall("c", "pay", "{}"), None)


def entry(keeper: Keeper) -> CallTransition:
    """Return the transition that enters the call and starts it."""
    return calls.propose(keeper.record("c"), "requested", "started")


def started(keeper: Keeper) -> PendingCall:
    """Return a ready call that the ledger has as started."""
    return PendingCall(ToolCall("c", "pay", "{}"), None, keeper.post(entry(keeper)))


def ending(pending_call: PendingCall) -> CallTransition:
    """Return the transition that settles a started call."""
    return calls.settle(pending_call.recorded, "succeeded", at=2, status="success")


def patched(keeper: Keeper, path: str) -> Ops:
    """Return ops that put something there."""
    ops = Ops(keeper.space, EMPTY)
    ops.put(path, True)
    return ops


def test_a_new_call_is_ready_and_changes_nothing() -> None:
    """Before any step there is neither a result nor anything to write."""
    pending_call = new_call()

    assert (pending_call.stage, pending_call.state) == ("ready", ReadyCall())
    assert (pending_call.result, pending_call.changes) == (None, NO_CHANGES)
    assert (pending_call.transition, pending_call.has_entered, pending_call.is_known) == (None, False, False)


def test_a_call_enters_the_ledger_when_its_transition_is_written(keeper: Keeper) -> None:
    """Until then its record is the one of the transition; afterwards it is the recorded one."""
    pending_call, transition = new_call(), entry(keeper)

    pending_call.enter(transition, ARGUMENTS)
    before = (pending_call.has_entered, pending_call.record.state, pending_call.transition)
    keeper.post(transition)
    pending_call.written()

    assert before == (False, "started", transition)
    assert (pending_call.has_entered, pending_call.record.state, pending_call.transition) == (
        True,
        "started",
        None,
    )
    assert pending_call.ready.arguments is ARGUMENTS


def test_a_settled_call_has_result_changes_and_transition(keeper: Keeper) -> None:
    """What belongs to the end of a call is set by the one step that ends it."""
    pending_call = started(keeper)
    transition = ending(pending_call)
    ours = CallChanges.made_here(EMPTY, patched(keeper, "/ours.json").finish(), None, None)

    pending_call.settle(transition, RESULT, ours)

    assert isinstance(pending_call.state, SettledCall)
    assert (pending_call.result, pending_call.changes, pending_call.transition) == (RESULT, ours, transition)
    assert pending_call.changes_state


def test_a_write_without_a_message_uses_the_other_transition(keeper: Keeper) -> None:
    """Where no message holds the words, the transition for the ledger alone is written."""
    pending_call = started(keeper)
    with_message, alone = ending(pending_call), ending(pending_call)

    pending_call.settle(with_message, RESULT, alone=lambda: alone)

    assert pending_call.transition is with_message
    assert pending_call.transition_alone is alone
    pending_call.written()
    assert pending_call.transition_alone is None


def test_a_new_question_is_in_no_history(keeper: Keeper) -> None:
    """A suspension that comes with a transition has to be named by the next commit."""
    pending_call = started(keeper)

    with pytest.raises(AssertionError):
        pending_call.suspend(ending(pending_call), is_in_history=True)
    pending_call.suspend(None, is_in_history=True)

    assert pending_call.state == SuspendedCall(is_in_history=True)


def test_a_note_is_kept_when_the_next_attempt_is_prepared() -> None:
    """Arguments, interruption and note belong to the ready state."""
    pending_call = new_call()

    pending_call.annotate("edited")
    pending_call.prepare(ARGUMENTS, is_interrupted=True)

    assert pending_call.ready == ReadyCall(ARGUMENTS, is_interrupted=True, note="edited")


@pytest.mark.parametrize(
    "step",
    [
        lambda it: it.settle(None, RESULT),
        lambda it: it.suspend(None),
        lambda it: it.advance(it.recorded),
        lambda it: it.prepare(None),
        lambda it: it.annotate("n"),
        lambda it: it.ready,
    ],
    ids=["settle", "suspend", "advance", "prepare", "annotate", "ready"],
)
@pytest.mark.parametrize("end", ["settled", "suspended"])
def test_only_a_ready_call_can_be_carried_out(
    keeper: Keeper, end: str, step: Callable[[PendingCall], object]
) -> None:
    """A call that is settled or suspended refuses every step of a ready one, and stays as it is."""
    pending_call = started(keeper)
    if end == "settled":
        pending_call.settle(None, RESULT)
    else:
        pending_call.suspend(None)
    state = pending_call.state

    with pytest.raises(AssertionError):
        step(pending_call)

    assert pending_call.state is state


@pytest.mark.parametrize("end", ["settle", "suspend", "advance"])
def test_an_unwritten_transition_is_never_replaced(keeper: Keeper, end: str) -> None:
    """A call whose entry is not durable takes no further step."""
    pending_call = new_call()
    pending_call.enter(entry(keeper), ARGUMENTS)

    with pytest.raises(AssertionError):
        if end == "settle":
            pending_call.settle(None, RESULT)
        elif end == "suspend":
            pending_call.suspend(None)
        else:
            pending_call.advance(keeper.post(entry(keeper)))

    assert (pending_call.stage, pending_call.has_entered) == ("ready", False)


def test_a_call_enters_the_ledger_once(keeper: Keeper) -> None:
    """A call that the ledger has cannot be entered again."""
    pending_call = started(keeper)

    with pytest.raises(AssertionError):
        pending_call.enter(entry(keeper), ARGUMENTS)


def test_only_a_settled_call_without_a_transition_is_announced(keeper: Keeper) -> None:
    """A commit applies the changes of a call that is settled, once."""
    pending_call = started(keeper)
    transition = calls.learn(pending_call.recorded, at=3, result_label="")

    with pytest.raises(AssertionError):
        pending_call.announce(transition)
    pending_call.settle(None, RESULT)
    pending_call.announce(transition)
    with pytest.raises(AssertionError):
        pending_call.announce(transition)

    assert pending_call.transition is transition


@pytest.mark.parametrize("end", ["ready", "settled", "suspended"])
def test_what_the_ledger_says_makes_any_call_ready_again(keeper: Keeper, end: str) -> None:
    """Reloading drops the state, the changes and the unwritten transition of this process."""
    pending_call = started(keeper)
    transition = ending(pending_call)
    if end == "settled":
        pending_call.settle(transition, RESULT)
    elif end == "suspended":
        pending_call.suspend(transition)
    newer = keeper.post(transition)

    pending_call.reload(newer)

    assert (pending_call.state, pending_call.transition) == (ReadyCall(), None)
    assert pending_call.recorded is newer


def test_what_the_ledger_says_is_used_instead_of_what_was_made_here(keeper: Keeper) -> None:
    """A result that another process recorded has its own patch; the one of this attempt is not applied."""
    pending_call = started(keeper)
    theirs = patched(keeper, "/theirs.json").finish()
    pending_call.settle(
        ending(pending_call),
        RESULT,
        CallChanges.made_here(EMPTY, patched(keeper, "/ours.json").finish(), None, None),
    )
    recorded = keeper.post(
        calls.settle(
            pending_call.recorded, "succeeded", at=2, status="success", patch=encode_struct(theirs.patch)
        )
    )

    pending_call.reload(recorded)
    settle_as_recorded(pending_call, keeper.space, ())

    assert pending_call.changes.patch == theirs.patch
    assert pending_call.changes.patched is None
