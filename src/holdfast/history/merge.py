"""Merging: what another line changed since it parted from ours, taken in by one commit.

Paths that only one side changed merge, and so do paths that both made equal.  A path that
both changed differently is joined by the rule declared for it, or it is a conflict: every
conflict is reported, and nothing is written.  Messages are not merged; the transcript goes
on following first parents.

A merge is always recorded as a commit with two parents, even where our line has nothing of
its own and could simply move on: so it is one turn, and one undo takes it back whole.
Reserved prefixes hold what belongs to a run of its own line; they stay as they are on ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from holdfast.engines.contract import Receipt
from holdfast.errors import Invalid, MergeConflict, PathConflict
from holdfast.history import ancestry, patching, values, writer
from holdfast.history.space import Space
from holdfast.history.tree import Entry, Meeting, Tree, merge3
from holdfast.history.values import Kept
from holdfast.history.writer import Proposal
from holdfast.model import canonical, names
from holdfast.model.canonical import Json
from holdfast.model.commit import Reads
from holdfast.model.digest import Digest, Kind, digest_of
from holdfast.model.event import Event, Merged, Picked
from holdfast.model.head import Head
from holdfast.model.joining import Rule, check_rules, join, rule_for
from holdfast.model.patch import Stored

__all__ = ["Joined", "Outcome", "Resolution", "Terms", "cherry_pick", "merge", "resolve"]


class Joined(msgspec.Struct, frozen=True):
    """A value that a rule made out of ours and theirs."""

    path: str
    value: Json


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to our map so that it holds their changes too.  All in the order of the paths."""

    puts: tuple[Entry | Joined, ...] = ()
    deletes: tuple[str, ...] = ()
    conflicts: tuple[PathConflict, ...] = ()

    @property
    def paths(self) -> int:
        """How many paths change."""
        return len(self.puts) + len(self.deletes)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a merge or a pick."""

    head: Head
    commit: Digest | None  # None: there was nothing to take in, and nothing was written
    base: Digest | None  # where the lines parted; for a pick, the picked commit's first parent
    paths: int  # how many changed


def resolve(
    base: Tree, ours: Tree, theirs: Tree, rules: Mapping[str, Rule], read: Callable[[Entry], Json]
) -> Resolution:
    """How to take what `theirs` changed since `base` into `ours`; `read` gives the JSON of an entry."""
    puts: list[Entry | Joined] = []
    deletes: list[str] = []
    conflicts: list[PathConflict] = []
    for meeting in merge3(base, ours, theirs):
        if any(names.under(meeting.path, prefix) for prefix in names.KERNEL_PREFIXES):
            continue
        match _decide(meeting, rules, read):
            case PathConflict() as conflict:
                conflicts.append(conflict)
            case str() as path:
                deletes.append(path)
            case Entry() | Joined() as put:
                puts.append(put)
            case None:
                pass
    return Resolution(puts=tuple(puts), deletes=tuple(deletes), conflicts=tuple(conflicts))


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a merge or a pick is to be made, whatever it takes in."""

    op_id: str
    reason: str
    rules: Mapping[str, str] = {}  # from path prefix to the name of a rule; the longest prefix decides
    author: str | None = None
    outside: Reads = Reads()


def merge(space: Space, onto: Head, other: Digest, terms: Terms, *, source: str) -> Outcome:
    """Take what the line that ends at `other` changed into the timeline that `onto` was read from.

    `source` is what that line is called; trying again with the same op_id means that name, wherever
    it stands by then.  Raises `MergeConflict` or `StaleHead`, having written nothing.
    """
    rules = check_rules(terms.rules)
    intent = _intent("merge", onto, source, terms)
    if earlier := writer.once(space, terms.op_id, intent):
        return _told(space, earlier)
    if onto.commit is None:
        raise Invalid(
            f"timeline '{onto.timeline}' holds nothing to merge into; nothing was written. Promote or fork the other."
        )
    here, there = ancestry.point(space, onto.commit), ancestry.point(space, other)
    if ancestry.contains(space, here, there):
        return Outcome(head=onto, commit=None, base=other, paths=0)
    common = ancestry.common(space, here, there)
    base = common.digest if common else None
    resolution = _resolved(space, base, onto.commit, other, rules)
    event = Merged(id=space.ids(), timeline=source, base=base, paths=resolution.paths)
    proposal = _proposal(space, onto, resolution, event, terms, others=(other,))
    done = writer.commit(space, onto, proposal, op_id=terms.op_id, intent=intent)
    return Outcome(head=done.head, commit=done.head.commit, base=base, paths=resolution.paths)


def cherry_pick(
    space: Space, onto: Head, commit: Digest, terms: Terms, *, source: str | None = None
) -> Outcome:
    """Make the change of state that `commit` made once more, on the timeline that `onto` was read from.

    Its change is its difference to its first parent.  A path that `onto` holds otherwise than
    that parent did is joined by its rule or is a conflict: raises `MergeConflict` or `StaleHead`,
    having written nothing.  `source` is what the caller called the commit; None: its digest.
    """
    rules = check_rules(terms.rules)
    intent = _intent("cherry_pick", onto, source or commit, terms)
    if earlier := writer.once(space, terms.op_id, intent):
        return _told(space, earlier)
    base = next(iter(space.step(commit).commit.parents), None)
    resolution = _resolved(space, base, onto.commit, commit, rules)
    if not resolution.paths:
        return Outcome(head=onto, commit=None, base=base, paths=0)
    event = Picked(id=space.ids(), commit=commit)
    proposal = _proposal(space, onto, resolution, event, terms)
    done = writer.commit(space, onto, proposal, op_id=terms.op_id, intent=intent)
    return Outcome(head=done.head, commit=done.head.commit, base=base, paths=resolution.paths)


def _decide(
    meeting: Meeting, rules: Mapping[str, Rule], read: Callable[[Entry], Json]
) -> Entry | Joined | str | PathConflict | None:
    """What one path needs: a put, a delete (its path), a report, or nothing."""
    match meeting.verdict:
        case "same":
            return _added_twice(meeting, rules, read)
        case "taken":
            return meeting.path if meeting.theirs is None else meeting.theirs
        case "conflict":
            rule = rule_for(meeting.path, rules)
            return _conflict(meeting, _apart(meeting)) if rule is None else _join(meeting, rule, read)


def _added_twice(meeting: Meeting, rules: Mapping[str, Rule], read: Callable[[Entry], Json]) -> Joined | None:
    """Two equal steps are two steps where they add up: each line counted, or appended, once."""
    rule = rule_for(meeting.path, rules) if meeting.ours is not None else None
    if rule != "counter" and rule != "append":
        return None
    joined = _join(meeting, rule, read)
    return joined if isinstance(joined, Joined) else None  # equal values that the rule does not fit are equal


def _join(meeting: Meeting, rule: Rule, read: Callable[[Entry], Json]) -> Joined | PathConflict | None:
    base, ours, theirs = meeting.base, meeting.ours, meeting.theirs
    if ours is None or theirs is None:
        return _conflict(meeting, _apart(meeting))
    if any(side is not None and side.form != "json" for side in (base, ours, theirs)):
        return _conflict(meeting, f"the rule '{rule}' joins JSON documents, not bytes")
    mine = read(ours)
    try:
        joined = join(rule, read(base) if base else None, mine, read(theirs))
    except Invalid as error:
        return _conflict(meeting, f"the rule '{rule}' does not fit: {error}")
    same = canonical.encode(joined) == canonical.encode(mine)
    return None if same else Joined(meeting.path, joined)


def _apart(meeting: Meeting) -> str:
    if meeting.ours is None:
        return "deleted on ours, changed on theirs"
    if meeting.theirs is None:
        return "changed on ours, deleted on theirs"
    return "added differently on both" if meeting.base is None else "changed differently on both"


def _conflict(meeting: Meeting, why: str) -> PathConflict:
    base, ours, theirs = (
        each.value if each else None for each in (meeting.base, meeting.ours, meeting.theirs)
    )
    return PathConflict(meeting.path, base, ours, theirs, why)


def _resolved(
    space: Space, base: Digest | None, ours: Digest | None, theirs: Digest, rules: Mapping[str, Rule]
) -> Resolution:
    """The resolution between three commits; raises `MergeConflict`."""
    resolution = resolve(
        space.tree_at(base),
        space.tree_at(ours),
        space.tree_at(theirs),
        rules,
        lambda entry: values.read_json(space, entry.value),
    )
    if resolution.conflicts:
        raise MergeConflict(resolution.conflicts)
    return resolution


def _proposal(
    space: Space,
    onto: Head,
    resolution: Resolution,
    event: Event,
    terms: Terms,
    *,
    others: tuple[Digest, ...] = (),
) -> Proposal:
    ops = patching.Ops(space, space.root_at(onto.commit))
    for path in resolution.deletes:
        ops.delete(path)
    for put in resolution.puts:
        if isinstance(put, Joined):
            ops.put(put.path, put.value)
        else:
            ops.put_stored(put.path, Kept(Stored(put.value, put.size, put.form, put.media_type), ()))
    patched = ops.finish()
    return Proposal(
        reason=terms.reason,
        root=patched.root,
        patch=patched.patch,
        events=(event,),
        minted=frozenset((event.id,)),
        objects=patched.objects,
        cells=patched.cells,
        outside=terms.outside,
        others=others,
        author=terms.author,
    )


def _intent(act: str, onto: Head, source: str, terms: Terms) -> Digest:
    """What was asked for, whatever stands on either line when it is tried again."""
    asked: list[Json] = [act, onto.timeline, source, terms.reason, dict(terms.rules)]
    return digest_of(Kind.BODY, canonical.encode(asked))


def _told(space: Space, receipt: Receipt) -> Outcome:
    """What an earlier merge or pick did, as its commit tells it."""
    head = receipt.heads[0]
    assert head.commit is not None, "a merge moves its head to a commit"
    step = space.step(head.commit)
    merged = next((event for event in step.changeset.events if isinstance(event, Merged)), None)
    picked = next((event for event in step.changeset.events if isinstance(event, Picked)), None)
    base = merged.base if merged else None
    if picked:
        base = next(iter(space.step(picked.commit).commit.parents), None)
    return Outcome(head=head, commit=head.commit, base=base, paths=len(step.changeset.patch.ops))
