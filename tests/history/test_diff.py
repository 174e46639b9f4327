from __future__ import annotations

import pytest

from perdure.errors import NotFound
from perdure.history import query
from perdure.history.tree import EMPTY
from perdure.model.digest import Kind, digest_of
from tests.history.hand import Hand


@pytest.fixture
def hand() -> Hand:
    """Two lines that parted after the second commit."""
    hand = Hand()
    hand.write({"/same": 1, "/changed": {"a": 1, "b": [1, 2]}, "/removed": 1, "/raw": b"x"})
    parted = hand.say("user", "hello")
    hand.fork("what-if", parted)
    hand.write({"/changed": {"a": 1, "b": [1, 3, 2], "c": None}, "/added": 2}, delete=["/removed"])
    hand.say("assistant", "main")
    hand.call("call-1", "book")
    hand.say("assistant", "what if", timeline="what-if")
    return hand


def test_state_is_compared_from_the_first_to_the_second(hand: Hand) -> None:
    """Added, changed and removed paths come with what they held before and after."""
    found = query.between(hand.space, hand.head("what-if").commit, hand.head().commit)

    assert [(each.path, each.what) for each in found.state] == [
        ("/added", "added"),
        ("/changed", "changed"),
        ("/removed", "removed"),
    ]
    assert found.state[0].before is None
    assert found.state[2].after is None


def test_each_side_has_its_own_messages_and_calls(hand: Hand) -> None:
    """What both lines share is named on neither side."""
    found = query.between(hand.space, hand.head().commit, hand.head("what-if").commit)

    assert [len(found.messages_a), len(found.messages_b)] == [1, 1]
    assert [(each.event.call, each.event.tool) for each in found.calls_a] == [("call-1", "book")]
    assert found.calls_b == ()
    assert found.base in hand.space.step(found.b or EMPTY).commit.parents


def test_a_moment_does_not_differ_from_itself(hand: Hand) -> None:
    """Nothing is found, and nothing is searched for long."""
    head = hand.head().commit

    assert query.between(hand.space, head, head).same
    assert query.between(hand.space, None, None).same


def test_the_moment_before_the_first_commit_is_empty(hand: Hand) -> None:
    """None is a moment like any other."""
    found = query.between(hand.space, None, hand.head().commit)

    assert {each.what for each in found.state} == {"added"}
    assert (found.base, len(found.messages_b), len(found.calls_b)) == (None, 2, 1)


def test_calls_of_a_merged_line_are_no_longer_only_there(hand: Hand) -> None:
    """A call counts as history through either parent; messages follow the first."""
    hand.call("call-2", "pay", timeline="what-if")
    hand.merge("what-if")

    found = query.between(hand.space, hand.head().commit, hand.head("what-if").commit)

    assert found.calls_b == ()
    assert [each.event.call for each in found.calls_a] == ["call-1"]
    assert len(found.messages_b) == 1


@pytest.mark.parametrize(("prefix", "paths"), [("/changed", ["/changed"]), ("/chang", []), ("/", 3)])
def test_a_prefix_narrows_the_state(hand: Hand, prefix: str, paths: list[str] | int) -> None:
    """'/notes' covers itself and what is below, and nothing that only begins alike."""
    found = list(query.changes(hand.space, hand.head("what-if").commit, hand.head().commit, prefix=prefix))

    assert ([each.path for each in found] if isinstance(paths, list) else len(found)) == paths


def test_a_commit_of_elsewhere_is_not_found(hand: Hand) -> None:
    """Comparing with what the space does not have is an error, not an empty side."""
    with pytest.raises(NotFound):
        query.between(hand.space, hand.head().commit, digest_of(Kind.COMMIT, b"x"))
