"""Decides path by path what a timeline takes from another line: puts, deletes and conflicts.  Nothing is written.

Paths that only one side changed are taken, and so are paths that both made equal.  A path that
both changed differently is joined by the rule declared for it, or it is a conflict: the side that
the caller prefers wins it (of a path that is joined key by key: the keys that both changed), and a
conflict for which no side is preferred is reported.  Reserved prefixes belong to runs of their own
line; they stay as they are on ours.

`resolve` is pure: three maps and the declared rules give the answer.

After a criss-cross merge, or if both lines merged the same other lines, two lines have several
best common ancestors (`resolve_criss_cross`).  Seen from one of these alone, a change that a line
made and then reverted on purpose looks like no change, and would be lost.  So each path is
resolved from every base, and it is a conflict if the results differ.  Values that add up (a
counter, or a list that is appended to) still have one right answer: they are joined from the sum
of the bases, which is computed in the same way from the bases' own common ancestors.  An object that
is joined key by key is resolved so key by key.

Several changes are decided on a `Draft`, each on top of what those before it leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.errors import Conflict, Invalid, PathConflict
from perdure.history import ancestry
from perdure.history.ancestry import Point
from perdure.history.changes import values
from perdure.history.changes.json_edits import spell_place
from perdure.history.space import Space
from perdure.history.tree import Entry, EntrySource, Meeting, Tree, diff, merge3
from perdure.model import canonical, names
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import ConflictCovered
from perdure.model.merge_rules import (
    ADDING,
    Keys,
    Rule,
    Side,
    adds_up,
    check_rules,
    check_sides,
    join,
    join_keys,
    rule_for,
    side_for,
)
from perdure.model.patch import JSON_TYPE

__all__ = ["SHARED_MAX", "Draft", "Joined", "Resolution", "TakenPath", "resolve", "resolve_lines", "why_at"]


Read: TypeAlias = Callable[[Entry], Json]
"""Reads the JSON value of an entry."""


class JoinTerms(msgspec.Struct, frozen=True):
    """The rules and sides by which two lines are joined, and how the values of entries are read."""

    rules: Mapping[str, Rule]  # from path prefix; the longest prefix decides
    prefer: Mapping[str, Side]
    read: Read


class Joined(msgspec.Struct, frozen=True):
    """A value that a rule joined from ours and theirs."""

    path: str
    value: Json
    covers: bool = False  # theirs won a key that both changed


Decision: TypeAlias = Entry | Joined | str | PathConflict | None
"""The decision about one path: a put, a delete (its path), a conflict, or nothing."""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to our map so that it holds their changes too.  All in the order of the paths."""

    puts: tuple[Entry | Joined, ...] = ()
    deletes: tuple[str, ...] = ()
    conflicts: tuple[PathConflict, ...] = ()

    @property
    def paths(self) -> int:
        """How many paths change."""
        return len(self.puts) + len(self.deletes)


def resolve(base: Tree, ours: EntrySource, theirs: Tree, how: JoinTerms) -> Resolution:
    """Return how to take what `theirs` changed since `base` into `ours`."""
    meetings = (meeting for meeting in merge3(base, ours, theirs) if not reserved(meeting.path))
    return collected(decide(meeting, how) for meeting in meetings)


def collected(decisions: Iterable[Decision]) -> Resolution:
    """Return the decisions about all paths, sorted into puts, deletes and conflicts."""
    puts: list[Entry | Joined] = []
    deletes: list[str] = []
    conflicts: list[PathConflict] = []
    for decision in decisions:
        match decision:
            case PathConflict():
                conflicts.append(decision)
            case str():
                deletes.append(decision)
            case Entry() | Joined():
                puts.append(decision)
            case None:
                pass
    return Resolution(puts=tuple(puts), deletes=tuple(deletes), conflicts=tuple(conflicts))


def reserved(path: str) -> bool:
    """True if the path belongs to a run of its own line, so that no merge touches it."""
    return any(names.under(path, prefix) for prefix in names.KERNEL_PREFIXES)


def decide(meeting: Meeting, how: JoinTerms) -> Decision:
    """Return the decision about one path that their side changed."""
    match meeting.verdict:
        case "same":
            return _added_twice(meeting, how)
        case "taken":
            return meeting.path if meeting.theirs is None else meeting.theirs
        case "conflict":
            rule = rule_for(meeting.path, how.rules)
            if rule == "keys" and (objects := _objects((meeting,), how.read)) is not None:
                return _join_keys((meeting,), objects, how)
            return conflict(meeting, _apart(meeting)) if rule is None else _join(meeting, rule, how)


def conflict(meeting: Meeting, why: str, keys: Sequence[Keys] = ()) -> PathConflict:
    """Return the report of a path that cannot be merged; `keys` are the places in it that are in conflict, none: all of it."""
    base, ours, theirs = (
        each.value if each else None for each in (meeting.base, meeting.ours, meeting.theirs)
    )
    return PathConflict(meeting.path, base, ours, theirs, f"{why}{_at_places(keys)}", tuple(keys))


def why_at(conflict: PathConflict, why: str) -> PathConflict:
    """Return a conflict with another reason, at the places that it has."""
    return conflict._replace(why=f"{why}{_at_places(conflict.keys)}")


def _at_places(keys: Sequence[Keys]) -> str:
    """Return the places in words; a few of many."""
    if not keys:
        return ""
    more = f" and {len(keys) - PLACES_MAX} more" if len(keys) > PLACES_MAX else ""
    return f" at {', '.join(map(spell_place, keys[:PLACES_MAX]))}{more}"


def _added_twice(meeting: Meeting, how: JoinTerms) -> Joined | PathConflict | None:
    """Join equal changes of both sides if they add up: each line counted, or appended, once."""
    rule = rule_for(meeting.path, how.rules)
    if rule is None or meeting.ours is None or meeting.ours.form != "json":
        return None
    if meeting.base is not None and meeting.base.form != "json":
        return None
    documents = [how.read(each) for each in (meeting.ours, meeting.base) if each is not None]
    return _join(meeting, rule, how) if adds_up(rule, *documents) else None


def _join(meeting: Meeting, rule: Rule, how: JoinTerms) -> Joined | PathConflict | None:
    base, ours, theirs = meeting.base, meeting.ours, meeting.theirs
    if ours is None or theirs is None:
        return conflict(meeting, _apart(meeting))
    if any(side is not None and side.form != "json" for side in (base, ours, theirs)):
        return conflict(meeting, f"the rule '{rule}' joins JSON documents, not bytes")
    mine = how.read(ours)
    try:
        joined = join(rule, how.read(base) if base else None, mine, how.read(theirs))
    except Invalid as error:
        return conflict(meeting, f"the rule '{rule}' does not fit: {error}")
    return None if _same(joined, mine) else Joined(meeting.path, joined)


def _objects(meetings: Sequence[Meeting], read: Read) -> list[Json] | None:
    """Return the objects on ours, on theirs and at each common ancestor that had a value; None: one of these is no object."""
    first = meetings[0]
    entries = (first.ours, first.theirs, *(each.base for each in meetings if each.base is not None))
    found = [read(each) for each in entries if each is not None and each.form == "json"]
    return found if len(found) == len(entries) and all(isinstance(each, dict) for each in found) else None


def _join_keys(meetings: Sequence[Meeting], objects: list[Json], how: JoinTerms) -> Decision:
    """Join two objects key by key, seen from every one of their common ancestors; a preferred side wins what both changed."""
    first, (mine, others, *had) = meetings[0], objects
    bases = [*had, *[None] * (len(meetings) - len(had))]
    side = side_for(first.path, how.prefer)
    joined, clashes = join_keys(bases, mine, others, side)
    if clashes and side is None:
        return conflict(first, _apart(first), clashes)
    covers = side == "theirs" and clashes != ()
    return None if _same(joined, mine) else Joined(first.path, joined, covers=covers)


def _apart(meeting: Meeting) -> str:
    if meeting.ours is None:
        return "deleted on ours, changed on theirs"
    if meeting.theirs is None:
        return "changed on ours, deleted on theirs"
    return "added differently on both" if meeting.base is None else "changed differently on both"


PLACES_MAX = 5  # in the reason of a conflict, which has all of them as `keys`
SHARED_MAX = 256  # common ancestors that a merge reads


class Shared(msgspec.Struct, frozen=True):
    """A best common ancestor of two lines, with its own common ancestors with the bases before it."""

    tree: Tree
    below: tuple[Shared, ...]


def shared(space: Space, bases: Sequence[Point], rules: Mapping[str, Rule]) -> tuple[Shared, ...]:
    """Return `bases` with their own common ancestors, down to single commits if a rule adds up.

    Raises `Conflict` if there are more than `SHARED_MAX`.
    """
    deep = any(rule in ADDING for rule in rules.values())
    return _shared(space, bases, iter(range(SHARED_MAX)), deep=deep)


def resolve_criss_cross(
    bases: Sequence[Shared], ours: EntrySource, theirs: Tree, how: JoinTerms
) -> Resolution:
    """Return how to take what `theirs` changed into `ours`, seen from every one of `bases`."""
    paths = _paths(bases, theirs, how.rules)
    mine, others = ours.get_many(paths), theirs.get_many(paths)
    seen = [base.tree.get_many(paths) for base in bases]

    def decision(path: str) -> Decision:
        meetings = [Meeting(path, held.get(path), mine.get(path), others.get(path)) for held in seen]
        rule = rule_for(path, how.rules)
        if rule is not None and _adds_up(meetings[0], rule, how.read):
            return _added(meetings[0], rule, bases, how.read)
        if rule == "keys" and (objects := _objects(meetings, how.read)) is not None:
            return _join_keys(meetings, objects, how)
        return _agreed(meetings, how)

    return collected(decision(path) for path in paths)


def _shared(space: Space, bases: Sequence[Point], room: Iterator[int], *, deep: bool) -> tuple[Shared, ...]:
    found: list[Shared] = []
    for number, base in enumerate(bases):
        if next(room, None) is None:
            raise Conflict(
                f"the timelines have more than {SHARED_MAX} common ancestors from criss-cross merges; nothing was written.",
                code="too_many_common_ancestors",
                advice="Promote one of them, or pick single commits.",
                limit=SHARED_MAX,
            )
        earlier = bases[:number] if deep else ()
        met = [each for other in earlier for each in ancestry.commons(space, other, base)]
        below = _shared(space, ancestry.best(space, met), room, deep=deep)
        found.append(Shared(space.tree_at(base.digest), below))
    return tuple(found)


def _paths(bases: Sequence[Shared], theirs: Tree, rules: Mapping[str, Rule]) -> list[str]:
    """Return every path that `theirs` may have changed, in order."""
    found = {change.path for base in bases for change in diff(base.tree, theirs)}
    # Equal changes that each of the bases made add up to a value that none of the bases has.
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


def _agreed(meetings: Sequence[Meeting], how: JoinTerms) -> Decision:
    """Return the decision about the path if it is the same from each base; else a conflict."""
    decisions = [None if each.base == each.theirs else decide(each, how) for each in meetings]
    for decision in decisions:
        if isinstance(decision, PathConflict):
            return decision
    if len({_left(decision, meetings[0].ours, how.read) for decision in decisions}) == 1:
        return None if None in decisions else decisions[0]
    return conflict(
        meetings[0],
        f"the timelines have {len(meetings)} last commits in common, and these disagree on which timeline changed it",
    )


def _left(decision: Decision, ours: Entry | None, read: Read) -> tuple[str, str, bytes] | None:
    """Return the value of the path after the decision, in a form that can be compared."""
    result = ours if decision is None else decision
    match result:
        case Joined(value=value):
            return "json", JSON_TYPE, canonical.encode(value)
        case Entry(form="json"):
            return "json", result.media_type, canonical.encode(read(result))
        case Entry():
            return result.form, result.media_type, result.value.encode()
        case _:
            return None


def _adds_up(meeting: Meeting, rule: Rule, read: Read) -> bool:
    sides = [side for side in (meeting.ours, meeting.theirs) if side is not None and side.form == "json"]
    return len(sides) == 2 and adds_up(rule, *(read(side) for side in sides))


def _added(meeting: Meeting, rule: Rule, bases: Sequence[Shared], read: Read) -> Decision:
    """Return the sum of what both sides added to the total of the bases."""
    mine, others = _document(meeting.ours, read), _document(meeting.theirs, read)
    try:
        before = _total(bases, meeting.path, rule, read)
        if _same(mine, others) and _only_reordered(before, mine):
            return None
        joined = _sum(rule, before, mine, others)
    except Invalid as error:
        return conflict(meeting, f"the rule '{rule}' does not fit: {error}")
    return None if _same(joined, mine) else Joined(meeting.path, joined)


def _total(bases: Sequence[Shared], path: str, rule: Rule, read: Read) -> Json:
    """Return the total of the bases at `path`; None: no value.  Raises `Invalid` if the rule does not fit them."""
    total: Json = None
    for number, base in enumerate(bases):
        own = _document(base.tree.get(path), read)
        total = own if number == 0 else _sum(rule, _total(base.below, path, rule, read), total, own)
    return total


def _sum(rule: Rule, before: Json, one: Json, other: Json) -> Json:
    if _same(one, before):
        return other
    if _same(other, before):
        return one
    if one is None or other is None:
        raise Invalid("it was deleted on one of the timelines", code="deleted_on_one_timeline")
    return join(rule, before, one, other)


def _document(entry: Entry | None, read: Read) -> Json:
    if entry is not None and entry.form != "json":
        raise Invalid("it held bytes", code="value_not_document")
    return read(entry) if entry else None


def _same(one: Json, other: Json) -> bool:
    return canonical.encode(one) == canonical.encode(other)


def _only_reordered(before: Json, now: Json) -> bool:
    """True if two lists hold the same items in any order: the order in which the bases were joined is not known."""
    if not isinstance(before, list) or not isinstance(now, list) or len(before) != len(now):
        return False
    return sorted(map(canonical.encode, before)) == sorted(map(canonical.encode, now))


class TakenPath(msgspec.Struct, frozen=True):
    """A path that a merge or a cherry-pick would change."""

    path: str
    what: Literal["added", "changed", "removed"]


class Draft:
    """The state of a timeline with the changes of picks that were decided and not written."""

    def __init__(self, space: Space, at: Digest | None) -> None:
        """Begin with the state at a commit."""
        self._space, self._tree = space, space.tree_at(at)
        self._changed: dict[str, Entry | None] = {}  # None: removed
        self._joined: dict[Digest, Json] = {}  # values that rules joined, which are not stored

    def get_many(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Return the entries at those of `paths` that have one."""
        wanted = list(paths)
        found = self._tree.get_many(wanted)
        if not self._changed:
            return found
        now = {path: self._changed.get(path, found.get(path)) for path in wanted}
        return {path: entry for path, entry in now.items() if entry is not None}

    def read(self, entry: Entry) -> Json:
        """Return the document of an entry."""
        known = self._joined
        return known[entry.value] if entry.value in known else values.read_json(self._space, entry.value)

    def stored(self, resolved: Resolution) -> list[Digest]:
        """Return the values of a resolution that are stored."""
        puts = (put.value for put in resolved.puts if isinstance(put, Entry))
        return [value for value in puts if value not in self._joined]

    def take(self, resolved: Resolution) -> None:
        """Change what a resolution says."""
        self._changed |= dict.fromkeys(resolved.deletes)
        for put in resolved.puts:
            if isinstance(put, Joined):
                body = canonical.encode(put.value)
                entry = Entry(put.path, "json", JSON_TYPE, len(body), digest_of(Kind.VALUE, body))
                self._joined[entry.value] = put.value
            else:
                entry = put
            self._changed[put.path] = entry

    def changes(self) -> Iterator[TakenPath]:
        """Yield the paths that differ from the commit that the draft began with, in order."""
        before = self._tree.get_many(self._changed)
        for path, entry in sorted(self._changed.items()):
            if (old := before.get(path)) != entry:
                yield TakenPath(path, "removed" if entry is None else "added" if old is None else "changed")


def resolve_lines(
    space: Space,
    bases: Sequence[Point],
    mine: Draft,
    theirs: Digest,
    *,
    rules: Mapping[str, str],
    prefer: Mapping[str, str],
) -> tuple[Resolution, tuple[ConflictCovered, ...]]:
    """Return the resolution of two states with these common ancestors, and which of our values theirs covered.

    Its conflicts are those for which no side is preferred.
    """
    how, others = JoinTerms(check_rules(rules), check_sides(prefer), mine.read), space.tree_at(theirs)
    if len(bases) > 1:
        resolved = resolve_criss_cross(shared(space, bases, how.rules), mine, others, how)
    else:
        base = space.tree_at(bases[0].digest if bases else None)
        resolved = resolve(base, mine, others, how)
    sides = {each.path: side_for(each.path, how.prefer) for each in resolved.conflicts}
    undecided = tuple(each for each in resolved.conflicts if sides[each.path] is None)
    taken = [each for each in resolved.conflicts if sides[each.path] == "theirs"]
    settled = [(each.path if (entry := others.get(each.path)) is None else entry) for each in taken]
    puts = [*resolved.puts, *(each for each in settled if isinstance(each, Entry))]
    deletes = [*resolved.deletes, *(each for each in settled if isinstance(each, str))]
    whole = Resolution(
        puts=tuple(sorted(puts, key=lambda each: each.path)),
        deletes=tuple(sorted(deletes)),
        conflicts=undecided,
    )
    covered = sorted(
        [each.path for each in taken]
        + [each.path for each in resolved.puts if isinstance(each, Joined) and each.covers]
    )
    before = mine.get_many(covered)
    events = [
        ConflictCovered(id=space.ids(), path=path, covered=held.value if held else None)
        for path in covered
        for held in (before.get(path),)
    ]
    return whole, tuple(events)
