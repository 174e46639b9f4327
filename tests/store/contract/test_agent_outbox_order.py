"""The outbox's order: what could not be handed over at once arrives later, in the order in which it became true."""

from __future__ import annotations

import pytest

from perdure import Store, Thread
from perdure.store.plumbing import outbox


def leave(thread: Thread, patch: pytest.MonkeyPatch, value: str) -> None:
    """Make a commit whose change of the agent's map is not applied yet."""
    with patch.context() as inside:
        inside.setattr(outbox, "finish", lambda *args: None)
        with thread.change(value) as change:
            change.put("/said.json", value)
            change.agent.put("/x.json", value)


def test_what_was_done_after_an_undo_comes_after_it(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer commit is as deep as the undone one, or less; its word is the last all the same."""
    for number in range(8):  # equal depths are told apart by chance, if by nothing else
        thread.put("/base.json", number)
        leave(thread, monkeypatch, f"older {number}")
        thread.undo(2)
        leave(thread, monkeypatch, f"newer {number}")

        outbox.finish(store._resources.named, thread._space)

        assert store.agent("planner").get("/x.json") == f"newer {number}"


def test_a_promotion_comes_after_what_main_did_before_it(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However deep the old main was, and however short the line that took its place."""
    thread.put("/base.json", 1)
    line = thread.fork("what-if", at="version:1")
    leave(line, monkeypatch, "on the fork")
    for number in range(3):
        leave(thread, monkeypatch, f"on main {number}")

    thread.promote("what-if")

    assert store.agent("planner").get("/x.json") == "on the fork"


def test_control_by_depth_alone_the_order_would_be_another(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit before the undo is the deeper one, and would have the last word."""
    thread.put("/base.json", 1)
    leave(thread, monkeypatch, "older")
    thread.undo(2)
    leave(thread, monkeypatch, "newer")
    monkeypatch.setattr(outbox, "_order", lambda cell: outbox._read(cell).depth)

    outbox.finish(store._resources.named, thread._space)

    assert store.agent("planner").get("/x.json") == "older"
