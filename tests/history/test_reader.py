"""Reading a line: windows, turns, and a message that was forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import Forgotten, NotFound
from perdure.history import reader
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.message import Message, Text, ToolCall
from tests.coded import raises
from tests.history.hand import Hand


def talked(count: int) -> Hand:
    """A line of so many commits with one message each."""
    hand = Hand()
    for number in range(count):
        hand.say("user", f"message {number}")
    return hand


@pytest.mark.parametrize("limit", [0, 1, 7, 100, 101, 250, 1_000, None])
def test_a_window_is_the_last_so_many(limit: int | None) -> None:
    """Oldest first for words, newest first for commits."""
    hand = talked(250)
    head = hand.head().commit
    wanted = [f"message {number}" for number in range(250)][250 - min(250 if limit is None else limit, 250) :]

    assert [entry.text for entry in reader.transcript(hand.space, head, limit=limit)] == wanted
    assert len(reader.log(hand.space, head, limit=limit)) == len(wanted)
    assert [turn.input for turn in reader.turns(hand.space, head, limit=limit)] == wanted


def test_a_window_reads_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last five of many cost a page of five."""
    hand = talked(300)
    asked: list[int] = []
    steps = type(hand.engine).steps

    def counted(self: object, space: str, at: Digest, *, limit: int, **options: Any) -> object:
        asked.append(limit)
        return steps(self, space, at, limit=limit, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(type(hand.engine), "steps", counted)
    reader.transcript(hand.space, hand.head().commit, limit=5)

    assert asked == [5]


def test_a_turn_is_a_run_or_a_change_by_hand() -> None:
    """Words, calls, backend and the moments around it."""
    hand = Hand()
    first = hand.say("user", "Book it")
    call = Message("assistant", (Text("Booking."),), (ToolCall("c-1", "book", "{}"),))
    hand.write(said=[Message("user", (Text("Go"),))], run="r-1", backend="openai:gpt-5.6")
    hand.write(said=[call], run="r-1", backend="openai:gpt-5.6")
    last = hand.write(said=[Message("assistant", (Text("Done."),))], run="r-1", backend="openai:gpt-5.6")

    one, two = reader.turns(hand.space, hand.head().commit)

    assert (one.number, one.input, one.text, one.before, one.after) == (1, "Book it", "", None, first)
    assert (two.number, two.input, two.text, two.before, two.after) == (2, "Go", "Done.", first, last)
    assert (two.run, two.backend, [call.name for call in two.calls]) == ("r-1", "openai:gpt-5.6", ["book"])


def test_a_forgotten_message_keeps_its_place() -> None:
    """The rest of the conversation is read as ever; asking for its words says why they are gone."""
    hand = talked(3)
    before = reader.transcript(hand.space, hand.head().commit)
    said = hand.space.step(before[1].commit).changeset.events[0]
    assert isinstance(said, MessageAppended)

    hand.forget([said.body])
    after = reader.transcript(hand.space, hand.head().commit)

    assert [entry.text for entry in after] == ["message 0", "", "message 2"]
    assert [entry.id for entry in after] == [entry.id for entry in before]
    with raises(Forgotten, "forgotten", why="the user asked"):
        _ = after[1].message


def test_ancestors_are_found_without_walking() -> None:
    """A commit is on its own line; nothing is on the line of nothing but nothing."""
    hand = talked(20)
    line = [step.digest for step in reader.steps(hand.space, hand.head().commit)]
    hand.fork("what-if", line[10])
    aside = hand.say("user", "aside", timeline="what-if")

    assert reader.is_ancestor(hand.space, line[19], line[0])
    assert reader.is_ancestor(hand.space, line[10], aside)
    assert not reader.is_ancestor(hand.space, line[9], aside)
    assert not reader.is_ancestor(hand.space, aside, line[0])
    assert not reader.is_ancestor(hand.space, line[0], line[19])
    assert reader.is_ancestor(hand.space, None, line[0])
    assert not reader.is_ancestor(hand.space, line[0], None)
    assert reader.is_ancestor(hand.space, None, None)


def test_an_absent_timeline_names_the_ones_that_are_close() -> None:
    """A typo is told from a line that never was."""
    hand = talked(1)
    hand.fork("what-if", None)

    with raises(NotFound, "timeline_not_found", near=["what-if"]):
        reader.head_of(hand.space, "what-of")
    with raises(NotFound, "timeline_not_found", near=[]):
        reader.head_of(hand.space, "zzz")
