"""Merging lines that have several last commits in common: they were merged crosswise, or both took in the same others.

Seen from one of these commits alone, what a line changed and knowingly took back looks like
no change, and would be lost.  So each path is resolved from every one of them, and where the
results are not the same it is a conflict.

What adds up has one right answer even so.  A counter, or a list that is appended to, is
joined from what the commits in common add up to; and that is found in the same way, from
what they have in common themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.errors import Conflict, Invalid, PathConflict
from perdure.history import ancestry
from perdure.history.ancestry import Point
from perdure.history.resolution import (
    Decision,
    Joined,
    Read,
    Resolution,
    collected,
    conflict,
    decide,
    reserved,
)
from perdure.history.space import Space
from perdure.history.tree import Entry, Meeting, Tree, diff
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.joining import ADDING, Rule, adds_up, join, rule_for
from perdure.model.patch import JSON_TYPE

__all__ = ["SHARED_MAX", "Shared", "resolve", "shared"]

SHARED_MAX = 256  # commits in common that a merge looks at


class Shared(msgspec.Struct, frozen=True):
    """A commit that two lines have in common, and what it has itself in common with those named before it."""

    tree: Tree
    below: tuple[Shared, ...]


def shared(space: Space, bases: Sequence[Point], rules: Mapping[str, Rule]) -> tuple[Shared, ...]:
    """What is behind `bases`, down to single commits where a rule adds up.

    Raises `Conflict` if that is too much to look at.
    """
    deep = any(rule in ADDING for rule in rules.values())
    return _shared(space, bases, iter(range(SHARED_MAX)), deep=deep)


def resolve(
    bases: Sequence[Shared], ours: Tree, theirs: Tree, rules: Mapping[str, Rule], read: Read
) -> Resolution:
    """How to take what `theirs` changed into `ours`, seen from every one of `bases`."""
    paths = _paths(bases, theirs, rules)
    mine, others = ours.get_many(paths), theirs.get_many(paths)
    seen = [base.tree.get_many(paths) for base in bases]

    def decision(path: str) -> Decision:
        meetings = [Meeting(path, held.get(path), mine.get(path), others.get(path)) for held in seen]
        rule = rule_for(path, rules)
        if rule is not None and _adds_up(meetings[0], rule, read):
            return _added(meetings[0], rule, bases, read)
        return _agreed(meetings, rules, read)

    return collected(decision(path) for path in paths)


def _shared(space: Space, bases: Sequence[Point], room: Iterator[int], *, deep: bool) -> tuple[Shared, ...]:
    found: list[Shared] = []
    for number, base in enumerate(bases):
        if next(room, None) is None:
            raise Conflict(
                f"the lines have more than {SHARED_MAX} commits in common that came about crosswise; nothing was "
                "written. Promote one of them, or pick what is wanted."
            )
        earlier = bases[:number] if deep else ()
        met = [each for other in earlier for each in ancestry.commons(space, other, base)]
        below = _shared(space, ancestry.best(space, met), room, deep=deep)
        found.append(Shared(space.tree_at(base.digest), below))
    return tuple(found)


def _paths(bases: Sequence[Shared], theirs: Tree, rules: Mapping[str, Rule]) -> list[str]:
    """Every path that `theirs` may have changed, in order."""
    found = {change.path for base in bases for change in diff(base.tree, theirs)}
    # Two equal steps that each of the bases made are two: together they hold what none of them does.
    found |= {
        change.path
        for tree in _trees(below for base in bases for below in base.below)
        for change in diff(tree, theirs)
        if rule_for(change.path, rules) in ADDING
    }
    return sorted(path for path in found if not reserved(path))


def _trees(some: Iterable[Shared]) -> Iterator[Tree]:
    for each in some:
        yield each.tree
        yield from _trees(each.below)


def _agreed(meetings: Sequence[Meeting], rules: Mapping[str, Rule], read: Read) -> Decision:
    """What the path needs if it is the same from each base; else a conflict."""
    decisions = [None if each.base == each.theirs else decide(each, rules, read) for each in meetings]
    for decision in decisions:
        if isinstance(decision, PathConflict):
            return decision
    if len({_left(decision, meetings[0].ours, read) for decision in decisions}) == 1:
        return None if None in decisions else decisions[0]
    return conflict(
        meetings[0],
        f"the lines have {len(meetings)} last commits in common, and these disagree on who changed it",
    )


def _left(decision: Decision, ours: Entry | None, read: Read) -> tuple[str, str, bytes] | None:
    """What the path holds once the decision is carried out, in a form that can be compared."""
    held = ours if decision is None else decision
    match held:
        case Joined(_, value):
            return "json", JSON_TYPE, canonical.encode(value)
        case Entry(form="json"):
            return "json", held.media_type, canonical.encode(read(held))
        case Entry():
            return held.form, held.media_type, held.value.encode()
        case _:
            return None


def _adds_up(meeting: Meeting, rule: Rule, read: Read) -> bool:
    sides = [side for side in (meeting.ours, meeting.theirs) if side is not None and side.form == "json"]
    return len(sides) == 2 and adds_up(rule, *(read(side) for side in sides))


def _added(meeting: Meeting, rule: Rule, bases: Sequence[Shared], read: Read) -> Decision:
    """What both sides added to what they have in common."""
    mine, others = _held(meeting.ours, read), _held(meeting.theirs, read)
    try:
        before = _total(bases, meeting.path, rule, read)
        if _same(mine, others) and _only_reordered(before, mine):
            return None
        joined = _sum(rule, before, mine, others)
    except Invalid as error:
        return conflict(meeting, f"the rule '{rule}' does not fit: {error}")
    return None if _same(joined, mine) else Joined(meeting.path, joined)


def _total(bases: Sequence[Shared], path: str, rule: Rule, read: Read) -> Json:
    """What the bases hold together at `path`; None is nothing.  Raises `Invalid` if the rule does not fit them."""
    total: Json = None
    for number, base in enumerate(bases):
        held = _held(base.tree.get(path), read)
        total = held if number == 0 else _sum(rule, _total(base.below, path, rule, read), total, held)
    return total


def _sum(rule: Rule, before: Json, one: Json, other: Json) -> Json:
    if _same(one, before):
        return other
    if _same(other, before):
        return one
    if one is None or other is None:
        raise Invalid("it was deleted on one of the lines")
    return join(rule, before, one, other)


def _held(entry: Entry | None, read: Read) -> Json:
    if entry is not None and entry.form != "json":
        raise Invalid("it held bytes")
    return read(entry) if entry else None


def _same(one: Json, other: Json) -> bool:
    return canonical.encode(one) == canonical.encode(other)


def _only_reordered(before: Json, now: Json) -> bool:
    """Whether two lists hold the same items: in which order the bases' own came together is not told."""
    if not isinstance(before, list) or not isinstance(now, list) or len(before) != len(now):
        return False
    return sorted(map(canonical.encode, before)) == sorted(map(canonical.encode, now))
