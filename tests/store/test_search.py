"""A search of messages for words: the places of a message, on each engine."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Store, Thread
from perdure.model.message import Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.shapes import search
from perdure.shapes.search import FoundMessage, search_back, words_in
from tests.engines.postgres.stores import new_store
from tests.selection import engines


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Thread]:
    """A thread with a call and its result, on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))()) as store:
        yield told(store)


def told(store: Store) -> Thread:
    """Begin a thread and say what there is to be found."""
    thread = store.thread("t", agent="planner")
    reasoning = ReasoningSummary("The tram is cheaper.")
    calls = (
        ToolCall("c-1", "plan", '{"where": "Lisbon", "by": "tram"}'),
        ToolCall("c-2", "book", '{"hotel": "Caf\\u00e9 Azul", "nights": 3}'),
    )
    results = (
        ToolResult("c-1", "success", (Text("line 28"),)),
        ToolResult("c-2", "error", (Text("no rooms"), Text("in May"))),
    )
    for message in (
        Message("user", (Text("Plan a trip to Lisbon."),)),
        Message("assistant", (reasoning, Text("One moment.")), calls),
        Message("tool", tool_results=results),
        Message("assistant", (Text("There is no room in Lisbon."),)),
    ):
        with thread.change("say") as change:
            change.add(message)
    return thread


def found(thread: Thread, query: str) -> list[FoundMessage]:
    """What a search of the whole timeline finds, the newest first."""
    return [hit for some, _, _ in search_back(thread, words_in(query), None) for hit in some]


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("lisbon", [("text", None), ("call", "c-1"), ("text", None)]),
        ("tram cheaper", [("reasoning", None)]),
        ("plan tram", [("call", "c-1")]),
        ("café azul", [("call", "c-2")]),
        ("28", [("result", "c-1")]),
        ("rooms may", [("result", "c-2")]),
        ("rooms 28", []),
        ("tram 28", []),
    ],
)
def test_words_are_found_in_every_place_of_a_message(
    thread: Thread, query: str, places: list[tuple[str, str | None]]
) -> None:
    """A hit names the first place with all the words, and its call; words of two places together find nothing."""
    hits = found(thread, query)

    assert [(hit.kind, hit.call) for hit in hits] == places
    for hit in hits:
        assert all(word in hit.text.casefold() for word in words_in(query))


def test_a_search_of_the_text_alone_finds_less(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with the text as the only place, the words of calls, results and reasoning are nowhere."""
    places = search._places_of

    def text_alone(message: Message) -> Iterator[search._SearchedText]:
        return (place for place in places(message) if place.kind == "text")

    monkeypatch.setattr(search, "_places_of", text_alone)

    assert [len(found(thread, query)) for query in ("lisbon", "cheaper", "azul", "28")] == [2, 0, 0, 0]


def test_a_hit_in_a_long_place_shows_what_is_around_the_word(thread: Thread) -> None:
    """The place is cut on both sides; control: a short one is whole."""
    long = f"{'before ' * 5_000}needle{' after' * 5_000}"
    with thread.change("say") as change:
        change.say("user", long)

    (hit,), (short,) = found(thread, "needle"), found(thread, "28")

    assert len(hit.text) < 1_010
    assert hit.text.startswith("…")
    assert hit.text.endswith("…")
    assert " needle " in hit.text
    assert short.text == "line 28"


def test_what_is_around_a_word_is_found_after_letters_that_grow_when_folded(thread: Thread) -> None:
    """An "ß" counts as two where the case does not matter, so the place of the word is not its place in what is searched."""
    with thread.change("say") as change:
        change.say("user", f"{'ß' * 2_000}needle{'x' * 2_000}")

    (hit,) = found(thread, "NEEDLE")

    assert "needle" in hit.text
