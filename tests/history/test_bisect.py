from __future__ import annotations

import pytest

from perdure.engines.contract import Step
from perdure.errors import Invalid
from perdure.history.query import bisect
from perdure.model.canonical import Json
from tests.coded import raises
from tests.history.hand import Hand, value_at


def value(hand: Hand, step: Step, path: str) -> Json | bytes:
    """What the path holds at a commit."""
    return value_at(hand.space, step.digest, path)


@pytest.mark.parametrize("first", [0, 1, 2, 50, 98, 99])
def test_the_first_commit_is_found_wherever_it_is(first: int) -> None:
    """By asking about few of them."""
    hand = Hand()
    commits = [hand.write({"/price": 900 if number >= first else 1_100}) for number in range(100)]

    asked: list[Step] = []

    def cheap(step: Step) -> bool:
        asked.append(step)
        return value(hand, step, "/price") == 900

    found = bisect(hand.space, commits[-1], cheap)

    assert found.digest == commits[first]
    assert len(asked) <= 9


def test_what_is_not_there_yet_is_not_true_yet() -> None:
    """A predicate that raises NotFound says false."""
    hand = Hand()
    hand.write({"/other": 1})
    wanted = hand.write({"/price": 900})
    hand.write({"/other": 2})

    found = bisect(hand.space, hand.head().commit, lambda step: value(hand, step, "/price") == 900)

    assert found.digest == wanted


def test_the_search_can_begin_at_a_known_moment() -> None:
    """What was true before it does not matter."""
    hand = Hand()
    hand.write({"/on": True})
    good = hand.write({"/on": False})
    wanted = hand.write({"/on": True})

    found = bisect(hand.space, hand.head().commit, lambda step: value(hand, step, "/on") is True, good=good)

    assert found.digest == wanted


def test_it_must_be_true_at_the_new_end() -> None:
    """Otherwise there is nothing to find."""
    hand = Hand()
    hand.write({"/n": 0})

    with raises(Invalid, "predicate_false_at_end"):
        bisect(hand.space, hand.head().commit, lambda step: False)
    with raises(Invalid, "nothing_committed"):
        bisect(hand.space, None, lambda step: True)


def test_it_must_be_false_at_the_old_end() -> None:
    """An old end where it is true already would give a wrong answer."""
    hand = Hand()
    good = hand.write({"/n": 0})
    hand.write({"/n": 1})

    with raises(Invalid, "predicate_true_at_start", commit=good):
        bisect(hand.space, hand.head().commit, lambda step: True, good=good)


def test_the_old_end_must_stand_on_the_line() -> None:
    """A commit of another line has nothing between it and this one."""
    hand = Hand()
    hand.write({"/n": 0})
    hand.fork("other", hand.head().commit)
    elsewhere = hand.write({"/n": 1}, timeline="other")
    hand.write({"/n": 2})

    for good in (elsewhere, hand.head().commit):
        with raises(Invalid, "not_an_ancestor", commit=good):
            bisect(hand.space, hand.head().commit, lambda step: True, good=good)
