"""Applies the changes of state of commits to another timeline again: one commit for each, in one write, or nothing.

Each is decided on top of what those before it leave, by the rules and preferred sides of a merge, from the state before
the change.  Messages stay where they were said.  A dry run decides in the same way and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.engines.contract import Receipt, Step
from perdure.errors import MergeConflict, PathConflict
from perdure.history import ancestry, gc_generation, reader, writer
from perdure.history.changes import patch_builder
from perdure.history.merge.lines import Taken, Terms, apply, intent_of, planned, proposal_of
from perdure.history.merge.resolve import Draft, Resolution, TakenPath, resolve_lines, why_at
from perdure.history.space import Space
from perdure.history.tree import diff
from perdure.history.writer import Proposal
from perdure.model.digest import Digest
from perdure.model.event import ConflictCovered, Picked
from perdure.model.head import Head
from perdure.model.merge_rules import check_rules, rule_for

__all__ = ["Pick", "cherry_pick", "would_pick"]


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, or the turn that ends with it, whose change of state is to be applied again."""

    commit: Digest
    is_turn: bool  # the whole turn is meant
    name: str  # in words
    reason: str  # of the commit that applies it, if the caller gives none


def cherry_pick(space: Space, onto: Head, picks: Sequence[Pick], terms: Terms) -> Taken:
    """Apply the changes of state that commits made to the timeline that `onto` was read from, one commit for each.

    The change of a commit is its difference to its first parent, that of a turn its difference to the turn before.
    The last commit of a run always means its turn: by itself it changes nothing, or reverts what the
    run had written.  A path whose value is not the value before that change is joined by its
    rule or is a conflict: raises `MergeConflict` or `StaleHead`, having written nothing of any pick.
    """
    intent = intent_of("cherry_pick", onto, " ".join(pick.commit for pick in picks), terms)
    if earlier := writer.once(space, terms.op_id, intent):
        return _picked_earlier(space, earlier, picks)
    return gc_generation.fenced(space, lambda fenced: _pick(fenced, onto, picks, terms, intent))


def _pick(space: Space, onto: Head, picks: Sequence[Pick], terms: Terms, intent: Digest) -> Taken:
    draft, ops = Draft(space, onto.commit), patch_builder.Ops(space, space.root_at(onto.commit))
    proposals: list[Proposal] = []
    for pick, base, resolved, covered in _decided(space, onto, picks, terms, draft):
        if resolved.conflicts:
            raise MergeConflict(resolved.conflicts, picked=pick.name)
        if resolved.paths:
            apply(space, ops, resolved)
            patched, ops = ops.split()
            picked = Picked(id=space.ids(), commit=pick.commit, since=base)
            proposals.append(proposal_of(patched, (picked, *covered), terms, terms.reason or pick.reason))
    if not proposals:
        return _picked(space, onto, picks, ())
    done = writer.commit(space, onto, *proposals, op_id=terms.op_id, intent=intent)
    return _picked(space, done.head, picks, _written(space, done.head, len(proposals)))


def would_pick(space: Space, onto: Head, picks: Sequence[Pick], terms: Terms) -> Taken:
    """Return what `cherry_pick` would do, also if it would raise `MergeConflict`; nothing is written.

    A pick with a conflict is left out by those after it.
    """
    draft = Draft(space, onto.commit)
    parts = [
        planned(space, onto, base, pick.commit, resolved, draft, picked=pick.name)
        for pick, base, resolved, _ in _decided(space, onto, picks, terms, draft)
    ]
    changes = tuple(draft.changes())
    conflicts = tuple(each for part in parts for each in part.conflicts)
    return _whole(onto, parts, paths=len(changes), changes=changes, conflicts=conflicts)


def _decided(
    space: Space, onto: Head, picks: Iterable[Pick], terms: Terms, draft: Draft
) -> Iterator[tuple[Pick, Digest | None, Resolution, tuple[ConflictCovered, ...]]]:
    """Yield each pick with the commit before its change and how it is taken; the draft then takes it, without conflicts."""
    for pick in picks:
        base = _base_of(space, pick.commit, turn=pick.is_turn)
        bases = [] if base is None else [ancestry.point(space, base)]
        resolved, covered = resolve_lines(
            space, bases, draft, pick.commit, rules=terms.rules, prefer=terms.prefer
        )
        resolved = _as_pick(space, resolved, onto, pick.commit, terms)
        yield pick, base, resolved, covered
        if not resolved.conflicts:
            draft.take(resolved)


def _picked_earlier(space: Space, receipt: Receipt, picks: Sequence[Pick]) -> Taken:
    """Return the outcome of an earlier write of these picks, from its commits."""
    head = receipt.heads[0]
    (move,) = space.engine.moves(space.name, head.timeline, before=head.version + 1, limit=1)
    before = -1 if move.from_ is None else space.step(move.from_).commit.depth
    assert head.commit is not None, "a pick moves its head to a commit"
    return _picked(space, head, picks, _written(space, head, space.step(head.commit).commit.depth - before))


def _written(space: Space, head: Head, commits: int) -> Sequence[Step]:
    """Return the last commits of a head, oldest first."""
    assert head.commit is not None
    return space.back(head.commit, limit=commits)[::-1]


def _picked(space: Space, head: Head, picks: Sequence[Pick], steps: Sequence[Step]) -> Taken:
    """Return the outcome of picks that were written by these commits, some perhaps by none."""
    parts: list[Taken] = []
    left = list(steps)
    for pick in picks:
        events = left[0].changeset.events if left else ()
        event = next((each for each in events if isinstance(each, Picked)), None)
        if event is not None and event.commit == pick.commit:
            step = left.pop(0)
            paths = len(step.changeset.patch.ops)
            taken = Taken(head=head, commit=step.digest, base=event.since, paths=paths, picked=pick.name)
        else:
            base = _base_of(space, pick.commit, turn=pick.is_turn)
            taken = Taken(head=head, commit=None, base=base, paths=0, picked=pick.name)
        parts.append(taken)
    before = steps[0].commit.first_parent if steps else head.commit
    changed = sum(1 for _ in diff(space.tree_at(before), space.tree_at(head.commit)))
    return _whole(head, parts, paths=changed)


def _whole(
    head: Head,
    parts: Sequence[Taken],
    *,
    paths: int,
    changes: tuple[TakenPath, ...] = (),
    conflicts: tuple[PathConflict, ...] = (),
) -> Taken:
    """Return what several picks did together."""
    return Taken(
        head=head,
        commit=next((part.commit for part in reversed(parts) if part.commit), None),
        base=parts[0].base,
        paths=paths,
        changes=changes,
        conflicts=conflicts,
        theirs=parts[-1].theirs,
        picked=", ".join(part.picked for part in parts),
        picks=tuple(parts),
    )


def _as_pick(space: Space, resolved: Resolution, onto: Head, commit: Digest, terms: Terms) -> Resolution:
    """Return the resolution of a pick; its conflicts say what is here, where no line has to have changed anything."""
    if not resolved.conflicts:
        return resolved
    rules, is_here = check_rules(terms.rules), reader.is_ancestor(space, commit, onto.commit)
    why = (
        "not as that change left it, which is here already" if is_here else "not as it was before that change"
    )
    conflicts = tuple(
        why_at(each, why)
        if each.keys or each.ours is None or each.theirs is None or rule_for(each.path, rules) is None
        else each
        for each in resolved.conflicts
    )
    return msgspec.structs.replace(resolved, conflicts=conflicts)


def _base_of(space: Space, commit: Digest, *, turn: bool) -> Digest | None:
    """Return the commit before the change that is picked; None: the line began with it."""
    step = space.given(commit)
    if not turn and step.commit.reason != "run_finished":
        return step.commit.first_parent
    number = step.place.turn
    before = space.turn(commit, number - 1) if number > 1 else None
    return None if before is None else before.digest
