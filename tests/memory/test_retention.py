"""What a policy forgets leaves a memory whole: what counts stays, and what was read stays readable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, aio, testing
from perdure.errors import Conflict, Forgotten, NotFound
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.history.stored_objects import pages
from perdure.memory import relevant
from tests.coded import raises
from tests.history.hand import damage
from tests.memory.remembering import look, remembering, texts

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


def collect(store: Store, clock: list[int]) -> None:
    """Forget everything that was undone and removed."""
    engine = store._resources.engine
    plan = retention.plan(engine, RetentionPolicy(undone_after_days=1, removed_threads=True), clock[0])
    retention.carry_out(engine, plan, ids=store._resources.ids)


def test_a_thread_that_was_removed_and_dropped_takes_its_items_along(store: Store, clock: list[int]) -> None:
    """What was kept by hand stays, with its words."""
    remembering(store, "t1", "likes fjords", name="kept")
    other = remembering(store, "t2", "likes lakes", name="lost")
    store.memory("ann").keep("kept")
    store.thread("t1").rm()
    other.rm()
    clock[0] += 10 * DAY

    collect(store, clock)

    assert texts(store, "likes") == ["likes fjords"]
    assert [item.id for item in store.memory("ann").items()] == ["kept"]
    assert store.verify().ok


def test_what_was_undone_by_hand_and_forgotten_is_not_found_again(store: Store, clock: list[int]) -> None:
    """The memory's own past goes by the same rules as a thread's; the rest of it can still be searched."""
    memory = store.memory("ann")
    memory.add("likes fjords", id="stays")
    memory.add("likes lakes", id="goes")
    memory.undo()
    memory.add("likes rivers", id="new")
    clock[0] += 10 * DAY
    memory.add("likes seas", id="newer")
    gone = memory.log()

    collect(store, clock)

    assert sorted(texts(store, "likes")) == ["likes fjords", "likes rivers", "likes seas"]
    assert len(gone) == 3
    assert store.verify().ok


def test_a_moment_of_memory_that_a_commit_has_read_stays(store: Store, clock: list[int]) -> None:
    """A context that was built from it can be built again; the control is one that no commit has read."""
    memory = store.memory("ann")
    memory.add("likes fjords", id="n")
    script = testing.Script(testing.use("look", query="fjords"), testing.say("ok"))
    store.thread("t1", agent=Agent("a", backend=script, tools=[look]), owner="ann").run("go")
    read = store._resources.memories.of("ann").sight()
    memory.add("likes lakes", id="m")
    unread = store._resources.memories.of("ann").sight()
    memory.undo(2)
    clock[0] += DAY
    memory.add("likes rivers", id="o")
    clock[0] += 10 * DAY
    memory.add("likes seas", id="p")

    collect(store, clock)

    with perdure.open(store.url) as fresh:
        held = fresh._resources.memories.of("ann")
        assert [found.id for found in relevant(held, "fjords", sight=read)] == ["n"]
        with pytest.raises(Forgotten):
            relevant(held, "lakes", sight=unread)


def test_forgotten_words_are_in_no_file_of_an_open_store(tmp_path: Path, clock: list[int]) -> None:
    """Neither in the store, nor in its search index, nor in the logs of both."""
    with perdure.open(tmp_path / "store.db", clock=lambda: clock[0]) as store:
        memory = store.memory("ann")
        memory.add("likes fjords", id="stays")
        memory.add("likes zeppelins", id="goes")
        assert texts(store, "zeppelins") == ["likes zeppelins"]
        control = files_with(tmp_path, b"zeppelin")
        memory.undo()
        memory.add("likes lakes")
        clock[0] += 10 * DAY

        store.gc(store.gc_plan(RetentionPolicy(undone_after_days=1)))

        assert files_with(tmp_path, b"zeppelin") == []
        assert sorted(texts(store, "likes")) == ["likes fjords", "likes lakes"]
    assert len(control) == 2, "the store and the index had them"


def test_an_erased_item_is_in_no_file_and_the_others_keep_their_past(
    tmp_path: Path, clock: list[int]
) -> None:
    """Its values go, undone ones included; every moment stays, without it.  Forgetting is the control."""
    with perdure.open(tmp_path / "store.db", clock=lambda: clock[0]) as store:
        memory = store.memory("ann")
        memory.add("likes fjords", id="stays")
        before = memory.head.commit
        memory.add("likes zeppelins", id="goes")
        memory.undo()
        memory.add("likes zeppelins a lot", id="goes")
        memory.add("likes lakes", id="other")
        memory.forget("goes")
        control = files_with(tmp_path, b"zeppelin")

        erased = memory.erase("goes")

        assert files_with(tmp_path, b"zeppelin") == []
        assert (erased.threads, erased.left_alone) == ((), None)
        assert [item.id for item in memory.items()] == ["other", "stays"]
        assert before is not None
        assert [item.text for item in memory.at(before)] == ["likes fjords"]
        memory.undo(2)  # before it was forgotten
        assert [item.id for item in memory.items()] == ["other", "stays"]
        assert sorted(texts(store, "likes zeppelins")) == ["likes fjords", "likes lakes"]
        assert store.verify().ok
    assert control, "a forgotten item is still in the history"


def test_an_erasure_leaves_every_version_of_every_other_item_readable(store: Store) -> None:
    """Also of one that was replaced and of one that was forgotten, at each moment; the erased item is the control."""
    memory = store.memory("ann")
    memory.add("likes fjords", id="other")
    memory.add("likes zeppelins", id="goes")
    memory.add("likes lakes", id="other")
    memory.add("likes seas", id="third")
    memory.forget("third")
    moments = [entry.digest for entry in reversed(memory.log())]
    references = [memory.get("other", at=moments[at]).reference for at in (0, 2)]
    references.append(memory.get("third", at=moments[3]).reference)

    erased = memory.erase("goes")

    assert (erased.count, erased.left_alone) == (1, None)
    assert [memory.resolve(each).text for each in references] == ["likes fjords", "likes lakes", "likes seas"]
    states = [[item.text for item in memory.at(at)] for at in moments]
    later = [["likes lakes"], ["likes lakes", "likes seas"], ["likes lakes"]]
    assert states == [["likes fjords"], ["likes fjords"], *later]
    memory.undo(3)
    assert [item.text for item in memory.items()] == ["likes lakes"]
    memory.add("likes lakes", id="again")
    with raises(Forgotten, "forgotten"):
        memory.get("goes", at=moments[1])
    assert store.verify().ok


def test_erasing_names_the_threads_that_hold_the_words(store: Store) -> None:
    """The one that wrote the item and the one whose model was shown it; not one of another owner, nor one without it."""
    remembering(store, "wrote", "likes zeppelins", name="goes")
    for thread, owner, said in (
        ("shown", "ann", "zeppelins?"),
        ("plain", "ann", "hello"),
        ("bobs", "bob", "zeppelins?"),
    ):
        agent = Agent("a", backend=testing.Script(testing.say("ok")))
        store.thread(thread, agent=agent, owner=owner).run(said)

    assert store.memory("ann").erase("goes").threads == ("shown", "wrote")
    assert store.memory("ann").erase("goes").count == 0
    with raises(NotFound, "memory_item_not_found"):
        store.memory("ann").erase("never")


def test_all_of_an_owner_is_erased_at_once(tmp_path: Path, clock: list[int]) -> None:
    """Also what was forgotten, undone or noted by a thread, which is named; another owner's memory stays as it is."""
    with perdure.open(tmp_path / "store.db", clock=lambda: clock[0]) as store:
        memory, bob = store.memory("ann"), store.memory("bob")
        bob.add("likes fjords", id="bobs")
        memory.add("owns a zeppelin", id="undone")
        memory.undo()
        memory.add("rents a zeppelin", id="forgotten")
        memory.forget("forgotten")
        memory.add("flies a zeppelin", id="now")
        control = files_with(tmp_path, b"zeppelin")

        first = memory.erase_all(author="clerk")
        left = files_with(tmp_path, b"zeppelin")
        remembering(store, "wrote", "likes airships", name="noted")
        second = memory.erase_all()

        assert (control != [], left) == (True, [])
        assert (first.items, first.threads, first.left_alone) == (("forgotten", "now", "undone"), (), None)
        assert first.count > 0
        assert (second.threads, second.items) == (("wrote",), ("forgotten", "noted", "now", "undone"))
        assert (list(memory.items()), memory.erase_all().count) == ([], 0)
        assert [item.text for item in bob.items()] == ["likes fjords"]
        with raises(Conflict, "erasure_not_undone"):
            memory.undo()
        assert store.verify().ok


def test_nothing_of_an_owner_without_a_memory_is_erased(store: Store) -> None:
    """A mistyped owner is an error, and begins no memory; the one that is there stays."""
    store.memory("ann").add("likes fjords")

    with raises(NotFound, "memory_owner_not_found", owner="anne"):
        store.memory("anne").erase_all()

    assert texts(store, "likes") == ["likes fjords"]
    assert list(store.owners()) == ["ann"]


def test_an_async_program_forgets_and_erases_all() -> None:
    """The same as in a program without asyncio."""

    async def go() -> tuple[list[str], tuple[str, ...]]:
        async with await aio.open("memory:") as store:
            memory = await store.memory("ann")
            await memory.add("likes fjords", id="a")
            await memory.forget_all()
            left = [item.id async for item in memory.items()]
            return left, (await memory.erase_all()).items

    assert asyncio.run(go()) == ([], ("a",))


def test_one_undo_takes_back_that_all_was_forgotten(store: Store) -> None:
    """It is one change, made once under its op_id; where nothing is there, none is written."""
    memory = store.memory("ann")
    nothing = memory.forget_all()
    memory.add("likes fjords", id="a")
    remembering(store, "t1", "likes lakes", name="b")

    head = memory.forget_all(op_id="once", author="clerk")
    left = list(memory.items())
    again = memory.forget_all()
    memory.undo()

    assert nothing.commit is None
    assert (left, again) == ([], head)
    assert [item.id for item in memory.items()] == ["a", "b"]
    assert memory.forget_all(op_id="once") == head
    assert [item.id for item in memory.items()] == ["a", "b"]


def test_an_item_is_erased_that_a_machine_with_a_faster_clock_wrote(tmp_path: Path, clock: list[int]) -> None:
    """Its states are later than the time here; forgetting, the control, leaves the words."""
    with perdure.open(tmp_path / "store.db", clock=lambda: clock[0]) as store:
        memory = store.memory("ann")
        memory.add("likes zeppelins", id="goes")
        memory.add("likes lakes", id="stays")
        clock[0] -= 5_000_000
        memory.forget("goes")
        control = files_with(tmp_path, b"zeppelin")

        erased = memory.erase("goes")

        assert erased.count > 0
        assert files_with(tmp_path, b"zeppelin") == []
        assert [item.text for item in memory.items()] == ["likes lakes"]
        assert store.verify().ok
    assert control


@pytest.mark.parametrize(
    ("text", "said", "is_named"),
    [
        ("tea", "Two steaks, please.", False),
        ("tea", "Two teas, please.", False),
        ("tea", "Two:\ntea, please.", True),
        ("tea", "Two:\x07tea", True),
        ("tea", "请给我tea吧", True),
        ("喜欢茶", "A喜欢茶和B", True),
        ("(tea)", "iced(tea)s", True),
        ('a "b"', 'see a "b".', True),
    ],
)
def test_erasing_finds_whole_words(store: Store, text: str, said: str, is_named: bool) -> None:
    """A part of another word is none of the item's words; a script without spaces has no such parts."""
    agent = Agent("a", backend=testing.Script(testing.say("ok")))
    store.thread("t", agent=agent, owner="ann").run(said)
    store.memory("ann").add(text, id="goes")

    assert store.memory("ann").erase("goes").threads == (("t",) if is_named else ())


def test_an_undone_moment_without_the_item_stays_when_another_is_erased(store: Store) -> None:
    """Of a moment that had the item, which is the control, only the item is gone."""
    memory = store.memory("ann")
    memory.add("likes fjords", id="first")
    without = memory.head.commit
    memory.add("likes zeppelins", id="goes")
    with_it = memory.head.commit
    memory.undo(2)
    memory.add("likes lakes", id="other")
    assert without is not None
    assert with_it is not None

    memory.erase("goes")

    assert [item.text for item in memory.at(without)] == ["likes fjords"]
    assert [item.text for item in memory.at(with_it)] == ["likes fjords"]
    with raises(Forgotten, "forgotten"):
        memory.get("goes", at=with_it)


@pytest.mark.parametrize("batches", [1, 5])
def test_an_erasure_that_was_interrupted_is_finished_by_another(
    monkeypatch: pytest.MonkeyPatch, clock: list[int], batches: int
) -> None:
    """Wherever it stopped, no object has the words after it; what is there before is the control."""
    for limit in ("_BATCH_MAX", "_TOGETHER_MAX"):
        monkeypatch.setattr(f"perdure.history.retention.planner.{limit}", 1)
    with perdure.open("memory:", clock=lambda: clock[0]) as store:
        memory, engine = store.memory("ann"), store._resources.engine
        for number in range(20):
            memory.add(f"likes number {number}", id=f"n{number}")
        for number in range(9):
            memory.add(f"likes zeppelins {number}", id="goes")
        control = words_in(store, b"zeppelin")
        forget, calls = engine.forget, [KeyboardInterrupt, *[None] * batches]

        def stopping(*given: object, **named: object) -> int:
            if calls and calls.pop() is not None:
                raise KeyboardInterrupt
            return forget(*given, **named)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(engine, "forget", stopping)
        with pytest.raises(KeyboardInterrupt):
            memory.erase("goes")

        memory.erase("goes")

        assert (control > 0, words_in(store, b"zeppelin"), store.verify().ok) == (True, 0, True)


def words_in(store: Store, word: bytes) -> int:
    """How many objects of Ann's memory have a word."""
    facts = (fact for page in pages(store._resources.engine, "memory:ann") for fact in page)
    return sum(fact.object is not None and word in fact.object.body for fact in facts)


def test_a_damaged_moment_keeps_no_erasure_from_being_whole(clock: list[int]) -> None:
    """The words are found by what was written, not by what a map still shows; before the erasure is the control."""
    with perdure.open("memory:", clock=lambda: clock[0]) as store:
        memory = store.memory("ann")
        memory.add("likes zeppelins", id="goes")
        memory.add("likes lakes", id="other")
        (first, *_) = reversed(memory.log())
        space = store._resources.memories.of("ann").space
        damage(store._resources.engine, "memory:ann", space.step(first.digest).commit.root)
        control = words_in(store, b"zeppelin")

        erased = memory.erase("goes")

        assert (control > 0, words_in(store, b"zeppelin"), erased.left_alone) == (True, 0, None)


def files_with(directory: Path, word: bytes) -> list[Path]:
    """The files that have a word in plain."""
    return [each for each in directory.rglob("*") if each.is_file() and word in each.read_bytes()]


@pytest.mark.parametrize("owners", [("ann",), ()])
def test_what_was_forgotten_or_replaced_is_erased_with_superseded_values(
    store: Store, clock: list[int], owners: tuple[str, ...]
) -> None:
    """Newer items stay as they are, also the memory of another owner, whose past stays if he is not named."""
    for owner in ("ann", "bob"):
        memory = store.memory(owner)
        memory.add("is allergic to peanuts", id="nuts")
        memory.add("likes lakes", id="water")
        memory.add("likes fjords", id="water")
        memory.forget("nuts")
    script = testing.Script(testing.say("ok"))
    store.thread("t1", agent=Agent("a", backend=script), owner="ann").run("What about peanuts?")
    clock[0] += DAY
    plan = store.gc_plan(RetentionPolicy(superseded_after_days=0, owners=owners))

    store.gc(plan)

    ann, bob = store.memory("ann"), store.memory("bob")
    (first, *_) = reversed(ann.log())
    with raises(Forgotten, "forgotten"):
        ann.get("nuts", at=first.digest)
    assert [item.text for item in ann.items()] == texts(store, "likes") == ["likes fjords"]
    assert ann.resolve(ann.get("water").reference).text == "likes fjords"
    assert [entry.reason for entry in ann.log()] == ["memory.forget", *["memory.add"] * 3]
    (earliest, *_) = reversed(bob.log())
    if owners:
        assert bob.get("nuts", at=earliest.digest).text == "is allergic to peanuts"
    else:
        with raises(Forgotten, "forgotten"):
            bob.get("nuts", at=earliest.digest)
    assert store.verify().ok
