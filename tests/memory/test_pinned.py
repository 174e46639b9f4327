"""Pinned items: every run of the owner is shown them, whatever its input says, as far as there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from msgspec import UNSET

import perdure
from perdure import Agent, Call, ContextLimits, Image, Message, Store
from perdure.errors import Invalid, NotFound
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.memory.remembering import by_letters, forgetting

START = 1_700_000_000_000_000


@perdure.tool(effect="local_write")
def pin_note(text: str, call: Call, name: str | None = None, pinned: bool | None = True) -> str:
    """Remember something for every run."""
    return call.memory.add(text, id=name, trust="model", pinned=UNSET if pinned is None else pinned)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store whose clock goes on by a second with each look."""
    times = iter(range(START, START + 10**13, 1_000_000))
    with perdure.open(store_url, clock=lambda: next(times)) as opened:
        yield opened


def told(script: Script) -> list[str]:
    """The lines of the note in the last context, without what every note says."""
    notes = [each.text for each in script.contexts[-1].messages if each.text.startswith("[Perdure note]")]
    return notes[-1].split("\n")[1:] if notes else []


def texts(lines: Sequence[str]) -> list[str]:
    """The texts that the lines quote."""
    return [line.rpartition(": ")[2].strip('"') for line in lines]


def asking(store: Store, question: str | Message, *, limits: ContextLimits | None = None) -> Script:
    """Ask something in a new thread of ann; return the model that was asked."""
    script = Script(say("Well."))
    agent = Agent("planner", backend=script, context=limits or ContextLimits())
    store.thread(f"t-{len(list(store.threads()))}", agent=agent, owner="ann").run(question)
    return script


def test_pinned_items_are_shown_whatever_the_input_says(store: Store) -> None:
    """First and newest first, then what matches the input; the control: an item that is not pinned and does not match."""
    memory = store.memory("ann")
    memory.add("is allergic to peanuts", pinned=True)
    memory.add("likes short answers", kind="preference", pinned=True)
    memory.add("lives in Bergen")
    memory.add("has a dog called Biscuit")

    lines = told(asking(store, "Where is Bergen?"))

    assert texts(lines) == ["likes short answers", "is allergic to peanuts", "lives in Bergen"]
    assert "(preference, pinned, from user, written 2023-11-14T" in lines[0]
    assert "pinned" not in lines[2]


def test_an_input_without_words_is_shown_pinned_items(store: Store) -> None:
    """A picture alone matches nothing."""
    store.memory("ann").add("likes short answers", pinned=True)
    picture = Message("user", (Image("https://example.org/cat.gif", "image/gif"),))

    assert texts(told(asking(store, picture))) == ["likes short answers"]


def test_what_was_shown_is_made_again_byte_for_byte(store: Store) -> None:
    """After the item was unpinned, edited and forgotten since; the plan of it still says why it was shown."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style", pinned=True)
    script = asking(store, "Hello?")
    thread = next(iter(store.threads()))
    commit = thread.head.commit

    memory.unpin("style")
    memory.add("likes long answers", id="style")
    memory.forget("style")

    (item,) = thread.shown(commit).plan.of(5)
    assert thread.at(commit).context() == script.contexts[-1]
    assert (item.what, item.text, item.why) == (
        "mem://user/ann/style",
        '"likes short answers"',
        "pinned: shown to every run",
    )


def test_the_oldest_pinned_items_are_left_out_beyond_the_limit(store: Store) -> None:
    """The limit of the agent counts all items; the note and the plan say what is left out and why, also afterwards."""
    for number in range(5):
        store.memory("ann").add(f"rule {number}", pinned=True)
    store.memory("ann").add("lives in Bergen")

    lines = told(asking(store, "Where is Bergen?", limits=ContextLimits(memory=3)))
    thread = next(iter(store.threads()))
    shown = thread.shown(thread.head.commit).plan.of(5)

    assert texts(lines[:3]) == ["rule 4", "rule 3", "rule 2"]
    assert lines[3:] == ["Left out of memory: 2 pinned items, the oldest; the limit is 3 items"]
    assert [(each.included, each.what, each.why) for each in shown[3:]] == [
        (False, "2 pinned items, the oldest", "the limit is 3 items")
    ]


def test_the_oldest_pinned_items_are_left_out_where_there_is_no_room(store: Store) -> None:
    """What matches the input goes first, then the oldest; the recipe names the items that were shown."""
    for number in range(60):
        store.memory("ann").add(f"rule {number:02} " + "word " * 60, pinned=True)
    store.memory("ann").add("lives in Bergen")

    script = asking(store, "Where is Bergen?", limits=ContextLimits(memory=100, window=8_000))
    *lines, pins, matching = told(script)
    thread = next(iter(store.threads()))
    recipe = thread.shown(thread.head.commit).plan.recipe

    assert 1 < len(lines) < 60
    assert [text[5:7] for text in texts(lines)] == [f"{59 - at:02}" for at in range(len(lines))]
    assert pins == f"Left out of memory: {60 - len(lines)} pinned items, the oldest; no room for it all"
    assert matching == "Left out of memory: 1 item that matches the input; no room for it all"
    assert recipe is not None
    assert len(recipe.memory) == len(lines)
    assert thread.at(thread.head.commit).context() == script.contexts[-1]


def test_no_memory_is_shown_to_an_agent_that_wants_none(store: Store) -> None:
    """A limit of 0 leaves out the pinned items too; another owner's are never shown."""
    store.memory("ann").add("likes short answers", pinned=True)
    store.memory("bob").add("likes long answers", pinned=True)

    assert told(asking(store, "Hello?", limits=ContextLimits(memory=0))) == []
    assert texts(told(asking(store, "Hello?"))) == ["likes short answers"]


def test_a_plan_of_the_next_step_has_the_pinned_items(store: Store) -> None:
    """For the backend that the thread is on and for another; an item that would have to match is not known yet."""
    store.memory("ann").add("likes short answers", pinned=True)
    store.memory("ann").add("says hello")
    asking(store, "Hello?")
    thread = next(iter(store.threads()))

    plans = [thread.plan("openai:gpt-5.6"), thread.plan("anthropic:claude-sonnet-5-5")]

    assert [[item.text for item in plan.of(5)] for plan in plans] == [['"likes short answers"']] * 2


def test_planning_makes_no_vectors(store_url: str) -> None:
    """Pinned items are found by their words' index alone; a run with an input, the control, asks the function."""
    asked: list[str] = []

    def counting(given: list[str]) -> list[list[float]]:
        asked.extend(given)
        return by_letters(given)

    with perdure.open(store_url, embed=counting) as store:
        store.memory("ann").add("likes short answers", pinned=True)
        thread = store.thread("t", agent=Agent("planner", backend=Script(say("Hi."))), owner="ann")

        planned = thread.plan("openai:gpt-5.6").of(5)
        before = list(asked)
        thread.run("Hello?")

    assert ([item.text for item in planned], before) == (['"likes short answers"'], [])
    assert "likes short answers" in asked


def test_an_item_can_be_pinned_and_unpinned(store: Store) -> None:
    """It keeps its text, its time and its end; the log says what was done, undo takes it back, and twice is once."""
    memory = store.memory("ann")
    added = memory.add("likes short answers", kind="preference", id="style", expires=timedelta(days=9))

    pinned = memory.pin("style", author="ann")
    again = memory.pin("style")
    head = memory.head
    memory.unpin("style")

    assert (pinned.pinned, pinned.text, pinned.kind) == (True, added.text, "preference")
    assert (pinned.at, pinned.expires_at, again) == (added.at, added.expires_at, pinned)
    assert [(each.reason, each.author) for each in memory.log()] == [
        ("memory.unpin", None),
        ("memory.pin", "ann"),
        ("memory.add", None),
    ]
    assert not memory.get("style").pinned
    memory.undo()
    assert memory.get("style").pinned
    assert memory.head.commit == head.commit
    with raises(NotFound, "memory_item_not_found"):
        memory.pin("nothing")


def test_a_repeated_pin_is_made_once(store: Store) -> None:
    """Under its op_id it says again what it did, although the item was edited and unpinned since."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style")
    memory.pin("style", op_id="p1")
    memory.add("likes long answers", id="style", pinned=False)
    head = memory.head

    again = memory.pin("style", op_id="p1")

    assert (again.text, again.pinned, memory.head) == ("likes short answers", True, head)


def test_adding_the_same_again_pins_what_is_there(store: Store) -> None:
    """There is one item of a text; without a word about it the pin stays as it is, and False takes it off."""
    memory = store.memory("ann")
    plain = memory.add("likes short answers")

    pinned = memory.add("likes short answers", pinned=True)
    silent = memory.add("likes short answers")
    unpinned = memory.add("likes short answers", pinned=False)

    assert {each.id for each in (pinned, silent, unpinned)} == {plain.id}
    assert [each.pinned for each in (plain, pinned, silent, unpinned)] == [False, True, True, False]
    assert len(list(memory.items())) == 1


def test_a_corrected_item_stays_pinned(store: Store) -> None:
    """Also if a tool replaces it; said so, it is pinned no more."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style", pinned=True)

    edited = memory.add("likes very short answers", id="style")
    script = Script(use("pin_note", text="likes answers", name="style", pinned=None), say("Noted."))
    store.thread("t", agent=Agent("planner", backend=script, tools=[pin_note]), owner="ann").run("Go")
    by_tool = memory.get("style")
    plain = memory.add("likes answers a lot", id="style", pinned=False)

    assert (edited.pinned, by_tool.text, by_tool.pinned, plain.pinned) == (True, "likes answers", True, False)


def test_the_last_pin_counts_whichever_source_set_it(store: Store) -> None:
    """A tool pins what a user said, whose words they stay; an undo of the turn takes the pin off, and a redo puts it back."""
    memory = store.memory("ann")
    said = memory.add("likes short answers", id="style")
    script = Script(use("pin_note", text="Likes short answers"), say("Noted."))
    thread = store.thread("t", agent=Agent("planner", backend=script, tools=[pin_note]), owner="ann")

    thread.run("Go")
    pinned = memory.get("style")
    shown = texts(told(asking(store, "Hello?")))
    thread.undo()
    undone = memory.get("style")
    thread.redo()
    again = memory.add("likes short answers")

    assert (pinned.text, pinned.trust, pinned.pinned) == (said.text, "user", True)
    assert shown == ["likes short answers"]
    assert (undone.pinned, memory.log()[0].did) == (False, "kept")
    assert (again.pinned, again.id, [each.did for each in memory.log()][1:]) == (
        True,
        "style",
        ["pinned", "added"],
    )


def test_what_a_stronger_source_says_again_stays_pinned(store: Store) -> None:
    """And what a weaker one says again does: the words that count are those of the strongest, with the pin."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style", trust="model", pinned=True)

    by_user = memory.add("likes short answers")
    by_model = memory.add("likes short answers", trust="model")

    assert [(each.trust, each.pinned) for each in (by_user, by_model)] == [("user", True), ("user", True)]


def test_an_edit_may_pin(store: Store) -> None:
    """What is not given stays, the pin too."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style")

    pinned = memory.edit("style", pinned=True)
    edited = memory.edit("style", "likes answers")

    assert [(each.text, each.pinned) for each in (pinned, edited)] == [
        ("likes short answers", True),
        ("likes answers", True),
    ]


def test_a_tool_can_pin(store: Store) -> None:
    """An undo of its turn takes the item away, and a pin by hand keeps it for good."""
    script = Script(use("pin_note", text="likes short answers"), say("Noted."), then=say("Again."))
    thread = store.thread("t", agent=Agent("planner", backend=script, tools=[pin_note]), owner="ann")
    thread.run("I like short answers")
    (item,) = store.memory("ann").items()

    shown = texts(told(asking(store, "Hello?")))
    thread.undo()
    after_undo = texts(told(asking(store, "Hello?")))
    thread.redo()
    store.memory("ann").unpin(item.id)
    store.memory("ann").pin(item.id)
    thread.undo()

    assert item.pinned
    assert (shown, after_undo) == (["likes short answers"], [])
    assert texts(told(asking(store, "Hello?"))) == ["likes short answers"]


def test_what_has_expired_or_was_forgotten_is_not_shown(store: Store) -> None:
    """A pin makes no item last longer."""
    memory = store.memory("ann")
    memory.add("is in Oslo", pinned=True, expires=timedelta(seconds=2))
    memory.add("has a cold", id="n", pinned=True)
    memory.add("likes short answers", pinned=True)
    forgetting(store, "drops", "n")

    assert texts(told(asking(store, "Hello?"))) == ["likes short answers"]


def test_a_restored_item_is_pinned_as_it_was(store: Store) -> None:
    """The pin is part of what an item was before its last change."""
    memory = store.memory("ann")
    memory.add("likes short answers", id="style", pinned=True)
    memory.unpin("style")

    assert memory.restore("style").pinned


def test_an_item_that_is_not_pinned_is_stored_as_before(store: Store) -> None:
    """Its bytes name no pin, so that items of earlier releases keep their digests; a pinned one, the control, does."""
    memory = store.memory("ann")
    plain = memory.add("likes short answers", id="style", pinned=False)
    pinned = memory.pin("style")
    space = store._resources.memories.of("ann").space

    assert b"pinned" not in space.body(plain.digest)
    assert b'"pinned":true' in space.body(pinned.digest)


@pytest.mark.parametrize("pinned", [1, "yes"])
def test_a_pin_is_a_truth_value(store: Store, pinned: object) -> None:
    """Anything else is refused by name, and nothing is written."""
    with raises(Invalid, "pinned_invalid"):
        store.memory("ann").add("likes short answers", pinned=pinned)  # pyright: ignore[reportArgumentType]

    assert list(store.memory("ann").items()) == []


def test_no_query_finds_items_because_they_are_pinned(store: Store) -> None:
    """The term by which pinned items are found is no word of theirs."""
    store.memory("ann").add("likes short answers", pinned=True)

    assert [list(store.memory("ann").search(word)) for word in ("pinned", "u", "\U0010ffff")] == [[], [], []]


def test_many_pinned_items_are_all_known(store: Store) -> None:
    """However they are ranked by words, the newest are shown."""
    for number in range(40):
        store.memory("ann").add("word " * (number + 1), id=f"i{number}", pinned=True)

    lines = told(asking(store, "Hello?", limits=ContextLimits(memory=2)))

    assert [line.split(" ")[1] for line in lines[:2]] == ["mem://user/ann/i39", "mem://user/ann/i38"]
    assert lines[2].startswith("Left out of memory: 38 pinned items")
