from __future__ import annotations

import pickle

import pytest

from perdure.errors import Invalid, MergeConflict, NotFound, OpReused, StaleHead
from perdure.history import merge, query
from perdure.history.merge import Pick, Terms
from perdure.history.verify import verify
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import ConflictCovered, Merged, Picked
from perdure.model.merge_rules import Side
from tests.coded import raises
from tests.history.hand import Hand


@pytest.fixture
def hand() -> Hand:
    """Two lines, `main` and `other`, that parted at one commit."""
    hand = Hand()
    hand.write({"/a": 1, "/b": 1, "/gone": 1, "/n/count": 10, "/n/tags": ["x", "y"]})
    hand.fork("other", hand.head().commit)
    return hand


def test_disjoint_changes_merge(hand: Hand) -> None:
    """Each side's puts and deletes are all there afterwards."""
    hand.write({"/a": 2})
    hand.write({"/b": 3, "/new": 4}, delete=["/gone"], timeline="other")

    outcome = hand.merge("other")

    assert hand.state() == {"/a": 2, "/b": 3, "/new": 4, "/n/count": 10, "/n/tags": ["x", "y"]}
    assert outcome.paths == 3
    assert verify(hand.engine).ok


def test_a_merge_has_two_parents_and_says_where_the_lines_parted(hand: Hand) -> None:
    """The first parent is our line; the event names the other one."""
    parted = hand.head().commit
    ours = hand.write({"/a": 2})
    theirs = hand.write({"/b": 3}, timeline="other")

    outcome = hand.merge("other")

    assert outcome.commit is not None
    step = hand.space.step(outcome.commit)
    assert step.commit.parents == (ours, theirs)
    (event,) = step.changeset.events
    assert isinstance(event, Merged)
    assert (event.timeline, event.base, event.paths) == ("other", parted, 1)


def test_equal_changes_merge(hand: Hand) -> None:
    """Both sides made the same of it, deletion included; nothing is written twice."""
    for timeline in ("main", "other"):
        hand.write({"/a": 2}, delete=["/gone"], timeline=timeline)

    assert hand.merge("other").paths == 0
    assert hand.get("/a") == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ({"/a": 2}, {"/a": 3}, "changed differently on both"),
        ({"/new": 2}, {"/new": 3}, "added differently on both"),
        ({"/a": 1.0}, {"/a": True}, "changed differently on both"),
        ({"/a": b"x"}, {"/a": b"y"}, "changed differently on both"),
    ],
)
def test_different_changes_of_one_path_are_a_conflict(
    hand: Hand, ours: dict[str, object], theirs: dict[str, object], why: str
) -> None:
    """It is reported with all three values, and nothing is written."""
    hand.write(ours)
    hand.write(theirs, timeline="other")
    before = hand.head()

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other")

    (conflict,) = refused.value.conflicts
    assert (conflict.path, conflict.why) == (next(iter(ours)), why)
    assert conflict.ours != conflict.theirs
    assert hand.head() == before


@pytest.mark.parametrize(("main", "other"), [("delete", "change"), ("change", "delete")])
def test_deleting_what_the_other_changed_is_a_conflict(hand: Hand, main: str, other: str) -> None:
    """A deletion is a change like any other, even where a rule covers the path."""
    for timeline, what in (("main", main), ("other", other)):
        if what == "delete":
            hand.write(delete=["/n/count"], timeline=timeline)
        else:
            hand.write({"/n/count": 11}, timeline=timeline)

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other", rules={"/n/count": "counter"})

    assert [each.path for each in refused.value.conflicts] == ["/n/count"]


def test_every_conflict_is_reported(hand: Hand) -> None:
    """Not only the first one, and the error can be sent to another process."""
    hand.write({f"/c/{number}": "ours" for number in range(8)})
    hand.write({f"/c/{number}": "theirs" for number in range(8)}, timeline="other")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other")

    assert [each.path for each in refused.value.conflicts] == [f"/c/{number}" for number in range(8)]
    assert pickle.loads(pickle.dumps(refused.value)).conflicts == refused.value.conflicts  # noqa: S301


def test_declared_rules_join_what_both_changed(hand: Hand) -> None:
    """Counters add up, sets unite and respect what either side took away."""
    hand.write({"/n/count": 12, "/n/tags": ["y", "z"]})
    hand.write({"/n/count": 7, "/n/tags": ["x", "y", "a"]}, timeline="other")

    hand.merge("other", rules={"/n/count": "counter", "/n/tags": "set"})

    assert hand.get("/n/count") == 9
    assert hand.get("/n/tags") == ["y", "a", "z"]


def test_an_object_is_joined_key_by_key_where_that_is_declared(hand: Hand) -> None:
    """Both edits of one document stay; without the rule they are a conflict."""
    hand.write({"/n/trip": {"city": "Oslo", "cost": {"bus": 5}}})
    hand.fork("third", hand.head().commit)
    hand.write({"/n/trip": {"city": "Bergen", "cost": {"bus": 5}}})
    hand.write({"/n/trip": {"city": "Oslo", "cost": {"bus": 5, "hotel": 90}}}, timeline="third")

    with pytest.raises(MergeConflict):
        hand.merge("third")
    hand.merge("third", rules={"/n": "keys"})

    assert hand.get("/n/trip") == {"city": "Bergen", "cost": {"bus": 5, "hotel": 90}}
    assert verify(hand.engine).ok


@pytest.mark.parametrize(("side", "city", "covered"), [("ours", "Bergen", 0), ("theirs", "Rome", 1)])
def test_a_side_settles_the_keys_that_both_changed(hand: Hand, side: Side, city: str, covered: int) -> None:
    """The rest of the document is joined; a value of ours that theirs covered is recorded."""
    hand.write({"/n/trip": {"city": "Oslo", "days": 1, "cost": 5}})
    hand.fork("third", hand.head().commit)
    hand.write({"/n/trip": {"city": "Bergen", "days": 2, "cost": 5}})
    hand.write({"/n/trip": {"city": "Rome", "days": 1, "cost": 6}}, timeline="third")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("third", rules={"/n": "keys"})
    hand.merge("third", rules={"/n": "keys"}, prefer={"/": side})

    (conflict,) = refused.value.conflicts
    assert (conflict.keys, conflict.why) == ((("city",),), "changed differently on both at city")
    assert hand.get("/n/trip") == {"city": city, "days": 2, "cost": 6}
    events = hand.space.step(hand.head().commit or Digest("")).changeset.events
    assert len([event for event in events if isinstance(event, ConflictCovered)]) == covered


def test_all_keys_in_conflict_are_named(hand: Hand) -> None:
    """The first ones in words, a nested one as a place is written."""
    names = [f"key{number}" for number in range(7)]
    hand.write({"/n/trip": {key: {"n": 0} for key in names}})
    hand.fork("third", hand.head().commit)
    hand.write({"/n/trip": {key: {"n": 1} for key in names}})
    hand.write({"/n/trip": {key: {"n": 2} for key in names}}, timeline="third")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("third", rules={"/n": "keys"})

    (conflict,) = refused.value.conflicts
    assert conflict.keys == tuple((name, "n") for name in names)
    assert conflict.why.endswith(
        ' at ["key0", "n"], ["key1", "n"], ["key2", "n"], ["key3", "n"], ["key4", "n"] and 2 more'
    )


def test_a_key_is_blamed_on_the_line_that_wrote_it(hand: Hand) -> None:
    """Through the merge that joined the document; the whole of it is of the merge itself."""
    hand.write({"/n/trip": {"city": "Oslo", "cost": {"bus": 5}}})
    hand.fork("third", hand.head().commit)
    ours = hand.write({"/n/trip": {"city": "Bergen", "cost": {"bus": 5}}})
    theirs = hand.write({"/n/trip": {"city": "Oslo", "cost": {"bus": 5, "hotel": 90}}}, timeline="third")
    merged = hand.merge("third", rules={"/n": "keys"}).commit
    places: list[tuple[str, ...]] = [("city",), ("cost", "hotel"), ("cost",), ()]

    found = [query.blame(hand.space, merged, "/n/trip", place) for place in places]

    assert [each.commit for each in found] == [ours, theirs, theirs, merged]
    assert [each.merged_from for each in found] == [None, "third", "third", None]


def test_a_pick_takes_the_keys_that_its_change_touched(hand: Hand) -> None:
    """Of a document that is joined by key; where one is not as it was before the change, the conflict names it."""
    hand.write({"/n/trip": {"city": "Oslo", "days": 1}})
    hand.fork("third", hand.head().commit)
    hand.write({"/n/trip": {"city": "Bergen", "days": 1}})
    wanted = hand.write({"/n/trip": {"city": "Oslo", "days": 2}}, timeline="third")
    other = hand.write({"/n/trip": {"city": "Rome", "days": 2}}, timeline="third")

    pick(hand, wanted, {"/n": "keys"})
    with pytest.raises(MergeConflict) as refused:
        pick(hand, other, {"/n": "keys"})

    assert hand.get("/n/trip") == {"city": "Bergen", "days": 2}
    (conflict,) = refused.value.conflicts
    assert (conflict.keys, conflict.why) == ((("city",),), "not as it was before that change at city")
    assert verify(hand.engine).ok


def test_by_key_only_objects_are_joined(hand: Hand) -> None:
    """A list, bytes, and a document that one line deleted are in conflict as a whole, and a side settles all of it."""
    hand.write({"/n/list": [1], "/n/gone": {"a": 1}, "/n/bytes": b"a"})
    hand.fork("third", hand.head().commit)
    hand.write({"/n/list": [1, 2], "/n/gone": {"a": 2}, "/n/bytes": b"b"})
    hand.write({"/n/list": {"a": 1}, "/n/bytes": b"c"}, delete=["/n/gone"], timeline="third")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("third", rules={"/n": "keys"})
    hand.merge("third", rules={"/n": "keys"}, prefer={"/n": "theirs"})

    assert [each.keys for each in refused.value.conflicts] == [()] * 3
    state = hand.state()
    assert (state["/n/bytes"], state["/n/list"], "/n/gone" in state) == (b"c", {"a": 1}, False)


def test_a_rule_that_does_not_fit_is_a_conflict(hand: Hand) -> None:
    """Nothing is guessed: the report says why the rule could not be used."""
    hand.write({"/n/count": "twelve"})
    hand.write({"/n/count": 7}, timeline="other")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other", rules={"/n": "counter"})

    assert [each.path for each in refused.value.conflicts] == ["/n/count"]


def test_a_rule_for_bytes_is_a_conflict(hand: Hand) -> None:
    """Rules are about JSON documents."""
    hand.write({"/raw": b"x"})
    hand.write({"/raw": b"y"}, timeline="other")

    with pytest.raises(MergeConflict) as refused:
        hand.merge("other", rules={"/": "append"})

    assert [each.path for each in refused.value.conflicts] == ["/raw"]


def test_a_merge_is_recorded_even_where_our_line_could_move_on(hand: Hand) -> None:
    """So that it is one turn, and one undo takes it back."""
    before = hand.head().commit
    hand.write({"/a": 2}, timeline="other")
    hand.write({"/b": 2}, timeline="other")

    hand.merge("other")

    assert (hand.get("/a"), hand.get("/b")) == (2, 2)
    assert hand.undo().commit == before


def test_merging_again_is_reported_as_nothing_to_do(hand: Hand) -> None:
    """What is in our history already is not merged a second time."""
    hand.write({"/a": 2}, timeline="other")
    head = hand.merge("other").head

    again = hand.merge("other")

    assert (again.commit, again.head, hand.head()) == (None, head, head)


def test_after_a_merge_only_what_came_later_is_merged(hand: Hand) -> None:
    """The merged commit is the common ancestor from then on, so old changes cannot conflict again."""
    hand.write({"/a": 2}, timeline="other")
    hand.merge("other")
    hand.write({"/a": 3})
    hand.write({"/b": 2}, timeline="other")

    hand.merge("other")

    assert (hand.get("/a"), hand.get("/b")) == (3, 2)


def test_what_belongs_to_a_run_of_the_other_line_stays_there(hand: Hand) -> None:
    """Reserved prefixes are neither merged nor in conflict."""
    hand.write({"/__run/step": 1})
    hand.write({"/__run/step": 2, "/__kernel/x": 1, "/b": 2}, timeline="other")

    hand.merge("other")

    assert (hand.get("/__run/step"), hand.get("/b")) == (1, 2)
    with pytest.raises(NotFound):
        hand.get("/__kernel/x")


def test_the_same_merge_again_by_its_op_id_gives_the_first_outcome(hand: Hand) -> None:
    """A retry after an unknown outcome returns that outcome; another intent is refused."""
    theirs = hand.write({"/a": 2}, timeline="other")
    terms = Terms(op_id="once", reason="merge")
    first = merge.merge(hand.space, hand.head(), theirs, terms, source="other")

    again = merge.merge(hand.space, hand.head(), theirs, terms, source="other")

    assert again == first
    with pytest.raises(OpReused):
        merge.merge(hand.space, hand.head(), theirs, Terms(op_id="once", reason="x"), source="other")


def test_a_stale_head_merges_nothing(hand: Hand) -> None:
    """The merge is written against the head that was read."""
    theirs = hand.write({"/a": 2}, timeline="other")
    read = hand.head()
    hand.write({"/b": 9})

    with pytest.raises(StaleHead):
        merge.merge(hand.space, read, theirs, Terms(op_id="late", reason="merge"), source="other")

    assert hand.get("/a") == 1


def test_an_empty_line_cannot_be_merged_into(hand: Hand) -> None:
    """Without a first parent there is nothing that a merge could be a change of."""
    hand.fork("empty", None)

    with raises(Invalid, "nothing_to_merge_into", timeline="empty"):
        hand.merge("other", into="empty")


def test_a_commit_of_elsewhere_is_not_found(hand: Hand) -> None:
    """Only what the space has can be merged."""
    terms = Terms(op_id="far", reason="merge")

    with pytest.raises(NotFound):
        merge.merge(hand.space, hand.head(), digest_of(Kind.COMMIT, b"x"), terms, source="x")


def pick(hand: Hand, commit: Digest, rules: dict[str, str] | None = None) -> merge.Taken:
    """Cherry-pick onto main."""
    terms = Terms(op_id=hand.space.ids(), reason="pick", rules=rules or {})
    picks = (Pick(commit=commit, is_turn=False, name="it", reason="pick it"),)
    return merge.cherry_pick(hand.space, hand.head(), picks, terms)


def test_a_pick_takes_one_commit_and_not_what_came_before_it(hand: Hand) -> None:
    """Its difference to its first parent is applied on our head, and an event names it."""
    hand.write({"/a": 9}, timeline="other")
    wanted = hand.write({"/b": 2}, delete=["/gone"], timeline="other")

    outcome = pick(hand, wanted)

    assert (hand.get("/a"), hand.get("/b"), "/gone" in hand.state()) == (1, 2, False)
    assert outcome.commit is not None
    step = hand.space.step(outcome.commit)
    assert len(step.commit.parents) == 1
    assert [event.commit for event in step.changeset.events if isinstance(event, Picked)] == [wanted]
    assert verify(hand.engine).ok


def test_a_pick_onto_another_value_is_a_conflict(hand: Hand) -> None:
    """The path does not hold what it held before the picked commit."""
    hand.write({"/b": 5})
    wanted = hand.write({"/b": 2}, timeline="other")

    with pytest.raises(MergeConflict):
        pick(hand, wanted)

    assert hand.get("/b") == 5


def test_a_pick_joins_by_rule(hand: Hand) -> None:
    """What the commit added to a counter is added to ours."""
    hand.write({"/n/count": 100})
    hand.write({"/n/count": 11}, timeline="other")
    wanted = hand.write({"/n/count": 14}, timeline="other")

    pick(hand, wanted, rules={"/n": "counter"})

    assert hand.get("/n/count") == 103


def test_picking_what_is_there_already_writes_nothing(hand: Hand) -> None:
    """It is reported as nothing to do."""
    wanted = hand.write({"/b": 2}, timeline="other")
    pick(hand, wanted)
    head = hand.head()

    assert pick(hand, wanted).commit is None
    assert hand.head() == head


@pytest.mark.parametrize(
    ("rule", "before", "now"),
    [("counter", 0, 2**53 - 1), ("counter", 0, -(2**53) + 1), ("append", ["a"], ["b"])],
)
def test_equal_steps_that_cannot_be_added_are_a_conflict(
    hand: Hand, rule: str, before: object, now: object
) -> None:
    """Each line made a step that counts; keeping one of them would lose the other in silence."""
    hand.write({"/v": before})
    hand.fork("twin", hand.head().commit)
    for timeline in ("main", "twin"):
        hand.write({"/v": now}, timeline=timeline)

    with pytest.raises(MergeConflict) as refused:
        hand.merge("twin", rules={"/v": rule})

    assert [each.path for each in refused.value.conflicts] == ["/v"]


@pytest.mark.parametrize(
    ("rule", "before", "now"),
    [
        ("counter", 1, "done"),
        ("counter", "x", 5),
        ("append", None, {"a": 1}),
        ("counter", b"y", 5),
        ("append", [], b"x"),
    ],
)
def test_equal_values_of_another_kind_than_the_rule_adds_are_equal(
    hand: Hand, rule: str, before: object, now: object
) -> None:
    """There is nothing to add up."""
    hand.write({"/v": before})
    hand.fork("twin", hand.head().commit)
    for timeline in ("main", "twin"):
        hand.write({"/v": now}, timeline=timeline)

    assert hand.merge("twin", rules={"/v": rule}).paths == 0
    assert hand.get("/v") == now
