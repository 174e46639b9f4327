"""Merging: what another line changed since it parted from ours, taken in by one commit.

Paths that only one side changed merge, and so do paths that both made equal.  A path that
both changed differently is joined by the rule declared for it, or it is a conflict: every
conflict is reported, and nothing is written.  Lines that were merged crosswise parted more
than once; then a path merges only if it does so alike from each of these commits.  Messages
are not merged; the transcript goes on following first parents.

A merge is always recorded as a commit with two parents, even where our line has nothing of
its own and could simply move on: so it is one turn, and one undo takes it back whole.
Reserved prefixes hold what belongs to a run of its own line; they stay as they are on ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.engines.contract import Receipt
from perdure.errors import Invalid, MergeConflict
from perdure.history import ancestry, crosswise, generation, patching, resolution, values, writer
from perdure.history.ancestry import Point
from perdure.history.resolution import Joined, Resolution
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.history.values import Kept
from perdure.history.writer import Proposal
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.commit import Reads
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import Event, Merged, Picked
from perdure.model.head import Head
from perdure.model.joining import Rule, check_rules
from perdure.model.patch import Stored

__all__ = ["Taken", "Terms", "cherry_pick", "merge"]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a merge or a pick."""

    head: Head
    commit: Digest | None  # None: there was nothing to take in, and nothing was written
    base: Digest | None  # the deepest commit where the lines parted; for a pick, its first parent
    paths: int  # how many changed


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a merge or a pick is to be made, whatever it takes in."""

    op_id: str
    reason: str
    rules: Mapping[str, str] = {}  # from path prefix to the name of a rule; the longest prefix decides
    author: str | None = None
    outside: Reads = Reads()


def merge(space: Space, onto: Head, other: Digest, terms: Terms, *, source: str) -> Taken:
    """Take what the line that ends at `other` changed into the timeline that `onto` was read from.

    `source` is what that line is called; trying again with the same op_id means that name, wherever
    it stands by then.  Raises `MergeConflict` or `StaleHead`, having written nothing.
    """
    earlier = writer.once(space, terms.op_id, _intent("merge", onto, source, terms))
    if earlier:
        return _told(space, earlier)
    return generation.fenced(space, lambda fenced: _merge(fenced, onto, other, terms, source))


def _merge(space: Space, onto: Head, other: Digest, terms: Terms, source: str) -> Taken:
    if onto.commit is None:
        raise Invalid(
            f"timeline '{onto.timeline}' holds nothing to merge into; nothing was written. Promote or fork the other."
        )
    here, there = ancestry.point(space, onto.commit), Point(other, space.given(other).place.depth)
    if ancestry.contains(space, here, there):
        return Taken(head=onto, commit=None, base=other, paths=0)
    bases = ancestry.commons(space, here, there)
    base = bases[0].digest if bases else None
    resolved = _resolved(space, bases, onto.commit, other, check_rules(terms.rules))
    event = Merged(id=space.ids(), timeline=source, base=base, paths=resolved.paths)
    proposal = _proposal(space, onto, resolved, event, terms, others=(other,))
    intent = _intent("merge", onto, source, terms)
    done = writer.commit(space, onto, proposal, op_id=terms.op_id, intent=intent)
    return Taken(head=done.head, commit=done.head.commit, base=base, paths=resolved.paths)


def cherry_pick(space: Space, onto: Head, commit: Digest, terms: Terms, *, turn: bool = False) -> Taken:
    """Make the change of state that `commit` made once more, on the timeline that `onto` was read from.

    Its change is its difference to its first parent; with `turn`, that of the turn which ends with it.
    The last commit of a run stands for its turn in any case: by itself it changes nothing, or puts back
    what the run had written.  A path that `onto` holds otherwise than before that change is joined by its
    rule or is a conflict: raises `MergeConflict` or `StaleHead`, having written nothing.
    """
    intent = _intent("cherry_pick", onto, commit, terms)
    if earlier := writer.once(space, terms.op_id, intent):
        return _told(space, earlier)
    return generation.fenced(space, lambda fenced: _pick(fenced, onto, commit, terms, intent, turn=turn))


def _pick(space: Space, onto: Head, commit: Digest, terms: Terms, intent: Digest, *, turn: bool) -> Taken:
    base = _base_of(space, commit, turn=turn)
    bases = [] if base is None else [ancestry.point(space, base)]
    resolved = _resolved(space, bases, onto.commit, commit, check_rules(terms.rules))
    if not resolved.paths:
        return Taken(head=onto, commit=None, base=base, paths=0)
    event = Picked(id=space.ids(), commit=commit, since=base)
    proposal = _proposal(space, onto, resolved, event, terms)
    done = writer.commit(space, onto, proposal, op_id=terms.op_id, intent=intent)
    return Taken(head=done.head, commit=done.head.commit, base=base, paths=resolved.paths)


def _base_of(space: Space, commit: Digest, *, turn: bool) -> Digest | None:
    """The commit before the change that is picked; None: the line began with it."""
    step = space.given(commit)
    if not turn and step.commit.reason != "run_finished":
        return step.commit.first_parent
    number = step.place.turn
    before = space.turn(commit, number - 1) if number > 1 else None
    return None if before is None else before.digest


def _resolved(
    space: Space, bases: Sequence[Point], ours: Digest | None, theirs: Digest, rules: Mapping[str, Rule]
) -> Resolution:
    """The resolution between two commits and what they have in common; raises `MergeConflict`."""
    mine, others = space.tree_at(ours), space.tree_at(theirs)
    read: resolution.Read = lambda entry: values.read_json(space, entry.value)  # noqa: E731
    if len(bases) > 1:
        resolved = crosswise.resolve(crosswise.shared(space, bases, rules), mine, others, rules, read)
    else:
        base = space.tree_at(bases[0].digest if bases else None)
        resolved = resolution.resolve(base, mine, others, rules, read)
    if resolved.conflicts:
        raise MergeConflict(resolved.conflicts)
    return resolved


def _proposal(
    space: Space,
    onto: Head,
    resolved: Resolution,
    event: Event,
    terms: Terms,
    *,
    others: tuple[Digest, ...] = (),
) -> Proposal:
    generation.check_kept(space, (put.value for put in resolved.puts if isinstance(put, Entry)))
    ops = patching.Ops(space, space.root_at(onto.commit))
    for path in resolved.deletes:
        ops.delete(path)
    for put in resolved.puts:
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


def _told(space: Space, receipt: Receipt) -> Taken:
    """What an earlier merge or pick did, as its commit tells it."""
    head = receipt.heads[0]
    assert head.commit is not None, "a merge moves its head to a commit"
    step = space.step(head.commit)
    merged = next((event for event in step.changeset.events if isinstance(event, Merged)), None)
    picked = next((event for event in step.changeset.events if isinstance(event, Picked)), None)
    base = merged.base if merged else None
    if picked:
        base = picked.since or _base_of(space, picked.commit, turn=False)
    return Taken(head=head, commit=head.commit, base=base, paths=len(step.changeset.patch.ops))
