"""Lines that were merged crosswise: no change is lost in silence, and counters count right."""

from __future__ import annotations

import pytest

from perdure.errors import Conflict, MergeConflict
from perdure.history import ancestry
from perdure.history.ancestry import Point
from perdure.history.merge import resolve
from perdure.history.space import Space
from perdure.history.verify import verify
from perdure.model.digest import Digest
from perdure.model.merge_rules import Side
from tests.coded import raises
from tests.history.hand import Hand

RULES = {"/n": "counter", "/log": "append", "/tags": "set"}


def cross(hand: Hand, one: str = "main", other: str = "other") -> None:
    """Merge each of two lines into the other as it stood before."""
    before = f"{one}-before"
    hand.fork(before, hand.head(one).commit)
    hand.merge(other, into=one, rules=RULES)
    hand.merge(before, into=other, rules=RULES)


@pytest.fixture
def crossed() -> Hand:
    """`main` made /p new and `other` counted, each took in what the other did; they have two commits in common."""
    hand = Hand()
    hand.write({"/p": "old", "/n": 10, "/log": ["a"]})
    hand.fork("other", hand.head().commit)
    hand.write({"/p": "new", "/n": 13, "/log": ["a", "m"]})
    hand.write({"/n": 15}, timeline="other")
    hand.write({"/q": 1}, timeline="other")
    cross(hand)
    return hand


def test_all_last_commits_in_common_are_found(crossed: Hand) -> None:
    """Neither is behind the other; the deeper one comes first."""
    heads = [crossed.head(line).commit or Digest("") for line in ("main", "other")]
    ends = [ancestry.point(crossed.space, head) for head in heads]

    found = ancestry.commons(crossed.space, *ends)

    assert len(found) == 2
    assert found[0].depth > found[1].depth
    assert ancestry.common(crossed.space, *ends) == found[0]


def test_a_change_that_was_taken_back_knowingly_is_reported(crossed: Hand) -> None:
    """Seen from one base no line changed /p, seen from the other one did: nothing is written."""
    crossed.write({"/p": "old"}, timeline="other")
    before = crossed.head()

    with pytest.raises(MergeConflict) as refused:
        crossed.merge("other", rules=RULES)

    assert [each.path for each in refused.value.conflicts] == ["/p"]
    assert crossed.head() == before


def test_one_commit_in_common_alone_loses_the_change(crossed: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: this is what a merge did that looked from one of them only."""
    crossed.write({"/p": "old"}, timeline="other")
    every = ancestry.commons

    def first(space: Space, a: Point, b: Point) -> list[Point]:
        return every(space, a, b)[:1]

    monkeypatch.setattr(ancestry, "commons", first)
    crossed.merge("other", rules=RULES)

    assert crossed.get("/p") == "new"
    assert crossed.get("/n") != 18


def test_making_it_equal_settles_it(crossed: Hand) -> None:
    """As the error advises; from then on there is one commit in common."""
    crossed.write({"/p": "old"}, timeline="other")
    crossed.write({"/p": "old"})

    crossed.merge("other", rules=RULES)
    crossed.write({"/p": "newest"}, timeline="other")
    crossed.merge("other", rules=RULES)

    assert crossed.get("/p") == "newest"
    assert verify(crossed.engine).ok


@pytest.mark.parametrize(("ours", "theirs"), [(0, 0), (1, 0), (0, 1), (1000, 5000), (1, 1), (-3, 2)])
def test_counters_count_each_step_once(crossed: Hand, ours: int, theirs: int) -> None:
    """Both have 18 since they were crossed; what came later is added to that."""
    crossed.write({"/n": 18 + ours})
    crossed.write({"/n": 18 + theirs}, timeline="other")

    crossed.merge("other", rules=RULES)

    assert crossed.get("/n") == 18 + ours + theirs


def test_lists_are_appended_to_once(crossed: Hand) -> None:
    """What both have already is not added again."""
    crossed.write({"/log": ["a", "m", "x"]})
    crossed.write({"/log": ["a", "m", "y"]}, timeline="other")

    crossed.merge("other", rules=RULES)

    assert crossed.get("/log") == ["a", "m", "x", "y"]


def gathered() -> Hand:
    """Three workers made the same step, and both `main` and `other` took in all of them."""
    hand = Hand()
    hand.write({"/n": 0, "/log": []})
    lines = ("other", "w1", "w2", "w3")
    for line in lines:
        hand.fork(line, hand.head().commit)
    for line in lines[1:]:
        hand.write({"/n": 1, "/log": ["x"], f"/{line}": 1}, timeline=line)
    for line in lines[1:]:
        for into in ("main", "other"):
            hand.merge(line, into=into, rules=RULES)
    return hand


def test_equal_steps_of_others_that_both_took_in_are_not_counted_again() -> None:
    """Each commit in common holds 1, together they hold 3, and so do both lines."""
    hand = gathered()

    hand.merge("other", rules=RULES)

    assert hand.get("/n") == 3
    assert hand.get("/log") == ["x", "x", "x"]


def test_a_step_back_to_what_the_commits_in_common_hold_is_a_step() -> None:
    """Other went from 3 to 1, which is what every commit in common holds: two less."""
    hand = gathered()
    hand.write({"/n": 1}, timeline="other")

    hand.merge("other", rules=RULES)

    assert hand.get("/n") == 1


def test_a_list_that_was_shortened_is_a_conflict() -> None:
    """The rule appends; nothing is guessed."""
    hand = gathered()
    hand.write({"/log": ["x"]}, timeline="other")
    hand.write({"/log": ["x", "x", "x", "y"]})

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other", rules=RULES)

    assert [each.path for each in refused.value.conflicts] == ["/log"]


def test_bytes_are_compared_too(crossed: Hand) -> None:
    """A path of bytes that only they changed is taken from every commit in common."""
    crossed.write({"/b": b"1"}, timeline="other")

    crossed.merge("other", rules=RULES)

    assert crossed.get("/b") == b"1"


def test_deleting_is_a_change_like_any_other(crossed: Hand) -> None:
    """Where the commits in common held it alike it is taken; where not, it is reported."""
    crossed.write(delete=["/log"], timeline="other")

    with pytest.raises(MergeConflict) as refused:
        crossed.merge("other", rules=RULES)

    assert [each.path for each in refused.value.conflicts] == ["/log"]


def test_there_is_an_end_to_what_is_looked_at(crossed: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the merge is refused, and nothing is written."""
    monkeypatch.setattr(resolve, "SHARED_MAX", 2)
    crossed.write({"/n": 20}, timeline="other")
    before = crossed.head()

    with raises(Conflict, "too_many_common_ancestors", limit=2):
        crossed.merge("other", rules=RULES)

    assert crossed.head() == before


@pytest.fixture
def crossed_documents() -> Hand:
    """Two lines that were crossed; one made a key of a document new before that, the other another key."""
    hand = Hand()
    hand.write({"/doc": {"city": "Oslo", "days": 1, "cost": {"bus": 5}}})
    hand.fork("other", hand.head().commit)
    hand.write({"/doc": {"city": "Bergen", "days": 1, "cost": {"bus": 5}}})
    hand.write({"/doc": {"city": "Oslo", "days": 1, "cost": {"bus": 6}}}, timeline="other")
    hand.fork("before", hand.head().commit)
    hand.merge("other", rules=KEYS)
    hand.merge("before", into="other", rules=KEYS)
    return hand


KEYS = {"/doc": "keys"}


def test_crossed_lines_join_an_object_key_by_key(crossed_documents: Hand) -> None:
    """Each key is seen from both commits in common; what came late on either side is there."""
    hand = crossed_documents
    hand.write({"/doc": {"city": "Bergen", "days": 2, "cost": {"bus": 6}}})
    hand.write({"/doc": {"city": "Bergen", "days": 1, "cost": {"bus": 6, "hotel": 90}}}, timeline="other")

    hand.merge("other", rules=KEYS)

    assert hand.get("/doc") == {"city": "Bergen", "days": 2, "cost": {"bus": 6, "hotel": 90}}
    assert verify(hand.engine).ok


@pytest.mark.parametrize(("side", "city"), [("ours", "Bergen"), ("theirs", "Oslo")])
def test_a_key_that_was_taken_back_knowingly_is_reported_alone(
    crossed_documents: Hand, side: Side, city: str
) -> None:
    """Seen from one of them no line changed it; a side settles this key, and the rest is joined."""
    hand = crossed_documents
    hand.write({"/doc": {"city": "Bergen", "days": 2, "cost": {"bus": 6}}})
    hand.write({"/doc": {"city": "Oslo", "days": 1, "cost": {"bus": 6, "hotel": 90}}}, timeline="other")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other", rules=KEYS)
    hand.merge("other", rules=KEYS, prefer={"/": side})

    assert [each.keys for each in refused.value.conflicts] == [(("city",),)]
    assert hand.get("/doc") == {"city": city, "days": 2, "cost": {"bus": 6, "hotel": 90}}
    assert verify(hand.engine).ok
