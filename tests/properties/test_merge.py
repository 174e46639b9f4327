"""Merges of random changes, against a model of two dictionaries and what they began as."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid, MergeConflict
from perdure.history.verify import verify
from perdure.model.canonical import Json, encode
from perdure.model.merge_rules import Rule, adds_up, join, rule_for
from tests.history.hand import Hand

State = dict[str, Json]

PATHS = [f"/{top}/{name}" for top in ("plain", "count", "tags", "best", "log") for name in "ab"]
RULES: dict[str, Rule] = {"/count": "counter", "/tags": "set", "/best": "max", "/log": "append"}

values = cast(
    "st.SearchStrategy[Json]",
    st.integers(-5, 5) | st.sampled_from(["x", "y", None, 1.0]) | st.lists(st.integers(0, 3), max_size=4),
)
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
