"""Joins the two values of a path that two lines changed, by a rule that was declared for the path.

Each rule is a pure function of the value where the lines parted and of both values now.
The result does not depend on which side is called ours, except for `append`, which puts our
additions first.  A rule raises `Invalid` for values that it cannot join; the merge reports a conflict.
`join_keys` also says at which places of an object both changed, and joins it from several values where the lines parted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, cast, get_args

from perdure.errors import Invalid
from perdure.model import canonical, names
from perdure.model.canonical import Json

__all__ = [
    "ADDING",
    "Keys",
    "Rule",
    "Side",
    "adds_up",
    "check_rules",
    "check_sides",
    "join",
    "join_keys",
    "rule_for",
    "side_for",
]

_T = TypeVar("_T")

Rule: TypeAlias = Literal["counter", "set", "max", "min", "append", "keys"]

Side: TypeAlias = Literal["ours", "theirs"]
"""The side of a merge whose value wins a conflict: the timeline that is written, or the other."""

Keys: TypeAlias = tuple[str, ...]
"""A place in an object: the keys that lead to it."""

RULES: tuple[Rule, ...] = get_args(Rule)
ADDING: tuple[Rule, ...] = ("counter", "append")  # equal changes on both sides count twice


def check_rules(rules: Mapping[str, str]) -> dict[str, Rule]:
    """Return `rules`, from path prefix to the name of a rule; raises `Invalid` for an unknown name."""
    for prefix, rule in rules.items():
        names.check_prefix(prefix)
        if rule not in RULES:
            raise Invalid(
                f"{rule!r} (for {prefix}) is not a merge rule: use one of {', '.join(RULES)}.",
                code="merge_rule_unknown",
                rule=rule,
                prefix=prefix,
            )
    return cast("dict[str, Rule]", dict(rules))


def check_sides(prefer: Mapping[str, str]) -> dict[str, Side]:
    """Return `prefer`, from path prefix to the preferred side; raises `Invalid` for another word."""
    for prefix, side in prefer.items():
        names.check_prefix(prefix)
        names.check_choice("prefer", side, get_args(Side))
    return cast("dict[str, Side]", dict(prefer))


def rule_for(path: str, rules: Mapping[str, Rule]) -> Rule | None:
    """Return the rule of the longest prefix that covers `path`; None if none does."""
    return _longest(path, rules)


def side_for(path: str, prefer: Mapping[str, Side]) -> Side | None:
    """Return the side that the longest prefix which covers `path` prefers; None if none does."""
    return _longest(path, prefer)


def _longest(path: str, by_prefix: Mapping[str, _T]) -> _T | None:
    covering = [prefix for prefix in by_prefix if names.under(path, prefix)]
    return by_prefix[max(covering, key=len)] if covering else None


def adds_up(rule: Rule | None, *values: Json) -> bool:
    """True if the rule adds equal changes of both sides, and these values are of the kind that it adds."""
    match rule:
        case "counter":
            return all(type(value) in (int, float) for value in values)
        case "append":
            return all(isinstance(value, list) for value in values)
        case _:
            return False


def join(rule: Rule, base: Json | None, ours: Json, theirs: Json) -> Json:
    """Return the joined value; `base` is None if there was no value when the lines parted.

    Raises `Invalid` if the rule does not fit the values.
    """
    joined = _RULES[rule](base, ours, theirs)
    canonical.encode(joined)  # refuses a sum that is too large to store
    return joined


def join_keys(
    bases: Sequence[Json | None], ours: Json, theirs: Json, prefer: Side | None = None
) -> tuple[Json, tuple[Keys, ...]]:
    """Return the object with what either side changed, key by key, and the places that both changed differently.

    `bases` are the values where the lines parted, None: none; what a side changed is what it changed since each of
    them.  Where both did, the value of the preferred side is taken, that of ours if none is.  Raises `Invalid` if a value
    is no object.
    """
    if not all(
        isinstance(side, dict) for side in (*(base for base in bases if base is not None), ours, theirs)
    ):
        raise Invalid("a side is not an object", code="rule_not_applicable")
    clashes: list[Keys] = []
    parted = [_ABSENT if base is None else base for base in bases]
    joined = cast("Json", _at_key(parted, ours, theirs, (), prefer, clashes))
    return joined, tuple(clashes)


def _counter(base: Json, ours: Json, theirs: Json) -> Json:
    """Return the sum of what both sides added."""
    return _number(ours) + _number(theirs) - (0 if base is None else _number(base))


def _set(base: Json, ours: Json, theirs: Json) -> Json:
    """Return the items of either side without those that either removed: first the old ones, then the new, sorted."""
    before, mine, others = (_items_by_bytes(each) for each in ([] if base is None else base, ours, theirs))
    stayed = [item for key, item in before.items() if key in mine and key in others]
    new = {key: item for key, item in (mine | others).items() if key not in before}
    return [*stayed, *(new[key] for key in sorted(new))]


def _append(base: Json, ours: Json, theirs: Json) -> Json:
    """Return the old items, then our additions, then theirs."""
    before, mine, others = (_items(each) for each in ([] if base is None else base, ours, theirs))
    start = canonical.encode(before)
    for side in (mine, others):
        if canonical.encode(side[: len(before)]) != start:
            raise Invalid("a side did more than append to the list", code="rule_not_applicable")
    return [*mine, *others[len(before) :]]


def _max(_base: Json, ours: Json, theirs: Json) -> Json:
    return max(ours, theirs, key=_rank(ours, theirs))


def _min(_base: Json, ours: Json, theirs: Json) -> Json:
    return min(ours, theirs, key=_rank(ours, theirs))


_ABSENT = object()  # a key that an object does not have


def _at_key(
    bases: Sequence[object], ours: object, theirs: object, at: Keys, prefer: Side | None, clashes: list[Keys]
) -> object:
    """Return what one key has after the merge, `_ABSENT`: it is not there; adds the places where both changed."""
    if _equal(ours, theirs) or all(_equal(theirs, base) for base in bases):
        return ours
    if all(_equal(ours, base) for base in bases):
        return theirs
    no_keys: dict[str, object] = {}
    sides = [*(no_keys if base is _ABSENT else base for base in bases), ours, theirs]
    if not all(isinstance(side, dict) for side in sides):
        clashes.append(at)
        return theirs if prefer == "theirs" else ours
    *before, mine, others = cast("list[dict[str, object]]", sides)
    joined = {
        name: _at_key(
            [base.get(name, _ABSENT) for base in before],
            mine.get(name, _ABSENT),
            others.get(name, _ABSENT),
            (*at, name),
            prefer,
            clashes,
        )
        for name in sorted(mine | others)
    }
    return {name: value for name, value in joined.items() if value is not _ABSENT}


def _keys(base: Json, ours: Json, theirs: Json) -> Json:
    joined, clashes = join_keys([base], ours, theirs)
    if clashes:
        raise Invalid(f"both changed {list(clashes[0])} differently", code="rule_not_applicable")
    return joined


def _equal(one: object, other: object) -> bool:
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return canonical.encode(cast("Json", one)) == canonical.encode(cast("Json", other))


_RULES: dict[Rule, Callable[[Json, Json, Json], Json]] = {
    "counter": _counter,
    "set": _set,
    "max": _max,
    "min": _min,
    "append": _append,
    "keys": _keys,
}


def _rank(*sides: Json) -> Callable[[Json], tuple[float | str, bytes]]:
    """Return the sort key for two numbers or two texts; 1 comes before 1.0, so that the sides do not matter."""
    if all(isinstance(side, str) for side in sides):
        return lambda side: (cast("str", side), b"")
    for side in sides:
        _number(side)
    return lambda side: (cast("float", side), canonical.encode(side))


def _number(value: Json) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise Invalid("a side is not a number", code="rule_not_applicable")


def _items(value: Json) -> list[Json]:
    if isinstance(value, list):
        return value
    raise Invalid("a side is not a list", code="rule_not_applicable")


def _items_by_bytes(value: Json) -> dict[bytes, Json]:
    """Return the items of a list, each once; two items are the same if their canonical bytes are."""
    return {canonical.encode(item): item for item in _items(value)}
