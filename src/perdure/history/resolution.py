"""Resolving a merge path by path: what to do to our map so that it holds their changes too.

Pure: three maps and the declared rules give puts, deletes and conflicts.  Paths that only one
side changed are taken, and so are paths that both made equal.  A path that both changed
differently is joined by the rule declared for it, or it is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from perdure.errors import Invalid, PathConflict
from perdure.history.tree import Entry, Meeting, Tree, merge3
from perdure.model import canonical, names
from perdure.model.canonical import Json
from perdure.model.joining import Rule, adds_up, join, rule_for

__all__ = [
    "Decision",
    "Joined",
    "Read",
    "Resolution",
    "collected",
    "conflict",
    "decide",
    "reserved",
    "resolve",
]

Read: TypeAlias = Callable[[Entry], Json]
"""The JSON of an entry."""


class Joined(msgspec.Struct, frozen=True):
    """A value that a rule made out of ours and theirs."""

    path: str
    value: Json


Decision: TypeAlias = Entry | Joined | str | PathConflict | None
"""What one path needs: a put, a delete (its path), a report, or nothing."""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to our map so that it holds their changes too.  All in the order of the paths."""

    puts: tuple[Entry | Joined, ...] = ()
    deletes: tuple[str, ...] = ()
    conflicts: tuple[PathConflict, ...] = ()

    @property
    def paths(self) -> int:
        """How many paths change."""
        return len(self.puts) + len(self.deletes)


def resolve(base: Tree, ours: Tree, theirs: Tree, rules: Mapping[str, Rule], read: Read) -> Resolution:
    """How to take what `theirs` changed since `base` into `ours`."""
    meetings = (meeting for meeting in merge3(base, ours, theirs) if not reserved(meeting.path))
    return collected(decide(meeting, rules, read) for meeting in meetings)


def collected(decisions: Iterable[Decision]) -> Resolution:
    """The decisions about all paths, which come in order, by what they are."""
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
    """Whether the path belongs to a run of its own line, so that no merge touches it."""
    return any(names.under(path, prefix) for prefix in names.KERNEL_PREFIXES)


def decide(meeting: Meeting, rules: Mapping[str, Rule], read: Read) -> Decision:
    """What one path needs that their side changed."""
    match meeting.verdict:
        case "same":
            return _added_twice(meeting, rules, read)
        case "taken":
            return meeting.path if meeting.theirs is None else meeting.theirs
        case "conflict":
            rule = rule_for(meeting.path, rules)
            return conflict(meeting, _apart(meeting)) if rule is None else _join(meeting, rule, read)


def conflict(meeting: Meeting, why: str) -> PathConflict:
    """The report of a path that cannot be merged."""
    base, ours, theirs = (
        each.value if each else None for each in (meeting.base, meeting.ours, meeting.theirs)
    )
    return PathConflict(meeting.path, base, ours, theirs, why)


def _added_twice(meeting: Meeting, rules: Mapping[str, Rule], read: Read) -> Joined | PathConflict | None:
    """Two equal steps are two steps where they add up: each line counted, or appended, once."""
    rule = rule_for(meeting.path, rules)
    if rule is None or meeting.ours is None or meeting.ours.form != "json":
        return None
    if meeting.base is not None and meeting.base.form != "json":
        return None
    held = [read(each) for each in (meeting.ours, meeting.base) if each is not None]
    return _join(meeting, rule, read) if adds_up(rule, *held) else None


def _join(meeting: Meeting, rule: Rule, read: Read) -> Joined | PathConflict | None:
    base, ours, theirs = meeting.base, meeting.ours, meeting.theirs
    if ours is None or theirs is None:
        return conflict(meeting, _apart(meeting))
    if any(side is not None and side.form != "json" for side in (base, ours, theirs)):
        return conflict(meeting, f"the rule '{rule}' joins JSON documents, not bytes")
    mine = read(ours)
    try:
        joined = join(rule, read(base) if base else None, mine, read(theirs))
    except Invalid as error:
        return conflict(meeting, f"the rule '{rule}' does not fit: {error}")
    same = canonical.encode(joined) == canonical.encode(mine)
    return None if same else Joined(meeting.path, joined)


def _apart(meeting: Meeting) -> str:
    if meeting.ours is None:
        return "deleted on ours, changed on theirs"
    if meeting.theirs is None:
        return "changed on ours, deleted on theirs"
    return "added differently on both" if meeting.base is None else "changed differently on both"
