"""One item is put back alone: what comes back, what it keeps, what is refused, and what others have of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET

import perdure
from perdure import Store, aio
from perdure.errors import Forgotten, Invalid, NotFound, OpReused
from perdure.history.retention import RetentionPolicy
from perdure.memory import write
from perdure.model.memory import Remembered
from perdure.store import memory as memories
from perdure.store.memory import Memory
from tests.coded import raises
from tests.memory.remembering import forgetting, remembering, texts

DAY = 86_400 * 1_000_000


@pytest.fixture
def clock() -> list[int]:
    """What time it is."""
    return [1_000 * DAY]


@pytest.fixture
def store(store_url: str, clock: list[int]) -> Iterator[Store]:
    """A store on that clock."""
    with perdure.open(store_url, clock=lambda: clock[0]) as opened:
        yield opened


@pytest.fixture
def ann(store: Store) -> Memory:
    """The memory of an owner."""
    return store.memory("ann")


def facts(item: Remembered) -> tuple[object, ...]:
    """What an item is, without where it was written."""
    return item.text, item.kind, item.scope, item.trust, item.at, item.expires_at, item.source


def done(memory: Memory) -> list[tuple[str | None, str | None, str | None]]:
    """What was done to a memory, newest first: what, to which text, by whom."""
    shown = memory.log()
    return [(each.did, each.text, each.by) for each in shown]


def test_a_forgotten_item_comes_back_after_other_changes(ann: Memory, clock: list[int]) -> None:
    """With its text, kind, scope, trust, time and end; ten changes of other items since stay as they are."""
    was = ann.add(
        "sits at the aisle",
        id="seat",
        kind="preference",
        scope="travel",
        trust="system",
        expires=timedelta(days=9),
    )
    ann.forget("seat")
    for number in range(10):
        ann.add(f"likes {number} lumps", id=f"other-{number % 5}")
    others = [each for each in ann.items() if each.id != "seat"]
    clock[0] += DAY

    back = ann.restore("seat", author="ann")

    assert facts(back) == facts(was) == facts(ann.get("seat"))
    assert [each for each in ann.items() if each.id != "seat"] == others
    assert done(ann)[0] == ("restored", "sits at the aisle", "ann")
    assert [found.id for found in ann.search("aisle")] == ["seat"]


def test_an_edited_item_gets_its_former_words_and_again_the_later_ones(ann: Memory) -> None:
    """Each restore is a change, so the next one puts back what it replaced; kind and trust go with the words."""
    ann.add("likes tea", id="drink", kind="preference", trust="model")
    ann.add("likes coffee", id="drink", kind="semantic")
    ann.add("has a dog", id="dog")

    first, second = ann.restore("drink"), ann.restore("drink")

    assert (first.text, first.kind, first.trust) == ("likes tea", "preference", "model")
    assert (second.text, second.kind, second.trust) == ("likes coffee", "semantic", "user")
    assert [did for did, _, _ in done(ann)] == ["restored", "restored", "added", "edited", "added"]


def test_a_restore_is_undone_and_redone(ann: Memory) -> None:
    """It is a change of the memory like any other; both leave the words of other items alone."""
    ann.add("likes tea", id="drink")
    ann.add("likes coffee", id="drink")
    ann.restore("drink")

    ann.undo()
    undone = ann.get("drink").text
    ann.redo()

    assert (undone, ann.get("drink").text) == ("likes coffee", "likes tea")


def test_an_item_is_put_back_as_any_moment_left_it(ann: Memory) -> None:
    """By a commit, a name, or a commit that an undo has left; that is what `get` reads there."""
    for text in ("likes tea", "likes coffee", "likes water"):
        ann.add(text, id="drink")
    undone, _, first = ann.log()
    ann.undo()

    restored = [ann.restore("drink", at=moment).text for moment in (first, "HEAD~1", undone)]

    assert restored == ["likes tea", "likes coffee", "likes water"]
    assert ann.get("drink").text == ann.get("drink", at=undone).text


def test_an_item_that_is_so_already_is_returned_and_nothing_is_written(ann: Memory) -> None:
    """Also one whose words were changed and changed back; control: other words are written."""
    ann.add("likes tea", id="drink")
    ann.add("likes coffee", id="drink")
    now = ann.add("likes tea", id="drink")
    (_, coffee, tea), head = ann.log(), ann.head

    same = ann.restore("drink", at=tea)

    assert (same, ann.head) == (now, head)
    assert ann.restore("drink", at=coffee).text == "likes coffee"
    assert ann.head.version == head.version + 1


@pytest.mark.parametrize("words", [["likes tea"], ["likes tea", "likes tea"]], ids=["once", "twice the same"])
def test_an_item_without_another_value_is_refused(ann: Memory, words: list[str]) -> None:
    """There is nothing to put back, and nothing is written."""
    for text in words:
        ann.add(text, id="drink")
    head = ann.head

    with raises(NotFound, "nothing_to_restore", item="drink", owner="ann"):
        ann.restore("drink")

    assert ann.head == head


def test_a_moment_without_the_item_is_refused(ann: Memory) -> None:
    """Before it was added, after it was forgotten, and before the first commit; an item that never was has no moment."""
    ann.add("has a dog", id="dog")
    ann.add("likes tea", id="drink")
    ann.forget("drink")
    forgot, _, before = ann.log()

    for moment in (before, forgot, None):
        with raises(NotFound, "nothing_to_restore", item="drink"):
            ann.restore("drink", at=moment)
    for moment in (before, None):
        with raises(NotFound, "nothing_to_restore"):
            ann.restore("never", at=moment)
    with raises(NotFound, "memory_item_not_found", item="never", owner="ann"):
        ann.restore("never")
    with raises(NotFound, "revision_not_found"):
        ann.restore("drink", at="feedfeed")
    with raises(Invalid, "item_id_invalid"):
        ann.restore("../up")

    assert ann.log()[0] == forgot


def test_an_item_whose_end_has_passed_needs_another_end(ann: Memory, clock: list[int]) -> None:
    """Refused as it was, since it would not be found; another end, or none, brings it back."""
    ended = ann.add("code 1234", id="code", expires=timedelta(days=1))
    clock[0] += 2 * DAY
    head = ann.head

    with raises(Invalid, "item_expired", item="code", owner="ann", expired_at=ended.expires_at):
        ann.restore("code")
    with raises(Invalid, "expiry_in_past"):
        ann.restore("code", expires=timedelta(days=-1))
    refused = ann.head

    assert refused == head
    assert ann.restore("code", expires=timedelta(days=1)).expires_at == clock[0] + DAY
    assert ann.restore("code", at=head, expires=None).expires_at is None
    assert ann.get("code").text == "code 1234"


def test_an_end_that_was_set_later_is_taken_back(ann: Memory, clock: list[int]) -> None:
    """A former value without an end has none again."""
    ann.add("likes tea", id="drink")
    ann.add("likes tea", id="drink", expires=timedelta(days=1))

    back = ann.restore("drink")
    clock[0] += 2 * DAY

    assert back.expires_at is None
    assert [each.id for each in ann.items()] == ["drink"]


@pytest.mark.parametrize("added_again", [False, True])
def test_an_erased_item_is_refused_because_its_words_are_gone(ann: Memory, added_again: bool) -> None:
    """With a moment and without one; the words that it got after the erasure are left as they are."""
    ann.add("likes zeppelins", id="goes")
    ann.add("likes lakes", id="stays")
    (_, first) = ann.log()
    ann.erase("goes")
    if added_again:
        ann.add("likes balloons", id="goes")
    head = ann.head

    for moment in (UNSET, first):
        with raises(Forgotten, "forgotten") as refused:
            ann.restore("goes", at=moment)
        assert ("'goes'" in refused.value.what, "erased" in refused.value.why) == (True, True)

    assert ann.head == head
    assert texts_of(ann) == (["likes balloons", "likes lakes"] if added_again else ["likes lakes"])


def texts_of(memory: Memory) -> list[str]:
    """The texts of a memory, by the id of their items."""
    return [each.text for each in memory.items()]


def test_a_value_that_a_policy_has_let_go_is_refused(store: Store, ann: Memory, clock: list[int]) -> None:
    """As an erased one is; the item keeps its words."""
    ann.add("likes tea", id="drink")
    ann.add("likes coffee", id="drink")
    clock[0] += DAY
    store.gc(store.gc_plan(RetentionPolicy(superseded_after_days=0)))

    with raises(Forgotten, "forgotten"):
        ann.restore("drink")

    assert ann.get("drink").text == "likes coffee"


def test_an_item_that_an_undo_of_its_thread_withdrew_comes_back_without_the_thread(
    store: Store, ann: Memory
) -> None:
    """It says where it came from, and neither a redo nor a removal of the thread moves it; control: before, it is gone."""
    thread = remembering(store, "t1", "likes fjords")
    wrote = ann.get("n")
    thread.undo()
    withdrawn = texts_of(ann)

    back = ann.restore("n")
    thread.redo()
    thread.rm()

    assert withdrawn == []
    assert facts(back) == facts(wrote) == facts(ann.get("n"))
    assert back.source is not None
    assert back.source.thread == "t1"
    assert texts(store, "fjords") == ["likes fjords"]


def test_a_withdrawn_change_is_passed_over_where_others_count(store: Store, ann: Memory) -> None:
    """The undone words come back by their commit alone; a forgetting that was undone is no change either."""
    for text in ("likes tea", "likes coffee"):
        ann.add(text, id="n")
    remembering(store, "t1", "likes water").undo()
    forgetting(store, "t2").undo()
    _, water, *_ = ann.log()

    assert ann.get("n").text == "likes coffee"
    assert ann.restore("n").text == "likes tea"
    assert ann.restore("n", at=water).text == "likes water"


def test_an_item_that_stands_has_no_withdrawn_words_put_over_it(store: Store, ann: Memory) -> None:
    """Its only other words were undone with their turn; forgotten, the control, it gets its own words back."""
    ann.add("likes tea", id="n")
    remembering(store, "t1", "likes water").undo()

    with raises(NotFound, "nothing_to_restore"):
        ann.restore("n")
    ann.forget("n")

    assert ann.restore("n").text == "likes tea"


def test_what_a_thread_forgot_is_restored_without_an_undo_of_the_thread(store: Store, ann: Memory) -> None:
    """The thread goes on; its undo and redo change nothing of the item any more."""
    ann.add("likes tea", id="n")
    thread = forgetting(store, "t1")
    gone = texts_of(ann)

    ann.restore("n")
    thread.undo()
    thread.redo()

    assert (gone, texts_of(ann)) == ([], ["likes tea"])


def test_a_restore_can_be_repeated_safely(ann: Memory) -> None:
    """Under the same op_id it is made once, however the item has changed since; with another moment it is an error."""
    ann.add("likes tea", id="drink")
    ann.add("likes coffee", id="drink")
    (_, first) = ann.log()
    back = ann.restore("drink", op_id="req-1")
    again = ann.restore("drink", op_id="req-1")
    ann.add("likes water", id="drink")
    later = ann.restore("drink", op_id="req-1")

    assert back.reference == again.reference == later.reference
    assert ann.get("drink").text == "likes water"
    with pytest.raises(OpReused):
        ann.restore("drink", at=first, op_id="req-1")
    with pytest.raises(OpReused):
        ann.restore("drink", expires=None, op_id="req-1")


def test_the_former_value_is_found_behind_many_changes_that_are_passed_over(
    ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a few changes are read at first; an item that was written alike more often has an older value."""
    monkeypatch.setattr(memories, "_CHANGES_READ", 2)
    ann.add("likes tea", id="drink")
    for _ in range(5):
        ann.add("likes coffee", id="drink")

    assert ann.restore("drink").text == "likes tea"


def test_an_erasure_between_the_read_and_the_write_is_not_taken_back(
    ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore is refused and the words are gone; control: without the erasure they are written."""
    ann.add("likes zeppelins", id="goes")
    ann.forget("goes")
    written, erasing = write.write, [True]

    def erased_first(*given: Any, **named: Any) -> Any:
        if erasing and erasing.pop():
            ann.erase("goes")
        return written(*given, **named)

    monkeypatch.setattr(write, "write", erased_first)

    with raises(Forgotten, "forgotten"):
        ann.restore("goes")

    assert (texts_of(ann), ann.log(limit=1)[0].reason) == ([], "memory.erase")
    ann.add("likes lakes", id="stays")
    ann.forget("stays")
    assert ann.restore("stays").text == "likes lakes"


def test_what_is_restored_verifies(store: Store, ann: Memory) -> None:
    """A memory with restored items is a history like any other."""
    remembering(store, "t1", "likes fjords").undo()
    ann.restore("n")
    ann.forget("n")
    ann.restore("n", at="HEAD~1")

    assert store.verify().ok


def test_the_awaitable_face_restores(store_url: str) -> None:
    """The same method on an event loop."""

    async def story() -> list[str]:
        async with aio.open(store_url) as store:
            memory = await store.memory("ann")
            await memory.add("likes tea", id="drink")
            await memory.add("likes coffee", id="drink")
            first = (await memory.restore("drink")).text
            return [first, (await memory.restore("drink", at="HEAD~1")).text]

    assert asyncio.run(story()) == ["likes tea", "likes coffee"]
