from __future__ import annotations

import pytest

from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.merge_rules import Rule, Side, check_rules, join, join_keys, rule_for


@pytest.mark.parametrize(
    ("rule", "base", "ours", "theirs", "joined"),
    [
        ("counter", 5, 7, 4, 6),
        ("counter", None, 2, 3, 5),
        ("counter", 1.5, 2.0, 1.0, 1.5),
        ("set", ["a", "b"], ["b", "c"], ["a", "b", "d"], ["b", "c", "d"]),
        ("set", None, ["z"], ["a", "z"], ["a", "z"]),
        ("set", [1], [1, 1.0], [1, True], [1, 1.0, True]),
        ("max", 1, 3, 2, 3),
        ("max", 1, 1, 1.0, 1.0),
        ("min", 9, 3, 2, 2),
        ("max", "a", "2026-01-02", "2026-01-01", "2026-01-02"),
        ("append", ["a"], ["a", "b"], ["a", "c", "d"], ["a", "b", "c", "d"]),
        ("append", None, ["b"], ["b"], ["b", "b"]),
        ("keys", {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 3}, {"a": 2, "b": 3}),
        ("keys", {"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}),
        ("keys", None, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ("keys", {"a": 1}, {"a": 2}, {"a": 2, "b": [1]}, {"a": 2, "b": [1]}),
        ("keys", {"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 1}}, {"a": {"x": 2}}),
        ("keys", {}, {"a": {"x": 1}}, {"a": {"y": 1}}, {"a": {"x": 1, "y": 1}}),
        ("keys", {"a": 1}, {"a": 1.0}, {"a": 1, "b": 2}, {"a": 1.0, "b": 2}),
        ("keys", {"a": 0}, {"a": None}, {"a": 0, "b": 2}, {"a": None, "b": 2}),
    ],
)
def test_a_rule_joins(rule: Rule, base: Json, ours: Json, theirs: Json, joined: Json) -> None:
    """Each rule makes one value of two."""
    assert canonical.encode(join(rule, base, ours, theirs)) == canonical.encode(joined)


@pytest.mark.parametrize(
    ("rule", "one", "other"),
    [
        ("counter", 1, 2.5),
        ("set", ["b", "a"], ["c"]),
        ("max", 1, 1.0),
        ("min", 1, 1.0),
        ("keys", {"b": 1, "a": {"x": 1}}, {"a": {"y": 2}, "c": []}),
    ],
)
def test_it_does_not_matter_which_side_is_ours(rule: Rule, one: Json, other: Json) -> None:
    """Both lines get the same value, whichever of them merges."""
    assert canonical.encode(join(rule, None, one, other)) == canonical.encode(join(rule, None, other, one))


@pytest.mark.parametrize(
    ("rule", "base", "ours", "theirs"),
    [
        ("counter", 1, "2", 3),
        ("counter", 1, True, 3),
        ("counter", 0, 2**53 - 1, 1),
        ("counter", 0, 1e308, 1e308),
        ("set", [], {}, []),
        ("max", 1, "2", 3),
        ("max", 1, True, 3),
        ("append", ["a"], ["b", "a"], ["a"]),
        ("append", ["a"], [], ["a"]),
        ("append", [1], [1.0], [1]),
        ("append", "a", "ab", "ac"),
        ("keys", {"a": 1}, {"a": 2}, {"a": 3}),
        ("keys", {"a": 1}, {}, {"a": 3}),
        ("keys", {"a": [1]}, {"a": [1, 2]}, {"a": [0, 1]}),
        ("keys", {"a": {"x": 1}}, {"a": 2}, {"a": {"x": 3}}),
        ("keys", {"a": 1}, {"a": {"x": 1}}, {"a": {"y": 1}}),
        ("keys", {"a": None}, {"a": {"x": 1}}, {"a": {"y": 1}}),
        ("keys", [], {"a": 1}, {"b": 1}),
        ("keys", {}, {"a": 1}, [1]),
    ],
)
def test_what_a_rule_does_not_fit_is_refused(rule: Rule, base: Json, ours: Json, theirs: Json) -> None:
    """A merge makes a conflict of it; nothing is guessed."""
    with pytest.raises(Invalid):
        join(rule, base, ours, theirs)


@pytest.mark.parametrize(("prefer", "a", "d"), [(None, 2, None), ("ours", 2, None), ("theirs", 3, [3])])
def test_a_preferred_side_wins_the_keys_that_both_changed(prefer: Side | None, a: int, d: Json) -> None:
    """Each of them is named; the keys that one side alone changed are taken from that side all the same."""
    base: Json = {"a": {"x": 1}, "b": 1, "c": 1, "d": [1]}
    ours: Json = {"a": {"x": 2}, "b": 2, "c": 1, "d": None}
    theirs: Json = {"a": {"x": 3}, "b": 1, "c": 2, "d": [3]}

    joined, clashes = join_keys([base], ours, theirs, prefer)

    assert joined == {"a": {"x": a}, "b": 2, "c": 2, "d": d}
    assert clashes == (("a", "x"), ("d",))


@pytest.mark.parametrize(
    ("bases", "ours", "theirs", "joined", "clashes"),
    [
        ([{"a": 1}, {"a": 1, "b": 1}], {"a": 2, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, ()),
        ([{"a": 1}, {"a": 2}], {"a": 1}, {"a": 2}, {"a": 1}, (("a",),)),
        (
            [{"a": 1, "b": 1}, {"a": 2, "b": 1}],
            {"a": 1, "b": 1},
            {"a": 2, "b": 5},
            {"a": 1, "b": 5},
            (("a",),),
        ),
        ([{"a": 1}, None], {"a": 1}, {}, {"a": 1}, (("a",),)),
        ([None, None], {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, ()),
        (
            [{"a": {"x": 1}}, {"a": {"x": 2}}],
            {"a": {"x": 2, "y": 1}},
            {"a": {"x": 2}},
            {"a": {"x": 2, "y": 1}},
            (),
        ),
    ],
)
def test_what_a_side_changed_is_seen_from_every_place_where_the_lines_parted(
    bases: list[Json], ours: Json, theirs: Json, joined: Json, clashes: tuple[tuple[str, ...], ...]
) -> None:
    """Where two of these disagree about which side changed a key, it is a conflict, as it is of a path."""
    assert join_keys(bases, ours, theirs) == (joined, clashes)


def test_the_longest_prefix_decides() -> None:
    """A rule covers its own path and everything below it, unless a longer one does."""
    rules = check_rules({"/": "max", "/n": "counter", "/n/tags": "set"})

    assert rule_for("/n/tags/x", rules) == "set"
    assert rule_for("/n/tags2", rules) == "counter"
    assert rule_for("/n", rules) == "counter"
    assert rule_for("/nn", rules) == "max"
    assert rule_for("/x", check_rules({"/n": "counter"})) is None


@pytest.mark.parametrize("rules", [{"/n": "sum"}, {"n": "set"}, {"": "set"}])
def test_a_rule_that_is_none_is_refused(rules: dict[str, str]) -> None:
    """A misspelt rule would turn into conflicts later."""
    with pytest.raises(Invalid):
        check_rules(rules)
