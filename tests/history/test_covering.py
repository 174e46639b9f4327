"""Covering: a step that is put on top of what others wrote, and says so."""

from __future__ import annotations

from perdure.engines.contract import Step
from perdure.history import writer
from perdure.history.changes.patch_builder import Ops
from perdure.history.verify import verify
from perdure.history.writer import Proposal
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.event import ConflictCovered
from tests.history.hand import Hand


def proposal(ops: Ops) -> Proposal:
    """The step that these ops make."""
    patched = ops.finish()
    return Proposal(reason="step", root=patched.root, patch=patched.patch, objects=patched.objects)


def last(hand: Hand) -> Step:
    """The newest commit."""
    return hand.space.step(hand.head().commit or Digest(""))


def test_a_covering_step_wins_and_names_what_it_covered() -> None:
    """Both writes are in the history; the later one stands, and its commit says what was there."""
    hand = Hand()
    hand.write({"/title": "old"})
    head = hand.head()
    ops = Ops(hand.space, last(hand).commit.root)
    ops.put("/title", "mine")
    hand.write({"/title": "theirs", "/other": 1})
    theirs = hand.space.tree(last(hand).commit.root).get("/title")

    writer.commit(hand.space, head, proposal(ops), op_id="op", on_conflict="cover")

    assert hand.state() == {"/title": "mine", "/other": 1}
    told = [event for event in last(hand).changeset.events if isinstance(event, ConflictCovered)]
    assert theirs is not None
    assert [(event.path, event.covered) for event in told] == [("/title", theirs.value)]


def test_a_document_op_is_run_again_on_what_is_there() -> None:
    """Two increments that met count as two."""
    hand = Hand()
    hand.write({"/n": 1})
    head = hand.head()
    ops = Ops(hand.space, last(hand).commit.root)
    ops.edit("/n", "increment", (), 10)
    hand.write({"/n": 2})

    writer.commit(hand.space, head, proposal(ops), op_id="op", on_conflict="cover")

    assert hand.state() == {"/n": 12}


def test_what_is_gone_already_need_not_be_deleted() -> None:
    """A delete on top of a delete is no error."""
    hand = Hand()
    hand.write({"/n": 1, "/m": 1})
    head = hand.head()
    ops = Ops(hand.space, last(hand).commit.root)
    ops.delete("/n")
    ops.put("/k", 1)
    gone = Ops(hand.space, last(hand).commit.root)
    gone.delete("/n")
    writer.commit(hand.space, head, proposal(gone), op_id="other")

    writer.commit(hand.space, head, proposal(ops), op_id="op", on_conflict="cover")

    assert hand.state() == {"/m": 1, "/k": 1}


def test_a_step_that_meets_nothing_is_rebased_in_silence() -> None:
    """Covering is for what was touched on both sides, and nothing else is said."""
    hand = Hand()
    head = hand.head()
    ops = Ops(hand.space, hand.space.root_at(None))
    ops.put("/mine", 1)
    hand.write({"/theirs": 1})

    writer.commit(hand.space, head, proposal(ops), op_id="op", on_conflict="cover")

    assert hand.state() == {"/mine": 1, "/theirs": 1}
    assert last(hand).changeset.events == ()


def test_entries_travel_with_the_commit() -> None:
    """The ledger and the head move together or not at all."""
    hand = Hand()
    ops = Ops(hand.space, hand.space.root_at(None))
    ops.put("/mine", 1)

    done = writer.commit(hand.space, hand.head(), proposal(ops), op_id="op", entries=(b"{}", b"{}"))

    assert done.receipt.position == 2
    assert [entry.body for entry in hand.engine.entries(hand.space.name, limit=9)] == [b"{}", b"{}"]


def test_ops_on_long_lists_are_run_again_on_what_is_there() -> None:
    """An append finds the list that is there now; a list that was put and edited in one step is not stored before it."""
    hand = Hand()
    items: list[Json] = [f"item {number} " * 20 for number in range(100)]
    hand.write({"/m": items, "/n": items})
    head = hand.head()
    ops = Ops(hand.space, last(hand).commit.root)
    ops.edit("/m", "append", (), "mine")
    ops.edit("/m", "append", (), items)  # an argument that is a long list itself
    ops.put("/n", [*items, "put"])
    ops.edit("/n", "append", (), "edited")
    ops.edit("/n", "set", (0,), "first")
    hand.write({"/m": [*items, "theirs"], "/n": "theirs"})

    writer.commit(hand.space, head, proposal(ops), op_id="op", on_conflict="cover")

    assert hand.state() == {
        "/m": [*items, "theirs", "mine", items],
        "/n": ["first", *items[1:], "put", "edited"],
    }
    assert verify(hand.engine).ok
