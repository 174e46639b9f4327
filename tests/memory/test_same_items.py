"""What is there already is not added again: in other case, by another source, from threads that are undone."""

from __future__ import annotations

from datetime import timedelta

import pytest

import perdure
from perdure import Agent, Call, Store, Thread
from perdure.model.memory import Trust
from perdure.store.memory import Memory
from perdure.testing import Script, say, use


@pytest.fixture
def ann(store: Store) -> Memory:
    """The memory of an owner."""
    return store.memory("ann")


def told(memory: Memory) -> list[tuple[str, str]]:
    """What is remembered, and who said it."""
    return [(each.text, each.trust) for each in memory.items()]


def noting(store: Store, thread: str, *said: tuple[str, Trust]) -> tuple[Thread, list[str]]:
    """A thread whose one call has remembered these texts under no id, and the ids that it got."""
    ids: list[str] = []

    @perdure.tool(effect="local_write")
    def note(call: Call) -> str:
        ids.extend(call.memory.add(text, trust=trust) for text, trust in said if trust != "system")
        return "noted"

    script = Script(use("note"), say("Noted."))
    opened = store.thread(thread, agent=Agent("planner", backend=script, tools=[note]), owner="ann")
    opened.run("Remember it")
    return opened, ids


@pytest.mark.parametrize("text", ["Has Two Dogs", " has two dogs ", "has\ttwo\n dogs", "HAS TWO DOGS"])
def test_case_and_white_space_make_no_other_item(ann: Memory, text: str) -> None:
    """The item keeps the words that it has, and nothing is written; control: another sign makes another item."""
    first = ann.add("has two dogs")
    head = ann.head

    assert ann.add(text) == first
    assert ann.head == head
    assert ann.add("has two dogs!").id != first.id


def test_letters_that_fold_to_two_are_the_same(ann: Memory) -> None:
    """Folding is that of Unicode; an accent is no matter of case."""
    first = ann.add("wohnt in der Straße")

    assert ann.add("WOHNT IN DER STRASSE").id == first.id
    assert ann.add("wohnt in der Stráße").id != first.id


@pytest.mark.parametrize("trust", ["model", "tool", "import"])
def test_what_a_weaker_source_repeats_is_there(ann: Memory, trust: Trust) -> None:
    """A user's item stays a user's; an item that ends, the control, is another one."""
    first = ann.add("has two dogs")
    head = ann.head

    again = ann.add("Has two dogs", trust=trust)

    assert (again, ann.head) == (first, head)
    assert ann.add("has two dogs", trust=trust, expires=timedelta(days=1)).id != first.id


def test_what_a_user_confirms_is_the_users(ann: Memory) -> None:
    """The item that a model noted has the words and the trust of the user, and an undo makes it the model's again."""
    first = ann.add("has two dogs", trust="model", kind="episodic", scope="home")
    other = ann.add("has two dogs", trust="model")

    confirmed = ann.add("Has two dogs", kind="episodic", scope="home", author="ann")
    now = told(ann)
    ann.undo()

    assert confirmed.id == first.id != other.id
    assert sorted(now) == [("Has two dogs", "user"), ("has two dogs", "model")]
    assert ann.get(first.id) == first


def test_a_repeated_confirmation_is_one(ann: Memory) -> None:
    """Under its op_id; the item was there before."""
    first = ann.add("has two dogs", trust="model")
    once = ann.add("has two dogs", op_id="req-1")
    head = ann.head

    again = ann.add("has two dogs", op_id="req-1")

    assert (once, head) == (again, ann.head)
    assert once.id == first.id


def test_the_strongest_of_several_equal_items_is_returned(ann: Memory) -> None:
    """As stores have them in which both were given ids."""
    ann.add("has two dogs", id="a", trust="model")
    user = ann.add("has two dogs", id="b")

    assert ann.add("has two dogs", trust="model") == user


def test_a_tool_that_repeats_what_a_user_added_writes_nothing(store: Store, ann: Memory) -> None:
    """It gets the id of the item, whose words and trust stay; in other words, the control, it adds one."""
    first, head = ann.add("has two dogs"), ann.head

    _, ids = noting(store, "t1", ("Has two  dogs", "model"))
    unchanged = ann.head
    _, others = noting(store, "t2", ("has three dogs", "model"))

    assert (ids, unchanged) == ([first.id], head)
    assert others != ids
    assert len(told(ann)) == 2


def test_a_weaker_repetition_of_another_thread_keeps_what_the_stronger_said(
    store: Store, ann: Memory
) -> None:
    """The item is shown once, as said by the user; whichever turn is undone, what the other said is left."""
    user, (id,) = noting(store, "t1", ("has two dogs", "user"))
    model, ids = noting(store, "t2", ("Has two dogs", "model"))
    both = told(ann)

    user.undo()
    without_user = told(ann)
    user.redo()
    model.undo()
    without_model = told(ann)
    user.undo()

    assert ids == [id]
    assert both == without_model == [("has two dogs", "user")]
    assert without_user == [("Has two dogs", "model")]
    assert told(ann) == []


def test_a_stronger_repetition_of_another_thread_is_shown(store: Store, ann: Memory) -> None:
    """Until its turn is undone: then the item is the model's again."""
    _, (id,) = noting(store, "t1", ("has two dogs", "model"))

    user, ids = noting(store, "t2", ("has two dogs", "user"))
    confirmed = told(ann)
    user.undo()

    assert (ids, confirmed) == ([id], [("has two dogs", "user")])
    assert told(ann) == [("has two dogs", "model")]


def test_other_words_between_two_equal_ones_end_what_was_said(store: Store, ann: Memory) -> None:
    """A model that says it anew, after another wrote otherwise, does not speak as the user who said it first."""
    first = ann.add("has two dogs", id="dogs")

    def wrote(thread: str, text: str) -> Thread:
        @perdure.tool(effect="local_write")
        def note(call: Call) -> str:
            return call.memory.add(text, id="dogs", trust="model")

        script = Script(use("note"), say("Noted."))
        opened = store.thread(thread, agent=Agent("planner", backend=script, tools=[note]), owner="ann")
        opened.run("Remember it")
        return opened

    other = wrote("t1", "has three dogs")
    wrote("t2", "has two dogs")
    anew = told(ann)
    other.undo()

    assert anew == [("has two dogs", "model")]
    assert told(ann) == [(first.text, "user")]


def test_a_program_that_repeats_a_thread_makes_the_item_stay(store: Store, ann: Memory) -> None:
    """From as strong a source it stays as it is; from a weaker one it is that source's once the thread takes it back."""
    equal, (kept,) = noting(store, "t1", ("likes tea", "model"))
    stronger, (id,) = noting(store, "t2", ("has two dogs", "user"))

    ids = [ann.add("likes tea", trust="model").id, ann.add("has two dogs", trust="model").id]
    head = ann.head
    ids.append(ann.add("has two dogs", trust="model").id)
    both = told(ann)
    equal.undo()
    stronger.undo()

    assert (ids, ann.head) == ([kept, id, id], head), "the second repetition writes nothing"
    assert sorted(both) == [("has two dogs", "user"), ("likes tea", "model")]
    assert sorted(told(ann)) == [("has two dogs", "model"), ("likes tea", "model")]


def test_a_call_that_says_it_twice_keeps_the_stronger_word(store: Store, ann: Memory) -> None:
    """In either order, in one call, it is one item of the user."""
    noting(store, "t1", ("has two dogs", "user"), ("Has two dogs", "model"))
    noting(store, "t2", ("likes tea", "model"), ("Likes tea", "user"))

    assert sorted(told(ann)) == [("Likes tea", "user"), ("has two dogs", "user")]


def test_an_item_of_several_sources_is_found_once_and_read_as_it_is_shown(store: Store, ann: Memory) -> None:
    """By a search, at its last moment, and by a restore: the stronger source is not replaced by the weaker one."""
    noting(store, "t1", ("has two dogs", "user"))
    noting(store, "t2", ("has two dogs", "model"))
    (shown,) = ann.items()

    assert [each.item for each in ann.search("dogs")] == [shown]
    assert ann.get(shown.id, at="HEAD") == shown
    assert [each.id for each in ann.at("HEAD")] == [shown.id]
    with pytest.raises(perdure.errors.NotFound):
        ann.restore(shown.id)
