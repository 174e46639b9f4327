"""Merges of random changes, against a model of two dictionaries and what they began as."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid, MergeConflict
from perdure.history.verify import verify
from perdure.model.canonical import Json, encode
from perdure.model.merge_rules import Keys, Rule, Side, adds_up, join, join_keys, rule_for
from tests.history.hand import Hand

State = dict[str, Json]

PATHS = [f"/{top}/{name}" for top in ("plain", "count", "tags", "best", "log", "doc") for name in "ab"]
RULES: dict[str, Rule] = {
    "/count": "counter",
    "/tags": "set",
    "/best": "max",
    "/log": "append",
    "/doc": "keys",
}

values = cast(
    "st.SearchStrategy[Json]",
    st.integers(-5, 5) | st.sampled_from(["x", "y", None, 1.0]) | st.lists(st.integers(0, 3), max_size=4),
)
objects = cast(
    "st.SearchStrategy[dict[str, Json]]",
    st.recursive(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | st.none(), max_size=3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | inner, max_size=3),
        max_leaves=6,
    ),
)
values = values | objects
states = st.dictionaries(st.sampled_from(PATHS), values, max_size=8)
growing = st.dictionaries(st.sampled_from(PATHS), values, max_size=4)


def same(state: State, other: State, path: str) -> bool:
    """Whether two states hold the same at a path; 1, 1.0 and True are three values."""
    return (path in state) == (path in other) and encode(state.get(path)) == encode(other.get(path))


def adds(base: State, ours: State, path: str) -> bool:
    """Whether two equal values at a path are two steps that count, each for itself."""
    held = [state[path] for state in (base, ours) if path in state]
    return path in ours and adds_up(rule_for(path, RULES), *held)


def modelled(base: State, ours: State, theirs: State) -> tuple[State, list[str]]:
    """What a merge makes of three dictionaries, and the paths in conflict."""
    merged, conflicts = dict(ours), list[str]()
    for path in sorted({*base, *ours, *theirs}):
        if same(theirs, base, path) or (same(ours, theirs, path) and not adds(base, ours, path)):
            continue
        if same(ours, base, path):
            merged.pop(path, None)
            merged.update({path: theirs[path]} if path in theirs else {})
            continue
        rule = rule_for(path, RULES)
        try:
            if rule is None or path not in ours or path not in theirs:
                raise Invalid("no rule")
            merged[path] = join(rule, base.get(path), ours[path], theirs[path])
        except Invalid:
            conflicts.append(path)
    return merged, conflicts


def change(hand: Hand, before: State, after: State, timeline: str) -> None:
    """Bring a line from one state to another."""
    gone = [path for path in before if path not in after]
    hand.write(dict(after), delete=gone, timeline=timeline)


def evolved(before: State, wanted: State, drop: set[str]) -> State:
    """Some paths changed, some dropped, lists under /log only extended."""
    after = {path: value for path, value in before.items() if path not in drop}
    for path, value in wanted.items():
        old = before.get(path)
        if path.startswith("/log") and isinstance(old, list) and isinstance(value, list):
            value = [*old, *value]
        after[path] = value
    return after


@given(
    base=states,
    ours=growing,
    theirs=growing,
    drops=st.tuples(st.sets(st.sampled_from(PATHS), max_size=2), st.sets(st.sampled_from(PATHS), max_size=2)),
)
def test_a_merge_is_what_the_model_says(
    base: State, ours: State, theirs: State, drops: tuple[set[str], set[str]]
) -> None:
    """The merged state and the conflicts are those of three dictionaries; a conflict writes nothing."""
    hand = Hand()
    mine, other = evolved(base, ours, drops[0]), evolved(base, theirs, drops[1])
    hand.write(base)
    hand.fork("other", hand.head().commit)
    change(hand, base, mine, "main")
    change(hand, base, other, "other")
    merged, conflicts = modelled(base, mine, other)
    before = hand.head()

    if conflicts:
        with pytest.raises(MergeConflict) as refused:
            hand.merge("other", rules=dict(RULES))
        assert [each.path for each in refused.value.conflicts] == conflicts
        assert hand.head() == before
    else:
        hand.merge("other", rules=dict(RULES))
        assert encode(dict(sorted(hand.state().items()))) == encode(dict(sorted(merged.items())))
    assert verify(hand.engine).ok


def leaves(value: Json, at: Keys = ()) -> dict[Keys, Json]:
    """Everything in an object that is no object with keys, by its place."""
    if not isinstance(value, dict) or not value:
        return {at: value}
    return {place: leaf for key, inner in value.items() for place, leaf in leaves(inner, (*at, key)).items()}


def at_place(value: Json, place: Keys) -> bytes | None:
    """What is at a place, in bytes; None: nothing."""
    for key in place:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return encode(value)


@given(base=st.none() | objects, ours=objects, theirs=objects, side=st.sampled_from(("ours", "theirs")))
def test_objects_are_joined_by_the_laws_of_a_merge(
    base: dict[str, Json] | None, ours: dict[str, Json], theirs: dict[str, Json], side: Side
) -> None:
    """What one side alone changed is there, whichever side is ours, and a preferred side wins the clashes and no more."""
    parted = {} if base is None else base
    joined, clashes = join_keys([base], ours, theirs)
    mirrored, same = join_keys([base], theirs, ours)
    settled, again = join_keys([base], ours, theirs, side)

    assert sorted(clashes) == sorted(same) == sorted(again)
    assert clashes or encode(joined) == encode(mirrored)
    assert encode(join_keys([base], ours, parted)[0]) == encode(ours)
    assert encode(join_keys([base], parted, theirs)[0]) == encode(theirs)
    for place in {*leaves(parted), *leaves(ours), *leaves(theirs)}:
        if any(place[: len(clash)] == clash or clash[: len(place)] == place for clash in clashes):
            continue
        was, mine, others = (at_place(value, place) for value in (parted, ours, theirs))
        found = at_place(joined, place)
        if mine in (was, others) or others == was:
            assert found == (others if mine == was else mine)
        else:
            assert all(each is not None and each.startswith(b"{") for each in (mine, others, found))
        assert at_place(settled, place) == found
    preferred = ours if side == "ours" else theirs
    assert all(at_place(settled, clash) == at_place(preferred, clash) for clash in clashes)
