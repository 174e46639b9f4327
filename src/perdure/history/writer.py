"""Commits proposals.  All writes to a history go through this module.

The engine applies a write whole or not at all: new objects, the commits, and the move of
the head.  The head moves only if it is still where the writer read it.  A write that fails
leaves nothing that a reader could see.

After an error during the commit the outcome is unknown, not failed.  The writer asks the
engine once for the op_id.  If the engine does not know either, the writer raises `InDoubt`;
the caller may repeat the same write, which is never applied twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec

from perdure.engines.contract import (
    CellWrite,
    Fence,
    LedgerOf,
    Move,
    OpOf,
    Place,
    Receipt,
    Recorded,
    Step,
    Write,
)
from perdure.errors import InDoubt, Invalid, Moved, OpReused, StaleHead
from perdure.history.changes import patch_builder
from perdure.history.changes.patch_builder import (
    UNTOUCHED,
    Ops,
    Patched,
    Touched,
    covered,
    own_source,
    reapply,
)
from perdure.history.space import Space, removed, stale_because_removed, store_log
from perdure.model import canonical, names
from perdure.model.commit import (
    NO_LEDGER,
    NO_PATCH,
    NO_READS,
    Act,
    Changeset,
    Commit,
    LedgerRead,
    Reads,
    RunMeta,
    StateAction,
    encode_changeset,
    encode_commit,
    unnumbered_after,
)
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import AgentChanged, AgentHandedOff, Event, MemoryWritten
from perdure.model.head import Head
from perdure.model.patch import Edit, Op, Patch, decode_patch

__all__ = [
    "OUTBOX",
    "CommitOutcome",
    "OnConflict",
    "Proposal",
    "commit",
    "commit_ordinary",
    "intent_of",
    "next_step",
    "once",
    "submit",
]

OnConflict: TypeAlias = Literal["raise", "rebase", "cover"]

# Cells that name commits whose change of the agent's map, or of memory, is still to be applied.
OUTBOX = "outbox/"
_DELIVERED = frozenset((AgentChanged, MemoryWritten))

REBASES_MAX = 32
BETWEEN_MAX = 1_000  # commits; a writer that is further behind gets `StaleHead`

_encoder = msgspec.json.Encoder(order="sorted")
_body_of = attrgetter("body")
_CHANGESET, _COMMIT = (
    Kind.CHANGESET,
    Kind.COMMIT,
)  # read once: an attribute of a class costs as much as a call


class Proposal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step as its author proposes it, before it has a place in a history."""

    reason: str
    root: Digest  # after the patch
    patch: Patch = NO_PATCH
    events: tuple[Event, ...] = ()
    minted: frozenset[str] = (
        frozenset()
    )  # ids of events that Perdure made, not the author; no part of the intent
    objects: tuple[Object, ...] = ()  # values, nodes and bodies
    cells: tuple[CellWrite, ...] = ()
    reads: Touched = UNTOUCHED  # paths that the author read
    outside: Reads = NO_READS
    ledger: LedgerRead | None = None  # how far the author read the ledger; None: to its end
    others: tuple[Digest, ...] = ()  # parents beside the first
    run: str | None = None
    parent_run: str | None = None
    run_meta: RunMeta | None = None
    state_actions: tuple[StateAction, ...] = ()
    author: str | None = None


class CommitOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a write."""

    receipt: Receipt
    head: Head
    step: Step | None  # the last commit; None if the receipt is that of an earlier, equal write


def commit(
    space: Space,
    onto: Head,
    *proposals: Proposal,
    op_id: str,
    on_conflict: OnConflict = "raise",
    intent: Digest | None = None,
    repeatable: bool = True,
    entries: tuple[bytes, ...] = (),
    also: tuple[tuple[str, Head | None], ...] = (),
    at: int | None = None,
) -> CommitOutcome:
    """Add `proposals`, one commit each, to the timeline that `onto` was read from; its head moves once.

    `intent` is the digest of what the proposals mean to do, where that is not what they hold; None
    computes it from them.  A write that is not `repeatable`, because its op_id is known here alone,
    uses the digest of its first changeset, which is computed anyway.  `entries` go to the ledger in
    the same write; `also` names timelines whose heads move to the same commit, each with the head
    that was read, None where the timeline begins.  `at` is the time of the commits; None is now.

    Raises `StaleHead`, having written nothing, if the timeline has moved and the proposals may
    not, or cannot, be put on top of the commits between.  `cover` puts them there in any case,
    and records in `conflict` events what they covered.
    """
    if repeatable:  # else its op_id was made for it, and who made that has checked its labels
        names.check_id("op_id", op_id)
        for proposal in proposals:
            _check_labels(proposal)
        if intent is None:
            intent = intent_of(onto.timeline, proposals)
    at = space.clock() if at is None else at
    rebases = 0
    while True:
        steps, objects, cells = _chain(space, onto, proposals, at)
        last = steps[-1]
        moved = Move(act=Act.COMMIT, timeline=onto.timeline, expected=onto, to=last.digest)
        write = Write(
            space=space.name,
            op_id=op_id,
            intent=intent or steps[0].commit.changeset,
            fences=space.fences,
            objects=objects,
            moves=(moved, *[_along(*each, last) for each in also]) if also else (moved,),
            cells=cells,
            entries=entries,
            is_new=not repeatable,
        )
        try:
            return _committed(space, submit(space, write, onto), steps)
        except StaleHead as stale:
            if on_conflict == "raise" or stale.expected.timeline != onto.timeline:
                raise
            if rebases == REBASES_MAX or not _moved_on(space, stale):
                raise
            proposals = _rebased(space, stale, proposals, covering=on_conflict == "cover")
            onto = stale.actual
            rebases += 1


def commit_ordinary(
    space: Space,
    onto: Head,
    *,
    reason: str,
    run: str | None,
    author: str | None,
    events: tuple[Event, ...],
    bodies: Sequence[Object],
    patched: Patched,
    outside: Reads,
    ledger: LedgerRead,
    fences: tuple[Fence, ...],
    op_id: str,
) -> Receipt | None:
    """Do what `commit` does with one proposal of a block, in one pass; None, having written nothing, if `commit` has to.

    No event is delivered to another space, and `op_id` was made for this write.  Raises `Conflict`, having written
    nothing, if something has changed since it was read; what that means is for `commit` to decide.
    """
    if onto.commit is None:
        return None
    parent = space.steps.get(onto.commit) or space.step(onto.commit)
    changeset = Changeset(reason=reason, run_id=run, events=events, patch=patched.patch)
    body = encode_changeset(changeset)
    named = digest_of(_CHANGESET, body)
    before, above = parent.commit, parent.place
    depth = before.depth + 1
    commit = Commit(
        parents=(onto.commit,),
        changeset=named,
        root=patched.root,
        thread=space.label,
        depth=depth,
        reason=reason,
        at=space.clock(),
        reads=outside,
        ledger=ledger if ledger.position else NO_LEDGER,
        run=run,
        author=author,
        unnumbered=unnumbered_after(before, run, events) if space.is_thread else 0,
    )
    encoded = encode_commit(commit)
    digest = digest_of(_COMMIT, encoded)
    stored = Object(_CHANGESET, named, body, None, changeset), Object(_COMMIT, digest, encoded, None, commit)
    objects = (*bodies, *patched.objects, *stored)
    limits = space.limits
    size = sum(map(len, map(_body_of, objects)))
    if len(events) > limits.write_events_max or size > limits.write_bytes_max:
        return None
    move = Move(act=Act.COMMIT, timeline=onto.timeline, expected=onto, to=digest)
    name, moves = space.name, (move,)
    write = Write(
        space=name, op_id=op_id, intent=named, fences=fences, objects=objects, moves=moves, is_new=True
    )
    receipt = submit(space, write, onto)
    turn = above.turn if run is not None and run == before.run else above.turn + 1
    place = Place(depth, turn, above.sequence + len(parent.changeset.events))
    space.steps.put(Step(digest, commit, changeset, place))
    return receipt


def submit(space: Space, write: Write, onto: Head) -> Receipt:
    """Have the engine apply `write`; if the outcome is in doubt, ask once whether it was applied.

    Raises `StaleHead(onto, …)` if the thread was removed, whatever the versions are.
    """
    try:
        return space.engine.apply(write)
    except InDoubt:
        found = space.engine.recorded(space.name, write.op_id)
        is_there = found is not None and found.intent == write.intent
        told = "it is stored" if is_there else "whether it is stored is not known"
        store_log().warning("write %s of %s was in doubt: %s", write.op_id, space.label, told)
        if found is None or not is_there:
            raise
        return found.receipt
    except Moved as moved:
        if removed(space):
            raise stale_because_removed(space, onto) from moved
        raise


def once(space: Space, op_id: str, intent: Digest) -> Receipt | None:
    """Return the receipt of the write `op_id` if it was applied before; raises `OpReused` if its intent was another."""
    found: Recorded | None = space.ask(OpOf(space.name, op_id))[0]
    if found is not None and found.intent != intent:
        raise OpReused(op_id)
    return found.receipt if found else None


def intent_of(timeline: str, proposals: Sequence[Proposal]) -> Digest:
    """Return the digest of what `proposals` mean to do.

    It leaves out what differs between two attempts at the same thing: minted ids, the digests
    of documents after edits, parent, time and version.
    """
    meant = [(each.reason, [_meant(event, each) for event in each.events], _ops(each)) for each in proposals]
    return digest_of(Kind.BODY, _encoder.encode((timeline, meant)))


def _meant(event: Event, proposal: Proposal) -> object:
    bare = msgspec.structs.replace(event, id="") if event.id in proposal.minted else event
    if not isinstance(bare, AgentChanged):
        return bare
    body = next(each.body for each in proposal.objects if each.digest == bare.patch)
    return bare.agent, bare.timeline, [_op(op) for op in decode_patch(body).ops]


def _ops(proposal: Proposal) -> list[object]:
    return [_op(op) for op in proposal.patch.ops]


def _op(op: Op) -> object:
    return (op.path, op.verb, op.at, op.argument) if isinstance(op, Edit) else op


def _chain(
    space: Space, onto: Head, proposals: Sequence[Proposal], at: int
) -> tuple[list[Step], tuple[Object, ...], tuple[CellWrite, ...]]:
    """Return the commits that put `proposals` on top of `onto`, all objects, parents before children, and the cells.

    Raises `Invalid` if they are too much for one write.
    """
    parent = None if onto.commit is None else space.steps.get(onto.commit) or space.step(onto.commit)
    if len(proposals) == 1:  # as nearly always
        proposal = proposals[0]
        parent, stored = next_step(space, parent, proposal, at)
        steps, objects, cells = [parent], (*proposal.objects, *stored), proposal.cells
        events, is_delivered = len(proposal.events), not _DELIVERED.isdisjoint(map(type, proposal.events))
        if is_delivered:
            cells = (*cells, _outbox_cell(onto, parent))
    else:
        steps, objects, cells, events = _several(space, onto, parent, proposals, at)
    if events > space.limits.write_events_max:
        raise _too_many_events(events, space.limits.write_events_max)
    size = sum(map(len, map(_body_of, objects)))
    if size > space.limits.write_bytes_max:
        raise _too_large(size, space.limits.write_bytes_max)
    return steps, objects, cells


def _several(
    space: Space, onto: Head, parent: Step | None, proposals: Sequence[Proposal], at: int
) -> tuple[list[Step], tuple[Object, ...], tuple[CellWrite, ...], int]:
    """Return the commits of several proposals, their objects and cells, and how many events they have."""
    steps: list[Step] = []
    objects: list[Object] = []
    cells: list[CellWrite] = []
    ledger: LedgerRead | None = None  # one reading for all that have none
    events = 0
    for proposal in proposals:
        if proposal.ledger is None:
            ledger = ledger or space.ask(LedgerOf(space.name))[0]
            proposal = msgspec.structs.replace(proposal, ledger=ledger)
        parent, stored = next_step(space, parent, proposal, at)
        steps.append(parent)
        objects += proposal.objects
        objects += stored
        cells += proposal.cells
        events += len(proposal.events)
        if not _DELIVERED.isdisjoint(map(type, proposal.events)):
            cells.append(_outbox_cell(onto, parent))
    return steps, tuple(objects), tuple(cells), events


def _outbox_cell(onto: Head, step: Step) -> CellWrite:
    """Return the cell that names a commit to be delivered, which is done in the order of versions, then depth."""
    value = canonical.encode({"depth": step.commit.depth, "version": onto.version + 1})
    return CellWrite(name=OUTBOX + step.digest, expected=0, value=value, listed=True)


def next_step(
    space: Space, parent: Step | None, proposal: Proposal, at: int
) -> tuple[Step, tuple[Object, Object]]:
    """Return the commit that puts `proposal` on top of `parent` at that time, and the two objects that hold it."""
    reason, run, events, ledger = proposal.reason, proposal.run, proposal.events, proposal.ledger
    changeset = Changeset(
        reason=reason,
        run_id=run,
        parent_run_id=proposal.parent_run,
        run_meta=proposal.run_meta,
        events=events,
        patch=proposal.patch,
        state_actions=proposal.state_actions,
    )
    body = encode_changeset(changeset)
    named = digest_of(Kind.CHANGESET, body)
    if ledger is None:
        ledger = space.ask(LedgerOf(space.name))[0]
    if parent is None:
        parents, place = proposal.others, Place(0, 1, 0)
    else:
        parents, above, before = (parent.digest, *proposal.others), parent.place, parent.commit
        # As `shared_rules.placed`: a commit of the same run as its parent belongs to the same turn.
        turn = above.turn if run is not None and run == before.run else above.turn + 1
        place = Place(before.depth + 1, turn, above.sequence + len(parent.changeset.events))
    commit = Commit(
        parents=parents,
        changeset=named,
        root=proposal.root,
        thread=space.label,
        depth=place.depth,
        reason=reason,
        at=at,
        reads=proposal.outside,
        ledger=ledger if ledger.position else NO_LEDGER,
        run=run,
        author=proposal.author,
        unnumbered=unnumbered_after(parent and parent.commit, run, events) if space.is_thread else 0,
    )
    encoded = encode_commit(commit)
    digest = digest_of(Kind.COMMIT, encoded)
    return Step(digest, commit, changeset, place), (
        Object(Kind.CHANGESET, named, body, None, changeset),
        Object(Kind.COMMIT, digest, encoded, None, commit),
    )


def _along(timeline: str, head: Head | None, step: Step) -> Move:
    """Return the move of another timeline to the same commit."""
    return Move(
        act=Act.FORK if head is None else Act.COMMIT, timeline=timeline, expected=head, to=step.digest
    )


def _check_labels(proposal: Proposal) -> None:
    names.check_label("reason", proposal.reason)
    if proposal.author is not None:
        names.check_label("author", proposal.author)
    if proposal.run is not None:
        names.check_id("run", proposal.run)


def _too_many_events(events: int, limit: int) -> Invalid:
    return Invalid(
        f"one write holds {events} events, over the limit of {limit}; nothing was written.",
        code="too_many_events",
        advice="Split it.",
        events=events,
        limit=limit,
    )


def _too_large(size: int, limit: int) -> Invalid:
    return Invalid(
        f"one write holds {size} bytes, over the limit of {limit}; nothing was written.",
        code="write_too_large",
        advice="Split it, or keep bulky content as artifacts.",
        size=size,
        limit=limit,
    )


def _committed(space: Space, receipt: Receipt, steps: Sequence[Step]) -> CommitOutcome:
    head = receipt.heads[0]
    if head.commit != steps[-1].digest:
        return CommitOutcome(receipt=receipt, head=head, step=None)
    for step in steps:
        space.steps.put(step)
    return CommitOutcome(receipt=receipt, head=head, step=steps[-1])


def _moved_on(space: Space, stale: StaleHead) -> bool:
    """True if the timeline only grew by commits: no undo, redo or promote was between."""
    count = stale.actual.version - stale.expected.version
    if not 0 < count <= BETWEEN_MAX or stale.actual.commit is None or removed(space):
        return False
    between = space.engine.moves(
        space.name, stale.expected.timeline, before=stale.actual.version + 1, limit=count
    )
    grew = all(move.act is Act.COMMIT for move in between) and len(between) == count
    return grew and between[-1].from_ == stale.expected.commit


def _rebased(
    space: Space, stale: StaleHead, proposals: Sequence[Proposal], *, covering: bool
) -> tuple[Proposal, ...]:
    """Return `proposals` on top of the commits between; if they touch the same paths, raises `stale` or covers these.

    Nothing goes on top of a hand-off: from there on the timeline is another agent's.
    """
    changesets = [step.changeset for step in _between(space, stale)]
    if any(isinstance(event, AgentHandedOff) for each in changesets for event in each.events):
        raise stale
    between = Touched.by(changesets)
    root = space.root_at(stale.actual.commit)
    rebased: list[Proposal] = []
    for proposal in proposals:
        if not _touched(proposal).meets(between):
            proposal = _replayed(space, root, proposal)
        elif covering:
            proposal = _on_top(space, space.root_at(stale.expected.commit), root, proposal)
        else:
            raise stale
        root = proposal.root
        # The ledger has gone on with the commits between: it is read again.
        rebased.append(msgspec.structs.replace(proposal, ledger=None))
    return tuple(rebased)


def _replayed(space: Space, root: Digest, proposal: Proposal) -> Proposal:
    root, nodes = patch_builder.replay(space, root, proposal.patch)
    return msgspec.structs.replace(proposal, root=root, objects=(*_without_nodes(proposal), *nodes))


def _on_top(space: Space, seen: Digest, root: Digest, proposal: Proposal) -> Proposal:
    """Return `proposal` applied to `root`, whose author saw `seen`, with events that name what it covers."""
    own = {each.digest: each for each in proposal.objects}

    source = own_source(space, own)
    ops = Ops(space, root)
    for op in proposal.patch.ops:
        reapply(ops, op, source)
    patched = ops.finish()
    conflicts = tuple(covered(space, seen, root, proposal.patch))
    return msgspec.structs.replace(
        proposal,
        root=patched.root,
        patch=patched.patch,
        events=(*proposal.events, *conflicts),
        minted=proposal.minted | {event.id for event in conflicts},
        objects=(*_without_nodes(proposal), *patched.objects),
        cells=(*proposal.cells, *patched.cells),
    )


def _without_nodes(proposal: Proposal) -> tuple[Object, ...]:
    return tuple(each for each in proposal.objects if each.kind is not Kind.NODE)


def _between(space: Space, stale: StaleHead) -> Sequence[Step]:
    """Return the commits after the one that was read, newest first; raises `stale` if it is no ancestor."""
    assert stale.actual.commit is not None
    expected = stale.expected.commit
    low = -1 if expected is None else space.step(expected).commit.depth
    count = space.step(stale.actual.commit).commit.depth - low
    if not 0 < count <= BETWEEN_MAX:
        raise stale
    steps = space.back(stale.actual.commit, limit=count)
    if steps[-1].commit.parents[:1] != (() if expected is None else (expected,)):
        raise stale
    return steps


def _touched(proposal: Proposal) -> Touched:
    touched = Touched()
    touched.add_ops(proposal.patch.ops)
    touched.add_events(proposal.events)
    touched.paths |= proposal.reads.paths
    touched.prefixes |= proposal.reads.prefixes
    touched.transcript |= proposal.reads.transcript
    return touched
