"""The changes of one item: found from where it was written last, whatever else the memory has."""

from __future__ import annotations

import random

import pytest

import perdure
from perdure import Store
from perdure.history.space import Space
from perdure.memory import write
from perdure.model.memory import items_of
from perdure.shapes.memory_log import MemoryCommit
from perdure.store import memory as memories
from perdure.store.memory import Memory
from tests.crash.campaign import SEED, sized
from tests.memory.remembering import forgetting, remembering

MANY = 3_000


@pytest.fixture
def ann(store: Store) -> Memory:
    """The memory of an owner."""
    return store.memory("ann")


def by_reading_all(memory: Memory, id: str) -> list[str]:
    """The commits that wrote an item, found by looking at every commit."""
    return [each.digest for each in memory.log() if id in items_of(each.patch)]


def test_the_changes_of_any_item_are_those_that_reading_all_finds(store: Store, ann: Memory) -> None:
    """Added, edited, forgotten, added again, written by threads, kept, undone: with and without a limit."""
    chance = random.Random(SEED)
    for number in range(sized(120, 1_000)):
        id = f"i{chance.randrange(6)}"
        what = chance.choice(("add", "add", "forget", "thread", "keep", "undo"))
        there = {each.id for each in ann.items()}
        if what == "add":
            ann.add(f"text {number}", id=id)
        elif what == "thread":
            remembering(store, f"t{number}", f"from a thread {number}", name=id)
        elif what == "undo" and ann.log(limit=1):
            ann.undo()
        elif id in there:
            _ = ann.forget(id) if what == "forget" else ann.keep(id)

    for number in range(6):
        id = f"i{number}"
        expected = by_reading_all(ann, id)
        found, more = ann.changes_of(id)
        assert ([each.digest for each in found], more) == (expected, False), f"seed {SEED}"
        found, more = ann.changes_of(id, limit=3)
        assert [each.digest for each in found] == expected[:3], f"seed {SEED}"
        assert more or len(expected) <= 3, f"seed {SEED}"
    assert ann.changes_of("never") == ([], False)


def test_a_change_whose_turn_was_undone_is_withdrawn(store: Store, ann: Memory) -> None:
    """What is forgotten and added in threads, until a redo, or in a removed thread; control: what a program writes is no thread's to take back."""
    ann.add("likes tea", id="n")
    gone = forgetting(store, "t1")
    noted = remembering(store, "t2", "likes fjords", name="m")

    def listed() -> list[tuple[str | None, bool]]:
        shown = [MemoryCommit.of(ann, each) for each in ann.log()]
        return [(each.did, each.withdrawn) for each in shown]

    before = listed()
    gone.undo()
    noted.undo()
    undone = listed()
    gone.redo()
    noted.redo()
    redone = listed()
    noted.rm()

    assert before == redone == [("added", False), ("forgotten", False), ("added", False)]
    assert undone == [("added", True), ("forgotten", True), ("added", False)]
    assert listed() == [("added", True), ("forgotten", False), ("added", False)]


def commits_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commits each read of a line gives, from now on."""
    counted: list[int] = []
    read = Space.back

    def back(space: Space, *args: object, **how: object) -> object:
        found = read(space, *args, **how)  # pyright: ignore[reportArgumentType]
        counted.append(len(found))
        return found

    monkeypatch.setattr(Space, "back", back)
    return counted


@pytest.mark.parametrize("is_found", [True, False], ids=["from its versions", "by reading"])
def test_the_log_of_an_item_costs_what_it_shows(monkeypatch: pytest.MonkeyPatch, is_found: bool) -> None:
    """Three thousand other changes lie between two of its own; the control finds them by reading commits."""
    with perdure.open("memory:") as store:
        ann = store.memory("ann")
        ann.add("likes tea", id="drink")
        for number in range(MANY):
            write.write(ann._memory.space, f"other-{number % 7}", None, reason="nothing")
        ann.add("likes coffee", id="drink")
        for _ in range(MANY):
            write.write(ann._memory.space, "another", None, reason="nothing")
        read = commits_read(monkeypatch)
        if not is_found:
            monkeypatch.setattr(Memory, "_last_write", lambda *_: None)

        found, more = ann.changes_of("drink", limit=2)

        assert [each.reason for each in found] == ["memory.add"] * (2 if is_found else 1)
        assert more is not is_found
        assert (sum(read) < 50) is is_found


def test_an_item_is_not_looked_for_before_its_id_was_made(
    store: Store, ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id says when; an id that a person chose may have been used any time before, so 1,000 commits are looked at."""
    monkeypatch.setattr(memories, "_CLOCKS_DIFFER_US", 0)
    for number in range(20):
        ann.add(f"text {number}", id=f"o{number}")
    made, chosen = ann.add("likes tea").id, ann.add("likes coffee", id="drink").id
    monkeypatch.setattr(memories, "_LOOKED_BACK_MAX", 5)

    assert [ann.changes_of(id, limit=4)[1] for id in (made, chosen)] == [False, True]
    assert ann.changes_of(chosen)[1] is False
