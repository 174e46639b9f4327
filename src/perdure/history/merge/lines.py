"""Merges the changes of another line into a timeline by one commit, as `resolve` decides path by path.

Messages are not merged; the transcript follows first parents.

A merge is always recorded as a commit with two parents, even if our line has no commits of
its own since the base: so it is one turn, and one undo reverts it whole.  A dry run decides in the
same way and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engines.contract import Receipt
from perdure.errors import Invalid, MergeConflict, PathConflict
from perdure.history import ancestry, gc_generation, writer
from perdure.history.ancestry import Point
from perdure.history.changes import patch_builder
from perdure.history.changes.values import StoredValue
from perdure.history.merge.resolve import Draft, Joined, Resolution, TakenPath, resolve_lines
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.history.writer import Proposal
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.commit import Reads
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import Event, Merged
from perdure.model.head import Head
from perdure.model.merge_rules import Side
from perdure.model.patch import Stored

__all__ = ["Taken", "Terms", "apply", "intent_of", "merge", "planned", "proposal_of", "would_merge"]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a merge or a cherry-pick, or with a dry run what it would be."""

    head: Head
    commit: Digest | None  # None: there was nothing to merge, or it was a dry run; nothing was written
    base: Digest | None  # the deepest commit where the lines parted; for a pick, its first parent
    paths: int  # how many changed
    changes: tuple[TakenPath, ...] = ()  # of a dry run, in the order of the paths
    conflicts: tuple[PathConflict, ...] = ()  # of a dry run: those for which no side is preferred
    theirs: Digest | None = None  # of a dry run: the commit that would be taken in
    picked: str = ""  # what was picked, such as "turn 4"; empty: it was a merge
    picks: tuple[Taken, ...] = ()  # of a cherry-pick: what each turn or commit did, in order


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a merge or a cherry-pick."""

    op_id: str
    reason: str  # empty: each pick has its own
    rules: Mapping[str, str] = {}  # from path prefix to the name of a rule; the longest prefix decides
    author: str | None = None
    outside: Reads = Reads()
    prefer: Mapping[
        str, Side
    ] = {}  # from path prefix to the side that wins a conflict; the longest prefix decides


def merge(space: Space, onto: Head, other: Digest, terms: Terms, *, source: str) -> Taken:
    """Merge the changes of the line that ends at `other` into the timeline that `onto` was read from.

    `source` is the name of that line; a repeated call with the same op_id means the same name, even if
    its head has moved since.  Raises `MergeConflict` or `StaleHead`, having written nothing.
    """
    earlier = writer.once(space, terms.op_id, intent_of("merge", onto, source, terms))
    if earlier:
        return _earlier_outcome(space, earlier)
    return gc_generation.fenced(space, lambda fenced: _merge(fenced, onto, other, terms, source))


def _merge(space: Space, onto: Head, other: Digest, terms: Terms, source: str) -> Taken:
    bases = _bases(space, onto, other)
    if bases is None:
        return Taken(head=onto, commit=None, base=other, paths=0)
    base = bases[0].digest if bases else None
    draft = Draft(space, onto.commit)
    resolved, covered = resolve_lines(space, bases, draft, other, rules=terms.rules, prefer=terms.prefer)
    if resolved.conflicts:
        raise MergeConflict(resolved.conflicts)
    event = Merged(id=space.ids(), timeline=source, base=base, paths=resolved.paths)
    ops = patch_builder.Ops(space, space.root_at(onto.commit))
    apply(space, ops, resolved)
    proposal = proposal_of(ops.finish(), (event, *covered), terms, terms.reason, others=(other,))
    intent = intent_of("merge", onto, source, terms)
    done = writer.commit(space, onto, proposal, op_id=terms.op_id, intent=intent)
    return Taken(head=done.head, commit=done.head.commit, base=base, paths=resolved.paths)


def would_merge(space: Space, onto: Head, other: Digest, terms: Terms) -> Taken:
    """Return what `merge` would do, also if it would raise `MergeConflict`; nothing is written."""
    bases = _bases(space, onto, other)
    if bases is None:
        return Taken(head=onto, commit=None, base=other, paths=0)
    draft = Draft(space, onto.commit)
    resolved, _ = resolve_lines(space, bases, draft, other, rules=terms.rules, prefer=terms.prefer)
    return planned(space, onto, bases[0].digest if bases else None, other, resolved, draft)


def _bases(space: Space, onto: Head, other: Digest) -> list[Point] | None:
    """Return the best common ancestors of two lines; None: the timeline has the other one whole."""
    if onto.commit is None:
        raise Invalid(
            f"timeline '{onto.timeline}' holds nothing to merge into; nothing was written.",
            code="nothing_to_merge_into",
            advice="Promote or fork the other.",
            timeline=onto.timeline,
        )
    here, there = ancestry.point(space, onto.commit), Point(other, space.given(other).place.depth)
    return None if ancestry.contains(space, here, there) else ancestry.commons(space, here, there)


def planned(
    space: Space,
    onto: Head,
    base: Digest | None,
    theirs: Digest,
    resolved: Resolution,
    draft: Draft,
    *,
    picked: str = "",
) -> Taken:
    """Return what taking a resolution would do; raises `Forgotten` if a value of it is gone."""
    gc_generation.check_kept(space, draft.stored(resolved))
    before = draft.get_many(put.path for put in resolved.puts)
    changes = [TakenPath(put.path, "changed" if put.path in before else "added") for put in resolved.puts]
    changes += [TakenPath(path, "removed") for path in resolved.deletes]
    changes.sort(key=lambda each: each.path)
    return Taken(
        head=onto,
        commit=None,
        base=base,
        paths=resolved.paths,
        changes=tuple(changes),
        conflicts=resolved.conflicts,
        theirs=theirs,
        picked=picked,
    )


def apply(space: Space, ops: patch_builder.Ops, resolved: Resolution) -> None:
    """Add what a resolution changes to `ops`; raises `Forgotten` if a value of it is gone."""
    gc_generation.check_kept(space, (put.value for put in resolved.puts if isinstance(put, Entry)))
    for path in resolved.deletes:
        ops.delete(path)
    for put in resolved.puts:
        if isinstance(put, Joined):
            ops.put(put.path, put.value)
        else:
            ops.put_stored(put.path, StoredValue(Stored(put.value, put.size, put.form, put.media_type), ()))


def proposal_of(
    patched: patch_builder.Patched,
    events: tuple[Event, ...],
    terms: Terms,
    reason: str,
    *,
    others: tuple[Digest, ...] = (),
) -> Proposal:
    """Return the commit of a merge or a pick, with the events that say what it was."""
    return Proposal(
        reason=reason,
        root=patched.root,
        patch=patched.patch,
        events=events,
        minted=frozenset(event.id for event in events),
        objects=patched.objects,
        cells=patched.cells,
        outside=terms.outside,
        others=others,
        author=terms.author,
    )


def intent_of(act: str, onto: Head, source: str, terms: Terms) -> Digest:
    """Return the digest of what the caller asked for; it does not depend on the heads."""
    intent: list[Json] = [act, onto.timeline, source, terms.reason, dict(terms.rules)]
    if terms.prefer:
        intent.append(dict(terms.prefer))
    return digest_of(Kind.BODY, canonical.encode(intent))


def _earlier_outcome(space: Space, receipt: Receipt) -> Taken:
    """Return the outcome of an earlier merge, from its commit."""
    head = receipt.heads[0]
    assert head.commit is not None, "a merge moves its head to a commit"
    step = space.step(head.commit)
    merged = next(event for event in step.changeset.events if isinstance(event, Merged))
    return Taken(head=head, commit=head.commit, base=merged.base, paths=len(step.changeset.patch.ops))
