"""The changes of one item: found from where it was written last, whatever else the memory has."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import perdure
from perdure import Store
from perdure.errors import Conflict
from perdure.history.space import Space
from perdure.memory import write
from perdure.model.memory import items_of
from perdure.store import memory as memories
from perdure.store.memory import Memory
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.memory.remembering import forgetting, remembering, tidying

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
        return [(each.did, each.withdrawn) for each in ann.log()]

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


def told(memory: Memory) -> list[tuple[object, ...]]:
    """What each change did to which item, the text, and who did it."""
    return [(each.did, each.item, each.text, each.thread or each.by) for each in memory.log()]


def test_an_entry_says_what_was_done_to_which_item_and_by_whom(store: Store, ann: Memory) -> None:
    """By a program, a person and a thread, also in its repr; the list of one item says the same."""
    ann.add("likes tea", id="drink", author="bob")
    ann.edit("drink", "likes coffee", author="bob")
    remembering(store, "t1", "likes fjords")
    ann.keep("n")
    ann.forget("drink", author="cat")
    ann.restore("drink")

    assert told(ann) == [
        ("restored", "drink", "likes coffee", None),
        ("forgotten", "drink", "likes coffee", "cat"),
        ("kept", "n", "likes fjords", None),
        ("added", "n", "likes fjords", "t1"),
        ("edited", "drink", "likes coffee", "bob"),
        ("added", "drink", "likes tea", "bob"),
    ]
    forgot = ann.log()[1]
    assert f"<commit {forgot.digest[:12]}: forgotten drink, 'likes coffee' by cat>" in repr(ann.log())
    assert ann.changes_of("drink")[0][1] == forgot
    assert ann.get("drink", at=ann.log()[-1]).text == "likes tea", "an entry is a moment"


def test_what_says_the_same_again_was_confirmed(store: Store, ann: Memory) -> None:
    """By another thread, or a stronger source; a weaker word by id, and an edit of the end, are edits."""
    remembering(store, "t1", "likes fjords")
    remembering(store, "t2", "likes  Fjords")
    ann.add("likes fjords")
    ann.add("likes fjords", id="n", trust="tool")
    ann.edit("n", expires=timedelta(days=1))

    assert [each.did for each in ann.log()] == ["edited", "edited", "confirmed", "confirmed", "added"]


def test_an_erasure_is_named_with_its_item(ann: Memory) -> None:
    """Of an item that is there, of one that was forgotten before, and again; what it erased has no text any more."""
    ann.add("likes zeppelins", id="goes")
    ann.add("likes balloons", id="gone")
    ann.forget("gone")
    ann.add("likes lakes", id="stays")
    ann.erase("goes", author="bob")
    ann.erase("gone")
    ann.erase("gone")

    assert told(ann) == [
        ("erased", "gone", None, None),
        ("erased", "gone", None, None),
        ("erased", "goes", None, "bob"),
        ("added", "stays", "likes lakes", None),
        ("forgotten", "gone", None, None),
        ("added", "gone", None, None),
        ("added", "goes", None, None),
    ]
    assert [each.did for each in ann.changes_of("gone")[0]] == ["erased", "erased", "forgotten", "added"]


def test_an_undo_of_an_erasure_is_refused(ann: Memory) -> None:
    """Nothing would come back; with one change more the change before it is taken back, and a redo brings that again."""
    ann.add("likes lakes", id="stays")
    ann.add("likes rivers", id="stays")
    ann.add("likes zeppelins", id="goes")
    ann.edit("stays", "likes seas")
    ann.erase("goes")
    head = ann.head

    with raises(Conflict, "erasure_not_undone", owner="ann", items=("goes",), changes=2):
        ann.undo()
    refused = ann.head
    ann.undo(2)
    undone = [each.text for each in ann.items()]
    ann.redo()

    assert refused == head
    assert undone == ["likes rivers"]
    assert [each.text for each in ann.items()] == ["likes seas"]


def test_an_undo_behind_several_erasures_says_how_many_changes_it_takes(ann: Memory) -> None:
    """The number that the error names is enough; control: the change after an erasure is undone alone."""
    ann.add("likes lakes", id="stays")
    for id in ("a", "b"):
        ann.add(f"likes {id}", id=id)
    ann.edit("stays", "likes seas")
    for id in ("a", "b"):
        ann.erase(id)
    ann.add("has a dog", id="pet")

    ann.undo()
    with raises(Conflict, "erasure_not_undone", items=("b", "a"), changes=3):
        ann.undo(2)
    ann.undo(3)

    assert [each.text for each in ann.items()] == ["likes lakes"]


def test_an_undo_that_was_made_is_answered_again_after_an_erasure(ann: Memory) -> None:
    """Its op_id names a move that was made before."""
    ann.add("likes tea", id="drink")
    ann.add("likes coffee", id="drink")
    undone = ann.undo(op_id="req-1")
    ann.erase("drink")

    assert ann.undo(op_id="req-1") == undone


def test_the_moves_have_every_undo_and_redo_with_its_author(ann: Memory) -> None:
    """Each with the newest change that it was about; what a later change covered is found and put back."""
    ann.add("likes tea", id="drink", author="bob")
    ann.add("likes coffee", id="drink")
    ann.undo(2, author="cat")
    ann.redo(author="dan")
    ann.undo(author="cat")
    ann.add("has a dog", id="pet")

    moves = ann.moves()

    assert [(each.act, each.author, each.changes, each.change and each.change.text) for each in moves] == [
        ("commit", None, 1, "has a dog"),
        ("undo", "cat", 1, "likes coffee"),
        ("redo", "dan", 2, "likes coffee"),
        ("undo", "cat", 2, "likes coffee"),
        ("commit", None, 1, "likes coffee"),
        ("commit", "bob", 1, "likes tea"),
    ]
    assert all(each.at is not None for each in moves)
    assert [each.version for each in ann.moves(before=5, limit=2)] == [4, 3]
    assert "undo of 1 by cat, <commit " in repr(moves[1])
    assert moves[1].change is not None
    assert ann.restore("drink", at=moves[1].change).text == "likes coffee"


def test_the_ids_of_all_items_ever_are_listed(ann: Memory) -> None:
    """Those changed last first; forgotten ones too, and of a few changes only."""
    for id in ("a", "b", "a"):
        ann.add(f"likes {id}", id=id)
    ann.forget("b")

    assert ann.ids_ever() == ["b", "a"]
    assert ann.ids_ever(changes=1) == ["b"]


def test_what_one_call_did_to_several_items_has_an_entry_for_each(store: Store, ann: Memory) -> None:
    """In the order of the writes, of one commit; a limit counts entries, and the changes of one item are its own."""
    ann.add("likes tea", id="old")
    ann.add("likes coffee", id="older")
    thread = tidying(store)

    entries = ann.log()

    assert told(ann)[:4] == [
        ("added", "two", "likes lakes", "t1"),
        ("added", "one", "likes seas", "t1"),
        ("forgotten", "old", "likes tea", "t1"),
        ("edited", "older", "likes cocoa", "t1"),
    ]
    assert {each.digest for each in entries[:4]} == {entries[0].digest}
    assert [ann.log(limit=each) for each in range(1, 7)] == [entries[:each] for each in range(1, 7)]
    assert len(entries) == 6
    assert ann.changes_of("old")[0] == [entries[2], entries[5]]
    thread.undo()
    assert [each.withdrawn for each in ann.log()] == [True] * 4 + [False] * 2


def test_an_undo_of_a_change_of_several_items_names_them_all(store: Store, ann: Memory) -> None:
    """Of one change, and of two; control: a change of one item."""
    ann.add("likes tea", id="old")
    ann.add("likes coffee", id="older")
    tidying(store)

    ann.undo()
    ann.redo()
    ann.undo(2)

    every = ("two", "one", "old", "older")
    assert [each.items for each in ann.moves(limit=5)] == [every, every, every, every, ("older",)]


@pytest.mark.parametrize("ends", ["undone", "removed"])
def test_a_withdrawn_change_stays_withdrawn_after_an_erasure(store: Store, ann: Memory, ends: str) -> None:
    """Its source was erased with its words; control: changes of a thread and of a program that count, erased too."""
    ann.add("likes tea", id="mine")
    remembering(store, "t1", "likes lakes", name="kept")
    noted = remembering(store, "t2", "likes fjords", name="taken")
    _ = noted.undo() if ends == "undone" else noted.rm()
    before = [(each.item, each.withdrawn) for each in ann.log()]

    for id in ("mine", "kept", "taken"):
        ann.erase(id)

    assert before == [("taken", True), ("kept", False), ("mine", False)]
    assert [(each.item, each.withdrawn) for each in ann.log()][3:] == before
    if ends == "undone":
        noted.redo()
        assert not any(each.withdrawn for each in ann.log())
