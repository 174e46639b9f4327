"""Slots: where a call stands, and what the model will be told."""

from __future__ import annotations

from perdure.history.changes.patch_builder import Ops
from perdure.history.tree import EMPTY
from perdure.ledger import calls
from perdure.model.canonical import encode_struct
from perdure.model.message import ToolCall
from perdure.runtime.calls.pending_call import PendingCall, recalled
from tests.ledger.books import Keeper


def patched(keeper: Keeper, path: str) -> Ops:
    """The ops that put something there."""
    ops = Ops(keeper.space, EMPTY)
    ops.put(path, True)
    return ops


def test_what_the_ledger_says_stands_over_what_was_made_here() -> None:
    """A result that came by another way has its own patch; the one of this attempt is not applied in its place."""
    keeper = Keeper()
    held = keeper.post(calls.propose(keeper.record("c"), "requested", "started"))
    theirs = patched(keeper, "/theirs.json").finish()
    transition = calls.settle(held, "succeeded", at=2, status="success", patch=encode_struct(theirs.patch))
    pending_call = PendingCall(ToolCall("c", "pay", "{}"), None)
    pending_call.changes(patched(keeper, "/ours.json").finish(), None)
    pending_call.held = keeper.post(transition)

    recalled(pending_call, keeper.space, ())

    assert pending_call.patch == theirs.patch
    assert pending_call.patched is None
