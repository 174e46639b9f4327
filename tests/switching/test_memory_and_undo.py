"""Undo past a memory write, another owner's search: withdrawn; nothing found.

The write goes away with any way of leaving its commit, and comes back with any way of returning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import perdure
from perdure import Agent, Store, testing
from perdure.memory.owner_memory import ReachableMemory
from tests.memory.remembering import look, remembering, texts

_names = count()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store with items of two owners."""
    with perdure.open(store_url) as opened:
        opened.memory("bob").add("bob likes fjords too", id="bob")
        yield opened


def asked(store: Store, owner: str) -> str:
    """What a run of a new thread of that owner finds, as its model is told."""
    script = testing.Script(testing.use("look", query="fjords"), testing.say("ok"))
    agent = Agent("asker", backend=script, tools=[look])
    thread = store.thread(f"ask-{next(_names)}", agent=agent, owner=owner)
    thread.run("What do you know?")
    return str(thread.transcript()[2].message.tool_results)


def test_undo_past_a_memory_write_withdraws_it(store: Store) -> None:
    """Neither the program nor a run of the same owner finds it; redo returns it to both."""
    thread = remembering(store, "t1", "ann likes fjords")
    before = texts(store, "fjords"), "ann likes fjords" in asked(store, "ann")

    thread.undo()
    undone = texts(store, "fjords"), "ann likes fjords" in asked(store, "ann")
    thread.redo()

    assert before == (["ann likes fjords"], True)
    assert undone == ([], False)
    assert (texts(store, "fjords"), "ann likes fjords" in asked(store, "ann")) == (["ann likes fjords"], True)


def test_undo_past_it_from_further_on_withdraws_it_too(store: Store) -> None:
    """However many turns lie between, and whichever of several writes it is."""
    thread = remembering(store, "t1", "ann likes fjords", name="first")
    for number in range(5):
        thread.put(f"/n{number}.json", number)
    remembering(store, "t1", "ann likes deep fjords", name="second")

    thread.undo(3)
    half = texts(store, "fjords")
    thread.undo(4)

    assert half == ["ann likes fjords"]
    assert texts(store, "fjords") == []


def test_without_the_check_it_would_still_be_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: nothing but reachability withdraws it."""
    remembering(store, "t1", "ann likes fjords").undo()
    monkeypatch.setattr(ReachableMemory, "holds", lambda *args: True)

    assert texts(store, "fjords") == ["ann likes fjords"]


def test_another_owner_s_search_finds_nothing(store: Store) -> None:
    """By hand and in a run, whatever is asked; the control is the owner's own search."""
    remembering(store, "t1", "ann likes fjords")

    assert texts(store, "ann likes fjords", "carl") == []
    assert texts(store, "ann likes fjords", "bob") == ["bob likes fjords too"]
    assert "ann" not in asked(store, "bob").replace("asker", "")
    assert texts(store, "ann likes fjords", "ann") == ["ann likes fjords"]
