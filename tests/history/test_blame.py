from __future__ import annotations

import pytest

from perdure.errors import NotFound
from perdure.history.query import Blame, blame
from perdure.model.digest import Kind, Object
from perdure.model.event import MessageAppended, RunStarted
from perdure.model.message import Message, Text, encode_message
from tests.history.hand import Hand


def blamed(hand: Hand, path: str, timeline: str = "main") -> Blame:
    """Who wrote the value at the head."""
    return blame(hand.space, hand.head(timeline).commit, path)


def test_the_last_commit_that_wrote_the_path_is_named() -> None:
    """With everything that stood behind it."""
    hand = Hand()
    hand.write({"/a": 1, "/b": 1})
    wanted = hand.write({"/a": 2}, reason="fix", author="ann", run="run-1")
    hand.write({"/b": 2})

    found = blamed(hand, "/a")

    assert (found.commit, found.reason, found.author, found.run) == (wanted, "fix", "ann", "run-1")
    assert found.at == hand.space.step(wanted).commit.at


def test_a_value_that_changed_and_changed_back_is_blamed_on_who_wrote_it_last() -> None:
    """The same value twice is two writes."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.write({"/a": 2})
    wanted = hand.write({"/a": 1})
    hand.write({"/b": 1})

    assert blamed(hand, "/a").commit == wanted


def test_an_edit_and_a_replacement_write_too() -> None:
    """Document ops name the path they change."""
    hand = Hand()
    hand.write({"/list": [1]})
    edited = hand.write(edit=[("/list", "append", (), 2)])

    assert blamed(hand, "/list").commit == edited


def test_a_path_that_holds_nothing_has_nobody_to_blame() -> None:
    """Deleted, or never written."""
    hand = Hand()
    hand.write({"/a": 1, "/b/c": 1})
    hand.write(delete=["/a"], clear=["/b"])

    for path in ("/a", "/b/c", "/never"):
        with pytest.raises(NotFound):
            blamed(hand, path)


def test_the_message_and_the_backend_of_the_turn_are_named() -> None:
    """The last message up to that commit in the same turn, and the model that said it."""
    hand = Hand()
    body = Object.of(Kind.BODY, encode_message(Message("assistant", (Text("noted"),))))
    started = RunStarted(id="e-1", agent="planner", backend="anthropic:sonnet")
    said = MessageAppended(
        id="m-2",
        provider="anthropic",
        model="sonnet",
        role="assistant",
        body=body.digest,
        size=len(body.body),
    )
    hand.say("user", "before")
    hand.write(said=[Message("user", (Text("note it"),))], events=[started], run="run-1")
    hand.write(events=[said], objects=[body], run="run-1")
    wanted = hand.write({"/a": 1}, run="run-1", reason="tool_results_committed")
    hand.say("assistant", "after", run="run-1")

    found = blamed(hand, "/a")

    assert (found.commit, found.message) == (wanted, "m-2")
    assert (found.provider, found.model, found.backend) == ("anthropic", "sonnet", "anthropic:sonnet")


def test_a_change_by_hand_has_no_message_of_another_turn() -> None:
    """What was said in the turn before did not write this."""
    hand = Hand()
    hand.say("user", "hello", run="run-1")
    hand.write({"/a": 1})

    found = blamed(hand, "/a")

    assert (found.message, found.backend) == (None, None)


def test_a_merge_is_followed_to_the_line_that_wrote_the_value() -> None:
    """Also through two merges."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.fork("one", hand.head().commit)
    hand.fork("two", hand.head().commit)
    wanted = hand.write({"/b": 2}, timeline="two")
    hand.write({"/x": 1}, timeline="one")
    hand.merge("two", into="one")
    hand.write({"/c": 2})
    hand.merge("one")

    assert blamed(hand, "/b").commit == wanted


def test_a_value_that_a_merge_made_is_blamed_on_the_merge() -> None:
    """A joined value stands on neither line."""
    hand = Hand()
    hand.write({"/n": 1})
    hand.fork("other", hand.head().commit)
    hand.write({"/n": 2})
    hand.write({"/n": 3}, timeline="other")

    merged = hand.merge("other", rules={"/n": "counter"})

    assert blamed(hand, "/n").commit == merged.commit
